"""What a task says of its model and its sets, and the files that say it.

    Card          of a new model, for its README.md
    Scores        of a set, for README.md and files of scores
    Description   of an evaluation: its scores, and what report.html shows

`Outputs` writes them; model_card and report give them their form.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from foundation import atomic
from jobs import grid, model_card, report, run_directory
from training import metric_writer
from weights import model_directory

REPORT = "report.html"
RESULT_FILES = (run_directory.RESULTS_TEXT, run_directory.RESULTS_JSON, REPORT)
_NUM_RUN_KEYS = 2  # Learning rate and seed, columns of a grid's table.
_RUN_METRICS_ON_PHONES = 3


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """Writes card, report and files of a run's model and sets, on the chief.

    Attributes:
      output_dir: directory of the run.
      flags: all flags.
      given_flags: the flags that differ from their defaults.
      trained_with: all flags of an earlier command's training, if this command
        does not train; {} if there are none.
      trains: whether this command trains.
      results: results of the grid's runs.
      is_chief: whether this process writes; on other workers, calls have no
        effect.
    """

    output_dir: str
    flags: Mapping[str, Any]
    given_flags: Mapping[str, Any]
    trained_with: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trains: bool = False
    results: grid.Results
    is_chief: bool = True

    @property
    def training_flags(self) -> Mapping[str, Any]:
        """The flags of the model's training, else of this command."""
        return self.trained_with or self.flags

    def new_weights(self, model: Any) -> str | None:
        """Returns the digest of a model's weights, for `begin_card`.

        Returns None on workers other than the chief, and if the card in
        output_dir describes the same weights: that card stays.
        """
        if not self.is_chief:
            return None
        digest = run_directory.weights_digest(model)
        digest_in_card = model_card.weights_of(self.output_dir)
        return None if digest == digest_in_card else digest

    def begin_card(self, card: Card, weights: str | None) -> None:
        """Writes the card of a newly trained model; see model_card.begin."""
        if self.is_chief and self.trains:
            seconds = self.results.seconds
            assert seconds is not None
            model_card.begin(
                self.output_dir,
                flags=self.given_flags,
                seconds=seconds,
                weights=weights,
                **card._asdict(),
            )

    def add_scores(self, scores: Scores) -> None:
        """Adds an evaluation to the card of the model in output_dir, if any."""
        is_here = self.trains or model_directory.has_model(self.output_dir)
        if not (self.is_chief and is_here):
            return
        name, data, metrics = scores.name, scores.data, scores.values
        data_in_card = model_card.data_of(self.output_dir, name)
        set_name = scores.set_name
        if set_name and data_in_card not in (None, data.get(name)):
            metrics = {f"{set_name}_{key}": x for key, x in metrics.items()}
            data = {set_name: data[name]}
            name = f"predicted {set_name}"
        model_card.add_scores(
            self.output_dir,
            name,
            data=data,
            metrics=metrics,
            by_label=scores.by_label,
            note=scores.note,
        )

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
        self.write_report(description)

    def write_scores(
        self, scores: Scores, *, digest: str, files: Mapping[str, str]
    ) -> None:
        """Writes files of scores, and adds the scores to the model's card.

        `files` maps names to texts; `digest` identifies the content of the set.
        """
        assert scores.set_name is not None
        self.write_files(files, set_name=scores.set_name, digest=digest)
        self.add_scores(scores)

    def write_files(
        self, files: Mapping[str, str], *, set_name: str, digest: str
    ) -> None:
        """Writes the texts of files; see `keep_other_sets`."""
        if not self.is_chief:
            return
        paths = self.keep_other_sets(*files, set_name=set_name, digest=digest)
        for path, text in zip(paths, files.values(), strict=True):
            atomic.write_text(path, text)

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

    def write_report(self, description: Description) -> None:
        """Writes report.html."""
        values = description.shown
        if values is None:
            values = description.scores.values
        path = os.path.join(self.results.metrics_dir, metric_writer.METRICS)
        rows = [[name, values[name]] for name in sorted(values)]
        results = report.table(["metric", "value"], rows)
        if "eval_score" in values:
            results += Markup("<p>{}</p>").format(self._score_note(values))
        shown = [report.Section("Results", results)]
        curves_title = "Learning curves"
        if (runs := self.results.table()) is not None:
            curves_title = f"Learning curves of {self.results.best_run.name}"
            shown.append(report.Section("All runs", _runs(*runs, values)))
        metrics = report.read_metrics(path)
        curves = report.curves(metrics, description.panels)
        shown.append(report.Section(curves_title, curves))
        shown += description.sections
        given = {"Flags": self.given_flags}
        if self.trained_with:
            defaults = self.flags.items() - self.given_flags.items()
            changed = {
                name: value
                for name, value in self.trained_with.items()
                if (name, value) not in defaults
            }
            given = {"Training": changed, **given}
        for heading, listed in given.items():
            others = {
                name: value
                for name, value in self.flags.items()
                if name not in listed and name not in self.given_flags
            }
            shown.append(report.Section(heading, report.flags(listed, others)))
        title = report.capitalized(description.title)
        path = os.path.join(self.output_dir, REPORT)
        report.write(path, title, shown, description.facts)

    def _score_note(self, values: Mapping[str, float]) -> str:
        """Returns what eval_score is, and what it has selected in this run."""
        score = values["eval_score"]
        equal = [k for k, x in values.items() if x == score]
        equal = [x for x in equal if x not in ("eval_score", "global_step")]
        # A mean of equal metrics is equal to all of them.
        what = " = ".join(equal) or "the mean of the task's metrics"
        flags = self.training_flags
        if self.results.table() is not None:
            selected = "the model is the best run of the grid by it"
        elif not flags.get("eval_every_steps"):
            selected = "the model has the weights of the last step"
        elif flags.get("early_stopping_patience"):
            selected = "the model has the weights of the step that was best"
        else:
            selected = (
                "the model has the weights of the last step, the folder best/ "
                "those of the step that was best by it"
            )
        if not flags.get("do_train"):
            return f"eval_score is {what}."
        return f"eval_score is {what}; {selected}."


def _runs(
    header: Sequence[str], rows: Sequence[Sequence], values: Mapping[str, float]
) -> Markup:
    """Returns the table of a grid with the metrics that are in `values`."""
    columns = [
        i
        for i, name in enumerate(header)
        if i < _NUM_RUN_KEYS or f"eval_{name}" in values
    ]
    header = [header[i] for i in columns]
    return report.table(
        header,
        [[row[i] for i in columns] for row in rows],
        minor=header[_NUM_RUN_KEYS + _RUN_METRICS_ON_PHONES :],
    )
