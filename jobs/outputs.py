"""What a task says of its model and its sets, and the files that say it.

    Card          of a new model, for its README.md
    Scores        of a set, for README.md and files of scores
    Description   of an evaluation: its scores, and what report.html shows

`Outputs` writes the files of sets. run_directory.RunFiles, which it calls,
writes those that do not depend on a task.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foundation import atomic
from jobs import report, run_directory

REPORT = "report.html"
RESULT_FILES = (run_directory.RESULTS_TEXT, run_directory.RESULTS_JSON, REPORT)


class Card(NamedTuple):
    """The task's part of the card of a new model.

    title: what the model does.
    data: the training set's description by name.
    pipeline_tag: the Hub's name for the task.
    datasets: the Hub's names of the training set, if it is there.
    labels: names of the classes.
    """

    title: str
    data: Mapping[str, str]
    pipeline_tag: str
    datasets: Sequence[str] = ()
    labels: Sequence[str] | None = None


class Scores(NamedTuple):
    """Metrics of a set under the names of eval_results.txt.

    name: name of the evaluation in the model card, such as "dev".
    set_name: a short name of the set. The card uses it instead of `name` if
      `name` is taken by another set. If None, that entry is replaced.
    data: the description of each evaluated set by name.
    values: the metrics.
    by_label: rows of a table for the card: label, number of examples, number
      of predictions, precision, recall, F1.
    note: a sentence on the metrics for the card.
    """

    name: str
    set_name: str | None
    data: Mapping[str, str]
    values: Mapping[str, float]
    by_label: Sequence[Sequence[Any]] = ()
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """An evaluation as its files describe it.

    Attributes:
      scores: the metrics.
      digest: identifies the content of the set.
      files: name -> text of further files.
      title: title of the report: the kind of the task and its data.
      panels: the learning curves of the report.
      sections: the task's own sections of the report.
      facts: numbers at the top of the report.
      shown: the metrics in the report's table; None for all.
    """

    scores: Scores
    digest: str
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    title: str
    panels: Sequence[report.Panel]
    sections: Sequence[report.Section]
    facts: Mapping[str, Any]
    shown: Mapping[str, float] | None = None


class Outputs:
    """Writes the files of evaluated and predicted sets, on the chief only."""

    def __init__(self, files: run_directory.RunFiles):
        """Writes nothing yet; `files` writes what needs no task."""
        self._files = files

    @property
    def output_dir(self) -> str:
        """The directory of the run."""
        return self._files.output_dir

    @property
    def training_flags(self) -> Mapping[str, Any]:
        """The flags of the model's training, else of this command."""
        return self._files.training_flags

    @property
    def is_chief(self) -> bool:
        """Whether this process writes."""
        return self._files.is_chief

    def write_evaluation(self, description: Description) -> None:
        """Writes metrics, the model card's scores, the report and files."""
        if not self.is_chief:
            return
        scores = description.scores
        assert scores.set_name is not None
        self.keep_other_sets(
            *RESULT_FILES, set_name=scores.set_name, digest=description.digest
        )
        run_directory.write_eval_results(self.output_dir, scores.values)
        self.write_scores(
            scores, digest=description.digest, files=description.files
        )
        shown = description.shown
        self._files.report(
            description.title,
            values=scores.values if shown is None else shown,
            panels=description.panels,
            sections=description.sections,
            facts=description.facts,
        )

    def write_scores(
        self, scores: Scores, *, digest: str, files: Mapping[str, str]
    ) -> None:
        """Writes files of scores, and adds the scores to the model's card.

        Args:
          scores: the metrics.
          digest: identifies the content of the set.
          files: name -> text.
        """
        if not self.is_chief:
            return
        assert scores.set_name is not None
        paths = self.keep_other_sets(
            *files, set_name=scores.set_name, digest=digest
        )
        for path, text in zip(paths, files.values(), strict=True):
            atomic.write_text(path, text)
        self.add_scores(scores)

    def keep_other_sets(
        self, *names: str, set_name: str, digest: str
    ) -> list[str]:
        """Renames files of other sets; returns the paths to write to.

        Args:
          *names: names of the files.
          set_name: a short name of the set that they are written for.
          digest: identifies the content of this set.
        """
        run_directory.keep_other_sets(
            self.output_dir, names, name=set_name, digest=digest
        )
        return [os.path.join(self.output_dir, name) for name in names]

    def add_scores(self, scores: Scores) -> None:
        """Adds an evaluation to the card; see RunFiles.add_scores."""
        self._files.add_scores(
            scores.name,
            data=scores.data,
            metrics=scores.values,
            set_name=scores.set_name,
            by_label=scores.by_label,
            note=scores.note,
        )
