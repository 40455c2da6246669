"""What a trained classifier says of its outputs, and a task makes of it."""

import dataclasses
import json
import math
import os
from collections.abc import Sequence

from absl import logging

from data import examples
from foundation import errors, file_system
from weights import model_files

CRF = "crf.json"  # Beside a model: the scores of one tag after another.
TRUE_CASE = "true_case.json"  # Beside a model: how words are written.
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


# ----------------------------------------------------------------------
# What is stored with a model about how it must be asked.
#
#     model/question_answering.json
#         {"version_2_with_negative": true, "null_score_diff_threshold": -1.25}
#
# It belongs to the weights beside it: training writes it, predicting adds a
# threshold that was found to those of 2.0, and no flag of a later run changes
# it.

SQUAD_SETTINGS = "question_answering.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings:
    """What a model must be asked with, by the flags' names.

    Attributes:
      version_2_with_negative: whether there may be no answer.
      null_score_diff_threshold: None in 1.1, and where none was found.
    """

    version_2_with_negative: bool = False
    null_score_diff_threshold: float | None = None


def write_settings(directory: str, settings: SquadSettings) -> None:
    """Stores settings with a model."""
    text = json.dumps(dataclasses.asdict(settings), indent=2) + "\n"
    file_system.write_text(os.path.join(directory, SQUAD_SETTINGS), text)


def read_settings(directory: str) -> SquadSettings | None:
    """Reads what is stored in a directory, None where nothing is.

    Raises:
      InputError: the file holds something else.
    """
    path = os.path.join(directory, SQUAD_SETTINGS)
    if not file_system.is_file(path):
        return None
    values = file_system.read_json(path)
    try:
        settings = SquadSettings(**values)
    except TypeError:
        settings = SquadSettings(version_2_with_negative=None)
    threshold = settings.null_score_diff_threshold
    if not isinstance(settings.version_2_with_negative, bool) or not (
        threshold is None
        or (isinstance(threshold, (int, float)) and math.isfinite(threshold))
    ):
        raise errors.InputError(
            f"{path}: not the settings of a question answering model"
        )
    return settings


def settings_of_model(output_dir: str) -> SquadSettings | None:
    """Reads what is stored with the model in a directory, if one is there."""
    return (
        read_settings(output_dir) if model_files.is_here(output_dir) else None
    )
