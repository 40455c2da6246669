"""Proves that files are written atomically and read, on disks and in buckets.

python -m pytest tests/foundation/file_system_test.py

TensorFlow's file system in memory, ram://, takes the part of a bucket.
"""

import bz2
import errno
import fcntl
import glob
import gzip
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pyarrow
import pytest
import safetensors
import tensorflow as tf

from foundation import errors, file_system


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    """Here files are flushed."""


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    path = str(tmp_path) if request.param == "disk" else f"ram:/{tmp_path}"
    file_system.make_folder(path)
    yield path
    if request.param == "memory":
        tf.io.gfile.rmtree(path)


def test_text_is_written_over_and_read_again(folder):
    path = f"{folder}/note.txt"
    assert not file_system.exists(path)
    for text in ("first\n", "zweites, längeres\r\n", ""):
        file_system.write_text(path, text)
        with open(file_system.local(path), "rb") as file:
            assert file.read() == text.encode()
    assert file_system.is_file(path) and not file_system.is_folder(path)
    assert file_system.is_folder(folder) and not file_system.is_file(folder)
    assert tf.io.gfile.listdir(folder) == ["note.txt"]
    file_system.remove(path)
    assert not file_system.exists(path)


def test_what_fails_leaves_the_former_file(folder):
    path = f"{folder}/note.txt"
    file_system.write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        with file_system.replacing(path, on_disk=True) as temporary:
            with open(temporary, "w") as file:
                file.write("new")
            raise ZeroDivisionError
    assert file_system.read_text(path) == "old"


def test_files_of_a_folder_go_there_and_come_back(folder):
    made = f"{folder}/made"
    file_system.make_folder(made)
    for name in ("a", "b"):
        file_system.write_text(f"{made}/{name}", name)
    assert sorted(tf.io.gfile.listdir(made)) == ["a", "b"]
    found = file_system.local_folder(made, ["a", "c"])
    assert file_system.read_text(os.path.join(found, "a")) == "a"
    file_system.remove(f"{made}/a")
    found = file_system.local_folder(made, ["a", "c"])
    assert not os.path.exists(os.path.join(found, "a"))


def test_a_missing_file_in_a_bucket_is_named():
    with pytest.raises(errors.InputError, match="ram://nowhere/x: no such"):
        file_system.read_text("ram://nowhere/x")


def test_copies_never_leave_their_folder():
    found = file_system.local_folder("ram://a/../../../b", [])
    assert found.endswith("/ram/b")


def test_what_needs_a_disk_is_refused_by_its_flag():
    file_system.refuse_remote("/tmp/x", "output", "it is mapped")
    with pytest.raises(errors.InputError, match="--output=gs://x: must be on"):
        file_system.refuse_remote("gs://x", "output", "it is mapped")


def test_a_file_in_place_of_a_folder_is_refused_by_its_flag(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for path in ("file", "file/a/b", "lost"):
        with pytest.raises(
            errors.InputError, match=f"^--x=.*{path}: "
        ) as found:
            file_system.check_output_folder(str(tmp_path / path), "x")
        assert str(tmp_path / path.partition("/")[0]) in str(found.value)
    for path in (tmp_path, tmp_path / "new" / "er", "", "gs://bucket/x"):
        file_system.check_output_folder(str(path), "x")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_may_not_be_made_is_refused(tmp_path, monkeypatch):
    """An existing one is not: predictions may go to standard output."""
    monkeypatch.setattr(file_system.os, "access", lambda *_: False)
    with pytest.raises(errors.InputError, match=f"^--x=.*{tmp_path} is not wr"):
        file_system.check_output_folder(str(tmp_path / "new" / "er"), "x")
    file_system.check_output_folder(str(tmp_path), "x")


def test_endings_are_without_regard_to_capitals_and_compression():
    assert file_system.ending("a.b/C.CSV") == ".csv"
    assert file_system.ending(file_system.uncompressed("C.CSV.GZ")) == ".csv"
    assert file_system.uncompressed("a.b/c") == "a.b/c"


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
    with file_system.replacing(str(tmp_path / "a")) as temporary:
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
    with file_system.replacing_folder(str(path)) as made:
        os.makedirs(f"{made}/inner")
        for name in ("a", "inner/b"):
            pathlib.Path(made, name).write_text(text)
    return pathlib.Path(made)


def _text_of(path):
    """Returns the text that `_write_folder` wrote to both files."""
    a, b = (pathlib.Path(path, name).read_text() for name in ("a", "inner/b"))
    assert a == b
    return a


def _exchange_nothing(monkeypatch):
    monkeypatch.setattr(file_system, "exchange", lambda *_: False)


def test_a_folder_is_flushed_with_its_files_before_the_rename(
    tmp_path, monkeypatch
):
    path, flushed = tmp_path / "a[1]", []

    def flush(name):
        flushed.append(name)
        assert path.exists() == (name == str(tmp_path))

    monkeypatch.setattr(file_system, "_flush", flush)
    made = _write_folder(path, "data")
    inside = {str(made / name) for name in ("", "a", "inner", "inner/b")}
    assert set(flushed[:-1]) == inside and flushed[-1] == str(tmp_path)
    assert _text_of(path) == "data"
    assert os.listdir(tmp_path) == [path.name]


def test_an_exchange_of_names_replaces_a_folder_in_one_step(
    tmp_path, monkeypatch
):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").write_text("")
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    if not file_system.exchange(one, other):
        pytest.skip("the file system cannot exchange two names")
    assert os.path.isfile(one) and os.path.isdir(other)
    with pytest.raises(FileNotFoundError):
        file_system.exchange(one, str(tmp_path / "nowhere"))
    path = tmp_path / "folder" / "made"
    _write_folder(path, "old")
    monkeypatch.setattr(os, "rename", None)
    _write_folder(path, "new")
    assert _text_of(path) == "new"
    assert os.listdir(tmp_path / "folder") == ["made"]


def test_two_renames_replace_a_folder_where_names_cannot_be_exchanged(
    tmp_path, monkeypatch
):
    path = tmp_path / "made"
    _exchange_nothing(monkeypatch)
    for text in ("1", "2", "3"):
        _write_folder(path, text)
        assert _text_of(path) == text
        assert os.listdir(tmp_path) == ["made"]


@pytest.mark.parametrize(
    "call", ["lock", "fsync", "exchange", "first rename", "second rename"]
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
        _exchange_nothing(monkeypatch)
        monkeypatch.setattr(os, "rename", rename_some)
    elif call == "lock":
        monkeypatch.setattr(file_system, "_locked", fail)
    else:
        owner = os if call == "fsync" else file_system
        monkeypatch.setattr(owner, call, fail)
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

    _exchange_nothing(monkeypatch)
    monkeypatch.setattr(os, "rename", rename_once)
    with pytest.raises(OSError, match="Input/output"):
        _write_folder(path, "new")
    monkeypatch.setattr(os, "rename", rename)
    assert not path.exists()
    file_system.restore_folders(str(tmp_path))
    assert _text_of(path) == "old"
    _write_folder(path, "newer")
    assert os.listdir(tmp_path) == ["made"]


def _kill_folder_writer(repository, path, moment):
    """Kills a process that replaces a folder without an exchange of names."""
    code = (
        "import os, signal, sys; from foundation import file_system\n"
        "path, moment = sys.argv[1:]\n"
        "rename, left = os.rename, [int(moment)]\n"
        "def kill(*names):\n"
        "  if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "  left[0] -= 1; rename(*names)\n"
        "os.rename = kill; file_system.exchange = lambda *_: False\n"
        "with file_system.replacing_folder(path) as made:\n"
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
    file_system.restore_folder(str(path))
    assert _text_of(path) == "old"
    _kill_folder_writer(repository, path, 1)
    with pytest.raises(ZeroDivisionError):
        with file_system.replacing_folder(str(path)):
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
    with file_system.replacing_folder(str(path)) as living:
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
    with file_system.replacing_folder(path) as temporary:
        assert os.path.dirname(temporary) == made[1]
        mkdir(temporary)
    assert os.listdir(tmp_path) == ["made"] and not os.listdir(path)


def test_a_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    (tmp_path / "predict.incomplete" / "inner").mkdir(parents=True)
    (tmp_path / "predict.incomplete" / "inner" / "settings.json").touch()

    def fail(path, *, dir_fd=None):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    path = str(tmp_path / "predict.incomplete")
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", fail)
        with pytest.raises(OSError) as caught:
            file_system.remove_folder(path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, path)
    file_system.remove_folder(path)
    assert not os.listdir(tmp_path)


def test_what_a_writer_leaves_beside_its_file_is_removed(folder):
    path = f"{folder}/a"
    with file_system.replacing(path, on_disk=True, own_folder=True) as name:
        for other in (name, f"{name}.tmp"):
            pathlib.Path(other).write_text("text")
        assert not os.path.exists(os.path.join(folder, "a.tmp"))
    assert file_system.read_text(path) == "text"
    assert tf.io.gfile.listdir(folder) == ["a"]


def test_a_name_in_a_list_may_contain_commas(tmp_path):
    def split(text):
        return file_system.split_names(text, lambda x: x in names)

    names = {"a", "b{1,2}/x", "c,d,e", "f,g", "f"}
    assert split("a, b{1,2}/x,c,d,e ,,a") == ["a", "b{1,2}/x", "c,d,e", "a"]
    assert split("f,g") == ["f", "g"]  # The shorter name is there.
    assert split("h,a") == ["h", "a"]
    assert split(" , ") == []


def test_an_escaped_path_matches_only_itself(folder):
    names = ["a[1]", "a1", "a\\b", "ab", "a*b", "a?b", "a{b,c}"]
    for name in names:
        file_system.write_text(f"{folder}/{name}", "")
    for name in names:
        pattern = f"{file_system.escaped(folder)}/{file_system.escaped(name)}"
        found = tf.io.gfile.glob(pattern)
        assert list(map(os.path.basename, found)) == [name]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_crash_before_the_rename_leaves_the_old_file(
    tmp_path, monkeypatch, call
):
    path = tmp_path / "a"
    file_system.write_text(str(path), "old")

    def fail(*_):
        raise OSError(28, "No space left on device", "a temporary name")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        file_system.write_text(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_named_with_the_path(tmp_path):
    """The error of a write() names no file."""
    path = str(tmp_path / "a")
    with pytest.raises(OSError, match="No space left") as caught:
        with file_system.replacing(path):
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
        with file_system.replacing(path) as temporary:
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
        with file_system.replacing(str(tmp_path / "a")):
            text = f"/corpus/a; {os.strerror(errno.EIO)}"
            raise tf.errors.UnknownError(None, None, text)


def test_an_error_of_reading_names_the_file():
    """Linux answers EIO where a process has no memory, as at address 0."""
    path = "/proc/self/mem"
    with pytest.raises(OSError) as caught:
        file_system.open_binary(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)


def test_only_what_is_not_there_is_missing(tmp_path, monkeypatch):
    """Not what a failing disk says nothing about."""
    file = tmp_path / "a"
    file.touch()
    (tmp_path / "loop").symlink_to("loop")
    asked = (
        *(file_system.exists, file_system.is_file, file_system.is_folder),
        file_system.is_regular,
    )
    for name in ("b", "a/b", "a\0b", "a" * 999, "loop"):
        assert not any(ask(str(tmp_path / name)) for ask in asked)
    assert [ask(str(file)) for ask in asked] == [True, True, False, True]

    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "stat", fail)
    for ask in asked:
        with pytest.raises(OSError) as caught:
            ask(str(file))
        assert caught.value.filename == str(file)


def test_a_pattern_matches_what_glob_matches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/1.txt", "a/.2.txt", "b/1.txt", "b/[3].txt", ".c/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "d.txt").symlink_to("nowhere")
    relative = (
        "*",
        "*.txt",
        "*/*.txt",
        "*/.*",
        "?/1.txt",
        "[ab]/1*",
        "a/1.txt",
    )
    relative += ("**", "*/", "a/", "e/*", "d.txt/*", "d.txt", ".c/*", "a/*/*")
    for pattern in (*relative, "./*", f"{tmp_path}/*/*", f"{tmp_path}/a/1.txt"):
        found = file_system.matches(pattern)
        start = "" if "/" in pattern else "./"
        assert sorted(found) == sorted(glob.glob(start + pattern)), pattern
    assert file_system.matches(r"*/\[3\].txt") == ["b/[3].txt"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("pattern", ["a/*", "*/*.txt", "*/b/*"])
def test_an_unreadable_folder_is_not_an_empty_one(
    tmp_path, monkeypatch, number, pattern
):
    (tmp_path / "a" / "b").mkdir(parents=True)
    inner = str(tmp_path / "a" / "b" if "b" in pattern else tmp_path / "a")
    listdir = os.listdir

    def fail(path):
        if path == inner:
            raise OSError(number, os.strerror(number), path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(OSError) as caught:
        file_system.matches(os.path.join(tmp_path, pattern))
    assert (caught.value.errno, caught.value.filename) == (number, inner)


def test_a_folder_that_cannot_be_read_is_not_flushed_in_silence(
    tmp_path, monkeypatch
):
    def fail(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OSError) as caught:
        file_system.flush_folder(str(tmp_path))
    assert caught.value.filename == str(tmp_path)


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nowhere" / "a", tmp_path / "folder"):
        with pytest.raises(OSError) as caught:
            file_system.write_text(str(path), "text")
        assert str(caught.value).endswith(f": '{path}'")
    assert os.listdir(tmp_path) == ["folder"]


def test_the_next_write_removes_what_a_killed_run_left(tmp_path, repository):
    path = str(tmp_path / "a[1]")
    code = (
        "import sys; from foundation import file_system\n"
        "with file_system.replacing(sys.argv[1]) as name:\n"
        "  print(name, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        temporary = writer.stdout.readline().strip()
        others = tmp_path / ".a[1].0123456789.incomplete"
        others.write_text("")  # Two digits are missing.
        file_system.write_text(path, "meanwhile")
        assert os.path.exists(temporary)  # Its writer is alive.
        writer.send_signal(signal.SIGKILL)
    assert os.path.exists(temporary)
    file_system.write_text(path, "afterwards")
    assert sorted(os.listdir(tmp_path)) == [others.name, "a[1]"]


def test_old_temporary_files_in_buckets_are_removed(tmp_path):
    left = tmp_path / ".a.0123456789ab.incomplete"
    left.write_text("half")
    file_system.write_text(f"file://{tmp_path}/a", "text")
    assert sorted(os.listdir(tmp_path)) == [left.name, "a"]
    os.utime(left, (time.time() - 2 * 24 * 3600,) * 2)
    file_system.write_text(f"file://{tmp_path}/a", "text")
    assert os.listdir(tmp_path) == ["a"]


def test_writers_of_one_file_do_not_remove_each_others(tmp_path, monkeypatch):
    """Two look for files of killed runs, one before the file is locked."""
    path, lock, calls = str(tmp_path / "a"), fcntl.flock, []

    def late(file, operation):
        calls.append(operation)
        if len(calls) == 1:
            file_system.write_text(path, "theirs")
            assert os.listdir(tmp_path) == ["a"]
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with file_system.replacing(path) as temporary:
        pathlib.Path(temporary).write_text("ours")
        file_system.write_text(path, "theirs again")
        assert pathlib.Path(temporary).exists()
    assert os.listdir(tmp_path) == ["a"]
    assert file_system.read_text(path) == "ours"


def test_a_digest_is_that_of_the_bytes(folder):
    file_system.write_bytes(f"{folder}/a", b"\x00\xff" * 3_000_000)
    expected = hashlib.sha256(b"\x00\xff" * 3_000_000).hexdigest()
    assert file_system.sha256(f"{folder}/a") == expected


def test_the_line_of_the_first_byte_that_is_not_utf8_is_named():
    assert file_system.decode("é\n".encode(), "a") == "é\n"
    with pytest.raises(errors.InputError, match="^a:9: not UTF-8 text$"):
        file_system.decode(b"one\ntwo \xff\n\xff", "a", 8)


def test_a_compressed_file_beside_the_named_one_is_found(tmp_path):
    path = str(tmp_path / "a.json")
    for ending, opener in (
        (".zst", pyarrow.output_stream),
        (".bz2", bz2.open),
        (".gz", gzip.open),
    ):
        mode = {"compression": "zstd"} if ending == ".zst" else {"mode": "wb"}
        with opener(path + ending, **mode) as file:
            file.write(b'\xef\xbb\xbf{"a": 1}')
        assert file_system.find(path) == path + ending
        assert file_system.read_json(path + ending) == {"a": 1}
    (tmp_path / "a.json").write_text("[2]")
    assert file_system.read_json(file_system.find(path)) == [2]


@pytest.mark.parametrize(
    "name", ["nowhere", "", "folder"], ids=["absent", "empty", "folder"]
)
def test_what_is_no_file_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / name) if name else ""
    kind = "no such file" if name != "folder" else "is a directory"
    with pytest.raises(errors.InputError, match=f"^{path}: {kind}"):
        file_system.find(path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", b'{"a":\n "\xff"}', ":2: not UTF-8 text"),
        ("a.json", b'{"a":\n {,', ":2: malformed JSON: .* at column 3"),
        ("a.csv", b"text,label\n", ":1: malformed JSON: .* with 'text,label'"),
        ("a.json", b"", ":1: malformed JSON: Expecting value at column 1"),
        ("a.json", b"[" * 200000, ": malformed JSON: .* within each other"),
        ("a.json.gz", gzip.compress(b"[1, 2, 3]")[:-9], ": .* cut off"),
        ("a.json.gz", b"[]", ": not compressed, or in another way"),
        ("a.json.gz", bz2.compress(b"[]"), ": not .* another way"),
        ("a.json.bz2", bz2.compress(b"[1, 2, 3]")[:-9], ": .* cut off"),
        ("a.json.bz2", b"[]", ": not compressed, or in another way"),
        ("a.json.zst", b"\x28\xb5\x2f\xfd", ": Truncated"),
        ("a.json.zst", b"[]", ": not compressed, or in another way"),
    ],
    ids=(
        "bytes json csv empty depth gz no_gz bz2_as_gz bz2 no_bz2 zst no_zst"
    ).split(),
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.InputError, match=name + message):
        file_system.read_json(str(tmp_path / name))


def test_a_key_that_occurs_twice_is_logged(tmp_path, caplog):
    (tmp_path / "a.json").write_text('{"a": [{"b": 1, "c": 2, "b": 3}]}')
    with caplog.at_level("WARNING", logger="absl"):
        values = file_system.read_json(str(tmp_path / "a.json"))
    assert values == {"a": [{"b": 3, "c": 2}]}
    assert "a.json: the key 'b' occurs twice in an object" in caplog.text


def test_a_path_of_tensorflows_file_systems_is_read_by_it(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"a": 1}))
    path = f"file://{tmp_path}/a.json"
    assert file_system.find(path) == path
    assert file_system.read_json(path) == {"a": 1}
    with pytest.raises(errors.InputError, match="is a directory"):
        file_system.find(f"file://{tmp_path}")


def test_reading_starts_without_tensorflow(repository):
    code = (
        "import sys; from foundation import file_system; "
        "from tasks.squad import dataset, metrics; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=repository, check=True)
