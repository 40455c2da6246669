"""Files as users name them: on a disk or in a bucket, plain or compressed.

    with file_system.replacing("out/a.npy") as temporary:   atomic writing
        numpy.save(temporary, values)
    with file_system.replacing_folder("out/model") as temporary:    of a folder
        save(model, temporary)
    file_system.write_text("gs://bucket/out/kept.json", text)
    file_system.read_json(file_system.find("train.json"))   or train.json.gz
    file_system.local("gs://bucket/out/config.json")
        -> /tmp/copies-.../gs/bucket/out/config.json

A path with "://" is remote and needs tf.io.gfile. TensorFlow takes seconds to
import, so only remote paths import it.
"""

import bz2
import collections
import contextlib
import ctypes
import errno
import fcntl
import fnmatch
import functools
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from foundation import errors

BinaryFile = io.RawIOBase | io.BufferedIOBase
_FIRST_BYTES = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}
COMPRESSED = tuple(_FIRST_BYTES)
# Temporary files and folders are called .NAME.0123456789ab.incomplete.
INCOMPLETE = ".incomplete"
_DIGITS = 12
_TEMPORARY = re.compile(rf"\.(.+)\.[0-9a-f]{{{_DIGITS}}}{INCOMPLETE}", re.S)
# In a temporary folder: the file that its process locks, the folder or file
# that is written, and the earlier folder between the two renames of a swap.
_LOCK, _NEW, _OLD = "lock", "new", "old"
# Special in the patterns of TensorFlow's glob.
PATTERN = re.compile(r"[*?[\\]")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Of Linux's renameat2.
# Stands in a checkout for a file that Git LFS has not fetched.
_POINTER = b"version https://git-lfs"
# What the system answers about paths where nothing is or can be.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# Buckets have no locks: an older temporary file is that of a killed run.
_STALE_SECONDS = 24 * 3600
_BLOCK_BYTES = 1 << 22
_MOST_COMMAS = 8  # Of a name. A bucket needs requests for each.

# Folder -> names of files that this process has written there; see
# `take_written`.
_WRITTEN: dict[str, set[str]] = {}
# Remote path -> length and modification time of the file when it was copied.
_COPIED: dict[str, tuple[int, int]] = {}


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
    """Returns whether there is a file or a folder.

    Raises:
      OSError: the system cannot tell, as on a disk that fails. What is there
        must not be taken for missing, and made again.
    """
    return _gfile().exists(path) if is_remote(path) else bool(_mode(path))


def is_file(path: str) -> bool:
    """Returns whether there is a file; see `exists`."""
    return exists(path) and not is_folder(path)


def is_regular(path: str) -> bool:
    """Returns whether there is a file that can be read twice, no pipe."""
    return is_file(path) if is_remote(path) else stat.S_ISREG(_mode(path))


def is_folder(path: str) -> bool:
    """Returns whether there is a folder; see `exists`."""
    if is_remote(path):
        return _gfile().isdir(path)
    return stat.S_ISDIR(_mode(path))


def _mode(path: str) -> int:
    """Returns the system's mode of a path on a disk, 0 if nothing is there."""
    try:
        return os.stat(path).st_mode
    except ValueError:  # A null character.
        return 0
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return 0
        raise


def entries(folder: str) -> list[str]:
    """Returns the names of the files and folders in a folder."""
    if not is_remote(folder):
        return os.listdir(folder)
    return [name.rstrip("/") for name in _gfile().listdir(folder)]


def size(path: str) -> int:
    """Returns the length of a file in bytes."""
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def matches(pattern: str) -> list[str]:
    r"""Returns the paths that match a pattern in which \ quotes a character.

    Raises:
      OSError: a folder cannot be read. Its files must not be left out.
    """
    if is_remote(pattern):
        return _gfile().glob(pattern)
    quoted = re.sub(r"\\(.)", lambda found: glob.escape(found[1]), pattern)
    # As TensorFlow names files without a folder: manifests have these names.
    folder = "" if os.path.dirname(pattern) else os.path.join(".", "")
    return [*_disk_matches(folder + quoted)]


def _disk_matches(pattern: str) -> Iterator[str]:
    """Yields the same as glob.glob, which takes unreadable folders for empty.

    Hidden names match only a pattern that begins with a dot.
    """
    folder, name = os.path.split(pattern)
    folders = [folder]
    if glob.has_magic(folder):
        folders = [*_disk_matches(folder)]
    for folder in folders:
        if glob.has_magic(name):
            inner = folder or os.curdir
            listed = os.listdir(inner) if is_folder(inner) else []
            for found in fnmatch.filter(listed, name):
                if name.startswith(".") or not found.startswith("."):
                    yield os.path.join(folder, found)
        elif name:
            path = os.path.join(folder, name)
            if exists(path) or os.path.islink(path):
                yield path
        elif is_folder(folder):
            yield os.path.join(folder, "")


def folder_of(weights: str) -> str:
    """Returns the folder of weights that are given as a file or a folder."""
    return weights if is_folder(weights) else os.path.dirname(weights)


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
    try:
        make_folder(folder)
    except OSError as error:
        raise errors.InputError(
            f"--{flag}={path}: its directory cannot be made: {error.strerror}"
        ) from None
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
    folder = parent = os.path.abspath(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise errors.InputError(
            f"--{flag}={path}: {parent} is a file, not a directory"
        )
    if parent != folder and not os.access(parent, os.W_OK | os.X_OK):
        raise errors.InputError(
            f"--{flag}={path}: {parent} is not writable for this user"
        )


def make_folder(path: str) -> None:
    """Makes a folder and its parents where they are missing."""
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


def remove_folder(path: str) -> None:
    """Removes a folder with its contents.

    Raises:
      OSError: names the folder. shutil names what cannot be removed without the
        folder that it is in.
    """
    if is_remote(path):
        _gfile().rmtree(path)
        return
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


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


def split_names(text: str, is_there: Callable[[str], bool]) -> list[str]:
    """Returns the names of a list with commas.

    A name may contain a few commas if there is something of this name, and
    nothing of the part before its comma.

    Args:
      text: the list; names without characters are left out.
      is_there: returns whether there is something of a name.
    """
    parts = [part for part in text.split(",") if part.strip()]
    names = []
    while parts:
        joined = (
            ",".join(parts[:count]).strip()
            for count in range(1, min(len(parts), 1 + _MOST_COMMAS) + 1)
        )
        name = next(filter(is_there, joined), parts[0].strip())
        names.append(name)
        del parts[: 1 + name.count(",")]
    return names


def read(path: str) -> bytes:
    """Returns a file's contents, decompressed.

    Raises:
      InputError: the compressed file is truncated or damaged.
    """
    with open_binary(path) as raw, decompressed(path, raw) as reader:
        return reader.read()


def failures(path: str) -> tuple[type[Exception], ...]:
    """Returns the exceptions with which reading or writing a path fails."""
    if not is_remote(path):
        return (OSError,)
    import tensorflow as tf

    return OSError, tf.errors.OpError


def open_binary(path: str) -> BinaryFile:
    """Opens a file to read its bytes as they are.

    Raises:
      InputError: it is a pointer of Git LFS.
    """
    file: BinaryFile = (
        _RemoteFile(path)
        if is_remote(path)
        else io.BufferedReader(_DiskFile(path))
    )
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


class _DiskFile(io.FileIO):
    """A file whose errors of reading name it, which the system's do not."""

    def readinto(self, buffer: Any) -> int | None:
        with naming(self.name):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with naming(self.name):
            return super().readall()


class _RemoteFile(io.RawIOBase):
    """GFile as a file of Python, which decompressors and pyarrow need."""

    def __init__(self, path: str):
        self._file = _gfile().GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


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

            yield pa.CompressedInputStream(raw, "zstd")
        else:
            yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile):
        _refuse_other_content(path, raw)
        raise errors.InputError(
            f"{path}: the compressed file is cut off or damaged"
        ) from None
    except OSError as error:
        if error.errno is None:  # The decompressor's: "Invalid data stream".
            _refuse_other_content(path, raw)
            raise errors.InputError(f"{path}: {error}") from None
        raise


def _refuse_other_content(path: str, raw: BinaryFile) -> None:
    """Raises InputError for a damaged file that is not what its name says."""
    begin = _FIRST_BYTES.get(ending(path), b"")
    if raw.seekable():
        raw.seek(0)
        if raw.read(len(begin)) != begin:
            raise errors.InputError(
                f"{path}: not compressed, or in another way than its name says"
            ) from None


def decode(data: bytes, path: str, first_line: int = 1) -> str:
    """Decodes UTF-8.

    Args:
      data: the bytes of a file, or of some of its lines.
      path: names the file in the message.
      first_line: the number of the first line of `data`, for the message.

    Raises:
      InputError: "path:line: not UTF-8 text".
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise errors.InputError(f"{path}:{line}: not UTF-8 text") from None


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
      InputError: a remote file is missing.
      OSError: a file on this disk cannot be read.
    """
    with io.BufferedReader(_DiskFile(local(path))) as file:
        return io.TextIOWrapper(file, "utf-8").read()


def read_json(path: str) -> Any:
    """Returns the value of a JSON file; a byte order mark is skipped.

    Raises:
      InputError: it is not UTF-8, or not JSON.
    """
    return parse_json(read(path), path)


def parse_json(data: bytes, path: str) -> Any:
    """Returns the value of a JSON file's bytes; see `read_json`.

    Warns of a key that occurs twice in an object: the last value is read.
    """
    text = decode(data, path).removeprefix("\ufeff")

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            errors.warn_once(
                f"{path}: the key {repeated_key(pairs)!r} occurs twice in an "
                "object; its last value is read"
            )
        return values

    try:
        return json.loads(text, object_pairs_hook=read_object)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
        if text and error.pos == 0:
            line = text.splitlines()[0]
            reason = f"the file begins with {line[:40]!r}"
        raise errors.InputError(
            f"{path}:{error.lineno}: malformed JSON: {reason}"
        ) from None
    except ValueError as error:  # A number of thousands of digits.
        raise errors.InputError(f"{path}: malformed JSON: {error}") from None
    except RecursionError:
        raise errors.InputError(
            f"{path}: malformed JSON: too many lists and objects within each "
            "other"
        ) from None


def repeated_key(pairs: Sequence[tuple[str, Any]]) -> str | None:
    """Returns the first key that occurs twice in a JSON object, if any.

    Args:
      pairs: the object as the object_pairs_hook of `json` gets it.
    """
    counts = collections.Counter(key for key, _ in pairs)
    return next((key for key, count in counts.items() if count > 1), None)


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open_binary(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def replacing(
    path: str, *, on_disk: bool = False, own_folder: bool = False
) -> Iterator[str]:
    """Yields a temporary path to write to, and then renames it to `path`.

    The temporary file is beside `path`. On a disk, its data is flushed to the
    disk before the rename, and the folder after it, so that a power failure
    leaves the old file or the complete new one. An exception removes it. What
    killed runs left of the same file is removed first.

    Args:
      path: path of the file, new or existing; its folder exists.
      on_disk: whether the writer cannot write to buckets: then the temporary
        path is on this disk even if `path` is remote, and the file is copied.
      own_folder: whether the writer makes further temporary files beside the
        file that it writes: then the temporary path is in a folder of its own,
        which is removed with all of its files.
    """
    path = os.fspath(path)
    _remove_stale(path)
    if is_remote(path):
        opened = _remote_temporary(path, on_disk)
    elif own_folder:
        opened = _inside_folder(path)
    else:
        opened = _temporary_file(path)
    with opened as temporary:
        yield temporary
    folder, name = os.path.split(path)
    _WRITTEN.setdefault(folder, set()).add(name)


@contextlib.contextmanager
def _temporary_file(path: str) -> Iterator[str]:
    """Yields a locked file on this disk, which then replaces `path`."""
    with naming(path):
        file = None
        while file is None:
            temporary = _temporary(path)
            file = _locked(temporary)
        try:
            with file:
                yield temporary
                replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                discard(temporary)
            raise


@contextlib.contextmanager
def _inside_folder(path: str) -> Iterator[str]:
    """Yields a path in a locked folder; its file then replaces `path`."""
    with naming(path), _temporary_folder(path) as folder:
        new_file = os.path.join(folder, _NEW)
        yield new_file
        replace(new_file, path)


@contextlib.contextmanager
def _remote_temporary(path: str, on_disk: bool) -> Iterator[str]:
    """Yields a file in the bucket or on this disk; it then replaces `path`."""
    temporary = _temporary(path)
    with naming(path):
        try:
            if on_disk:
                with tempfile.TemporaryDirectory() as scratch:
                    copy = os.path.join(scratch, os.path.basename(path))
                    yield copy
                    _gfile().copy(copy, temporary)
            else:
                yield temporary
            replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                discard(temporary)
            raise


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields the path of a folder to make, which then replaces `path`.

    The new folder is flushed to the disk before it gets its name. Then the
    earlier folder is removed. After a failure, the earlier folder still exists.
    On file systems that cannot exchange two names, there is no folder of this
    name for an instant; after a kill at this instant, `restore_folder` brings
    the earlier folder back. Temporary folders of killed runs are removed first.

    Args:
      path: path of the folder, on this disk, new or existing.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _remove_stale(path)
    with naming(path), _temporary_folder(path) as folder:
        new_folder = os.path.join(folder, _NEW)
        yield new_folder
        # Now: a flush can fail, and must do so before anything is renamed.
        flush_folder(new_folder)
        _swap(new_folder, path, os.path.join(folder, _OLD))
        _flush_entries(os.path.dirname(path))


def _swap(new: str, path: str, aside: str) -> None:
    """Gives a folder its name; an earlier one is then at `new` or `aside`."""
    if not os.path.lexists(path):
        os.rename(new, path)
        return
    if exchange(new, path):
        return
    os.rename(path, aside)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(aside, path)
        raise


def exchange(one: str, other: str) -> bool:
    """Exchanges the names of two files or folders in one step.

    Returns:
      False if the file system or the system cannot do it.

    Raises:
      OSError: one of them is missing, or may not be renamed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        renameat2 = libc.renameat2
    except AttributeError:  # A C library before 2018.
        return False
    failed = renameat2(
        *(_AT_FDCWD, os.fsencode(one)),
        *(_AT_FDCWD, os.fsencode(other)),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if not failed:
        return True
    number = ctypes.get_errno()
    # EPERM: some containers answer so to system calls that they do not know.
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), one, None, other)


def restore_folder(path: str) -> None:
    """Brings back a folder that a process was replacing when it was killed.

    Does nothing where there is `path`, or where the process is alive.
    """
    if is_remote(path) or os.path.lexists(path):
        return
    path = os.path.abspath(path)
    for temporary in _temporaries(path):
        if os.path.lexists(os.path.join(temporary, _OLD)):
            with _stale_folder(temporary) as is_stale:
                if is_stale:
                    _put_back(temporary, path)


def restore_folders(parent: str) -> None:
    """Brings back all such folders in a folder; see `restore_folder`."""
    if is_remote(parent) or not os.path.isdir(parent):
        return
    for match in filter(None, map(_TEMPORARY.fullmatch, os.listdir(parent))):
        restore_folder(os.path.join(parent, match[1]))


def _put_back(temporary: str, path: str) -> None:
    """Renames the earlier folder, if it was moved aside, to its old name."""
    old = os.path.join(temporary, _OLD)
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)


@contextlib.contextmanager
def naming(path: str, temporary: str | None = None) -> Iterator[None]:
    """Names `path` in errors of the system that name no file of the user.

    Errors of write() and fsync() name none, and those of TensorFlow and
    safetensors name temporary files of `path`.

    Args:
      path: path of the file that the body writes.
      temporary: where the body writes it, if not to temporary files as those
        of `replacing`: the beginning of their paths.

    Raises:
      OSError: the body has raised such an error.
    """
    try:
        yield
    except Exception as error:
        number = errors.system_number(error)
        if number is None:
            raise
        folder, name = os.path.split(path)
        start = temporary or os.path.join(folder, f".{name}.")
        filename = getattr(error, "filename", None)
        is_named = isinstance(filename, str)  # Not a descriptor.
        text = str(filename if is_named else error)
        for words in (os.strerror(number), "I/O"):  # Their / is of no path.
            text = text.replace(words, "")
        if (is_named or "/" in text) and start not in text:
            raise
        raise OSError(number, os.strerror(number), path) from error


def take_written(folder: str) -> set[str]:
    """Returns the names of files written to a folder since the last call."""
    return _WRITTEN.pop(folder, set())


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    unique = uuid.uuid4().hex[:_DIGITS]
    return os.path.join(folder, f".{name}.{unique}{INCOMPLETE}")


def _locked(path: str) -> BinaryIO | None:
    """Creates and locks a file.

    Returns:
      None if another process removed it before it was locked; see
      `_remove_stale`.
    """
    file = open(path, "wb")
    with contextlib.suppress(OSError):  # Not every disk has locks.
        fcntl.flock(file, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    file.close()
    return None


@contextlib.contextmanager
def _temporary_folder(path: str) -> Iterator[str]:
    """Makes and locks a folder, and removes it with its contents.

    It stays if it has the only copy of the earlier folder.
    """
    temporary, lock = _locked_folder(path)
    with lock:
        try:
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                _put_back(temporary, path)
                _remove_temporary(temporary)


def _locked_folder(path: str) -> tuple[str, BinaryIO]:
    """Makes a temporary folder and locks it; see `_locked`."""
    while True:
        temporary = _temporary(path)
        os.mkdir(temporary)
        try:
            file = _locked(os.path.join(temporary, _LOCK))
        except FileNotFoundError:  # The folder was removed.
            continue
        except OSError:  # A full disk.
            os.rmdir(temporary)
            raise
        if file is not None:
            return temporary, file


@contextlib.contextmanager
def _stale_folder(temporary: str) -> Iterator[bool]:
    """Yields whether nobody has locked a temporary folder; locks it then."""
    try:
        # Its process may have been killed, or be alive, before it locked it.
        lock = open(os.path.join(temporary, _LOCK), "ab")
    except OSError:
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def _remove_temporary(temporary: str) -> None:
    """Removes a temporary folder; the lock, which its remover has, last."""
    for name in set(os.listdir(temporary)) - {_LOCK}:
        inner = os.path.join(temporary, name)
        if os.path.isdir(inner) and not os.path.islink(inner):
            shutil.rmtree(inner)
        else:
            os.remove(inner)
    os.remove(os.path.join(temporary, _LOCK))
    os.rmdir(temporary)


def replace(source: str, path: str) -> None:
    """Flushes a complete file, then renames it to `path`."""
    if is_remote(path):
        _gfile().rename(source, path, overwrite=True)
        return
    _flush(source)
    os.replace(source, path)
    _flush_entries(os.path.dirname(path) or ".")


def flush(path: str) -> None:
    """Forces a file of this machine, if it exists, to the disk."""
    if exists(path):
        _flush(path)


def flush_folder(folder: str) -> None:
    """Forces a folder with all of its files and folders to the disk."""

    def fail(error: OSError) -> None:
        raise error

    for inner, _, names in os.walk(folder, onerror=fail):
        for name in names:
            _flush(os.path.join(inner, name))
        _flush_entries(inner)


def escaped(path: str) -> str:
    """Returns a pattern of `matches` that matches only this path."""
    return PATTERN.sub(r"\\\g<0>", path)


def _temporaries(path: str) -> list[str]:
    """Returns the temporary files and folders of `path`, on a disk."""
    folder, name = os.path.split(path)
    pattern = f".{glob.escape(name)}.{'?' * _DIGITS}{INCOMPLETE}"
    return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))


def _remove_stale(path: str) -> None:
    """Removes temporary files and folders of `path` that killed runs have left.

    On a disk, these are those that no process has locked. Restores `path` if
    one of them has the only copy.
    """
    if is_remote(path):
        folder, name = os.path.split(path)
        names = f".{escaped(name)}.{'?' * _DIGITS}{INCOMPLETE}"
        for temporary in _gfile().glob(os.path.join(escaped(folder), names)):
            modified = _gfile().stat(temporary).mtime_nsec * 1e-9  # 0: unknown.
            if modified and time.time() - modified > _STALE_SECONDS:
                _gfile().remove(temporary)
        return
    for temporary in _temporaries(path):
        # Another process may remove or rename it meanwhile.
        with contextlib.suppress(OSError):
            if os.path.isdir(temporary):
                with _stale_folder(temporary) as is_stale:
                    if is_stale:
                        _put_back(temporary, path)
                        _remove_temporary(temporary)
                continue
            # NFS locks only files that are open for writing.
            with open(temporary, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(temporary)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file atomically; see `replacing`."""
    with replacing(path, on_disk=True) as temporary:
        with open(temporary, "wb") as file:
            file.write(data)


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file atomically; see `replacing`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str, value: Any, *, indent: int = 2) -> None:
    """Writes a JSON file atomically; see `replacing`."""
    write_text(path, json.dumps(value, indent=indent) + "\n")


def local(path: str) -> str:
    """Returns a path on this disk: the path itself, or that of a copy.

    Copies last as long as the process, and are renewed when the file changes.

    Raises:
      InputError: a remote file is missing.
    """
    if not is_remote(path):
        return path
    if not is_file(path):
        raise errors.InputError(f"{path}: no such file")
    status = _gfile().stat(path)
    stamp = (status.length, status.mtime_nsec)
    copy = _copy_of(path)
    # Some file systems store no modification times.
    if not status.mtime_nsec or _COPIED.get(path) != stamp:
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with replacing(copy) as temporary:
            _gfile().copy(path, temporary, overwrite=True)
        _COPIED[path] = stamp
    return copy


def local_folder(folder: str, names: Sequence[str]) -> str:
    """Returns a folder on this disk with copies of those files that exist.

    Args:
      folder: is returned as it is if it is on this disk.
      names: names of the files to copy, unless the folder is on this disk.
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


def _gfile() -> Any:
    import tensorflow as tf  # Not at the top: it takes seconds.

    return tf.io.gfile


def _flush_entries(folder: str) -> None:
    """Forces a folder's entries to the disk."""
    with contextlib.suppress(OSError):  # Some network disks flush no folders.
        _flush(folder)


def _flush(path: str) -> None:
    """Forces a file's data, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def _copy_of(path: str) -> str:
    """Returns the path of a remote file's copy, which ends like the file's."""
    scheme, rest = path.split("://", 1)
    rest = os.path.normpath(f"/{rest}").lstrip("/")
    return os.path.join(_copies().name, scheme, rest)


@functools.cache
def _copies() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="copies-")
