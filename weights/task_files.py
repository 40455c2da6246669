"""What is stored with a model about its task: classes, SQuAD settings, files.

    model/config.json                  names of the classes, problem type
    model/question_answering.json
        {"version_2_with_negative": true, "null_score_diff_threshold": -1.25}
    model/crf.json                     written and read by tasks/ner
    model/run.json                     written and read by finetuning/record

These belong to the weights in the same directory. Training writes them, and
flags of later runs do not change them; only prediction adds the threshold that
it finds for SQuAD 2.0.
"""

import dataclasses
import os
from collections.abc import Sequence

from absl import logging

from foundation import atomic, errors, metadata
from weights import kinds, model_directory

CRF = "crf.json"  # The transition scores between tags.
SQUAD_SETTINGS = "question_answering.json"
JOURNAL = "run.json"  # What a training remembers; see finetuning.record.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelClasses:
    """The classes of a trained model.

    Attributes:
      labels: labels in the order of the model's outputs, or None.
      problem_type: transformers' name, or None.
      num_outputs: number of outputs of the model's head, or None if it is
        unknown.
      are_given: whether --label_names gives the labels.
    """

    labels: Sequence[str] | None
    problem_type: str | None
    num_outputs: int | None = None
    are_given: bool = False

    @property
    def names(self) -> list[str] | None:
        """The labels, or None if they are only numbered."""
        labels = list(self.labels or ())
        return labels if labels != kinds.unnamed(len(labels)) else None

    @property
    def count(self) -> int | None:
        """The number of classes, or None if it is unknown."""
        return self.num_outputs or len(self.labels or ()) or None

    @property
    def fault(self) -> str | None:
        """Why the labels cannot be those of the outputs, or None."""
        labels = self.labels or ()
        if labels and len(labels) != self.count:
            return f"the head has {self.count} outputs, not {len(labels)}"
        label = errors.repeated(labels)
        return None if label is None else f"{label!r} names several classes"

    def check(self, *, can_be_named: bool = True) -> None:
        """Refuses labels that cannot be those of the model's outputs.

        Args:
          can_be_named: whether the command has --label_names.

        Raises:
          InputError: their number is another one, or two are the same.
        """
        other = ", or use --label_names (in Python: labels=)" * can_be_named
        if self.fault is not None:
            raise errors.InputError(
                f"the model's classes are {errors.listed(self.labels or ())}, "
                f'but {self.fault}; correct "id2label" in its '
                f"{model_directory.CONFIG}{other}"
            )

    @property
    def kind(self) -> str | None:
        """The kind of labels; None if it is unknown.

        Raises:
          InputError: transformers has no such problem type.
        """
        if self.problem_type not in kinds.PROBLEM_TYPES:
            raise errors.InputError(
                f"the model's problem_type, in its {model_directory.CONFIG}, "
                f"is {self.problem_type!r}: none of "
                f"{', '.join(filter(None, kinds.PROBLEM_TYPES))}"
            )
        return kinds.PROBLEM_TYPES[self.problem_type]

    def with_names(
        self, names: Sequence[str] | None, *, trains: bool = False
    ) -> "ModelClasses":
        """Returns the classes with the names in --label_names.

        Args:
          names: the names, if they are given.
          trains: whether they are those of a model that is trained, which may
            have other classes than the model that training starts from.

        Raises:
          InputError: a name is empty or occurs twice; or the model has another
            number of classes, or other names.
        """
        if names is None:
            return self
        flag = f"--label_names={','.join(names)}"
        if not all(names) or errors.repeated(names) is not None:
            raise errors.InputError(f"{flag}: a name is empty or occurs twice")
        if not trains and self.count not in (None, len(names)):
            raise errors.InputError(
                f"{flag}: the model has {self.count} classes"
            )
        stored = None if trains or self.fault else self.names
        if stored not in (None, list(names)):
            raise errors.InputError(
                f"{flag}: the model's classes are {', '.join(stored or ())}"
            )
        return dataclasses.replace(self, labels=list(names), are_given=True)

    def ordered(
        self, labels: Sequence[str], *, trains: bool = False
    ) -> Sequence[str]:
        """Returns a task's labels in the order of the model's outputs.

        If the classes have no names, the labels keep their order; a command
        that does not train then warns. A training may have other labels: these
        keep their order, too. Those that --label_names gives it are all kept.

        Raises:
          InputError: the model has been trained for other labels, or
            --label_names lacks a label.
        """
        given = self.labels if self.are_given and trains else None
        if given and (missing := [x for x in labels if x not in given]):
            raise errors.InputError(
                f"--label_names={','.join(given)} lacks labels of the task: "
                f"{', '.join(missing)}"
            )
        if given and labels:
            return given
        if self.names is None or not labels:
            if not trains:
                self.warn_of_order(labels, ", or use --label_names")
            return labels
        found = ordered(self.names, labels)
        if found is None and not trains:
            raise errors.InputError(
                f"the task's labels are {', '.join(labels)}, but the model's "
                f"{', '.join(self.names)}"
            )
        return found or labels

    def warn_of_order(self, labels: Sequence[str], hint: str = "") -> None:
        """Warns if the order of `labels` is assumed for unnamed classes.

        Args:
          labels: labels of a task.
          hint: the end of the message: what else can be done.
        """
        stored = list(self.labels or ())
        if self.names is not None or list(labels) == stored or not stored:
            return
        if not all(map(str.isdigit, labels)):
            pairs = zip(stored, labels, strict=False)
            order = ", ".join(f"{number} is {name}" for number, name in pairs)
            logging.warning(
                "the model does not name its classes. Assumed, as in "
                f"google-research/bert: {order}. Other projects use other "
                f'orders: correct "id2label" in its config.json{hint}'
            )


def ordered(
    names: Sequence[str], labels: Sequence[str]
) -> Sequence[str] | None:
    """Returns labels in the order of a model's named outputs; None of others.

    Labels that differ in capitals only are the same. The labels 0 and 1 are the
    numbers of classes, whatever the names of the outputs are.
    """
    spelled = {x.lower(): x for x in labels} | {x: x for x in labels}
    found = [spelled.get(x, spelled.get(x.lower(), "")) for x in names]
    if sorted(found) == sorted(labels):
        return found
    are_numbers = all(map(str.isdigit, labels)) and len(names) == len(labels)
    return labels if are_numbers else None


def kind(given: str | None, known: ModelClasses) -> str:
    """Returns the kind of a user's own task: the given one, or the model's.

    The output of a model with one output and no problem type is the logit of a
    label, as in transformers' pipeline: it is a multi-label model.

    Raises:
      InputError: they differ, or the number of outputs is not that of the kind.
    """
    trained, count = known.kind, known.count
    if given and trained not in (None, given):
        raise errors.InputError(
            f"--problem_type={given}, but the model was trained for {trained}"
        )
    usual = kinds.MULTI_LABEL if count == 1 else kinds.CLASSIFICATION
    chosen = given or trained or usual
    if chosen == kinds.CLASSIFICATION and count == 1:
        raise errors.InputError(
            "the model has one output, so it does not choose a class: "
            "--problem_type or --task can be regression (its value) or several "
            "labels (its sigmoid)"
        )
    if chosen == kinds.REGRESSION and count not in (1, None):
        raise errors.InputError(
            f"the model is a regression with {count} outputs; only one value "
            "is supported"
        )
    return chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings:
    """The settings of a question answering model, by the flags' names.

    Attributes:
      version_2_with_negative: whether a question may have no answer.
      null_score_diff_threshold: None for SQuAD 1.1, and if none was found.
    """

    version_2_with_negative: bool
    null_score_diff_threshold: metadata.Finite | None = None


SQUAD_1 = SquadSettings(version_2_with_negative=False)


def write_settings(directory: str, settings: SquadSettings) -> None:
    """Writes question_answering.json."""
    atomic.write_json(
        os.path.join(directory, SQUAD_SETTINGS), dataclasses.asdict(settings)
    )


def read_settings(directory: str) -> SquadSettings | None:
    """Reads question_answering.json; returns None if there is none.

    Raises:
      InputError: the file holds something else.
    """
    path = os.path.join(directory, SQUAD_SETTINGS)
    return metadata.read_if_present(path, SquadSettings)
