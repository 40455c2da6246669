"""A teacher's outputs on the training set, targets beside the labels.

    teacher = open_teacher(session)
    features = with_targets(session, teacher)      # predicts once

The teacher predicts before the first step, without dropout. Its outputs are
kept beside the run, so that a run that was killed does not wait for them:

    output_dir/train_teacher-<digest>.npz     digest: of all that made them
"""

import dataclasses
import gc
import glob
import hashlib
import json
import os

import numpy as np
from absl import logging

from data.features import Features
from finetuning import given_model
from finetuning import head as heads
from finetuning import session as sessions
from foundation import atomic, errors, file_system

_NAME = "train_teacher-"


def open_teacher(session: sessions.Session) -> given_model.GivenModel:
    """Opens --teacher_dir.

    Raises:
      InputError: the teacher reads or says something else than the student.
    """
    flags, task = session.flags, session.task
    given = f"--teacher_dir={flags.distillation.teacher_dir}"
    teacher = given_model.read(flags.distillation.teacher_dir, "teacher_dir")
    own, other = task.tokenizer, teacher.tokenizer
    if own.vocabulary.tokens != other.vocabulary.tokens:
        raise errors.InputError(
            f"{given}: has another vocabulary than the student, which reads "
            f"{own.vocabulary.path}"
        )
    for name, value in other.settings.items():
        if own.settings[name] != value:
            raise errors.InputError(
                f"{given}: has {name}={value}, the student "
                f"{name}={own.settings[name]}"
            )
    if flags.max_seq_length > teacher.config.max_position_embeddings:
        raise errors.InputError(
            f"{given}: has only {teacher.config.max_position_embeddings} "
            f"positions, but --max_seq_length is {flags.max_seq_length}"
        )
    kind = session.head.problem_type
    trained = teacher.start.settings.problem_type
    if kind and trained not in (None, kind):
        raise errors.InputError(
            f"{given}: has been trained for {trained}, the student is for "
            f"{kind}"
        )
    labels = session.head.labels
    if labels and list(teacher.labels or labels) != list(labels):
        raise errors.InputError(
            f"{given}: its labels are {errors.listed(teacher.labels or ())}, "
            f"those of the student {errors.listed(labels)}; all must be the "
            "same, in this order"
        )
    length = teacher.record.flags.get("max_seq_length", flags.max_seq_length)
    if length < flags.max_seq_length:
        logging.warning(
            "%s was trained with --max_seq_length=%s, but predicts %s tokens",
            given,
            length,
            flags.max_seq_length,
        )
    return teacher


def with_targets(
    session: sessions.Session, teacher: given_model.GivenModel
) -> Features:
    """Returns the training set with the teacher's outputs."""
    flags, features = session.flags, session.features("train")
    facts = json.dumps(session.made_from, sort_keys=True, default=str)
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    path = os.path.join(flags.output_dir, f"{_NAME}{digest}.npz")
    if file_system.exists(path):
        with file_system.open_binary(path) as file, np.load(file) as stored:
            outputs = dict(stored)
    else:
        logging.info("the teacher predicts %d examples", len(features))
        network = session.build(0, teacher, session.task.teacher_head(teacher))
        try:
            network.load(teacher.weights)
        except errors.InputError as error:
            raise errors.InputError(f"--teacher_dir: {error}") from error
        outputs = network.predict(features, flags.predict_batch_size)
        del network  # Two models need not fit into memory.
        gc.collect()
        if session.is_writer:
            for old in glob.glob(
                os.path.join(glob.escape(flags.output_dir), f"{_NAME}*.npz")
            ):
                file_system.discard(old)
            with (
                atomic.replacing(path) as temporary,
                open(temporary, "wb") as written,
            ):
                np.savez(written, **outputs)  # type: ignore[arg-type]
    targets = {f"{heads.TEACHER}{name}": x for name, x in outputs.items()}
    if session.head.per_token:
        ragged = {**features.ragged, **targets}
        return dataclasses.replace(features, ragged=ragged)
    return dataclasses.replace(features, dense={**features.dense, **targets})
