"""What a kind of task provides, so that one runner serves all kinds.

    tasks/X/task.py: a class with the methods of `Task`
    task_model.Objective: the model's head, its loss and its predictions

The runner calls these methods in this order:

    features, evaluate      the training set; the development sets, also while
                            training and after each run of a grid
    save, card, scores      the model directory of the best run, and its card
    describe                what the report says of an evaluation
    predicted_sets          sets that are read, encoded, predicted and written
                            block by block
    prompt                  typed inputs
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from data.features import Features
from data.tokenization import wordpiece
from jobs import report, streaming
from jobs.task_model import Objective, TaskModel


class Evaluation(Protocol):
    """Metrics of a model on the development sets."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics by name, among them "score", by which runs are compared."""


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
class Evaluated:
    """The contents of the files of an evaluation.

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


class Output(Protocol):
    """Where a predicted set writes its files; see outputs.Outputs."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes."""

    @property
    def training_flags(self) -> Mapping[str, Any]:
        """The flags of the model's training, else of this command."""

    @property
    def output_dir(self) -> str:
        """The directory of the run."""

    def keep_other_sets(
        self, *names: str, set_name: str, digest: str
    ) -> list[str]:
        """Renames files of other sets; returns the paths to write to."""

    def write_evaluation(self, evaluated: Evaluated) -> None:
        """Writes metrics, the model card's scores, and the report."""

    def add_scores(self, scores: Scores) -> None:
        """Adds an evaluation to the card of the model in output_dir."""

    def write_scores(
        self, scores: Scores, *, digest: str, files: Mapping[str, str]
    ) -> None:
        """Writes files of scores, and adds the scores to the model's card.

        Args:
          scores: the metrics.
          digest: identifies the content of the set.
          files: name -> text.
        """


class PredictedSet(Protocol):
    """A set to predict, and its files."""

    @property
    def folder(self) -> str:
        """Name of the directory of unfinished blocks in output_dir."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that predictions depend on, besides model and tokenizer."""

    @property
    def stream(self) -> streaming.Stream:
        """The items, and how their blocks are encoded and predicted."""

    def write(self, blocks: streaming.Blocks, output: Output) -> None:
        """Writes the files of the set from the parts of its blocks."""


@dataclasses.dataclass(frozen=True)
class PrintedSet:
    """A set whose predictions go to standard output, block by block.

    Attributes:
      stream: the items, and how their blocks are encoded and predicted.
      part: name of the part of each block that is printed.
      head: the beginning of the output.
    """

    stream: streaming.Stream
    part: str
    head: bytes = b""


class Task(Protocol):
    """The sets of a command, for one kind of task."""

    @property
    def objective(self) -> Objective:
        """The model's head and loss."""

    @property
    def max_seq_length(self) -> int:
        """The length of the model's inputs, in tokens."""

    @property
    def dev_splits(self) -> Sequence[str]:
        """The sets whose features an evaluation reads."""

    @property
    def evaluates_at_end(self) -> bool:
        """Whether the command evaluates on the development set (--do_eval)."""

    @property
    def num_examples(self) -> int | None:
        """The number of examples per epoch.

        None if every row of the training features is one.
        """

    @property
    def data_settings(self) -> Mapping[str, Any]:
        """The values that runs compare instead of flags that affect records.

        For example, the digest of a file instead of its path.
        """

    @property
    def evaluation_settings(self) -> Mapping[str, Any]:
        """The same for flags that affect evaluations."""

    def features(self, split: str, records_dir: str | None) -> Features:
        """Returns the features of a training or development set.

        Args:
          split: the set.
          records_dir: directory of tokenized records for later runs, if any.
        """

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> Evaluation:
        """Evaluates a model on the development sets.

        Args:
          task_model: the model.
          features: the features of each of dev_splits.
        """

    def describe(
        self, evaluation: Any, step: int, flags: Mapping[str, Any]
    ) -> Evaluated:
        """Describes an evaluation for its files.

        Args:
          evaluation: what `evaluate` returned.
          step: training step of the model.
          flags: flags of the training, if they are known, else of the command.
        """

    def save(
        self,
        model: Any,
        directory: str,
        tokenizer: wordpiece.Tokenizer | None,
        *,
        is_same: bool = False,
    ) -> None:
        """Writes a model directory with the files of the task.

        Args:
          model: one of `objective`.
          directory: path of the model directory, on a disk or in a bucket.
          tokenizer: tokenizer of the model.
          is_same: whether the directory has these weights already.
        """

    def card(self, flags: Mapping[str, Any]) -> Card:
        """Describes the task for the card of a new model.

        Args:
          flags: flags of the training.
        """

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """Returns the metrics of an evaluation under their released names."""

    def complete_training(self, task_model: TaskModel, output: Output) -> None:
        """Adds what needs an evaluation to the model in output_dir.

        For example, the threshold of SQuAD 2.0.
        """

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> Iterable[PredictedSet | PrintedSet]:
        """Returns the sets that the command predicts.

        Args:
          task_model: the model.
          step: training step of the model's weights.
        """

    def prompt(self, task_model: TaskModel) -> None:
        """Answers typed inputs, if the command does."""
