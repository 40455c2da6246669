"""Proves that a line without a mask does not end a session of many.

python -m pytest tests/fill_mask_test.py
"""

import gzip
import io
import pathlib

import pytest

import fill_mask
from foundation import config_flags

PRETRAINED = pathlib.Path(__file__).parent / "testdata/tiny_pretrained"
LINES = b"hello there\n\nthe [MASK] is here\n[MASK] caf\xe9\n[MASK] bird\n"
ANSWERED = ["the [MASK] is here", "[MASK] bird"]


class Terminal(io.TextIOWrapper):
    """A keyboard, as far as one can tell."""

    def isatty(self):
        return True


@pytest.fixture
def fill(capsys):
    """Runs in this process; returns the exit code, output and errors."""

    def call(*flags):
        code = 0
        try:
            config_flags.run(
                fill_mask.FillMaskConfig,
                fill_mask.main,
                ["fill_mask.py", f"--model_dir={PRETRAINED}", *flags],
            )
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return call


@pytest.mark.parametrize(
    ("kind", "expected"), [(io.TextIOWrapper, 2), (Terminal, 0)]
)
def test_a_line_that_cannot_be_filled_does_not_end_the_others(
    fill, monkeypatch, kind, expected
):
    monkeypatch.setattr("sys.stdin", kind(io.BytesIO(LINES)))
    code, out, err = fill()
    assert code == expected
    assert out[::2] == ANSWERED and len(out) == 4
    assert err[-2:] == [
        "standard input:1: no [MASK] in 'hello there'",
        "standard input:4: not UTF-8 text",
    ]


def test_a_pipe_whose_lines_are_all_filled_ends_with_0(fill, monkeypatch):
    lines = io.BytesIO(b"the [MASK]\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
    code, out, _ = fill()
    assert code == 0 and out[0] == "the [MASK]"


def test_a_file_that_is_not_utf8_is_refused_by_line(fill, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("the [MASK]\n[MASK] caf\u00e9\n".encode("latin-1"))
    code, out, err = fill(f"--input_file={path}")
    assert code == 2 and out[0] == "the [MASK]"
    assert err[-1].endswith(f": {path}:2: not UTF-8 text")


def test_a_file_may_be_compressed_and_begin_with_a_mark(fill, tmp_path):
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfthe [MASK]\n\n[MASK] bird\n"))
    code, out, _ = fill(f"--input_file={path}")
    assert code == 0 and out[::2] == ["the [MASK]", "[MASK] bird"]


def test_a_text_or_a_file_without_a_mask_is_an_error(fill, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("the bird\n[MASK] bird\n")
    for flag, where in (
        ("--text=the bird", "--text"),
        (f"--input_file={path}", f"{path}:1"),
    ):
        code, out, err = fill(flag)
        assert (code, out) == (2, [])
        assert err[-1].endswith(f": {where}: no [MASK] in 'the bird'")


def test_a_file_without_text_is_warned_about(fill, tmp_path, caplog):
    path = tmp_path / "empty.txt"
    path.write_text("\n \n")
    code, out, _ = fill(f"--input_file={path}")
    assert (code, out) == (0, [])
    assert f"{path}: no text in 2 line(s)" in caplog.text
