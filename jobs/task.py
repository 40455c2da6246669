"""What a kind of task provides, so that one runner serves all kinds.

    tasks/X/task.py: a class with the methods of `Task`
    task_model.Objective: the model's head, its loss and its predictions

The constructor reads and checks the files. Then the runner uses, in this order:

    objective, max_seq_length   to build models
    data_settings, evaluation_settings   what runs compare when they continue
    features            the training set and the development sets, each once
    evaluate            while training, after each run of a grid, and at the end
                        if evaluates_at_end
    save, card, scores  the model directory of the best run, and its card
    complete_training   what is stored with this model later, e.g. a threshold
    describe            the files and the report of the evaluation at the end
    predicted_sets      sets that are read, encoded, predicted and written block
                        by block
    prompt              typed inputs
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from data.features import Features
from data.tokenization import wordpiece
from jobs import streaming
from jobs.outputs import Card, Description, Outputs, Scores
from jobs.task_model import Objective, TaskModel

TRAIN = "train"  # The training set, in Task.features.


class Evaluation(Protocol):
    """Metrics of a model on the development sets."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics by name, among them "score", by which runs are compared."""


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

    def write(self, blocks: streaming.Blocks, output: Outputs) -> None:
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
        """The sets whose features `evaluate` receives; () if it needs none."""

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
          split: TRAIN, or one of dev_splits.
          records_dir: directory of tokenized records for later runs, if any.
        """

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> Evaluation:
        """Evaluates a model on the features of each of dev_splits."""

    def describe(
        self, evaluation: Any, step: int, flags: Mapping[str, Any]
    ) -> Description:
        """Describes the evaluation at the end for its files.

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
        """Describes a new model, which was trained with `flags`."""

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """Returns the metrics of an evaluation under their released names."""

    def complete_training(self, task_model: TaskModel, output: Outputs) -> None:
        """Adds what needs an evaluation to the model in output_dir.

        For example, the threshold of SQuAD 2.0.
        """

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> Iterable[PredictedSet | PrintedSet]:
        """Returns the sets that the command predicts.

        `step` is the training step of the model's weights.
        """

    def prompt(self, task_model: TaskModel) -> None:
        """Answers typed inputs, if the command does."""
