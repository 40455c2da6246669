"""Files as users name them: plain, .gz or .bz2, on a disk or in a bucket.

TensorFlow, which takes seconds to start, is asked for buckets only.
"""

import bz2
import contextlib
import functools
import gzip
import json
import lzma
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from foundation import errors

COMPRESSED = (".gz", ".bz2")


def find(path: str) -> str:
    """Returns the path, or that of the compressed file beside it.

    Raises:
      InputError: there is none, or only a directory.
    """
    for name in (path, *(path + ending for ending in COMPRESSED)):
        if _exists(name):
            if _is_directory(name):
                raise errors.InputError(f"{name}: is a directory, not a file")
            return name
    raise errors.InputError(f"{path}: no such file")


def read(path: str) -> bytes:
    """Returns what a file holds, decompressed.

    Raises:
      InputError: it is cut off or damaged.
    """
    with _open(path) as raw, decompressed(path, raw) as reader:
        return reader.read()


@contextlib.contextmanager
def decompressed(path: str, raw: BinaryIO) -> Iterator[BinaryIO]:
    """Context that reads what a file holds, by the end of its name.

    Raises:
      InputError: it is cut off or damaged, found while it is read.
    """
    try:
        if path.endswith(".gz"):
            yield gzip.GzipFile(fileobj=raw)
        elif path.endswith(".bz2"):
            yield bz2.BZ2File(raw)
        else:
            yield raw
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise errors.InputError(
            f"{path}: the compressed file is cut off or damaged"
        ) from None
    except OSError as error:
        if error.errno is None:  # bz2 says "Invalid data stream".
            raise errors.InputError(f"{path}: {error}") from None
        raise


def read_json(path: str) -> Any:
    """Returns the value of a JSON file.

    Raises:
      InputError: it is not UTF-8, or no JSON.
    """
    data = read(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise errors.InputError(f"{path}:{line}: not UTF-8 text") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise errors.InputError(
            f"{path}:{error.lineno}: malformed JSON: {error.msg} at column "
            f"{error.colno}"
        ) from None
    except ValueError as error:  # A number of thousands of digits.
        raise errors.InputError(f"{path}: malformed JSON: {error}") from None
    except RecursionError:
        raise errors.InputError(
            f"{path}: malformed JSON: lists and objects within each other "
            "beyond measure"
        ) from None


def _is_remote(path: str) -> bool:
    return "://" in path


def _gfile() -> Any:
    import tensorflow as tf  # Here, as it takes seconds.

    return tf.io.gfile


def _exists(path: str) -> bool:
    return _gfile().exists(path) if _is_remote(path) else os.path.exists(path)


def _is_directory(path: str) -> bool:
    return _gfile().isdir(path) if _is_remote(path) else os.path.isdir(path)


def _open(path: str) -> BinaryIO:
    return _gfile().GFile(path, "rb") if _is_remote(path) else open(path, "rb")


# ----------------------------------------------------------------------
# Files of runs: on a disk, or in a bucket, as far as tf.io.gfile knows.
#
#     write_text("gs://bucket/out/kept.json", text)   whole or not at all
#     read_text("gs://bucket/out/kept.json")
#     local("gs://bucket/out/config.json")   ->
# /tmp/.../gs/bucket/out/config.json
#
# What reads and writes only disks gets copies; they last as long as the
# process.
# TensorFlow, which takes seconds to start, is asked for buckets only.

# path -> length and time of the copy that was made of it.
_COPIED: dict[str, tuple[int, int]] = {}


def is_remote(path: str) -> bool:
    """Tells whether a path is not one of this machine's disks."""
    return "://" in path


def refuse_remote(path: str, flag: str, because: str) -> None:
    """Refuses a path for what only a disk can do."""
    if is_remote(path):
        raise errors.InputError(
            f"--{flag}={path}: must be on a disk: {because}"
        )


def exists(path: str) -> bool:
    """Tells whether there is a file or a folder."""
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_file(path: str) -> bool:
    """Tells whether there is a file."""
    if is_remote(path):
        return _gfile().exists(path) and not _gfile().isdir(path)
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Tells whether there is a folder."""
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def folder_of(weights: str) -> str:
    """Returns where weights lie, which a file of theirs may name."""
    return weights if is_folder(weights) else os.path.dirname(weights)


def real(path: str) -> str:
    """Returns the one path of what may be named in several ways."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def make_folder(path: str) -> None:
    """Makes a folder and those above it, as far as they are missing."""
    if is_remote(path):
        _gfile().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file."""
    if is_remote(path):
        _gfile().remove(path)
    else:
        os.remove(path)


def discard(path: str) -> None:
    """Removes a file if there is one."""
    if exists(path):
        remove(path)


def read_text(path: str) -> str:
    """Returns what a file of UTF-8 holds.

    Raises:
      InputError: there is no such file in a bucket.
      OSError: it cannot be read on this disk.
    """
    with open(local(path), encoding="utf-8") as file:
        return file.read()


def write_text(path: str, text: str) -> None:
    """Writes a file whole or not at all."""
    with whole(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)


@contextlib.contextmanager
def whole(path: str) -> Iterator[str]:
    """Gives a name on this disk to write; the whole file becomes `path`."""
    if not is_remote(path):
        temporary = f"{path}.{os.getpid()}.tmp"
        yield temporary
        os.replace(temporary, path)
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = os.path.join(folder, os.path.basename(path))
        yield temporary
        send(temporary, path)


@contextlib.contextmanager
def whole_files(folder: str, names: Sequence[str]) -> Iterator[str]:
    """Gives a folder on this disk to write files to, which go to `folder`.

    Args:
      folder: is given itself if it is on this disk.
      names: of the files, in the order in which they appear there.
    """
    if not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield temporary
        make_folder(folder)
        for name in names:
            send(os.path.join(temporary, name), os.path.join(folder, name))


def send(source: str, path: str) -> None:
    """Copies a file of this disk to a remote place, whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    _gfile().copy(source, temporary, overwrite=True)
    _gfile().rename(temporary, path, overwrite=True)


def local(path: str) -> str:
    """Returns a file's name on this disk: its own, or that of a copy.

    Raises:
      InputError: there is no such file in a bucket.
    """
    if not is_remote(path):
        return path
    if not is_file(path):
        raise errors.InputError(f"{path}: no such file")
    found = _gfile().stat(path)
    stamp = (found.length, found.mtime_nsec)
    copy = _copy_of(path)
    # Not every file system knows times.
    if not found.mtime_nsec or _COPIED.get(path) != stamp:
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        _gfile().copy(path, f"{copy}.tmp", overwrite=True)
        os.replace(f"{copy}.tmp", copy)
        _COPIED[path] = stamp
    return copy


def local_folder(folder: str, names: Sequence[str]) -> str:
    """Returns a folder on this disk with those of the files that there are.

    Args:
      folder: is returned as it is if it is on this disk.
      names: of the files to copy if it is not.
    """
    if not is_remote(folder):
        return folder
    copy = _copy_of(folder)
    os.makedirs(copy, exist_ok=True)
    for name in names:
        path = os.path.join(folder, name)
        if is_file(path):
            local(path)
        elif _COPIED.pop(path, None):
            os.remove(_copy_of(path))
    return copy


def _copy_of(path: str) -> str:
    """Returns where a copy lies; its name still tells what it is of."""
    scheme, rest = path.split("://", 1)
    rest = os.path.normpath(f"/{rest}").lstrip("/")
    return os.path.join(_copies().name, scheme, rest)


@functools.cache
def _copies() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="copies-")
