"""Files as users name them: on a disk or in a bucket, plain or compressed.

    file_system.read(file_system.find("train.json"))    or train.json.gz
    file_system.read_text("gs://bucket/out/kept.json")
    file_system.matches("shards/train-*")

A path with "://" is remote and needs tf.io.gfile. TensorFlow takes seconds to
import, so only remote paths import it. `atomic` writes files, `copies` gives
remote files to code that reads disks only.
"""

import bz2
import contextlib
import functools
import glob
import gzip
import io
import itertools
import json
import os
import re
import shutil
import types
import zlib
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from foundation import errors

BinaryFile = io.RawIOBase | io.BufferedIOBase
COMPRESSED = (".gz", ".bz2", ".zst")
# Special in the patterns of TensorFlow's glob.
PATTERN = re.compile(r"[*?[\\]")
# Stands in a checkout for a file that Git LFS has not fetched.
_POINTER = b"version https://git-lfs"
_BLOCK_BYTES = 1 << 22


def is_remote(path: str) -> bool:
    """Returns whether a path is not on one of this machine's disks."""
    return "://" in path


def refuse_remote(path: str, flag: str, because: str) -> None:
    """Raises InputError for a remote path where only a disk will do."""
    if is_remote(path):
        raise errors.InputError(
            f"--{flag}={path}: must be on a disk: {because}"
        )


def exists(path: str) -> bool:
    """Returns whether there is a file or a folder."""
    return _files_of(path).exists(path)


def is_file(path: str) -> bool:
    """Returns whether there is a file."""
    return exists(path) and not is_folder(path)


def is_regular(path: str) -> bool:
    """Returns whether there is a file that can be read twice, no pipe."""
    return is_file(path) if is_remote(path) else os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Returns whether there is a folder."""
    return _files_of(path).isdir(path)


def entries(folder: str) -> list[str]:
    """Returns the names of the files and folders in a folder."""
    return [name.rstrip("/") for name in _files_of(folder).listdir(folder)]


def size(path: str) -> int:
    """Returns the length of a file in bytes."""
    return _files_of(path).stat(path).length


def find_files(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the files of a comma-separated list of names and globs.

    A file that is named twice is returned once.

    Raises:
      InputError: one of them matches no file.
    """
    paths: dict[str, str] = {}
    # Manifests name files with single slashes.
    for pattern in split_names(re.sub("(?<![:/])/{2,}", "/", patterns)):
        # A name may contain brackets, which are special in a pattern.
        matching = [pattern] if exists(pattern) else matches(pattern)
        # In parallel: a bucket needs a request for each.
        with futures.ThreadPoolExecutor(16) as pool:
            are_files = pool.map(is_file, matching)
            found = [*itertools.compress(matching, are_files)]
        if not found:
            problem = "no such file, or a link to none"
            if any(map(is_folder, matching)):
                problem = (
                    "is a directory: name its files, e.g. "
                    f"{pattern.rstrip('/')}/*"
                )
            raise errors.InputError(f"--{flag}={pattern}: {problem}")
        for path in found:
            paths.setdefault(real(path), path)
    if not paths:
        raise errors.InputError(f"--{flag}: names no file")
    return list(paths.values())


def matches(pattern: str) -> list[str]:
    """Returns the sorted paths that match a glob, without hidden names.

    A folder that exists is taken by its name, also if it has brackets. A hidden
    name matches only a pattern that begins with a dot.
    """
    folder, name = os.path.split(pattern)
    if is_folder(folder or "."):
        folder = (escaped if is_remote(pattern) else glob.escape)(folder)
    return [
        path
        for path in sorted(_files_of(pattern).glob(os.path.join(folder, name)))
        if name.startswith(".") or not os.path.basename(path).startswith(".")
    ]


def folder_of(weights: str) -> str:
    """Returns the folder of weights that are given as a file or a folder."""
    return weights if is_folder(weights) else os.path.dirname(weights) or "."


def ending(path: str) -> str:
    """Returns the ending of a file's name in lower case, such as ".csv"."""
    return os.path.splitext(path)[1].lower()


def uncompressed(path: str) -> str:
    """Returns a file's name without the ending of a compressed one."""
    return os.path.splitext(path)[0] if ending(path) in COMPRESSED else path


def real(path: str) -> str:
    """Returns one canonical path for all spellings of a path."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def check_output(path: str, flag: str) -> None:
    """Makes the folder of a file that a command will write.

    Raises:
      InputError: the path is a folder, or the folder cannot be written to.
    """
    if path.endswith("/") or is_folder(path):
        raise errors.InputError(f"--{flag}={path}: is a directory, not a file")
    folder = os.path.dirname(path) or "."
    check_output_folder(folder, flag)
    make_folder(folder)
    if not is_remote(path) and not os.access(folder, os.W_OK):
        raise errors.InputError(
            f"--{flag}={path}: no permission to write to its directory"
        )


def check_output_folder(path: str, flag: str) -> None:
    """Checks that a folder can be made for what a command will write.

    Raises:
      InputError: the path, or one that it is in, is a file; or the folder does
        not exist and may not be made.
    """
    if is_remote(path):
        return
    given = folder = os.path.abspath(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise errors.InputError(
            f"--{flag}={path}: {folder} is a file, not a directory"
        )
    if folder != given and not os.access(folder, os.W_OK | os.X_OK):
        raise errors.InputError(
            f"--{flag}={path}: {folder} is not writable for this user"
        )


def make_folder(path: str) -> None:
    """Makes a folder and its parents where they are missing."""
    _files_of(path).makedirs(path)


def discard(path: str) -> None:
    """Removes a file if there is one."""
    if exists(path):
        _files_of(path).remove(path)


def remove_folder(path: str) -> None:
    """Removes a folder with its contents."""
    _files_of(path).rmtree(path)


def find(path: str) -> str:
    """Returns the path, or that of the compressed file beside it.

    Raises:
      InputError: there is neither, or the path is a folder.
    """
    for name in (path, *(path + x for x in COMPRESSED)):
        if exists(name):
            if is_folder(name):
                raise errors.InputError(f"{name}: is a directory, not a file")
            return name
    raise errors.InputError(f"{path}: no such file")


def split_names(text: str) -> list[str]:
    """Returns the names of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read(path: str) -> bytes:
    """Returns a file's contents, decompressed.

    Raises:
      InputError: the compressed file is truncated or damaged.
    """
    with open_binary(path) as raw, decompressed(path, raw) as reader:
        return reader.read()


def open_binary(path: str) -> Any:
    """Opens a file to read its bytes as they are.

    Raises:
      InputError: it is a pointer of Git LFS.
    """
    if is_remote(path):
        file = gfile().GFile(path, "rb")
        file.closed = False  # pyarrow requires this attribute.
    else:
        file = open(path, "rb")
    if file.seekable():  # A pipe is not.
        start = file.read(len(_POINTER))
        file.seek(0)
        if start == _POINTER:
            file.close()
            raise errors.InputError(
                f"{path}: only a pointer of Git LFS; fetch the file itself "
                "with git lfs pull"
            )
    return file


def refuse_pointer(path: str) -> None:
    """Raises InputError if a file, where there is one, is Git LFS's pointer."""
    if is_file(path):
        open_binary(path).close()


@contextlib.contextmanager
def decompressed(path: str, raw: BinaryFile) -> Iterator[BinaryFile]:
    """Yields a reader that decompresses `raw` by the ending of `path`.

    Raises:
      InputError: the reader met a truncated or damaged file.
    """
    try:
        if ending(path) == ".gz":
            yield gzip.GzipFile(fileobj=raw)
        elif ending(path) == ".bz2":
            yield bz2.BZ2File(raw)
        elif ending(path) == ".zst":
            import pyarrow as pa  # Python has no zstd before 3.14.

            yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
        else:
            yield raw
    except (EOFError, zlib.error, OSError) as error:
        # Those of decompressors have no number: "Invalid data stream".
        if getattr(error, "errno", None) is not None:
            raise
        raise errors.InputError(
            f"{path}: cut off or damaged, or not compressed as its name says: "
            f"{error}"
        ) from None


def decode(data: bytes, path: str, first_line: int = 1) -> str:
    """Decodes UTF-8.

    Args:
      data: the bytes of a file, or of some of its lines.
      path: names the file in the message.
      first_line: the number of the first line of `data`, for the message.

    Raises:
      InputError: "path:line: not UTF-8 text but ...".
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise errors.InputError(
            f"{path}:{line}: not UTF-8 text but {other_encoding(data)}"
        ) from None


def other_encoding(data: bytes) -> str:
    """Says what bytes are that are not UTF-8 text, for a message."""
    if 0 in data:
        return "UTF-16 or a binary file (a table or records?)"
    return "another encoding (`iconv -t UTF-8 -f ...` converts it)"


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
      InputError: it is not UTF-8, or a pointer of Git LFS.
    """
    return decode(read(path), path)


def parse_json(data: bytes, path: str) -> Any:
    """Returns the value of a JSON file's bytes; a byte order mark is skipped.

    Raises:
      InputError: it is not UTF-8, or not JSON.
    """
    text = decode(data, path).removeprefix("\ufeff")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.InputError(f"{path}: malformed JSON: {error}") from None


def crc32(path: str) -> int:
    """Returns the CRC-32 of a file's bytes."""
    result = 0
    with open_binary(path) as file:
        while block := file.read(_BLOCK_BYTES):
            result = zlib.crc32(block, result)
    return result


def is_whole(path: str, length: int, checksum: int) -> bool:
    """Returns whether a file exists and has this length and CRC-32."""
    is_there = exists(path) and size(path) == length
    return is_there and crc32(path) == checksum


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Names `path` in errors of the system that name no file of the user.

    Errors of write() and fsync() name none, and those of TensorFlow and
    safetensors name temporary files of `path`.

    Raises:
      OSError: the body, which writes the file, has raised such an error.
    """
    try:
        yield
    except Exception as error:
        number = errors.system_number(error)
        folder, name = os.path.split(path)
        filename = getattr(error, "filename", None)
        is_named = isinstance(filename, str)  # Not a descriptor.
        text = str(filename if is_named else error)
        text = re.sub("I/O|Input/output", "", text)  # Their / is of no path.
        is_own = os.path.join(folder, f".{name}.") in text
        if number is None or (is_named or "/" in text) and not is_own:
            raise
        raise OSError(number, os.strerror(number), path) from error


def escaped(path: str) -> str:
    """Returns a pattern of `matches` that matches only this path."""
    return PATTERN.sub(r"\\\g<0>", path)


_DISK = types.SimpleNamespace(
    exists=os.path.exists,
    glob=glob.glob,
    isdir=os.path.isdir,
    listdir=os.listdir,
    makedirs=functools.partial(os.makedirs, exist_ok=True),
    remove=os.remove,
    rmtree=shutil.rmtree,
    stat=lambda path: types.SimpleNamespace(length=os.path.getsize(path)),
)


def _files_of(path: str) -> Any:
    """Returns TensorFlow's functions for a path, or the same ones of a disk."""
    return gfile() if is_remote(path) else _DISK


def gfile() -> Any:
    """Returns TensorFlow's functions for remote files."""
    return tensorflow().io.gfile


def tensorflow() -> Any:
    """Returns TensorFlow."""
    # Not at the top: the import takes seconds.
    import foundation.tensorflow_setup  # noqa: F401

    # isort: split
    import tensorflow as tf

    return tf
