"""Files as users name them: plain, .gz or .bz2, on a disk or in a bucket.

TensorFlow, which takes seconds to start, is asked for buckets only.
"""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import errors

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
