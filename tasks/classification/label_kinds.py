"""What the label of a text is: one class, any classes, a value, a choice.

A kind says how a label becomes a target, what logits mean, and which head
learns it. NumPy alone; logits are float [N, C].

    OneLabel("no", "yes")        target [1]       "yes"
    AnyLabels("rude", "spam")    target [0, 1]    "spam"
    Value()                      target [3.8]     "3.8"
    Choice("0", "1")             target [1]       "1", the number of a text
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from data import schema
from foundation import errors
from weights import kinds

_LARGEST = float(np.finfo(np.float32).max)


class OneLabel:
    """One of C classes."""

    name = kinds.CLASSIFICATION
    title = "sentence classification"
    metrics: Sequence[str] = ("accuracy", "f1_macro")
    selected_by: Sequence[str] | None = None
    problem_type: str | None = "single_label_classification"

    is_named = True

    def __init__(self, labels: Sequence[str]):
        """`labels` are the classes, in the order of the outputs."""
        self.labels = list(labels)
        # The labels that a model stores; None if it has no classes.
        self.names = self.labels if self.is_named else None
        # Stored labels may have spaces around them.
        self._ids = {label.strip(): i for i, label in enumerate(labels)}
        if self.labels == kinds.unnamed(len(labels)):
            self._ids |= {str(i): i for i in range(len(labels))}

    @property
    def record(self) -> schema.Feature:
        """The targets of an example in a record."""
        return schema.LABEL

    def target(self, label: Any) -> list:
        """Returns what the loss needs.

        Raises:
          ValueError: the label is none of this kind.
        """
        if not isinstance(label, str) or label not in self._ids:
            raise ValueError
        return [self._ids[label]]

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Returns the decisions in the form of targets [N, ...]."""
        return logits.argmax(axis=1)[:, None]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Returns float64 [N, C]."""
        logits = logits.astype(np.float64)
        return np.exp(scipy.special.log_softmax(logits, axis=1))

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Returns the loss of each example, float64 [N]."""
        log_probabilities = scipy.special.log_softmax(
            logits.astype(np.float64), axis=1
        )
        return -log_probabilities[np.arange(len(logits)), targets[:, 0]]

    def text(self, decision: np.ndarray) -> str:
        """Returns one decision as it would be written."""
        return self.labels[int(decision[0])]

    def per_class(
        self, targets: np.ndarray, decisions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns which examples have each class, truly and predicted.

        Both are bool [N, C]; [N, 0] if there are no classes.
        """
        classes = np.arange(len(self.labels))
        return targets == classes, decisions == classes


class AnyLabels(OneLabel):
    """Any of C classes: a tuple of labels, written as "a,b"."""

    name = kinds.MULTI_LABEL
    title = "multi-label classification"
    metrics = ("f1_micro", "f1_macro", "accuracy")
    problem_type = "multi_label_classification"

    @property
    def record(self) -> schema.Feature:
        """See OneLabel."""
        return schema.labels(len(self.labels))

    def target(self, label: Any) -> list:
        """See OneLabel."""
        if label is None or not set(label) <= self._ids.keys():
            raise ValueError
        chosen = {self._ids[name] for name in label}
        return [int(i in chosen) for i in range(len(self.labels))]

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """See OneLabel."""
        return (logits > 0).astype(np.int64)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """See OneLabel."""
        return 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """See OneLabel."""
        signs = 1 - 2 * targets
        return np.logaddexp(0.0, signs * logits.astype(np.float64)).mean(axis=1)

    def text(self, decision: np.ndarray) -> str:
        """See OneLabel."""
        return ",".join(self.labels[i] for i in np.flatnonzero(decision))

    def per_class(
        self, targets: np.ndarray, decisions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See OneLabel."""
        return targets > 0, decisions > 0


class Value(OneLabel):
    """A value."""

    name = kinds.REGRESSION
    title = "regression"
    metrics = ("pearson", "spearman", "mean_squared_error")
    # Larger scores are better, so an error is not a score.
    selected_by = ("pearson", "spearman")
    problem_type = "regression"
    is_named = False

    def __init__(self, labels: Sequence[str] = ()):
        """A value has no labels."""
        super().__init__(())

    @property
    def record(self) -> schema.Feature:
        """See OneLabel."""
        return schema.VALUE

    def target(self, label: Any) -> list:
        """See OneLabel."""
        # Python reads 1_000 as a number.
        value = float("nan" if label is None or "_" in label else label)
        if not abs(value) <= _LARGEST:
            raise ValueError
        return [value]

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """See OneLabel."""
        return logits.astype(np.float64)

    probabilities = decide

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """See OneLabel."""
        return (logits[:, 0].astype(np.float64) - targets[:, 0]) ** 2

    def text(self, decision: np.ndarray) -> str:
        """See OneLabel."""
        return f"{decision[0]:.4f}"


class Choice(OneLabel):
    """The number of one of several texts."""

    name = kinds.MULTIPLE_CHOICE
    title = "multiple choice"
    metrics = ("accuracy",)
    problem_type = None
    is_named = False  # Choices are no classes.


OF_OWN_TABLES = {kind.name: kind for kind in (OneLabel, Value, AnyLabels)}
KINDS = {**OF_OWN_TABLES, Choice.name: Choice}


def find_labels(path: str, kind: type[OneLabel], written: Any) -> list[str]:
    """Returns the labels of a training set, sorted.

    Numbers are sorted by value, others as text.

    Args:
      path: the training set.
      kind: what its labels are.
      written: label -> how often it occurs.

    Raises:
      InputError: there are too few.
    """
    labels = {x for x in written if isinstance(x, str) and x}
    if kind is OneLabel and len(labels) < 2:
        raise errors.InputError(
            f"{path}: {len(labels)} different label(s); a classifier needs at "
            "least two"
        )
    if not labels:
        raise errors.InputError(f"{path}: has no labels")
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if not np.isfinite([*values.values()]).all():
        return sorted(labels)  # "nan" has no order.
    return sorted(labels, key=lambda label: (values[label], label))
