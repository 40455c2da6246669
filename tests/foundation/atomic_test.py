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
import time

import pytest
import safetensors
import tensorflow as tf

from foundation import atomic, copies, file_system


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    """Here files are flushed."""


def test_text_is_written_over_and_read_again(folder):
    path = f"{folder}/note.txt"
    assert not file_system.exists(path)
    for text in ("first\n", "zweites, längeres\r\n", ""):
        atomic.write_text(path, text)
        with open(copies.local(path), "rb") as file:
            assert file.read() == text.encode()
    assert file_system.is_file(path) and not file_system.is_folder(path)
    assert file_system.is_folder(folder) and not file_system.is_file(folder)
    assert tf.io.gfile.listdir(folder) == ["note.txt"]
    file_system.remove(path)
    assert not file_system.exists(path)


def test_what_fails_leaves_the_former_file(folder):
    path = f"{folder}/note.txt"
    atomic.write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        with atomic.replacing(path, on_disk=True) as temporary:
            with open(temporary, "w") as file:
                file.write("new")
            raise ZeroDivisionError
    assert file_system.read_text(path) == "old"


def test_data_is_flushed_before_the_rename_and_the_folder_after(
    tmp_path, monkeypatch
):
    calls = []
    fsync, replace = os.fsync, os.replace

    def flush(handle):
        calls.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def rename(source, path):
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
    assert set(flushed[:-1]) == inside and flushed[-1] == str(tmp_path)
    assert _text_of(path) == "data"
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_is_replaced_by_two_renames(tmp_path):
    path = tmp_path / "made"
    for text in ("1", "2", "3"):
        _write_folder(path, text)
        assert _text_of(path) == text
        assert os.listdir(tmp_path) == ["made"]


@pytest.mark.parametrize(
    "call", ["lock", "fsync", "first rename", "second rename"]
)
def test_a_failure_leaves_the_earlier_folder(tmp_path, monkeypatch, call):
    path, calls = tmp_path / "made", []
    _write_folder(path, "old")
    rename = os.rename

    def fail(*names):
        raise OSError(28, "No space left on device", *names[:1])

    def rename_some(source, target):
        calls.append(source)
        if len(calls) == 1 + (call == "second rename"):
            fail(source)
        rename(source, target)

    if "rename" in call:
        monkeypatch.setattr(os, "rename", rename_some)
    elif call == "lock":
        monkeypatch.setattr(atomic, "open", fail, raising=False)
    else:
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        _write_folder(path, "new")
    assert caught.value.filename == str(path)
    assert _text_of(path) == "old"
    assert os.listdir(tmp_path) == ["made"]


def test_the_earlier_folder_stays_if_it_cannot_be_renamed_back(
    tmp_path, monkeypatch
):
    path, rename = tmp_path / "made", os.rename
    _write_folder(path, "old")

    def rename_once(source, target):
        if os.path.exists(path):
            return rename(source, target)
        raise OSError(5, "Input/output error", source)

    monkeypatch.setattr(os, "rename", rename_once)
    with pytest.raises(OSError, match="Input/output"):
        _write_folder(path, "new")
    monkeypatch.setattr(os, "rename", rename)
    assert not path.exists()
    atomic.restore_folders(str(tmp_path))
    assert _text_of(path) == "old"
    _write_folder(path, "newer")
    assert os.listdir(tmp_path) == ["made"]


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
    atomic.restore_folder(str(path))
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
    # Killed before it locked the folder.
    (tmp_path / ".made.0123456789ab.incomplete").mkdir()
    other = tmp_path / ".made.too.0123456789ab.incomplete"
    other.mkdir()
    assert len(os.listdir(tmp_path)) == 4 and _text_of(path) == "old"
    with atomic.replacing_folder(str(path)) as living:
        os.mkdir(living)
        assert set(os.listdir(tmp_path)) == {
            "made",
            other.name,
            os.path.basename(os.path.dirname(living)),
        }
        _write_folder(path, "new")
        assert os.path.isdir(living)
    assert sorted(os.listdir(tmp_path)) == [other.name, "made"]


def test_a_folder_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path, monkeypatch
):
    path, mkdir, made = str(tmp_path / "made"), os.mkdir, []

    def late(name, *mode):
        mkdir(name, *mode)
        made.append(name)
        if len(made) == 1:
            monkeypatch.setattr(os, "mkdir", mkdir)
            _write_folder(path, "theirs")
            monkeypatch.setattr(os, "mkdir", late)
            assert os.listdir(tmp_path) == ["made"]

    monkeypatch.setattr(os, "mkdir", late)
    with atomic.replacing_folder(path) as temporary:
        assert os.path.dirname(temporary) == made[1]
        mkdir(temporary)
    assert os.listdir(tmp_path) == ["made"] and not os.listdir(path)


def test_what_a_writer_leaves_beside_its_file_is_removed(folder):
    path = f"{folder}/a"
    with atomic.replacing(path, on_disk=True) as name:
        for other in (name, f"{name}.tmp"):
            pathlib.Path(other).write_text("text")
        assert not os.path.exists(os.path.join(folder, "a.tmp"))
    assert file_system.read_text(path) == "text"
    assert tf.io.gfile.listdir(folder) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_crash_before_the_rename_leaves_the_old_file(
    tmp_path, monkeypatch, call
):
    path = tmp_path / "a"
    atomic.write_text(str(path), "old")

    def fail(*_):
        raise OSError(28, "No space left on device", "a temporary name")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_text(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_named_with_the_path(tmp_path):
    """The error of a write() names no file."""
    path = str(tmp_path / "a")
    with pytest.raises(OSError, match="No space left") as caught:
        with atomic.replacing(path):
            raise OSError(28, "No space left on device")
    assert caught.value.filename == path


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


def test_an_error_of_another_file_keeps_its_name(tmp_path):
    with pytest.raises(tf.errors.UnknownError, match="/corpus/a"):
        with atomic.replacing(str(tmp_path / "a")):
            text = f"/corpus/a; {os.strerror(errno.EIO)}"
            raise tf.errors.UnknownError(None, None, text)


def test_a_folder_that_cannot_be_read_is_not_flushed_in_silence(
    tmp_path, monkeypatch
):
    def fail(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OSError) as caught:
        atomic.flush_folder(str(tmp_path))
    assert caught.value.filename == str(tmp_path)


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nowhere" / "a", tmp_path / "folder"):
        with pytest.raises(OSError) as caught:
            atomic.write_text(str(path), "text")
        assert str(caught.value).endswith(f": '{path}'")
    assert os.listdir(tmp_path) == ["folder"]


def test_the_next_write_removes_what_a_killed_run_left(tmp_path, repository):
    path = str(tmp_path / "a[1]")
    code = (
        "import sys; from foundation import atomic\n"
        "with atomic.replacing(sys.argv[1]) as name:\n"
        "  print(name, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        temporary = os.path.dirname(writer.stdout.readline().strip())
        others = tmp_path / ".a[1].0123456789.incomplete"
        others.write_text("")  # Two digits are missing.
        atomic.write_text(path, "meanwhile")
        assert os.path.exists(temporary)  # Its writer is alive.
        writer.send_signal(signal.SIGKILL)
    assert os.path.exists(temporary)
    atomic.write_text(path, "afterwards")
    assert sorted(os.listdir(tmp_path)) == [others.name, "a[1]"]


def test_old_temporary_files_in_buckets_are_removed(tmp_path):
    left = tmp_path / ".a.0123456789ab.incomplete"
    left.write_text("half")
    atomic.write_text(f"file://{tmp_path}/a", "text")
    assert sorted(os.listdir(tmp_path)) == [left.name, "a"]
    os.utime(left, (time.time() - 2 * 24 * 3600,) * 2)
    atomic.write_text(f"file://{tmp_path}/a", "text")
    assert os.listdir(tmp_path) == ["a"]


def test_writers_of_one_file_do_not_remove_each_others(tmp_path, monkeypatch):
    """Two look for files of killed runs, one before the file is locked."""
    path, lock, calls = str(tmp_path / "a"), fcntl.flock, []

    def late(file, operation):
        calls.append(operation)
        if len(calls) == 1:
            atomic.write_text(path, "theirs")
            assert os.listdir(tmp_path) == ["a"]
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic.replacing(path) as temporary:
        pathlib.Path(temporary).write_text("ours")
        atomic.write_text(path, "theirs again")
        assert pathlib.Path(temporary).exists()
    assert os.listdir(tmp_path) == ["a"]
    assert file_system.read_text(path) == "ours"
