"""Training with a teacher: the outputs of a model of the same task are targets.

    teacher = open_teacher(config, start, task.objective)  # checks
    features = teacher.with_targets(features, builder)     # predicts once
    objective = teacher.student_objective                  # trains the student

    loss = (1 - weight) * hard loss + weight * soft loss

The hard loss is the task's own. The soft loss compares the student's outputs
with the teacher's (Hinton et al. 2015): for classes T^2 KL(teacher || student)
at the temperature T, for values the squared error.

The teacher predicts the training set before the first step, without dropout.
Its outputs are kept in the order of the examples, and stand beside the labels
of each example from then on:

    output_dir/train_teacher.tf_record        one record per example
    output_dir/train_teacher.tf_record.json   what they were made from (digests
                                              of inputs and weights, precision)
"""

import dataclasses
import functools
import gc
import hashlib
import itertools
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
from absl import logging

from data import features as features_lib
from data import records
from data.features import Features
from foundation import errors, file_system, stamp
from jobs import assembly, run_config, run_directory, task_model
from jobs.task_model import Builder
from modeling.config import BertConfig
from modeling.losses import Weighted
from weights import pretrained, task_files

_NAME = "train_teacher.tf_record"
_FLAG = "teacher_dir"
_LOSS = "distillation_loss"
_PREFIX = "teacher_"  # Of the names of the targets among the features.
_RECORDS_AT_ONCE = 2048


@runtime_checkable
class Objective(task_model.Objective, Protocol):
    """What distillation needs of the objective of a task.

    Attributes:
      per_token: whether predictions are [B, S, ...], else [B, ...].
    """

    per_token: ClassVar[bool]

    def hard_losses(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[dict, dict]:
        """Returns the loss and the metrics of the outputs for a batch."""

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> Weighted:
        """Returns the loss against a teacher, of the hard loss's weight.

        Args:
          outputs: what the model returns.
          teacher: the teacher's predictions by name: [B, D] or [B, S, D].
          features: the batch.
          temperature: the divisor of all logits.
        """

    def of_teacher(self, config: BertConfig, folder: str) -> "Objective":
        """Returns the objective of a teacher, whose weights are in `folder`.

        Raises:
          InputError: the teacher was trained for another task.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentObjective:
    """The loss of a student; a step.Objective.

    Attributes:
      task: the objective of the task.
      temperature: temperature of the soft loss.
      weight: weight of the soft loss; the hard loss has 1 - weight.
    """

    task: Objective
    temperature: float
    weight: float

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the weight of the hard loss for both."""
        weights = dict(self.task.loss_weights(features))
        (weight,) = weights.values()
        return weights | {_LOSS: weight}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns both losses, and the metrics of the task."""
        outputs = model(features, dropout_seed=dropout_seed)
        hard, metrics = self.task.hard_losses(outputs, features)
        teacher = {
            name.removeprefix(_PREFIX): values
            for name, values in features.items()
            if name.startswith(_PREFIX)
        }
        soft = self.task.soft_loss(outputs, teacher, features, self.temperature)
        losses = {
            name: loss._replace(factor=(1.0 - self.weight) * loss.factor)
            for name, loss in hard.items()
        }
        return losses | {_LOSS: soft._replace(factor=self.weight)}, metrics


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Teacher:
    """A trained model whose outputs a student learns.

    Attributes:
      path: path of the teacher's weights.
      start: the teacher's hyperparameters and tokenizer.
      objective: the teacher's objective.
      student_objective: the student's.
    """

    path: str
    start: pretrained.Start
    objective: Objective
    student_objective: StudentObjective

    @functools.cached_property
    def contents(self) -> stamp.Stamp:
        """The digest of the weights, to be compared on resuming."""
        return pretrained.contents(self.path, _FLAG)

    @property
    def _hyperparameters(self) -> dict[str, Any]:
        """The values of the teacher's objective, its encoder's included."""
        values = dict(vars(self.objective))
        values |= values.pop("config").to_dict()
        return {f"teacher's {name}": value for name, value in values.items()}

    def with_targets(self, features: Features, builder: Builder) -> Features:
        """Returns the training set with the teacher's outputs.

        Args:
          features: the training set.
          builder: the student's builder, which gives devices and flags. All
            workers call this, because they predict together.
        """
        config, per_token = builder.config, self.objective.per_token
        splits = np.arange(len(features) + 1)
        if per_token:
            splits = features.row_splits
        facts = {
            "inputs": _digest(features),
            "precision": assembly.dtype_policy(config.devices),
            "attention": self.start.attention,
            **self._hyperparameters,
            **self.contents.to_json(),
        }
        file = features_lib.RecordFile(
            os.path.join(config.output_dir, _NAME),
            stamp.facts("records", facts),
        )
        keeps_records = config.write_records and not config.loop.dry_run
        if keeps_records and file.is_current():
            targets = _read(file.path, splits)
        else:
            targets = self._predict(features, splits, builder)
            if keeps_records and builder.is_chief:
                file.begin()
                file.end(_write(file.path, splits, targets))
        named = {f"{_PREFIX}{name}": x for name, x in targets.items()}
        if per_token:
            return dataclasses.replace(
                features, ragged={**features.ragged, **named}
            )
        return dataclasses.replace(features, dense={**features.dense, **named})

    def _predict(
        self, features: Features, splits: np.ndarray, builder: Builder
    ) -> dict[str, np.ndarray]:
        """Returns float32 [R, D]: the rows of example i begin at splits[i].

        Only the first batch is predicted in a dry run, whose loss has no use.
        """
        logging.info("the teacher predicts %d examples", len(features))
        teacher = dataclasses.replace(
            builder, start=self.start, objective=self.objective
        ).build(seed=0)
        try:
            teacher.assign(self.path)
        except errors.InputError as error:
            raise errors.InputError(f"--{_FLAG}: {error}") from error
        targets: dict[str, np.ndarray] = {}
        size = builder.config.predict_batch_size
        for batch in teacher.predictions(features, size):
            rows = batch.pop("example_index")
            for name, values in batch.items():
                count = values.shape[1] if self.objective.per_token else 1
                values = values.reshape(len(rows), count, -1)
                if name not in targets:
                    shape = (splits[-1], values.shape[-1])
                    targets[name] = np.zeros(shape, np.float32)
                for row, x in zip(rows, values, strict=True):
                    start, end = splits[row : row + 2]
                    targets[name][start:end] = x[: end - start]
            if builder.config.loop.dry_run:
                break
        del teacher  # Two models need not fit into memory.
        gc.collect()
        return targets


def open_teacher(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    objective: task_model.Objective,
) -> Teacher | None:
    """Opens and checks --teacher_dir; returns None without it.

    Args:
      config: the flags.
      start: the model from which the student starts.
      objective: the objective of the student's task.

    Raises:
      InputError: there is no teacher, or it does not fit.
    """
    flags = config.distillation
    if flags.teacher_dir is None:
        return None
    given = f"--{_FLAG}={flags.teacher_dir}"
    if not isinstance(objective, Objective):
        raise errors.InputError(f"{given}: not for this task")
    teacher = pretrained.open_start(
        output_dir=None,
        init_checkpoint=flags.teacher_dir,
        max_seq_length=None,
        flag=_FLAG,
    )
    path = pretrained.require_weights(teacher.init_checkpoint)
    folder = file_system.folder_of(path)
    _check(config, start, teacher, objective.stored)
    trained = run_directory.training_flags(folder)
    length = trained.get("max_seq_length", config.max_seq_length)
    if length < config.max_seq_length:
        logging.warning(
            "%s was trained with --max_seq_length=%s, but predicts %s tokens",
            given,
            length,
            config.max_seq_length,
        )
    try:
        teacher_objective = objective.of_teacher(teacher.config, folder)
    except errors.InputError as error:
        raise errors.InputError(f"{given}: {error}") from error
    return Teacher(
        path=path,
        start=teacher,
        objective=teacher_objective,
        student_objective=StudentObjective(
            task=objective, temperature=flags.temperature, weight=flags.weight
        ),
    )


def _check(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    teacher: pretrained.Start,
    stored: Mapping[str, Any],
) -> None:
    """Refuses a teacher that reads or says something else than the student."""
    given = f"--{_FLAG}={config.distillation.teacher_dir}"
    if start.tokenizer.vocabulary.tokens != teacher.tokenizer.vocabulary.tokens:
        raise errors.InputError(
            f"{given}: has another vocabulary than the student, which reads "
            f"{start.tokenizer.vocabulary.path}"
        )
    own, others = start.tokenizer.settings, teacher.tokenizer.settings
    for name, value in others.items():
        if own[name] != value:
            raise errors.InputError(
                f"{given}: has {name}={value}, the student {name}={own[name]}"
            )
    positions = teacher.config.max_position_embeddings
    if config.max_seq_length > positions:
        raise errors.InputError(
            f"{given}: has only {positions} positions, but --max_seq_length is "
            f"{config.max_seq_length}"
        )
    kind = stored.get("problem_type")
    if kind and teacher.problem_type and kind != teacher.problem_type:
        raise errors.InputError(
            f"{given}: has been trained for {teacher.problem_type}, the "
            f"student is for {kind}"
        )
    labels = list(stored.get("labels") or ())
    classes = task_files.ModelClasses(
        labels=teacher.labels,
        problem_type=None,
        num_outputs=teacher.num_outputs,
    )
    is_other = classes.count is not None and classes.count != len(labels)
    if labels and (is_other or classes.has_other_outputs(labels)):
        names = classes.names or [f"{classes.count} classes without names"]
        raise errors.InputError(
            f"{given}: its labels are {errors.listed(names)}, those of the "
            f"student {errors.listed(labels)}; all must be the same, in this "
            "order"
        )
    classes.warn_of_order(labels, given)


def _digest(features: Features) -> str:
    """Returns the SHA-256 of what the teacher reads."""
    sha = hashlib.sha256()
    for array in (
        features.ragged["input_ids"],
        features.ragged["segment_ids"],
        features.row_splits,
        features.window_splits,
    ):
        values = np.asarray([] if array is None else array, "<i8")
        sha.update(np.int64(len(values)).tobytes())
        sha.update(np.ascontiguousarray(values).data)
    return f"{sha.hexdigest()} {features.num_choices}"


def _write(
    path: str, splits: np.ndarray, targets: Mapping[str, np.ndarray]
) -> int:
    """Writes the rows of each example as one record."""
    with records.ShardWriter(path) as writer:
        for start, end in itertools.pairwise(splits):
            example = tf.train.Example()
            for name, values in targets.items():
                stored = example.features.feature[name].float_list.value
                stored.extend(values[start:end].ravel())
            writer.write([example.SerializeToString(deterministic=True)])
    return writer.count


def _read(path: str, splits: np.ndarray) -> dict[str, np.ndarray]:
    """Reads the records of `_write`."""
    names = records.first_examples([path])[0]
    wanted = {name: tf.io.VarLenFeature(tf.float32) for name in names}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    dataset = tf.data.TFRecordDataset(path).batch(_RECORDS_AT_ONCE)
    try:
        for batch in dataset.map(lambda x: tf.io.parse_example(x, wanted)):
            for name, rows in batch.items():
                parts[name].append(rows.values.numpy())
    except records.FAILURES as error:
        raise errors.InputError(
            f"{path}: cannot be read; remove it to have it made again: "
            f"{errors.reason(error)}"
        ) from None
    return {
        name: np.concatenate(values).reshape(splits[-1], -1)
        for name, values in parts.items()
    }
