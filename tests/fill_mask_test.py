"""Proves that a line without a mask does not end a session of many.

python -m pytest tests/fill_mask_test.py
"""

import io
import json
import pathlib

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


def test_a_bad_line_at_the_end_is_found_first(fill, tmp_path):
    """Before hours are spent on the lines before it."""
    path = tmp_path / "lines.txt"
    path.write_text("the [MASK]\n" * 4 + "[MASK] " + "bird " * 200)
    code, out, err = fill(f"--input_file={path}")
    assert (code, out) == (2, [])
    assert f"{path}:5: " in err[-1] and "tokens are more than" in err[-1]


def test_lines_of_all_lengths_are_in_the_order_of_the_input(
    fill, tmp_path, monkeypatch
):
    path, output = tmp_path / "lines.txt", tmp_path / "filled.jsonl"
    texts = [
        "the [MASK]" + " is" * (i % 7) + " [MASK]" * (i % 3) for i in range(9)
    ]
    path.write_text("\n".join(texts))
    flags = f"--input_file={path}", "--top_k=2"
    _, shown, _ = fill(*flags)
    monkeypatch.setattr(prediction, "BLOCK", 4)
    assert fill(*flags, f"--output_file={output}")[0] == 0
    found = []
    for line in output.read_text().splitlines():
        record = json.loads(line)
        masks = [
            [(x["token"], x["probability"]) for x in mask]
            for mask in record["masks"]
        ]
        found += masked_words.describe(record["text"], masks).splitlines()
    assert found == shown
