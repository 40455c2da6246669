"""Copies of remote files on this disk, for code that reads no buckets.

copies.local("gs://bucket/out/config.json")
    -> /tmp/copies-.../gs/bucket/out/config.json
"""

import functools
import os
import tempfile
from collections.abc import Sequence

from foundation import atomic, errors, file_system


def local(path: str) -> str:
    """Returns a path on this disk: the path itself, or that of a copy.

    Copies last as long as the process, and are renewed when the file changes.

    Raises:
      InputError: a remote file is missing, or the file is a pointer of Git LFS.
    """
    file_system.refuse_pointer(path)
    if not file_system.is_remote(path):
        return path
    if not file_system.is_file(path):
        raise errors.InputError(f"{path}: no such file")
    status = file_system.gfile().stat(path)
    return _copied(path, status.length, status.mtime_nsec)


def local_folder(folder: str, names: Sequence[str]) -> str:
    """Returns a folder on this disk with copies of those files that exist.

    Args:
      folder: is returned as it is if it is on this disk.
      names: names of the files to copy, unless the folder is on this disk.
    """
    if not file_system.is_remote(folder):
        return folder
    for path in (os.path.join(folder, name) for name in names):
        if file_system.is_file(path):
            local(path)
    return _copy_of(folder)


@functools.lru_cache
def _copied(path: str, *_version: int) -> str:
    copy = _copy_of(path)
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    with atomic.replacing(copy) as temporary:
        file_system.gfile().copy(path, temporary, overwrite=True)
    return copy


def _copy_of(path: str) -> str:
    """Returns the path of a remote file's copy, which ends like the file's."""
    scheme, rest = path.split("://", 1)
    rest = os.path.normpath(f"/{rest}").lstrip("/")
    return os.path.join(temporary().name, scheme, rest)


@functools.cache
def temporary() -> tempfile.TemporaryDirectory:
    """Returns a folder on this disk that lasts as long as the process."""
    return tempfile.TemporaryDirectory(prefix="copies-")
