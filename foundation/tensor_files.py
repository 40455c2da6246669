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
import functools
import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from foundation import atomic, errors, file_system

INDEX, DATA = ".index", ".data-00000-of-00001"
POINTER = "checkpoint"  # Names the latest one, for TensorFlow.
_SCRATCH = ".saving"
# What TensorFlow raises for truncated or damaged files besides its OpError.
DAMAGES = (IndexError, MemoryError, RuntimeError, TypeError, ValueError)


def named(directory: str) -> str | None:
    """Returns the prefix that the file `checkpoint` names, if it exists."""
    path = os.path.join(directory, POINTER)
    if not file_system.exists(path):
        return None
    text = file_system.read_text(path)
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.M)
    if not match:
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
    open_files = tf.compat.v1.train.NewCheckpointReader
    if not file_system.PATTERN.search(prefix):
        return open_files(prefix)
    link = os.path.join(_links(prefix), "model")
    for suffix in (INDEX, ".data-*"):
        for path in glob.glob(glob.escape(prefix) + suffix):
            os.symlink(os.path.abspath(path), link + path[len(prefix) :])
    return open_files(link)


def without_pattern(directory: str) -> str:
    """Returns a path of a directory that TensorFlow takes for no pattern.

    A pattern may not match itself, or match another directory.

    Args:
      directory: a link to it is made if its path has special characters.

    Raises:
      InputError: the directory is in a bucket, and its path has such
        characters.
    """
    if not file_system.PATTERN.search(directory):
        return directory
    link = os.path.join(_links(directory), "link")
    os.symlink(os.path.abspath(directory), link)
    return link


def _links(path) -> str:
    """Returns a new folder for links, of which this process removes all."""
    if file_system.is_remote(path):
        raise errors.InputError(
            f"{path}: TensorFlow opens nothing in a bucket whose path has one "
            "of the characters * ? [ \\; rename it"
        )
    return tempfile.mkdtemp(dir=_all_links().name)


@functools.cache
def _all_links() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="links-")


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

    They get their names only when they are complete, the index last. Until then
    they are in a folder with a fixed name, so that the next call removes what a
    killed one left.

    Args:
      prefix: prefix of the files; their folder is made.
      tensors: name -> tensor or array.
    """
    tf = file_system.tensorflow()
    folder, name = os.path.split(prefix)
    scratch = os.path.join(folder, _SCRATCH)
    with file_system.naming(prefix, scratch):
        if file_system.exists(scratch):
            tf.io.gfile.rmtree(scratch)
        tf.io.gfile.makedirs(scratch)
        try:
            with tf.device("CPU:0"):
                tf.raw_ops.SaveV2(
                    prefix=os.path.join(scratch, name),
                    tensor_names=list(tensors),
                    shape_and_slices=[""] * len(tensors),
                    tensors=[tf.convert_to_tensor(x) for x in tensors.values()],
                )
            file_system.discard(prefix + INDEX)
            for suffix in (DATA, INDEX):
                made = os.path.join(scratch, name + suffix)
                atomic.replace(made, prefix + suffix)
        finally:
            with contextlib.suppress(tf.errors.OpError):  # The next call does.
                tf.io.gfile.rmtree(scratch)
