"""Proves that files are found and read, and what is wrong with them said.

python -m pytest tests/foundation/input_files_test.py
"""

import bz2
import gzip
import json
import subprocess
import sys

import pytest

from foundation import errors, file_system


def test_a_compressed_file_beside_the_named_one_is_found(tmp_path):
    path = str(tmp_path / "a.json")
    for ending, opener in ((".bz2", bz2.open), (".gz", gzip.open)):
        with opener(path + ending, "wb") as file:
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
        ("a.json", b"[" * 200000, ": malformed JSON: .* within each other"),
        ("a.json.gz", gzip.compress(b"[1, 2, 3]")[:-9], ": .* cut off"),
        ("a.json.gz", b"[]", ": .* cut off or damaged"),
        ("a.json.bz2", bz2.compress(b"[1, 2, 3]")[:-9], ": .* cut off"),
        ("a.json.bz2", b"[]", ": Invalid data stream"),
    ],
    ids=["bytes", "json", "depth", "gz", "no_gz", "bz2", "no_bz2"],
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.InputError, match=name + message):
        file_system.read_json(str(tmp_path / name))


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
        "from tasks.squad import dataset, squad_metrics; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=repository, check=True)
