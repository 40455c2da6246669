"""Tasks with labels, whatever the texts: targets, metrics, tables, mistakes.

A new task of this kind reads its files (`open`, `encode`), has a head, and says
what it writes (`files`, `decode`); see examples/relations.py.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import schema
from finetuning import task as tasks
from foundation import errors
from tasks.classification import label_kinds

_MANY_LABELS = 0.5  # Different labels per example.


class LabelTask(tasks.Task):
    """A task whose examples have a label: a class, several, a value, a choice.

    Attributes:
      label_kind: what a label is.
      metrics: names of metrics, by default those of the kind.
      selected_by: the metrics whose mean is the score; by default all.
      has_open_labels: whether the training set has the names of the classes.
    """

    label_kind: type[label_kinds.OneLabel] = label_kinds.OneLabel
    metrics: Sequence[str] | None = None
    selected_by: Sequence[str] | None = None
    has_open_labels = True

    def find_labels(self) -> Sequence[str]:
        """See Task."""
        known = self.model.labels
        if not self.flags.do_train:
            if known is None:
                raise errors.InputError(
                    f"{self.model.weights}: its outputs have no names, so it "
                    "was not trained for this task; --do_train"
                )
            return known
        train = self.sets["train"]
        labels = label_kinds.find_labels(
            train.path, self.label_kind, train.summary.labels
        )
        # The output layer of a model with the same labels goes on learning.
        return known if known and {*known} == {*labels} else labels

    @functools.cached_property
    def kind(self) -> label_kinds.OneLabel:
        """The kind with its labels."""
        return self.label_kind(self.labels)

    def records(self, split: str) -> schema.Schema | None:
        """See Task."""
        length = self.flags.max_seq_length
        return schema.classification(length, self.kind.record)

    def text_of(self, example: Any) -> str:
        """Returns the text of an example as the report shows it."""
        return example.text

    def check(self, example: Any) -> None:
        """See Task."""
        self.target(example)

    def targets(
        self, example: Any, sequences: Sequence[Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See Task."""
        return [{"label_ids": np.array(self.target(example))}]

    def target(self, example: Any) -> list:
        """Returns what the loss needs of a label.

        Raises:
          InputError: the label is unknown.
        """
        try:
            return self.kind.target(example.label)
        except ValueError:
            pass
        label = example.label
        if isinstance(label, tuple) and self.label_kind is label_kinds.OneLabel:
            raise errors.InputError(
                f"{example.where}: {len(label)} labels in a list; "
                "--problem_type=multi_label takes several"
            )
        wanted = f"is none of: {errors.listed(self.labels)}"
        raise errors.InputError(
            f"{example.where}: label {'' if label is None else label!r} "
            f"{wanted if self.labels else 'is not a number'}"
        )

    def shares(self, summary: tasks.Summary) -> str:
        """See Task."""
        if self.label_kind is label_kinds.Value:
            # A test set may have placeholders.
            with contextlib.suppress(TypeError, ValueError):
                return tasks.spread(summary.labels)
        return super().shares(summary)

    def remarks(self, examples: tasks.Examples) -> Iterator[str]:
        """See Task."""
        yield from super().remarks(examples)
        labels = {*examples.summary.labels} - {None}
        if len(labels) == 1 and self.label_kind is label_kinds.OneLabel:
            yield f"all of its examples have the label {labels.pop()}"
        elif (
            self.label_kind is label_kinds.OneLabel
            and self.has_open_labels
            and len(labels) > _MANY_LABELS * examples.summary.count
        ):
            yield (
                f"{len(labels)} different labels in {examples.summary.count} "
                "examples: is --label_column another column, or "
                "--problem_type=regression meant?"
            )

    @property
    def score_note(self) -> str:  # type: ignore[override]
        """See Task."""
        names = list(self._selected_by)
        mean = "the mean of " if len(names) > 1 else ""
        return f"The score is {mean}{' and '.join(names)}."

    @property
    def _selected_by(self) -> Sequence[str]:
        metrics = self.metrics or self.kind.metrics
        return self.selected_by or self.kind.selected_by or metrics

    def metrics_of(
        self, logits: np.ndarray, targets: np.ndarray
    ) -> dict[str, float]:
        """Returns the metrics of a set, the "score" and the "loss"."""
        # It takes a second, with scikit-learn.
        from tasks.classification import metrics

        decided = self.kind.decide(logits)
        loss = float(self.kind.losses(logits, targets).mean())
        if targets.shape[1] == 1:
            decided, targets = decided[:, 0], targets[:, 0]
        if self.labels == ["1", "0"]:  # F1 is that of the label "1".
            decided, targets = 1 - decided, 1 - targets
        values = metrics.compute(
            self.metrics or self.kind.metrics, decided, targets
        )
        score = float(np.mean([values[name] for name in self._selected_by]))
        return {**values, "score": score, "loss": loss}

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task; subclasses add the lines of their files."""
        return {"logits": outputs["logits"].astype(np.float32).tobytes()}

    def evaluate(
        self,
        examples: tasks.Examples,
        encoded: tasks.Encoded,
        outputs: Mapping[str, np.ndarray],
    ) -> tasks.Evaluation:
        """See Task."""
        targets = encoded.features.dense["label_ids"]
        return self._evaluation(examples, outputs["logits"], targets)

    def finish(
        self, examples: tasks.Examples, part: Callable[[str], bytes]
    ) -> tasks.Evaluation:
        """See Task; a test set may have no labels, or placeholders."""
        try:
            targets = np.array([self.target(example) for example in examples])
        except errors.InputError as error:
            if len(examples.summary.labels) > 1:
                logging.warning("no metrics of the test set: %s", error)
            return tasks.Evaluation()
        logits = np.frombuffer(part("logits"), np.float32)
        logits = logits.reshape(len(targets), -1)
        return self._evaluation(examples, logits, targets)

    def _evaluation(
        self, examples: tasks.Examples, logits: np.ndarray, targets: np.ndarray
    ) -> tasks.Evaluation:
        from tasks.classification import sections

        note = ""
        if self.label_kind is label_kinds.OneLabel:
            counts = np.bincount(targets[:, 0])
            label = self.labels[int(counts.argmax())]
            note = (
                f"Always predicting {label} has the accuracy "
                f"{counts.max() / counts.sum():.4f}."
            )
        return tasks.Evaluation(
            values=self.metrics_of(logits, targets),
            note=note,
            by_label=self.by_label(logits, targets),
            sections=lambda: sections.make(self, examples, logits, targets),
        )

    def by_label(
        self, logits: np.ndarray, targets: np.ndarray
    ) -> list[list[Any]]:
        """Returns a row for each label; see Evaluation.by_label."""
        if self.kind.names is None:
            return []
        decided = self.kind.decide(logits)
        true, said = self.kind.per_class(targets, decided)
        right, true, said = (x.sum(axis=0) for x in (true & said, true, said))
        columns = (
            true,
            said,
            right / np.maximum(said, 1),
            right / np.maximum(true, 1),
            2 * right / np.maximum(true + said, 1),
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [[x, *row] for x, row in zip(self.labels, rows, strict=True)]
