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

import contextlib
import dataclasses
import os
from collections.abc import Sequence

from absl import logging

from data import examples
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
    def names(self) -> Sequence[str] | None:
        """The labels, or None if they are only numbered."""
        labels = list(self.labels or ())
        return labels if labels != examples.unnamed(len(labels)) else None

    @property
    def count(self) -> int | None:
        """The number of classes, or None if it is unknown."""
        if self.num_outputs is None and self.labels:
            return len(self.labels)
        return self.num_outputs

    @property
    def fault(self) -> str | None:
        """Why the labels cannot be those of the outputs, or None."""
        labels = self.labels or ()
        if labels and len(labels) != self.count:
            return f"the head has {self.count} outputs, not {len(labels)}"
        label = errors.repeated(labels)
        if label is not None:
            return f"{label!r} is the name of several classes"
        return None

    def check(self, *, can_be_named: bool = True) -> None:
        """Refuses labels that cannot be those of the model's outputs.

        Args:
          can_be_named: whether the command has --label_names.

        Raises:
          InputError: their number is another one, or two are the same.
        """
        if self.fault is None or self.labels is None:
            return
        other = ", or use --label_names (in Python: labels=)"
        raise errors.InputError(
            f"the model's classes are {errors.listed(self.labels)}, but "
            f'{self.fault}; correct "id2label" in its {model_directory.CONFIG}'
            f"{other if can_be_named else ''}"
        )

    @property
    def kind(self) -> str | None:
        """The kind of task, see data.examples; None if it is unknown.

        Raises:
          InputError: transformers has no such problem type.
        """
        if self.problem_type is None:
            return None
        if (kind := kinds.by_problem_type(self.problem_type)) is not None:
            return kind.name
        types = (kind.problem_type for kind in kinds.KINDS.values())
        names = ", ".join(filter(None, types))
        raise errors.InputError(
            f"the model's problem_type, in its {model_directory.CONFIG}, is "
            f"{self.problem_type!r}: none of {names}"
        )

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
        if not all(names) or len(set(names)) < len(names):
            raise errors.InputError(f"{flag}: a name is empty or occurs twice")
        given_labels = dataclasses.replace(
            self, labels=list(names), are_given=True
        )
        if trains:
            return given_labels
        if self.count is not None and self.count != len(names):
            raise errors.InputError(
                f"{flag}: the model has {self.count} classes"
            )
        stored_names = None if self.fault else self.names
        if stored_names is not None and list(stored_names) != list(names):
            raise errors.InputError(
                f"{flag}: the model's classes are {', '.join(stored_names)}"
            )
        return given_labels

    def in_order(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns a task's labels in the order of the model's outputs.

        If the model's classes have no names, the order of `labels` is assumed,
        with a warning.

        Raises:
          InputError: the model has been trained for other labels.
        """
        if self.names is not None and labels:
            return ordered(self.names, labels)
        self.warn_of_order(labels, "the model", ", or use --label_names")
        return labels

    def warn_of_order(
        self, labels: Sequence[str], model: str, hint: str = ""
    ) -> None:
        """Warns if the order of `labels` is assumed for unnamed classes.

        Args:
          labels: labels of a task.
          model: the model, for the message.
          hint: the end of the message: what else can be done.
        """
        stored = list(self.labels or ())
        if self.names is not None or not stored:
            return
        if list(labels) != stored and not all(map(str.isdigit, labels)):
            pairs = zip(stored, labels, strict=False)
            order = ", ".join(f"{number} is {name}" for number, name in pairs)
            logging.warning(
                f"{model} does not name its classes. Assumed, as in "
                f"google-research/bert: {order}. Other projects use other "
                f'orders: correct "id2label" in its config.json{hint}'
            )

    def has_other_outputs(self, labels: Sequence[str]) -> bool:
        """Returns whether the model's outputs are not these labels in order.

        A model whose classes have no names may have been trained for them.
        """
        if not self.names or not labels:
            return False
        try:
            return list(ordered(self.names, labels)) != list(labels)
        except errors.InputError:
            return True

    def in_model_order_if_same(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns the labels in the model's order if it was trained for them.

        For training, which can change the classes: labels of another task keep
        their order, and so do those of a model without names. Labels that
        --label_names gives are all kept, in this order.

        Raises:
          InputError: --label_names lacks a label.
        """
        if self.are_given and self.labels is not None and labels:
            missing = [label for label in labels if label not in self.labels]
            if missing:
                raise errors.InputError(
                    f"--label_names={','.join(self.labels)} lacks labels of "
                    f"the task: {', '.join(missing)}"
                )
            return self.labels
        if self.names and labels:
            with contextlib.suppress(errors.InputError):
                return ordered(self.names, labels)
        return labels


def ordered(names: Sequence[str], labels: Sequence[str]) -> Sequence[str]:
    """Returns a task's labels in the order of a model's outputs.

    Labels that differ in capitals only are the same. The labels 0 and 1 are the
    numbers of classes, whatever the names of the outputs are.

    Raises:
      InputError: the model has been trained for other labels.
    """
    spelled = {label.lower(): label for label in labels} | {
        x: x for x in labels
    }
    if len(names) == len(labels):
        found = [spelled.get(name, spelled.get(name.lower())) for name in names]
        if sorted(filter(None, found)) == sorted(labels):
            return [label for label in found if label]
        if all(map(str.isdigit, labels)):
            return labels
    raise errors.InputError(
        f"the task's labels are {', '.join(labels)}, but the model's "
        f"{', '.join(names)}"
    )


def kind(given: str | None, known: ModelClasses | None) -> str:
    """Returns the kind of a user's own task: the given one, or the model's.

    The output of a model with one output and no problem type is the logit of a
    label, as in transformers' pipeline: it is a multi-label model.

    `known` is None if a new model is trained.

    Raises:
      InputError: they differ, or the number of outputs is not that of the kind.
    """
    trained = known.kind if known is not None else None
    if given and trained and given != trained:
        raise errors.InputError(
            f"--problem_type={given}, but the model was trained for {trained}"
        )
    count = known.count if known is not None else None
    usual = examples.MULTI_LABEL if count == 1 else examples.CLASSIFICATION
    chosen = given or trained or usual
    if chosen == examples.CLASSIFICATION and count == 1:
        raise errors.InputError(
            "the model has one output, so it does not choose a class: "
            "--problem_type or --task can be regression (its value) or several "
            "labels (its sigmoid)"
        )
    if chosen == examples.REGRESSION and count not in (1, None):
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

    version_2_with_negative: bool = False
    null_score_diff_threshold: metadata.Finite | None = None


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
