"""Writes the files of a run that all tasks have: model, card, metrics, report.

What a task says of its model and of an evaluation is in task.Card and
task.Evaluated.
"""

import os
from collections.abc import Mapping
from typing import Any

from foundation import config_flags, file_system
from jobs import grid, run_config, run_directory
from jobs.task import Evaluated, Scores, Task

REPORT = "report.html"
RESULT_FILES = (run_directory.RESULTS_TEXT, run_directory.RESULTS_JSON, REPORT)


class Outputs:
    """The files of a run; only the chief process writes."""

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

    def write_evaluation(self, evaluated: Evaluated) -> None:
        """Writes metrics, the model card's scores, the report and files."""
        if not self.is_chief:
            return
        scores = evaluated.scores
        assert scores.set_name is not None
        self.keep_other_sets(
            *RESULT_FILES, set_name=scores.set_name, digest=evaluated.digest
        )
        run_directory.write_eval_results(self.output_dir, scores.values)
        self.write_scores(
            scores, digest=evaluated.digest, files=evaluated.files
        )
        shown = scores.values if evaluated.shown is None else evaluated.shown
        self._files.report(
            evaluated.title,
            values=shown,
            panels=evaluated.panels,
            sections=evaluated.sections,
            facts=evaluated.facts,
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
            file_system.write_text(path, text)
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


class ModelWriter:
    """Writes the trained models of a task; only the chief process does."""

    def __init__(
        self,
        config: run_config.FinetuningConfig,
        task: Task,
        files: run_directory.RunFiles,
    ):
        """Writes nothing yet.

        Args:
          config: the flags.
          task: describes its models.
          files: files of the run; has the results of its grid.
        """
        self._config = config
        self._task = task
        self._files = files

    @property
    def results(self) -> grid.Results:
        """The results of the grid's runs."""
        return self._files.results

    def write_best(self, model: Any, directory: str) -> None:
        """Writes a model directory with the flags of its training."""
        if self._files.is_chief:
            config_flags.write_run_config(self._config, directory)
            self._task.save(model, directory, self._files.tokenizer)

    def save_model(self, model: Any) -> None:
        """Writes the model into output_dir, and begins its card.

        The card of the same weights stays.
        """
        files = self._files
        if not files.is_chief:
            return
        weights = files.new_weights(model)
        self._task.save(
            model, files.output_dir, files.tokenizer, is_same=weights is None
        )
        if weights is None:
            return
        card = self._task.card(files.training_flags)
        files.begin_card(weights=weights, **card._asdict())
        best = self.results.best
        if best["values"]:  # The runs of a grid have been evaluated.
            scores = self._task.scores(best["values"], best["step"])
            Outputs(files).add_scores(scores)
