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

from data import features, schema
from data.tokenization import vocabulary, wordpiece
from tasks.squad import dataset, settings, windowing

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parents[3] / "tests/testdata/golden_squad.json"
    ).read_text()
)
LENGTH, STRIDE, QUERY = GOLDEN["sizes"]


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens(GOLDEN["tokens"])
    )


def questions(contexts, texts=("who?",), spans=None):
    """Returns every question about every paragraph, in order."""
    made = [
        dataset.Question(id=f"q{i}-{j}", text=text, paragraph=i)
        for i in range(len(contexts))
        for j, text in enumerate(texts)
    ]
    if spans is not None:
        made = [
            dataset.Question(id="", text=q.text, paragraph=q.paragraph, span=s)
            for q, s in zip(made, spans, strict=True)
        ]
    return dataset.QuestionSet(path="", contexts=contexts, questions=made)


def cut(tokenizer, found, is_training=False, length=LENGTH, stride=STRIDE):
    return windowing.make_windows(
        found,
        tokenizer,
        settings.WindowSizes(
            max_seq_length=length, doc_stride=stride, max_query_length=QUERY
        ),
        is_training=is_training,
    )


def max_context(windows):
    flat = windowing.max_context(
        windows.questions, windows.starts, windows.lengths
    )
    return np.split(flat, np.cumsum(windows.lengths)[:-1])


def test_windows_are_the_released_ones_token_for_token(tokenizer):
    found = questions(GOLDEN["contexts"], GOLDEN["questions"])
    windows = cut(tokenizer, found)
    assert len(windows) == len(GOLDEN["windows"])
    splits = windows.features.row_splits
    documents = windows.documents
    best = max_context(windows)
    for i, golden in enumerate(GOLDEN["windows"]):
        part = slice(splits[i], splits[i + 1])
        for name in ("input_ids", "segment_ids"):
            assert windows.features.ragged[name][part].tolist() == golden[name]
        question = windows.questions[i]
        assert question == golden["question"]
        offset, length = windows.offsets[i], windows.lengths[i]
        paragraph = found.questions[question].paragraph
        first = documents.row_splits[paragraph] + windows.starts[i]
        words = documents.words[first : first + length].tolist()
        numbered = [[offset + j, word] for j, word in enumerate(words)]
        assert numbered == golden["words"]
        positions = (offset + np.flatnonzero(best[i])).tolist()
        assert positions == golden["max_context"]
    ids = windows.features.dense["unique_ids"][:, 0]
    assert ids[0] == 1000000000
    assert np.all(np.diff(ids) == 1)


def slow_windows(tokens, room, stride):
    """One text's windows, advanced one by one."""
    result, start = [], 0
    while start < tokens:
        length = min(tokens - start, room)
        result.append((start, length))
        if start + length == tokens:
            break
        start += min(length, stride)
    return result


def test_cutting_at_once_is_cutting_one_by_one():
    rng = np.random.default_rng(1)
    tokens, room = rng.integers(0, 60, 300), rng.integers(1, 20, 300)
    for stride in (1, 7, 100):
        numbers, starts, lengths = windowing.cut(tokens, room, stride)
        expected = [
            (i, start, length)
            for i in range(300)
            for start, length in slow_windows(tokens[i], room[i], stride)
        ]
        rows = zip(numbers, starts, lengths, strict=True)
        assert [tuple(map(int, row)) for row in rows] == expected


def test_every_token_has_most_context_in_exactly_one_window():
    tokens, room = np.array([50, 0, 9, 33]), np.array([12, 5, 20, 7])
    numbers, starts, lengths = windowing.cut(tokens, room, 5)
    flat = windowing.max_context(numbers, starts, lengths)
    rows = np.repeat(np.arange(len(starts)), lengths)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    positions = starts[rows] + np.arange(len(flat)) - first
    found = sorted(zip(numbers[rows][flat], positions[flat], strict=True))
    expected = [(i, p) for i, n in enumerate(tokens) for p in range(n)]
    assert found == expected
    for row in np.flatnonzero(flat):
        question, position = numbers[rows[row]], positions[row]
        scores = [
            min(position - s, s + n - 1 - position) + 0.01 * n
            for q, s, n in zip(numbers, starts, lengths, strict=True)
            if q == question and s <= position < s + n
        ]
        window = rows[row]
        own = min(
            position - starts[window],
            starts[window] + lengths[window] - 1 - position,
        )
        assert own + 0.01 * lengths[window] == max(scores)


@pytest.mark.parametrize(
    ("context", "answer", "tokens"),
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
    tokenizer, context, answer, tokens
):
    start = context.rindex(answer)
    found = questions([context], spans=[(start, start + len(answer))])
    windows = cut(tokenizer, found, is_training=True)
    dense = windows.features.dense
    first, last = dense["start_positions"][0, 0], dense["end_positions"][0, 0]
    ids = windows.features.ragged["input_ids"][first : last + 1]
    assert " ".join(GOLDEN["tokens"][i] for i in ids) == tokens
    if answer == "a":  # The second of the word, not the first that is alike.
        assert first == windows.offsets[0] + 4


def test_answers_at_edges_and_in_several_windows(tokenizer):
    """Each window that holds all of an answer says where, others say 0."""
    rng = random.Random(4)
    words = rng.choices(["the", "man", "a", "b"], k=60)
    context = " ".join(words)
    starts = np.cumsum([0] + [len(word) + 1 for word in words])
    spans = []
    for first in range(58):
        last = first + rng.randrange(3)
        last = min(last, 59)
        spans.append((int(starts[first]), int(starts[last]) + len(words[last])))
    found = questions([context], ["who?"] * 58, spans)
    windows = cut(tokenizer, found, is_training=True, length=20, stride=6)
    counts = np.zeros(58, int)
    splits = windows.features.row_splits
    for i, question in enumerate(windows.questions):
        start, end = spans[question]
        first = windows.starts[i]
        text = " ".join(words[first : first + windows.lengths[i]])
        position = int(starts[first])
        is_inside = position <= start and end <= position + len(text)
        positions = [
            int(windows.features.dense[f"{name}_positions"][i, 0])
            for name in ("start", "end")
        ]
        if not is_inside:
            assert positions == [0, 0]
            continue
        counts[question] += 1
        ids = windows.features.ragged["input_ids"][splits[i] : splits[i + 1]]
        ids = ids[positions[0] : positions[1] + 1]
        answer = " ".join(GOLDEN["tokens"][j] for j in ids)
        assert answer == context[start:end]
    assert counts.min() >= 1
    assert counts.max() >= 2


def test_impossible_questions_point_at_the_first_position(tokenizer):
    one = dataset.Question(id="", text="a", paragraph=0, is_impossible=True)
    found = dataset.QuestionSet(path="", contexts=["a b"], questions=[one])
    dense = cut(tokenizer, found, is_training=True).features.dense
    assert dense["is_impossible"].tolist() == [[1]]
    assert dense["start_positions"].tolist() == [[0]]
    assert dense["end_positions"].tolist() == [[0]]


def test_questions_whose_answer_no_window_has_are_told(tokenizer):
    contexts = ["the man " * 20, "a \u200b b", "\u200b"]
    made = [
        dataset.Question(id=number, text="who?", paragraph=paragraph, **more)
        for number, paragraph, more in (
            ("fits", 0, {"span": (0, 7)}),
            ("long", 0, {"span": (0, 159)}),
            ("none", 0, {"is_impossible": True}),
            ("unseen", 1, {"span": (2, 3)}),
            ("empty", 2, {"span": (0, 1)}),
            ("nowhere", 2, {"is_impossible": True}),
        )
    ]
    found = dataset.QuestionSet(path="", contexts=contexts, questions=made)
    windows = cut(tokenizer, found, is_training=True)
    assert windowing.answers_in_no_window(found, windows) == [
        ("long", "no window has all of its answer"),
        ("unseen", "its answer has no token"),
        ("empty", "its paragraph has no token"),
        ("nowhere", "its paragraph has no token"),
    ]


def test_a_set_without_any_window_has_no_records_to_learn(tokenizer):
    found = questions(["\u200b"], spans=[(0, 1)])
    windows = cut(tokenizer, found, is_training=True)
    assert len(windows) == 0
    assert len(windows.features) == 0


def test_records_hold_the_released_features_and_are_reused(tokenizer, tmp_path):
    found = questions(["the man " * 20], spans=[(0, 3)])
    made = cut(tokenizer, found, is_training=True).features
    kind = schema.question_answering(LENGTH, is_training=True)
    assert kind.names == [
        "unique_ids",
        "input_ids",
        "input_mask",
        "segment_ids",
        "start_positions",
        "end_positions",
        "is_impossible",
    ]
    path = str(tmp_path / "train.tf_record")
    cache = features.FeatureCache(
        str(tmp_path), "train", kind, tokenizer, {"a": 1}
    )
    assert cache.read() is None
    cache.write(made)
    again = cache.read()
    np.testing.assert_array_equal(again.row_splits, made.row_splits)
    for name, values in made.ragged.items():
        np.testing.assert_array_equal(again.ragged[name], values)
    for name, values in made.dense.items():
        np.testing.assert_array_equal(again.dense[name], values)
    assert features.read(path, kind).lengths.max() <= LENGTH


def test_every_answer_of_squad_is_found_and_is_itself(shared_data):
    """The text between a gold answer's tokens is the answer, or holds it."""
    tokens = shared_data / "vocab" / "uncased_vocab.txt"
    real = wordpiece.Tokenizer(vocabulary.Vocabulary.from_file(str(tokens)))
    complete = dataset.read(str(shared_data / "squad" / "dev-v1.1.json"))
    found = dataset.for_training(complete)
    assert len(found) == len(complete)
    documents = windowing.encode_documents(real, found.contexts)
    first, last = windowing.answer_tokens(documents, found)
    exact = 0
    for question, a, b in zip(found.questions, first, last, strict=True):
        base = documents.row_splits[question.paragraph]
        start, end = documents.starts[base + a], documents.ends[base + b]
        wanted_start, wanted_end = question.span
        context = found.contexts[question.paragraph]
        wanted = context[wanted_start:wanted_end].strip()
        assert wanted in context[start:end]
        exact += wanted == context[start:end]
    assert exact / len(found) > 0.99


def test_questions_that_are_cut_are_named(tokenizer, caplog):
    sizes = settings.WindowSizes(
        max_seq_length=16, doc_stride=4, max_query_length=3
    )
    found = questions(["a b"], ["a b a", "a b a b"])
    windowing.warn_of_long_questions(found, tokenizer, sizes)
    assert "1 questions are cut to --max_query_length=3: q0-1: 4 tokens" in (
        caplog.text
    )
