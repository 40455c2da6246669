"""Proves that lines are read as they are, from any number of files.

python -m pytest tests/data/text_lines_test.py
"""

import gzip
import io

import pytest

from data import text_lines
from foundation import errors


def texts(name):
    return [line.text for line in text_lines.open_lines(str(name)).read()]


def test_lines_are_read_as_they_are(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffa\r\n\nb\u2028c".encode())
    assert texts(path) == ["a", "", "b\u2028c"]
    zipped = tmp_path / "text.txt.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert texts(zipped) == ["a", "", "b\u2028c"]
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(errors.InputError, match="text.txt:2: not UTF-8 text"):
        text_lines.open_lines(str(path))
    path.write_bytes(b"")
    with pytest.raises(errors.InputError, match="has no lines"):
        text_lines.open_lines(str(path))


def test_a_name_may_be_of_several_files(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text(f"{name}\n\n")
    for name in (tmp_path, tmp_path / "*.txt"):
        lines = text_lines.open_lines(str(name))
        found = list(lines.read())
        assert [line.text for line in found] == ["a.txt", "", "b.txt", ""]
        assert found[2].where == f"{tmp_path}/b.txt:1"
        assert lines.total == 4
    one = tmp_path / "one.txt"
    one.write_text("a.txt\n\nb.txt\n\n")
    assert text_lines.open_lines(str(one)).digest == lines.digest


def test_standard_input_is_read_once(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a\nb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    lines = text_lines.open_lines("-")
    assert lines.total is None
    assert [line.text for line in lines.read()] == ["a", "b"]
