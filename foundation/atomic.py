"""Writes files and folders completely or not at all.

    with atomic.replacing("out/a.npy") as temporary:
        numpy.save(temporary, values)
    with atomic.replacing_folder("out/model") as temporary:
        save(model, temporary)
    atomic.write_text("gs://bucket/out/kept.json", text)

A kill or a power failure leaves the former file or the new one. Temporary files
and folders are called .NAME.0123456789ab.incomplete and are beside what they
replace. Their process locks them, so that the next writer of the same name
knows those of killed processes, and removes them.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO

from foundation import file_system

_INCOMPLETE = ".incomplete"
_DIGITS = 12
_TEMPORARY = re.compile(rf"\.(.+)\.[0-9a-f]{{{_DIGITS}}}{_INCOMPLETE}", re.S)
# In a temporary folder: the file that its process locks, the folder or file
# that is written, and the earlier folder between the two renames of a swap.
_LOCK, _NEW, _OLD = "lock", "new", "old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Of Linux's renameat2.
# Buckets have no locks: an older temporary file is that of a killed run.
_STALE_SECONDS = 24 * 3600

# Folder -> names of files that this process has written there; see
# `take_written`.
_WRITTEN: dict[str, set[str]] = {}


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
    if file_system.is_remote(path):
        opened = _remote_temporary(path, on_disk)
    elif own_folder:
        opened = _inside_folder(path)
    else:
        opened = _temporary_file(path)
    with opened as temporary:
        yield temporary
    folder, name = os.path.split(path)
    _WRITTEN.setdefault(folder, set()).add(name)


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
    with file_system.naming(path), _temporary_folder(path) as folder:
        new_folder = os.path.join(folder, _NEW)
        yield new_folder
        # Now: a flush can fail, and must do so before anything is renamed.
        flush_folder(new_folder)
        _swap(new_folder, path, os.path.join(folder, _OLD))
        _flush_entries(os.path.dirname(path))


def restore_folder(path: str) -> None:
    """Brings back a folder that a process was replacing when it was killed.

    Does nothing where there is `path`, or where the process is alive.
    """
    if file_system.is_remote(path) or os.path.lexists(path):
        return
    path = os.path.abspath(path)
    for temporary in _temporaries(path):
        if os.path.lexists(os.path.join(temporary, _OLD)):
            with _stale_folder(temporary) as is_stale:
                if is_stale:
                    _put_back(temporary, path)


def restore_folders(parent: str) -> None:
    """Brings back all such folders in a folder; see `restore_folder`."""
    if file_system.is_remote(parent) or not os.path.isdir(parent):
        return
    for match in filter(None, map(_TEMPORARY.fullmatch, os.listdir(parent))):
        restore_folder(os.path.join(parent, match[1]))


def take_written(folder: str) -> set[str]:
    """Returns the names of files written to a folder since the last call."""
    return _WRITTEN.pop(folder, set())


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


def replace(source: str, path: str) -> None:
    """Flushes a complete file, then renames it to `path`."""
    if file_system.is_remote(path):
        file_system.gfile().rename(source, path, overwrite=True)
        return
    _flush(source)
    os.replace(source, path)
    _flush_entries(os.path.dirname(path) or ".")


def flush(path: str) -> None:
    """Forces a file of this machine, if it exists, to the disk."""
    if file_system.exists(path):
        _flush(path)


def flush_folder(folder: str) -> None:
    """Forces a folder with all of its files and folders to the disk."""

    def fail(error: OSError) -> None:
        raise error

    for inner, _, names in os.walk(folder, onerror=fail):
        for name in names:
            _flush(os.path.join(inner, name))
        _flush_entries(inner)


@contextlib.contextmanager
def _temporary_file(path: str) -> Iterator[str]:
    """Yields a locked file on this disk, which then replaces `path`."""
    with file_system.naming(path):
        file = None
        while file is None:
            temporary = _temporary(path)
            file = _locked(temporary)
        with _discarded_on_failure(temporary), file:
            yield temporary
            replace(temporary, path)


@contextlib.contextmanager
def _inside_folder(path: str) -> Iterator[str]:
    """Yields a path in a locked folder; its file then replaces `path`."""
    with file_system.naming(path), _temporary_folder(path) as folder:
        new_file = os.path.join(folder, _NEW)
        yield new_file
        replace(new_file, path)


@contextlib.contextmanager
def _remote_temporary(path: str, on_disk: bool) -> Iterator[str]:
    """Yields a file in the bucket or on this disk; it then replaces `path`."""
    temporary = _temporary(path)
    with file_system.naming(path), _discarded_on_failure(temporary):
        if on_disk:
            with tempfile.TemporaryDirectory() as scratch:
                copy = os.path.join(scratch, os.path.basename(path))
                yield copy
                file_system.gfile().copy(copy, temporary)
        else:
            yield temporary
        replace(temporary, path)


@contextlib.contextmanager
def _discarded_on_failure(temporary: str) -> Iterator[None]:
    """Removes a temporary file if the body raises."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            file_system.discard(temporary)
        raise


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


def _put_back(temporary: str, path: str) -> None:
    """Renames the earlier folder, if it was moved aside, to its old name."""
    old = os.path.join(temporary, _OLD)
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    unique = uuid.uuid4().hex[:_DIGITS]
    return os.path.join(folder, f".{name}.{unique}{_INCOMPLETE}")


def _temporaries(path: str) -> list[str]:
    """Returns the temporary files and folders of `path`, on a disk."""
    folder, name = os.path.split(path)
    pattern = f".{glob.escape(name)}.{'?' * _DIGITS}{_INCOMPLETE}"
    return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))


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


def _remove_stale(path: str) -> None:
    """Removes temporary files and folders of `path` that killed runs have left.

    On a disk, these are those that no process has locked. Restores `path` if
    one of them has the only copy.
    """
    if file_system.is_remote(path):
        gfile = file_system.gfile()
        folder, name = map(file_system.escaped, os.path.split(path))
        pattern = f".{name}.{'?' * _DIGITS}{_INCOMPLETE}"
        for temporary in gfile.glob(os.path.join(folder, pattern)):
            modified = gfile.stat(temporary).mtime_nsec * 1e-9  # 0: unknown.
            if modified and time.time() - modified > _STALE_SECONDS:
                gfile.remove(temporary)
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


def _flush_entries(folder: str) -> None:
    """Forces a folder's entries to the disk."""
    with contextlib.suppress(OSError):  # Some network disks flush no folders.
        _flush(folder)


def _flush(path: str) -> None:
    """Forces a file's data, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with file_system.naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)
