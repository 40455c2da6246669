"""Writes files and folders completely or not at all.

    with atomic.replacing("out/a.npy") as temporary:
        numpy.save(temporary, values)
    with atomic.replacing_folder("out/model") as temporary:
        save(model, temporary)
    atomic.write_text("gs://bucket/out/kept.json", text)

A kill or a power failure leaves the former file or the new one. What is written
is in a folder beside what it replaces, with a lock of its process, so that the
next writer of the same name knows those of killed processes, and removes them:

    out/.model.0123456789ab.incomplete/lock
                                       new    what is being written
                                       old    the earlier folder, between the
                                              two renames of a swap

A bucket has neither folders nor locks; there it is one file.
"""

import contextlib
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
from typing import Any

from foundation import file_system

_INCOMPLETE = ".incomplete"
_DIGITS = 12
_TEMPORARY = re.compile(rf"\.(.+)\.[0-9a-f]{{{_DIGITS}}}{_INCOMPLETE}", re.S)
_LOCK, _NEW, _OLD = "lock", "new", "old"
# In a bucket, an older temporary file is that of a killed run.
_STALE_SECONDS = 24 * 3600

# Folder -> names of files that this process has written there; see
# `take_written`.
_WRITTEN: dict[str, set[str]] = {}


@contextlib.contextmanager
def replacing(path: str, *, on_disk: bool = False) -> Iterator[str]:
    """Yields a temporary path to write to, and then renames it to `path`.

    On a disk, the data is flushed to the disk before the rename, and the folder
    after it, so that a power failure leaves the old file or the complete new
    one. The temporary path is in a folder of its own, which is removed with all
    of its files, also after an exception.

    Args:
      path: path of the file, new or existing; its folder exists.
      on_disk: whether the writer cannot write to buckets: then the temporary
        path is on this disk even if `path` is remote, and the file is copied.
    """
    path = os.fspath(path)
    is_remote = file_system.is_remote(path)
    opened = _in_bucket(path, on_disk) if is_remote else _beside(path)
    with file_system.naming(path), opened as temporary:
        yield temporary
        if not is_remote:
            replace(temporary, path)
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
    Between two renames there is no folder of this name for an instant; after a
    kill at this instant, `restore_folder` brings the earlier folder back.

    Args:
      path: path of the folder, on this disk, new or existing.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with file_system.naming(path), _beside(path) as temporary:
        yield temporary
        # Now: a flush can fail, and must do so before anything is renamed.
        flush_folder(temporary)
        if os.path.lexists(path):
            os.rename(path, os.path.join(os.path.dirname(temporary), _OLD))
        os.rename(temporary, path)
        _flush_entries(os.path.dirname(path))


def restore_folder(path: str) -> None:
    """Brings back a folder that a process was replacing when it was killed.

    Does nothing where there is `path`, or where the process is alive.
    """
    if not file_system.is_remote(path) and not os.path.lexists(path):
        _remove_stale(os.path.abspath(path))


def restore_folders(parent: str) -> None:
    """Brings back all such folders in a folder; see `restore_folder`."""
    if file_system.is_remote(parent) or not os.path.isdir(parent):
        return
    for match in filter(None, map(_TEMPORARY.fullmatch, os.listdir(parent))):
        restore_folder(os.path.join(parent, match[1]))


def take_written(folder: str) -> set[str]:
    """Returns the names of files written to a folder since the last call."""
    return _WRITTEN.pop(folder, set())


def replace(source: str, path: str) -> None:
    """Flushes a complete file, then renames it to `path`."""
    if file_system.is_remote(path):
        file_system.gfile().rename(source, path, overwrite=True)
        return
    flush(source)
    os.replace(source, path)
    _flush_entries(os.path.dirname(path) or ".")


def flush(path: str) -> None:
    """Forces a file's data, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with file_system.naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: str) -> None:
    """Forces a folder with all of its files and folders to the disk."""

    def fail(error: OSError) -> None:
        raise error

    for inner, _, names in os.walk(folder, onerror=fail):
        for name in names:
            flush(os.path.join(inner, name))
        _flush_entries(inner)


def _flush_entries(folder: str) -> None:
    """Forces a folder's entries to the disk."""
    with contextlib.suppress(OSError):  # Some network disks flush no folders.
        flush(folder)


@contextlib.contextmanager
def _in_bucket(path: str, on_disk: bool) -> Iterator[str]:
    """Yields a file in the bucket or on this disk; it then replaces `path`."""
    gfile = file_system.gfile()
    folder, name = map(file_system.escaped, os.path.split(path))
    pattern = f".{name}.{'?' * _DIGITS}{_INCOMPLETE}"
    for left in gfile.glob(os.path.join(folder, pattern)):
        modified = gfile.stat(left).mtime_nsec * 1e-9  # 0: unknown.
        if modified and time.time() - modified > _STALE_SECONDS:
            gfile.remove(left)
    temporary = _temporary(path)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            copy = os.path.join(scratch, os.path.basename(path))
            yield copy if on_disk else temporary
            if on_disk:
                gfile.copy(copy, temporary)
        replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            file_system.discard(temporary)
        raise


@contextlib.contextmanager
def _beside(path: str) -> Iterator[str]:
    """Yields a path in a locked folder, which is then removed.

    The folder stays if it has the only copy of the earlier one.
    """
    _remove_stale(path)
    temporary = ""
    while not temporary:
        temporary = _temporary(path)
        os.mkdir(temporary)
        lock_path = os.path.join(temporary, _LOCK)
        try:
            lock = open(lock_path, "wb")
        except FileNotFoundError:  # Another writer has removed the folder.
            temporary = ""
            continue
        except OSError:  # A full disk.
            os.rmdir(temporary)
            raise
        with contextlib.suppress(OSError):  # Not every disk has locks.
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(lock_path):  # As above.
            lock.close()
            temporary = ""
    with lock:
        try:
            yield os.path.join(temporary, _NEW)
        finally:
            with contextlib.suppress(OSError):
                _remove(temporary, path)


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    unique = uuid.uuid4().hex[:_DIGITS]
    return os.path.join(folder, f".{name}.{unique}{_INCOMPLETE}")


def _remove(temporary: str, path: str) -> None:
    """Removes a temporary folder, the lock last; puts an earlier one back."""
    old = os.path.join(temporary, _OLD)
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)
    for name in set(os.listdir(temporary)) - {_LOCK}:
        inner = os.path.join(temporary, name)
        is_folder = os.path.isdir(inner) and not os.path.islink(inner)
        (shutil.rmtree if is_folder else os.remove)(inner)
    os.remove(os.path.join(temporary, _LOCK))
    os.rmdir(temporary)


def _remove_stale(path: str) -> None:
    """Removes the temporary folders of `path` that killed runs have left.

    These are those that no process has locked.
    """
    folder, name = map(glob.escape, os.path.split(path))
    pattern = f".{name}.{'?' * _DIGITS}{_INCOMPLETE}"
    for temporary in sorted(glob.glob(os.path.join(folder, pattern))):
        # Another process may remove it meanwhile, or may have been killed
        # before it made the lock. NFS locks only files open for writing.
        with (
            contextlib.suppress(OSError),
            open(os.path.join(temporary, _LOCK), "ab") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(temporary, path)
