"""Proves that windows are the released ones, and answers lie where they are.

The golden windows are google-research/bert's own; see
tests/testdata/make_golden_squad.py.

python -m pytest tests/tasks/squad/squad_windowing_test.py
"""

import json
import pathlib
import random

import numpy as np
import pytest

from data.tokenization import plain_wordpiece, vocabulary
from tasks.squad import answering, settings, windowing

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parents[3] / "tests/testdata/golden_squad.json"
    ).read_text()
)
LENGTH, STRIDE, QUERY = GOLDEN["sizes"]
TOKENIZER = plain_wordpiece.PlainTokenizer(
    vocabulary.Vocabulary.from_tokens(GOLDEN["tokens"])
)


def cut(context, question="who?", length=LENGTH, stride=STRIDE):
    sizes = settings.AnswerSettings(
        max_seq_length=length, doc_stride=stride, max_query_length=QUERY
    )
    return answering.Answerer(TOKENIZER, sizes).encode(question, context)


def tokens(window, first, last):
    ids = window.ids[first : last + 1]
    return " ".join(GOLDEN["tokens"][i] for i in ids)


def test_windows_are_the_released_ones_token_for_token():
    pairs = [(c, q) for c in GOLDEN["contexts"] for q in GOLDEN["questions"]]
    found = [cut(*pair) for pair in pairs]
    flat = [
        (i, window) for i, windows in enumerate(found) for window in windows
    ]
    best = windowing.max_context(
        *np.array([(i, x.start, x.length) for i, x in flat]).T
    )
    for row, (question, window), golden in zip(
        best, flat, GOLDEN["windows"], strict=True
    ):
        assert window.ids == golden["input_ids"]
        assert window.segment_ids == golden["segment_ids"]
        assert question == golden["question"]
        part = slice(window.start, window.start + window.length)
        words = window.document.word_numbers[part].tolist()
        numbered = [[window.offset + j, word] for j, word in enumerate(words)]
        assert numbered == golden["words"]
        positions = (window.offset + np.flatnonzero(row)).tolist()
        assert positions == golden["max_context"]


def slow_windows(count, room, stride):
    """A text's windows, advanced one by one."""
    start = 0
    while start < count:
        length = min(count - start, room)
        yield start, length
        if start + length == count:
            return
        start += min(length, stride)


@pytest.mark.parametrize("stride", [1, 7, 100])
def test_windows_advance_one_by_one(stride):
    for count in range(30):
        for room in (1, 5, 9):
            length = room + settings.NUM_SPECIAL + QUERY
            windows = cut("a " * count, "b " * (QUERY + 3), length, stride)
            assert all(len(x.ids) <= length for x in windows)
            assert [(x.start, x.length) for x in windows] == list(
                slow_windows(count, room, stride)
            )


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("x e\u0301te\u0301 y", "e\u0301te\u0301", "e ##t ##e"),
        # The mark belongs to the letter before it, the answer ends there.
        ("x ete\u0301 y", "ete", "e ##t ##e"),
        ("a \U0001f600\U0001f600 b", "\U0001f600", "[UNK]"),
        ("a b\u00a0c d", "b\u00a0c", "b c"),
        ("a b\u00a0c d", "c", "c"),
        ("\u4e1c\u4eac\u662f\u65e5\u672c(1943)", "\u65e5\u672c", "日 本"),
        ("\u4e1c\u4eac\u662f\u65e5\u672c(1943)", "1943", "1 ##9 ##4 ##3"),
        ("was (1895-1943).", "1895", "1 ##8 ##9 ##5"),
        # Of a word the part of the answer; the released code would take
        # the complete word and the marks around it, "( m ##e ##n ) .".
        ("the (men).", "me", "m ##e"),
        ("a-b-a", "a", "a"),
    ],
    ids=range(10),
)
def test_an_answers_tokens_are_those_that_hold_its_characters(
    context, answer, expected
):
    start = context.rindex(answer)
    window = cut(context)[0]
    first, last = windowing.answer_positions(
        window, (start, start + len(answer))
    )
    assert tokens(window, first, last) == expected
    if answer == "a":  # The second of the word, not the first that is alike.
        assert first == window.offset + 4


def test_answers_at_edges_and_in_several_windows():
    """Each window that holds all of an answer says where, others nothing."""
    rng = random.Random(4)
    words = rng.choices(["the", "man", "a", "b"], k=60)
    context = " ".join(words)
    starts = np.cumsum([0] + [len(word) + 1 for word in words]).tolist()
    counts = []
    for first in range(58):
        last = min(first + rng.randrange(3), 59)
        span = starts[first], starts[last] + len(words[last])
        counts.append(0)
        for window in cut(context, length=20, stride=6):
            found = windowing.answer_positions(window, span)
            end = window.start + window.length
            if not window.start <= first <= last < end:
                assert found is None
                continue
            counts[-1] += 1
            assert tokens(window, *found) == context[slice(*span)]
    assert min(counts) >= 1
    assert max(counts) >= 2


def test_what_has_no_token_is_nowhere():
    assert cut("\u200b") == []
    (window,) = cut("a \u200b b")
    assert windowing.answer_positions(window, (2, 3)) is None
    assert windowing.answer_positions(window, None) is None
