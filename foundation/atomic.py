"""Writes files and folders completely or not at all.

    with atomic.replacing("out/a.npy") as temporary:
        numpy.save(temporary, values)
    with atomic.replacing_folder("out/model") as temporary:
        save(model, temporary)
    atomic.write_text("gs://bucket/out/kept.json", text)

A kill or a power failure leaves the former file or the new one. What is written
is in a folder beside what it replaces, with a lock of its process, so that the
next writer beside it knows those of killed processes, and removes them:

    out/.model.01234567.incomplete/lock
                                   files/new    what is being written
                                   files/old    the earlier folder, between the
                                                two renames of a swap

A bucket has neither folders nor locks: the file is made on this disk, copied
beside its place, and renamed.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from foundation import file_system

_INCOMPLETE = ".incomplete"
# Eight characters are tempfile's.
_TEMPORARY = re.compile(rf"\.(.+)\.\w{{8}}{_INCOMPLETE}", re.S)
_LOCK, _FILES, _NEW, _OLD = "lock", "files", "new", "old"
_LONG = 600  # Seconds; a new folder is locked in milliseconds.


@contextlib.contextmanager
def replacing(path: str, suffixes: Sequence[str] = ("",)) -> Iterator[str]:
    """Yields a temporary path on a disk to write to; it then replaces `path`.

    On a disk, the data is flushed to the disk before the rename, and the folder
    after it, so that a power failure leaves the old file or the complete new
    one. The temporary path is in a folder of its own, which is removed with all
    of its files, also after an exception.

    Args:
      path: path of the file, new or existing; its folder exists.
      suffixes: ends of the names of several files that begin with `path`, in
        the order in which they replace others.
    """
    path = os.fspath(path)
    is_remote = file_system.is_remote(path)
    opened = tempfile.TemporaryDirectory() if is_remote else _beside(path)
    with file_system.naming(path), opened as files:
        temporary = os.path.join(files, _NEW)
        yield temporary
        for suffix in suffixes:
            source, target = temporary + suffix, path + suffix
            if is_remote:
                # What a killed process has left there is written over.
                folder, name = os.path.split(target)
                copy = os.path.join(folder, f".{name}{_INCOMPLETE}")
                file_system.gfile().copy(source, copy, overwrite=True)
                file_system.gfile().rename(copy, target, overwrite=True)
            else:
                flush(source)
                os.replace(source, target)
                flush(os.path.dirname(target) or ".")


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file atomically; see `replacing`."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
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
    kill at this instant, `restore_folders` brings the earlier folder back.

    Args:
      path: path of the folder, on this disk, new or existing.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with file_system.naming(path), _beside(path) as files:
        temporary = os.path.join(files, _NEW)
        yield temporary
        # Now: a flush can fail, and must do so before anything is renamed.
        for inner, _, names in os.walk(temporary):
            for name in (*names, ""):
                flush(os.path.join(inner, name))
        if os.path.lexists(path):
            os.rename(path, os.path.join(files, _OLD))
        os.rename(temporary, path)
        flush(os.path.dirname(path))


def restore_folders(parent: str) -> None:
    """Brings back folders that processes were replacing when they were killed.

    Removes what else killed processes were writing there.
    """
    is_local = not file_system.is_remote(parent) and os.path.isdir(parent)
    for name in os.listdir(parent) if is_local else ():
        if match := _TEMPORARY.fullmatch(name):
            temporary = os.path.join(parent, name)
            # Another process may remove it meanwhile, or may not have locked it
            # yet. NFS locks only files open for writing.
            with contextlib.suppress(OSError):
                is_old = time.time() - os.stat(temporary).st_mtime > _LONG
                lock = os.path.join(temporary, _LOCK)
                with open(lock, "ab" if is_old else "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(temporary, os.path.join(parent, match[1]))


def flush(path: str) -> None:
    """Forces a file's data, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with file_system.naming(path):
            os.fsync(handle)
    except OSError:
        if not os.path.isdir(path):  # Some network disks flush no folders.
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _beside(path: str) -> Iterator[str]:
    """Yields a folder in a locked folder, which is then removed.

    The folder stays if it has the only copy of the earlier one.
    """
    folder, name = os.path.split(path)
    restore_folders(folder or ".")
    temporary = tempfile.mkdtemp(_INCOMPLETE, f".{name}.", folder or ".")
    files = os.path.join(temporary, _FILES)
    try:
        with open(os.path.join(temporary, "unlocked"), "wb") as lock:
            with contextlib.suppress(OSError):  # Not every disk has locks.
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Others do not see the lock before it is held.
            os.replace(lock.name, os.path.join(temporary, _LOCK))
            os.mkdir(files)
            yield files
    finally:
        with contextlib.suppress(OSError):
            _remove(temporary, path)


def _remove(temporary: str, path: str) -> None:
    """Removes a temporary folder, the lock last; puts an earlier one back."""
    files = os.path.join(temporary, _FILES)
    old = os.path.join(files, _OLD)
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)
    shutil.rmtree(files, ignore_errors=True)
    shutil.rmtree(temporary)
