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
import os
import re
import shutil
import tempfile
import weakref
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
    # TensorFlow takes the prefix for a pattern, which may not match itself, or
    # match the files of another directory.
    if not file_system.PATTERN.search(prefix):
        return open_files(prefix)
    scratch = tempfile.mkdtemp(prefix="checkpoint-")
    try:
        _link_files(prefix, os.path.join(scratch, POINTER))
        reader = open_files(os.path.join(scratch, POINTER))
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    # The reader opens the data when a tensor is read.
    weakref.finalize(reader, shutil.rmtree, scratch, ignore_errors=True)
    return reader


def _link_files(prefix: str, link: str) -> None:
    """Makes links to the files of a checkpoint; copies those in a bucket."""
    folder, name = os.path.split(prefix)
    for file in file_system.gfile().listdir(folder or "."):
        ending = file.removeprefix(name)
        if file == name + ending and ending.startswith((INDEX, ".data-")):
            source = os.path.join(folder, file)
            if file_system.is_remote(source):
                file_system.gfile().copy(source, link + ending)
            else:
                os.symlink(os.path.abspath(source), link + ending)


def without_pattern(directory: str, owner: object) -> str:
    """Returns a path of a SavedModel's directory that TensorFlow can load.

    Args:
      directory: a link to it is made if its path has special characters.
      owner: the link exists as long as this object.

    Raises:
      InputError: the directory is in a bucket, and its path has such
        characters.
    """
    if not file_system.PATTERN.search(directory):
        return directory
    if file_system.is_remote(directory):
        raise errors.InputError(
            f"{directory}: TensorFlow loads no SavedModel in a bucket whose "
            "path has one of the characters * ? [ \\; rename the directory"
        )
    scratch = tempfile.mkdtemp(prefix="model-")
    weakref.finalize(owner, shutil.rmtree, scratch, ignore_errors=True)
    link = os.path.join(scratch, "model")
    os.symlink(os.path.abspath(directory), link)
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

    They get their names only when they are complete, the index last. Until then
    they are in a folder with a fixed name, so that the next call removes what a
    killed one left.

    Args:
      prefix: prefix of the files; their folder is made.
      tensors: name -> tensor or array.
    """
    tf = file_system.tensorflow()
    scratch = os.path.join(os.path.dirname(prefix), _SCRATCH)
    with file_system.naming(prefix, scratch):
        if file_system.exists(scratch):
            tf.io.gfile.rmtree(scratch)
        tf.io.gfile.makedirs(scratch)
        try:
            _write_and_rename(prefix, scratch, tensors)
        finally:
            with contextlib.suppress(tf.errors.OpError):  # The next call does.
                tf.io.gfile.rmtree(scratch)


def _write_and_rename(
    prefix: str, scratch: str, tensors: Mapping[str, Any]
) -> None:
    """Writes the files into a folder, then gives them their names."""
    tf = file_system.tensorflow()
    beside = os.path.join(scratch, os.path.basename(prefix))
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=beside,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.convert_to_tensor(x) for x in tensors.values()],
        )
    if file_system.exists(prefix + INDEX):
        tf.io.gfile.remove(prefix + INDEX)
    for suffix in (DATA, INDEX):
        atomic.replace(beside + suffix, prefix + suffix)
