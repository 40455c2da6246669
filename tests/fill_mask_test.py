"""Proves that a line without a mask does not end a session of many.

python -m pytest tests/fill_mask_test.py
"""

import gzip
import io
import json
import pathlib
import subprocess
import sys

import pyarrow.parquet
import pytest
import tiny_runs

from finetuning import prediction
from tasks.fill_mask import masked_words

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
            tiny_runs.start("fill_mask", f"--model_dir={PRETRAINED}", *flags)
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return call


@pytest.mark.parametrize(
    ("kind", "flags", "expected"),
    [
        (io.TextIOWrapper, [], 2),
        (io.TextIOWrapper, ["--input_file=-"], 2),
        (Terminal, [], 0),
    ],
)
def test_a_line_that_cannot_be_filled_does_not_end_the_others(
    fill, monkeypatch, kind, flags, expected
):
    monkeypatch.setattr("sys.stdin", kind(io.BytesIO(LINES)))
    code, out, err = fill(*flags)
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


def test_a_file_may_be_compressed_and_begin_with_a_mark(fill, tmp_path):
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfthe [MASK]\n\n[MASK] bird\n"))
    code, out, _ = fill(f"--input_file={path}")
    assert code == 0 and out[::2] == ["the [MASK]", "[MASK] bird"]


def test_a_table_is_told_to_become_lines(fill, tmp_path, monkeypatch):
    """By a command that does it."""
    path = tmp_path / "l.parquet"
    table = pyarrow.Table.from_pydict({"text": ["the [MASK]", "[MASK] bird"]})
    pyarrow.parquet.write_table(table, path)
    code, _, err = fill(f"--input_file={path}")
    assert code == 2
    command = err[-1].partition("by: ")[2].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    _, out, _ = fill(f"--input_file={tmp_path / 'lines.txt'}")
    assert out[::2] == ["the [MASK]", "[MASK] bird"]


def test_a_file_without_text_is_warned_about(fill, tmp_path, caplog):
    path = tmp_path / "empty.txt"
    path.write_text("\n \n")
    code, out, _ = fill(f"--input_file={path}")
    assert (code, out) == (0, [])
    assert f"{path}: no text in 2 line(s)" in caplog.text


def test_an_empty_pipe_is_warned_about(fill, monkeypatch, caplog):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert fill()[:2] == (0, [])
    assert "standard input: no text in 0 line(s)" in caplog.text


def test_a_bad_line_at_the_end_is_found_first(fill, tmp_path):
    """Before hours are spent on the lines before it."""
    path = tmp_path / "lines.txt"
    path.write_text("the [MASK]\n" * 4 + "[MASK] " + "bird " * 200)
    code, out, err = fill(f"--input_file={path}")
    assert (code, out) == (2, [])
    assert f"{path}:5: " in err[-1] and "tokens are more than" in err[-1]


def test_text_of_another_language_is_warned_about(fill, tmp_path, caplog):
    path = tmp_path / "hindi.txt"
    path.write_text("\u0939\u093f\u0928\u094d\u0926\u0940 [MASK]\n" * 3)
    assert fill(f"--input_file={path}")[0] == 0
    assert f"{path}: 25 % of its tokens are [UNK]" in caplog.text


def test_a_file_of_json_lines_is_continued_after_a_kill(
    fill, tmp_path, monkeypatch
):
    """Lines of all lengths are in the order of the input."""
    path, output = tmp_path / "lines.txt", tmp_path / "filled.jsonl"
    texts = [
        "the [MASK]" + " is" * (i % 7) + " [MASK]" * (i % 3) for i in range(9)
    ]
    path.write_text("\n".join(texts))
    flags = f"--input_file={path}", "--top_k=2"
    _, shown, _ = fill(*flags)
    monkeypatch.setattr(prediction, "BLOCK", 4)
    monkeypatch.setattr(masked_words, "_BATCH_SIZE", 4)
    rank, calls = masked_words.MaskFiller.rank, []

    def fail_in_the_second_block(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rank(*arguments, **options)

    monkeypatch.setattr(
        masked_words.MaskFiller, "rank", fail_in_the_second_block
    )
    flags = (*flags, f"--output_file={output}")
    assert fill(*flags)[0] == 130 and not output.exists()
    assert fill(*flags)[0] == 0
    assert len(calls) == 2 + 2  # Of three blocks the first is not repeated.
    found = []
    for line in output.read_text().splitlines():
        record = json.loads(line)
        masks = [
            [masked_words.Candidate(**x) for x in mask]
            for mask in record["masks"]
        ]
        found += masked_words.describe(record["text"], masks).splitlines()
    assert found == shown
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "filled.jsonl",
        "lines.txt",
    ]
