"""Finds, reads and writes TensorFlow's checkpoint files.

A checkpoint is two files, and the file `checkpoint` names one of several:

    write("run/model.ckpt-500", tensors)
        -> run/model.ckpt-500.index, run/model.ckpt-500.data-00000-of-00001
    open_reader("run/model.ckpt-500").get_tensor("global_step")
    named("run")
        -> "run/model.ckpt-500", if run/checkpoint names it

TensorFlow is imported when a file is opened or written.
"""

import contextlib
import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from foundation import atomic, copies, errors, file_system

INDEX, DATA = ".index", ".data-00000-of-00001"
POINTER = "checkpoint"  # Names the latest one, for TensorFlow.
# What TensorFlow raises for truncated or damaged files besides its OpError.
DAMAGES = (IndexError, MemoryError, RuntimeError, TypeError, ValueError)


def named(directory: str) -> str | None:
    """Returns the prefix that the file `checkpoint` names, if it exists."""
    path = os.path.join(directory, POINTER)
    text = file_system.read_text(path) if file_system.exists(path) else ""
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.M)
    if match is None:
        return None
    # The directory may have been moved since.
    prefix = os.path.join(directory, os.path.basename(match[1]))
    return prefix if file_system.exists(prefix + INDEX) else None


def open_reader(prefix: str) -> Any:
    """Returns TensorFlow's reader of the files; see `reading`."""
    for suffix in (INDEX, DATA):
        file_system.refuse_pointer(prefix + suffix)
    tf = file_system.tensorflow()
    # tf.train.load_checkpoint would take a prefix in ram:// for a directory.
    return tf.compat.v1.train.NewCheckpointReader(without_pattern(prefix))


def without_pattern(path: str) -> str:
    """Returns a path that TensorFlow takes for no pattern.

    A pattern may not match itself, or match another path.

    Args:
      path: path of a directory, or prefix of files; links to what begins with
        it are made if it has special characters.

    Raises:
      InputError: it is in a bucket and has such characters.
    """
    if not file_system.PATTERN.search(path):
        return path
    if file_system.is_remote(path):
        raise errors.InputError(
            f"{path}: TensorFlow opens nothing in a bucket whose path has one "
            "of the characters * ? [ \\; rename it"
        )
    path = file_system.real(path)
    link = os.path.join(tempfile.mkdtemp(dir=copies.temporary().name), "link")
    for found in glob.glob(f"{glob.escape(path)}*"):
        os.symlink(found, link + found[len(path) :])
    return link


@contextlib.contextmanager
def reading(what: str, advice: str) -> Iterator[None]:
    """Turns what TensorFlow's reader raises into one line.

    Args:
      what: names the files, with their flag if they have one.
      advice: what may be wrong, or what the user can do.

    Raises:
      InputError: the body could not read the files.
    """
    tf = file_system.tensorflow()
    try:
        yield
    except errors.InputError:
        raise
    except (tf.errors.OpError, *DAMAGES) as error:
        raise errors.InputError(
            f"{what} cannot be read, {advice}: {errors.reason(error)}"
        ) from error


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes the files, which any TensorFlow restores by name.

    They get their names only when they are complete, the index last.

    Args:
      prefix: prefix of the files; their folder is made.
      tensors: name -> tensor or array.
    """
    tf = file_system.tensorflow()
    file_system.make_folder(os.path.dirname(prefix) or ".")
    with atomic.replacing(prefix, (DATA, INDEX)) as temporary:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(x) for x in tensors.values()],
            )
        file_system.discard(prefix + INDEX)
