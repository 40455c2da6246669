"""Proves that files and folders are written completely or not at all.

python -m pytest tests/foundation/atomic_test.py

TensorFlow's file system in memory, ram://, takes the part of a bucket.
"""

import errno
import fcntl
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import safetensors
import tensorflow as tf

from foundation import atomic, file_system


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    """Here files are flushed."""


def test_a_file_in_a_bucket_is_renamed_when_it_is_complete():
    path = "ram://atomic/a"
    tf.io.gfile.makedirs("ram://atomic")
    for text in ("old", "new"):
        with pytest.raises(ZeroDivisionError):
            with atomic.replacing(path) as temporary:
                pathlib.Path(temporary).write_text("half")
                raise ZeroDivisionError
        atomic.write_text(path, text)
        assert file_system.read_text(path) == text
        assert tf.io.gfile.listdir("ram://atomic") == ["a"]


def test_data_is_flushed_before_the_rename_and_the_folder_after(
    tmp_path, monkeypatch
):
    calls = []
    fsync, replace = os.fsync, os.replace

    def flush(handle):
        calls.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def rename(source, path):
        if not source.endswith("/unlocked"):
            calls.append(("rename", source))
        replace(source, path)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    with atomic.replacing(str(tmp_path / "a")) as temporary:
        pathlib.Path(temporary).write_text("data")
        assert calls == []
    assert calls == [
        ("flush", temporary),
        ("rename", temporary),
        ("flush", str(tmp_path)),
    ]
    assert (tmp_path / "a").read_text() == "data"


def _write_folder(path, text):
    """Replaces a folder; returns the temporary one."""
    with atomic.replacing_folder(str(path)) as made:
        os.makedirs(f"{made}/inner")
        for name in ("a", "inner/b"):
            pathlib.Path(made, name).write_text(text)
    return pathlib.Path(made)


def _text_of(path):
    """Returns the text that `_write_folder` wrote to both files."""
    a, b = (pathlib.Path(path, name).read_text() for name in ("a", "inner/b"))
    assert a == b
    return a


def test_a_folder_is_flushed_with_its_files_before_the_rename(
    tmp_path, monkeypatch
):
    path, flushed = tmp_path / "a[1]", []

    def flush(name):
        flushed.append(name)
        assert path.exists() == (name == str(tmp_path))

    monkeypatch.setattr(atomic, "flush", flush)
    made = _write_folder(path, "data")
    inside = {str(made / name) for name in ("", "a", "inner", "inner/b")}
    assert {*map(os.path.normpath, flushed[:-1])} == inside
    assert flushed[-1] == str(tmp_path)
    assert _text_of(path) == "data"
    assert os.listdir(tmp_path) == [path.name]


def _kill_folder_writer(repository, path, moment):
    """Kills a process that replaces a folder without an exchange of names."""
    code = (
        "import os, signal, sys; from foundation import atomic\n"
        "path, moment = sys.argv[1:]\n"
        "rename, left = os.rename, [int(moment)]\n"
        "def kill(*names):\n"
        "  if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "  left[0] -= 1; rename(*names)\n"
        "os.rename = kill\n"
        "with atomic.replacing_folder(path) as made:\n"
        "  os.makedirs(f'{made}/inner')\n"
        "  for name in ('a', 'inner/b'):\n"
        "    with open(f'{made}/{name}', 'w') as file: file.write('killed')\n"
    )
    command = [sys.executable, "-c", code, str(path), str(moment)]
    code = subprocess.run(command, cwd=repository, check=False).returncode
    assert code == -signal.SIGKILL


def test_what_a_kill_between_two_renames_took_away_is_restored(
    tmp_path, repository
):
    path = tmp_path / "a[1]"
    _write_folder(path, "old")
    _kill_folder_writer(repository, path, 1)
    assert not path.exists()
    atomic.restore_folders(str(tmp_path))
    assert _text_of(path) == "old"
    _kill_folder_writer(repository, path, 1)
    with pytest.raises(ZeroDivisionError):
        with atomic.replacing_folder(str(path)):
            raise ZeroDivisionError
    assert _text_of(path) == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_the_next_write_removes_the_folders_of_killed_runs(
    tmp_path, repository
):
    path = tmp_path / "made"
    _write_folder(path, "old")
    _kill_folder_writer(repository, path, 0)
    other = tmp_path / ".made.too.01234567.incomplete"
    other.mkdir()
    (other / "lock").touch()
    unlocked = tmp_path / ".made.76543210.incomplete"
    unlocked.mkdir()  # By a process that was killed at once.
    os.utime(unlocked, (0, 0))
    new = tmp_path / ".made.01234567.incomplete"
    new.mkdir()  # By a process that is about to lock it.
    assert len(os.listdir(tmp_path)) == 5 and _text_of(path) == "old"
    with atomic.replacing_folder(str(path)) as living:
        os.mkdir(living)
        assert set(os.listdir(tmp_path)) == {
            "made",
            new.name,
            pathlib.Path(living).parents[1].name,
        }
        _write_folder(path, "new")
        assert os.path.isdir(living)
    assert sorted(os.listdir(tmp_path)) == [new.name, "made"]


def test_what_a_writer_leaves_beside_its_file_is_removed(folder):
    path = f"{folder}/a"
    with atomic.replacing(path) as name:
        for other in (name, f"{name}.tmp"):
            pathlib.Path(other).write_text("text")
        assert not os.path.exists(os.path.join(folder, "a.tmp"))
    assert file_system.read_text(path) == "text"
    assert tf.io.gfile.listdir(folder) == ["a"]


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE]
)
@pytest.mark.parametrize("library", ["python", "tensorflow", "safetensors"])
def test_a_failed_write_is_named_whatever_library_reports_it(
    tmp_path, number, library
):
    path, words = str(tmp_path / "a"), os.strerror(number)
    with pytest.raises(OSError) as caught:
        with atomic.replacing(path) as temporary:
            if library == "python":
                raise OSError(number, words)
            if library == "tensorflow":
                text = f"{temporary}; {words}"
                raise tf.errors.UnknownError(None, None, text)
            raise safetensors.SafetensorError(
                f"I/O error: {words} (os error {number})"
            )
    assert (caught.value.errno, caught.value.filename) == (number, path)


def test_writers_of_one_file_do_not_remove_each_others(tmp_path, monkeypatch):
    """Two look for files of killed runs, one before the file is locked."""
    path, lock, calls = str(tmp_path / "a"), fcntl.flock, []

    def late(file, operation):
        calls.append(operation)
        if len(calls) == 1:
            atomic.write_text(path, "theirs")
            assert len(os.listdir(tmp_path)) == 2
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic.replacing(path) as temporary:
        pathlib.Path(temporary).write_text("ours")
        atomic.write_text(path, "theirs again")
        assert pathlib.Path(temporary).exists()
    assert os.listdir(tmp_path) == ["a"]
    assert file_system.read_text(path) == "ours"
