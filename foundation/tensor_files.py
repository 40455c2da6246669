"""Finds, reads and writes TensorFlow's checkpoint files.

A checkpoint is two files, and the file `checkpoint` names one of several:

    write("run/model.ckpt-500", tensors)
        -> run/model.ckpt-500.index, run/model.ckpt-500.data-00000-of-00001
    open_reader("run/model.ckpt-500").get_tensor("global_step")
    named("run")
        -> "run/model.ckpt-500", if run/checkpoint names it
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from foundation import errors, file_system

INDEX, DATA = ".index", ".data-00000-of-00001"
POINTER = "checkpoint"  # Names the latest one, for TensorFlow.
_SCRATCH = ".saving"


def named(directory: str) -> str | None:
    """Returns the prefix that the file `checkpoint` names, if it exists."""
    path = os.path.join(directory, POINTER)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        match = re.search(r'^model_checkpoint_path: "(.*)"', file.read(), re.M)
    if not match:
        return None
    # The directory may have been moved since.
    prefix = os.path.join(directory, os.path.basename(match[1]))
    return prefix if tf.io.gfile.exists(prefix + INDEX) else None


def open_reader(prefix: str) -> Any:
    """Returns TensorFlow's reader of the files; see `reading`."""
    # tf.train.load_checkpoint would take a prefix in ram:// for a directory.
    return tf.compat.v1.train.NewCheckpointReader(prefix)


@contextlib.contextmanager
def reading(what: str, advice: str) -> Iterator[None]:
    """Turns what TensorFlow's reader raises into one line.

    Args:
      what: names the files, with their flag if they have one.
      advice: what may be wrong, or what the user can do.

    Raises:
      InputError: the body could not read the files.
    """
    # All of these occur for truncated or damaged files.
    kinds = (IndexError, MemoryError, RuntimeError, TypeError, ValueError)
    try:
        yield
    except (tf.errors.OpError, *kinds) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise errors.InputError(
            f"{what} cannot be read, {advice}: {reason:.200}"
        ) from error


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes the files, which any TensorFlow restores by name.

    They get their names only when they are complete, the index last. Until then
    they are in a folder with a fixed name, so that the next call removes what a
    killed one left.

    Args:
      prefix: of the files; their folder is made.
      tensors: name -> tensor or array.
    """
    scratch = os.path.join(os.path.dirname(prefix), _SCRATCH)
    if tf.io.gfile.exists(scratch):
        tf.io.gfile.rmtree(scratch)
    tf.io.gfile.makedirs(scratch)
    beside = os.path.join(scratch, os.path.basename(prefix))
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=beside,
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(x) for x in tensors.values()],
            )
        if tf.io.gfile.exists(prefix + INDEX):
            tf.io.gfile.remove(prefix + INDEX)
        for suffix in (DATA, INDEX):
            file_system.replace(beside + suffix, prefix + suffix)
    finally:
        with contextlib.suppress(tf.errors.OpError):  # The next call does it.
            tf.io.gfile.rmtree(scratch)
