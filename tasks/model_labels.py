"""What a trained classifier says of its outputs, and a task makes of it."""

import dataclasses
from collections.abc import Sequence

from absl import logging

import errors
from data import examples

# As transformers calls them.
PROBLEM_TYPES = {
    examples.CLASSIFICATION: "single_label_classification",
    examples.REGRESSION: "regression",
    examples.MULTI_LABEL: "multi_label_classification",
    examples.MULTIPLE_CHOICE: None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What a model says of itself that has been trained already.

    Attributes:
      labels: in the order of its outputs, or None.
      problem_type: as transformers calls it, or None.
    """

    labels: Sequence[str] | None
    problem_type: str | None

    @property
    def names(self) -> Sequence[str] | None:
        """The labels, unless they are only numbered."""
        labels = list(self.labels or ())
        return labels if labels != examples.unnamed(len(labels)) else None

    @property
    def kind(self) -> str | None:
        """Of data.examples."""
        kinds = {name: kind for kind, name in PROBLEM_TYPES.items()}
        return kinds.get(self.problem_type) if self.problem_type else None

    def in_order(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns a task's labels in the order of the model's outputs.

        Raises:
          InputError: the model has been trained for others.
        """
        names = self.names
        if names is None or not labels:
            return labels
        if sorted(names) == sorted(labels):
            return names
        spelled = {label.lower(): label for label in labels}
        if sorted(name.lower() for name in names) == sorted(spelled):
            return [spelled[name.lower()] for name in names]
        # 0 and 1 are the places of classes, whatever these are called.
        if len(names) == len(labels) and all(map(str.isdigit, labels)):
            logging.warning(
                "the task's labels %s are taken for the model's %s",
                ", ".join(labels),
                ", ".join(names),
            )
            return labels
        raise errors.InputError(
            f"the task's labels are {', '.join(labels)}, but the model's "
            f"{', '.join(names)}"
        )

    def in_order_if_its_own(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns the same; labels of another task stay as they are."""
        try:
            return self.in_order(labels)
        except errors.InputError:
            return labels


def kind(given: str | None, known: Known | None) -> str:
    """Returns what a user's own task is: as given, else as the model is.

    A model of one output that does not say tells a value, as in transformers.

    Raises:
      InputError: these differ.
    """
    trained = known.kind if known is not None else None
    if given and trained and given != trained:
        raise errors.InputError(
            f"--problem_type={given}, but the model was trained for {trained}"
        )
    if known is not None and len(known.labels or ()) == 1:
        trained = trained or examples.REGRESSION
    return given or trained or examples.CLASSIFICATION
