"""Checkpoints that are complete or absent, in the TF1 format.

A checkpoint is `model.ckpt-<step>.index` and `.data-00000-of-00001`; its
tensors are keyed by variable path, so that they are the released names:

    bert/pooler/dense/kernel, bert/pooler/dense/kernel/adam_m, ..., global_step

and any tool that reads TF1 checkpoints reads it. Both files are written in a
directory of their own and renamed, the index last; then the file `checkpoint`
is replaced; only then are old ones removed. Killed at any moment, the directory
holds the old checkpoint, or the new one, or both.
"""

import functools
import json
import os
import re
import time
from collections.abc import Collection, Mapping
from concurrent import futures
from typing import Any

import tensorflow as tf
from absl import logging

from foundation import atomic, errors, file_system, tensor_files

_PREFIX = "model.ckpt"
_STATE = "training_state"
_RETRY_SECONDS = (5, 60)  # Network disks and buckets have such failures.
BEST = "best"  # Directory of the best checkpoint, in that of the run.


class Checkpoints:
    """Saves and restores a flat mapping of names to variables."""

    def __init__(
        self, directory: str, *, keep_max: int = 5, is_chief: bool = True
    ):
        """Writes nothing yet; only the chief ever does.

        Args:
            directory: the output_dir of the run.
            keep_max: how many of the last to keep, at least 1.
            is_chief: whether this process writes.
        """
        self._directory = directory
        self._keep_max = keep_max
        self._is_chief = is_chief
        self._thread = futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: futures.Future | None = None

    def latest(self) -> str | None:
        """Returns the prefix that `checkpoint` names, or the newest one.

        Users may edit `checkpoint` to go back to an earlier step.

        Raises:
            InputError: a data file is missing. A killed run never leaves an
                index without its data.
        """
        existing = steps(self._directory)
        for step in existing:
            prefix = path_of(self._directory, step)
            if not file_system.exists(prefix + tensor_files.DATA):
                raise errors.InputError(
                    f"--output_dir: {prefix}{tensor_files.DATA} is missing; "
                    f"restore it, or remove {prefix}.index to continue from "
                    "the checkpoint before"
                )
        named = tensor_files.named(self._directory)
        newest = path_of(self._directory, existing[-1]) if existing else None
        return named or newest

    def save(
        self,
        step: int,
        variables: Mapping[str, tf.Variable],
        state: Mapping[str, Any],
    ) -> None:
        """Copies variables to the host; a thread writes them as a checkpoint.

        The thread then removes checkpoints that are too old. `wait` must be
        called at the end of a run. If the save before failed, its error is
        raised.

        Args:
            step: how many steps are done.
            variables: name -> variable.
            state: small JSON values of the host.
        """
        if not self._is_chief:
            return
        self.wait()
        # An update makes a new buffer if the old one is still in use, so what
        # is on the host already is not copied.
        with tf.device("CPU:0"):
            tensors = {name: tf.identity(v) for name, v in variables.items()}
            tensors["global_step"] = tf.constant(step, tf.int64)
            tensors[_STATE] = tf.constant(json.dumps(state))
        self._writing = self._thread.submit(self._write, step, tensors)

    def wait(self) -> None:
        """Returns when the last save is done; re-raises its error."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def check(self) -> None:
        """Re-raises the error of the last save, if it has failed already."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def _write(self, step: int, tensors: Mapping[str, tf.Tensor]) -> None:
        for pause in (*_RETRY_SECONDS, None):
            try:
                tensor_files.write(path_of(self._directory, step), tensors)
                self._point_to(step)
                self.tidy(step)
                return
            except (OSError, tf.errors.OpError) as error:
                if pause is None:
                    raise
                logging.error(
                    f"the checkpoint of step {step} cannot be written: "
                    f"{error}; trying again in {pause} s"
                )
                time.sleep(pause)

    def restore(
        self,
        prefix: str,
        variables: Mapping[str, tf.Variable],
        *,
        optional: Collection[str] = (),
    ) -> tuple[int, dict[str, Any]]:
        """Assigns every variable; returns the step and the host's state.

        Args:
            prefix: prefix of the checkpoint's files.
            variables: name -> variable.
            optional: names of variables that stay as they are if the
                checkpoint does not have them.

        Raises:
            InputError: the checkpoint is of another model or optimizer.
        """
        advice = "remove it to continue from the one before"
        readable = functools.partial(
            tensor_files.reading, f"--output_dir: {prefix}", advice
        )
        with readable():
            reader = tensor_files.open_reader(prefix)
            shapes = reader.get_variable_to_shape_map()
        missing = {name for name in optional if name not in shapes}
        variables = {k: v for k, v in variables.items() if k not in missing}
        _check_same_model(prefix, shapes, variables)
        for name, variable in variables.items():
            with readable():
                value = reader.get_tensor(name)
            variable.assign(value)
        with readable():
            step = int(reader.get_tensor("global_step"))
            text = reader.get_tensor(_STATE) if _STATE in shapes else b"{}"
            state = json.loads(text)
        return step, state

    def _point_to(self, step: int) -> None:
        kept = [s for s in steps(self._directory) if s <= step]
        lines = [f'model_checkpoint_path: "{_PREFIX}-{step}"']
        lines += [
            f'all_model_checkpoint_paths: "{_PREFIX}-{s}"'
            for s in kept[-self._keep_max :]
        ]
        path = os.path.join(self._directory, tensor_files.POINTER)
        atomic.write_text(path, "\n".join(lines) + "\n")

    def tidy(self, step: int) -> None:
        """Removes checkpoints until `step` that are too many.

        Later ones are of another history, if the user went back: not ours.
        Removes data without an index as well, which a killed process left.
        """
        old = [s for s in steps(self._directory) if s <= step]
        for s in old[: -self._keep_max]:
            # The index first, so that none is without its data.
            for suffix in (tensor_files.INDEX, tensor_files.DATA):
                tf.io.gfile.remove(path_of(self._directory, s) + suffix)
        ending = re.escape(tensor_files.DATA)
        pattern = re.compile(rf"({re.escape(_PREFIX)}-\d+){ending}")
        names = set(tf.io.gfile.listdir(self._directory))
        for match in filter(None, map(pattern.fullmatch, names)):
            if f"{match[1]}.index" not in names:
                tf.io.gfile.remove(os.path.join(self._directory, match[0]))


def remove_all(directory: str) -> None:
    """Removes the checkpoints of a directory, if it has any."""
    if not file_system.is_folder(directory):
        return
    names = tf.io.gfile.listdir(directory)
    # The index first, so that none is without its data.
    for name in sorted(names, key=lambda x: not x.endswith(tensor_files.INDEX)):
        if name == tensor_files.POINTER or name.startswith(f"{_PREFIX}-"):
            tf.io.gfile.remove(os.path.join(directory, name))


def steps(directory: str) -> list[int]:
    """Lists the steps of the checkpoints, in ascending order."""
    if not file_system.is_folder(directory):
        return []
    pattern = re.compile(rf"{re.escape(_PREFIX)}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(directory))
    return sorted(int(m[1]) for m in matches if m)


def path_of(directory: str, step: int) -> str:
    """Returns the path of a checkpoint without the endings of its files."""
    return os.path.join(directory, f"{_PREFIX}-{step}")


def _check_same_model(prefix, shapes, variables) -> None:
    other = [
        (name, shapes.get(name), list(v.shape))
        for name, v in variables.items()
        if shapes.get(name) != list(v.shape)
    ]
    if not other:
        return
    name, there, here = other[0]
    there = there if there is not None else "absent"
    raise errors.InputError(
        f"--output_dir: {prefix} holds another model or optimizer: {name} is "
        f"{there} there and {here} here ({len(other)} of {len(variables)} "
        "differ); choose another --output_dir or remove it"
    )
