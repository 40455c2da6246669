"""Proves that files are found and read, on disks and in buckets.

python -m pytest tests/foundation/file_system_test.py

TensorFlow's file system in memory, ram://, takes the part of a bucket.
"""

import bz2
import gzip
import os

import pyarrow
import pytest
import tensorflow as tf

from foundation import atomic, errors, file_system, metadata


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


def test_an_escaped_path_matches_only_itself(folder):
    names = ["a[1]", "a1", "a\\b", "ab", "a*b", "a?b", "a{b,c}"]
    for name in names:
        atomic.write_text(f"{folder}/{name}", "")
    for name in names:
        pattern = f"{file_system.escaped(folder)}/{file_system.escaped(name)}"
        found = tf.io.gfile.glob(pattern)
        assert list(map(os.path.basename, found)) == [name]


def test_the_line_of_the_first_byte_that_is_not_utf8_is_named():
    assert file_system.decode("é\n".encode(), "a") == "é\n"
    with pytest.raises(
        errors.InputError, match="^a:9: not UTF-8 text but another encoding"
    ):
        file_system.decode(b"one\ntwo \xff\n\xff", "a", 8)
    with pytest.raises(errors.InputError, match="a:1: .* binary file"):
        file_system.decode(b"PAR1\x15\x00\xff", "a")


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
        assert metadata.read(path + ending, dict) == {"a": 1}
    (tmp_path / "a.json").write_text("[2]")
    assert metadata.read(file_system.find(path), list) == [2]


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
        ("a.json", b'{"a":\n {,', ": malformed JSON: .* line 2 column 3"),
        ("a.csv", b"text,label\n", ": malformed JSON: Expecting value"),
        ("a.json", b"", ": malformed JSON: Expecting value: line 1"),
        ("a.json", b"[" * 200000, ": malformed JSON: .*recursion"),
        ("a.json.gz", gzip.compress(b"[1, 2, 3]")[:-9], ": cut off"),
        ("a.json.gz", b"[]", ": cut off or .* not compressed as its"),
        ("a.json.gz", bz2.compress(b"[]"), ": .*or not compressed"),
        ("a.json.bz2", bz2.compress(b"[1, 2, 3]")[:-9], ": cut off"),
        ("a.json.bz2", b"[]", ": cut off or .* not compressed as its"),
        ("a.json.zst", b"\x28\xb5\x2f\xfd", ": cut off.*Truncated"),
        ("a.json.zst", b"[]", ": cut off or .* not compressed as its"),
    ],
    ids=(
        "bytes json csv empty depth gz no_gz bz2_as_gz bz2 no_bz2 zst no_zst"
    ).split(),
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.InputError, match=name + message):
        metadata.read(str(tmp_path / name), list)


def test_names_and_globs_are_expanded_in_order(tmp_path):
    for name in ("b1", "b0", "a", "c"):
        (tmp_path / name).write_text("x")
    (tmp_path / "b2").mkdir()
    found = file_system.find_files(f"{tmp_path}/c, {tmp_path}/b*")
    assert found == [f"{tmp_path}/{name}" for name in ("c", "b0", "b1")]


def test_double_slashes_are_joined(tmp_path):
    (tmp_path / "a").write_text("x")
    for name in ("a", "a*"):
        assert file_system.find_files(f"{tmp_path}//{name}") == [
            f"{tmp_path}/a"
        ]


@pytest.mark.parametrize("name", ["a[1]", "a\\b", "a*b", "a?b"])
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name):
    paths = []
    for folder in (name, "a1", "axb", "ab"):
        (tmp_path / folder).mkdir()
        for file in ("x1", "x2"):
            (tmp_path / folder / file).write_text("x")
            paths.append(f"{tmp_path}/{folder}/{file}")
    folder = tmp_path / name
    assert file_system.find_files(f"{folder}/x*,{folder}/x[1]") == paths[:2]
    assert file_system.find_files(f"{folder}/x2,{folder}/x1") == paths[1::-1]


@pytest.mark.parametrize("pattern", ["wiki", "wiki/", "wi*"])
def test_a_directory_in_place_of_its_files_is_named(tmp_path, pattern):
    (tmp_path / "wiki").mkdir()
    pattern = f"{tmp_path}/{pattern}"
    with pytest.raises(errors.InputError) as caught:
        file_system.find_files(pattern)
    assert str(caught.value) == (
        f"--input_file={pattern}: is a directory: name its files, e.g. "
        f"{pattern.rstrip('/')}/*"
    )


@pytest.mark.parametrize("pattern", ["none.txt", "x*.txt", "link.*"])
def test_patterns_without_files_are_named(tmp_path, pattern):
    (tmp_path / "link.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(errors.InputError, match="--input_file=.*no such file"):
        file_system.find_files(f"{tmp_path}/{pattern}")
    with pytest.raises(errors.InputError, match="--input_file: names no file"):
        file_system.find_files(" , ")


def test_hidden_files_are_named_in_full_only(tmp_path):
    for name in ("a.txt", ".a.txt.0123.incomplete", ".DS_Store"):
        (tmp_path / name).write_text("x")
    assert file_system.find_files(f"{tmp_path}/*") == [f"{tmp_path}/a.txt"]
    assert file_system.find_files(f"{tmp_path}//*") == [f"{tmp_path}/a.txt"]
    assert file_system.find_files(f"file://{tmp_path}/*") == [
        f"file://{tmp_path}/a.txt"
    ]
    assert file_system.find_files(f"{tmp_path}/.D*") == [
        f"{tmp_path}/.DS_Store"
    ]
