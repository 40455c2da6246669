"""Proves what a prompt prints.

python -m pytest tests/tasks/squad/prompt_test.py
"""

import io
import sys

import pytest

from foundation import errors
from tasks.squad import decoding, prompt


def find(question, context):
    """Answers with the word Anna, if there is one."""
    start = context.find("Anna")
    if start < 0:
        return decoding.Answer("", 0.75, 0.0, 0.0, None)
    return decoding.Answer("Anna", 0.5, 0.0, 0.0, (start, start + 4))


def typed(monkeypatch, text, *, is_terminal):
    stdin = io.TextIOWrapper(io.BytesIO(text.encode("latin-1")))
    stdin.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdin", stdin)


def test_lines_of_a_pipe_are_answered_with_their_questions(monkeypatch, capsys):
    text = "\nw1  Anna w2.\nWho?\nAnd who?\n\nw3 Carl\n?"
    typed(monkeypatch, text, is_terminal=False)
    prompt.run(find, None)
    assert capsys.readouterr().out.splitlines() == [
        "question> Who?",
        "Anna  (probability 0.50, characters 4-8)",
        "  w1 [Anna] w2.",
        "question> And who?",
        "Anna  (probability 0.50, characters 4-8)",
        "  w1 [Anna] w2.",
        "question> ?",
        "(no answer)  (probability 0.75)",
    ]


def test_a_terminal_says_how_to_end(monkeypatch, capsys):
    typed(monkeypatch, "Who?\n", is_terminal=True)
    prompt.run(find, "Anna")
    found = capsys.readouterr()
    assert "Ctrl-D" in found.err
    assert found.out.startswith("question> Anna  (probability")


def test_a_line_that_is_no_text_is_named(monkeypatch):
    typed(monkeypatch, "w1 Anna\nW\u00e9r?\n", is_terminal=False)
    with pytest.raises(errors.InputError, match="standard input:2: not UTF-8"):
        prompt.run(find, None)


def test_the_text_around_an_answer_is_cut():
    found = prompt.excerpt("abcdefgh", (3, 5), 2)
    assert found == ("...bc", "de", "fg...", -2)
    assert "abcdefgh"[3] == "...bcdefg..."[3 - found[3]]
    assert prompt.excerpt("abcdefgh", None, 3) == ("abc", "", "def...", 0)
