"""Proves that answers are the released ones, number for number.

The golden answers are google-research/bert's own; see
tests/testdata/make_golden_squad.py.

python -m pytest tests/tasks/squad/decoding_test.py
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from data.tokenization import normalization, vocabulary, wordpiece
from tasks.squad import dataset, decoding, settings, windowing
from tasks.squad.decoding import SpanLogits

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parents[3] / "tests/testdata/golden_squad.json"
    ).read_text()
)
LENGTH, STRIDE, QUERY = GOLDEN["sizes"]
TOKENIZER = wordpiece.Tokenizer(
    vocabulary.Vocabulary.from_tokens(GOLDEN["tokens"])
)
RULES = settings.AnswerRules(max_answer_length=9)


def logit(position, factor):
    return (position * factor % 101 - 50) / 8


@pytest.fixture(scope="module")
def golden():
    """The golden questions, their windows, and the golden logits."""
    found = dataset.QuestionSet(
        path="",
        contexts=GOLDEN["contexts"],
        questions=[
            dataset.Question(id=f"q{3 * i + j}", text=text, paragraph=i)
            for i in range(len(GOLDEN["contexts"]))
            for j, text in enumerate(GOLDEN["questions"])
        ],
    )
    windows = windowing.make_windows(
        found,
        TOKENIZER,
        settings.WindowSizes(
            max_seq_length=LENGTH, doc_stride=STRIDE, max_query_length=QUERY
        ),
    )
    positions = np.arange(windows.features.row_splits[-1])
    return (
        found,
        windows,
        SpanLogits(logit(positions, 37), logit(positions, 53)),
    )


def decode(found, windows, logits, rules=RULES):
    return decoding.decode(
        found,
        windows,
        logits,
        tokenizer=TOKENIZER,
        rules=rules,
    )


def listed(answers):
    return [
        {
            "text": e.text,
            "probability": e.probability,
            "start_logit": e.start_logit,
            "end_logit": e.end_logit,
        }
        for e in answers.entries
    ]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_lists_are_the_released_ones_to_the_last_digit(golden, version):
    negative = version == "2.0"
    rules = dataclasses.replace(RULES, version_2_with_negative=negative)
    found, *rest = golden
    answers = decode(found, *rest, rules)
    golden = GOLDEN[version]
    compared = 0
    for question, given in zip(found.questions, answers, strict=True):
        if question.id not in golden["predictions"]:
            continue  # Without windows; see below.
        compared += 1
        assert listed(given) == golden["nbest_predictions"][question.id]
        text = given.text(0.0 if negative else None)
        assert text == golden["predictions"][question.id]
        if negative:
            assert given.null_odds == golden["null_odds"][question.id]
    assert compared == len(golden["predictions"]) == 12


def test_a_paragraph_without_tokens_is_answered_too(golden):
    found, *rest = golden
    assert decode(found, *rest)[-1].text(None) == "empty"
    rules = dataclasses.replace(RULES, version_2_with_negative=True)
    last = decode(found, *rest, rules)[-1]
    assert last.text(0.0) == ""
    assert [e.text for e in last.entries] == [""]
    assert last.null_odds == decoding.NO_ANSWER_ODDS


def test_a_list_of_nothing_but_no_answer_does_not_crash(golden):
    """Where all best positions are outside of the paragraph."""
    found, windows, logits = golden
    outside = np.full_like(logits.start, -9.0)
    outside[windows.features.row_splits[:-1]] = 5.0
    rules = settings.AnswerRules(n_best_size=1, version_2_with_negative=True)
    for given in decode(found, windows, SpanLogits(outside, outside), rules):
        assert given.text(0.0) == ""
        assert given.null_odds == decoding.NO_ANSWER_ODDS
        assert given.entries[0].probability == 1.0


def test_answers_are_within_their_limits(golden):
    found, windows, logits = golden
    rules = settings.AnswerRules(n_best_size=7, max_answer_length=3)
    is_start = decoding.may_start(windows)
    rows = slice(0, len(windows))
    ranked = decoding.best_spans(windows, logits, is_start, rows, rules)
    assert len(ranked.starts) > 50
    assert np.all(ranked.ends >= ranked.starts)
    assert np.all(ranked.ends - ranked.starts < 3)
    first = windows.offsets[ranked.windows]
    assert np.all(ranked.starts >= first)
    assert np.all(ranked.ends < first + windows.lengths[ranked.windows])
    for given in decode(found, windows, logits, rules):
        assert len(given.entries) <= 7
        texts = [entry.text for entry in given.entries]
        assert len(set(texts)) == len(texts)


def test_exact_answers_are_the_characters_of_their_tokens(golden):
    rules = dataclasses.replace(RULES, exact_answers=True)
    found = golden[0]
    for question, given in zip(
        found.questions, decode(*golden, rules), strict=True
    ):
        context = found.contexts[question.paragraph]
        for entry in given.entries:
            if entry.span is not None:
                assert entry.text == context[slice(*entry.span)]
    # Where the released way takes a complete sentence without spaces.
    assert max(len(e.text) for e in decode(*golden)[7].entries) == 21
    assert max(len(e.text) for e in decode(*golden, rules)[7].entries) <= 12


def letter_tokenizer():
    letters = [chr(i) for i in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *".:()"]
    tokens += [f"##{letter}" for letter in letters]
    return wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(tokens))


# What a text is made of; its tokens are letters, marks and [UNK].
PIECES = [
    *"ab.,'\u00bd\u2192\u20ac\u4e2d",
    " ",
    "  ",
    "\t",
    "\u00a0",
    "\u202f",
    "\u200b",
    "a\u0301",
    "b\u0308\u0323",
    "\u00e9",
    "\u0130",
    "\ufb01",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0e01\u0e33\u0e25\u0e31\u0e07",
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u1112\u1161\u11ab\ud55c",
    "\U0001f600\U0001f3fd",
]


@pytest.mark.parametrize("exact", [True, False])
def test_the_characters_of_an_answer_are_its_text(exact):
    """In any text, up to white space, for answers at random."""
    rng = np.random.default_rng(7)
    contexts = ["".join(rng.choice(PIECES, 40)) for _ in range(150)]
    contexts += ["xx'yy ab-ab", "caf\u00e9\u00a0!? a"]
    questions = [
        dataset.Question(id=str(i), text="b", paragraph=i)
        for i in range(len(contexts))
    ]
    found = dataset.QuestionSet(path="", contexts=contexts, questions=questions)
    tokenizer = letter_tokenizer()
    sizes = settings.WindowSizes(
        max_seq_length=32, doc_stride=8, max_query_length=8
    )
    windows = windowing.make_windows(found, tokenizer, sizes)
    size = (2, windows.features.row_splits[-1])
    decoded = decoding.decode(
        found,
        windows,
        SpanLogits(*rng.normal(size=size).astype(np.float32)),
        tokenizer=tokenizer,
        rules=settings.AnswerRules(exact_answers=exact),
    )
    answers = 0
    for context, given in zip(contexts, decoded, strict=True):
        for entry in given.entries:
            if entry.span is not None:
                answers += 1
                covered = context[slice(*entry.span)]
                assert covered.split() == entry.text.split()
    assert answers > 2000


def test_the_table_of_all_code_points_is_made_once(golden, monkeypatch):
    decode(*golden)

    def refuse(self, **switches):
        raise AssertionError("a second table")

    monkeypatch.setattr(normalization.Normalization, "__init__", refuse)
    decode(*golden)


@pytest.mark.parametrize(
    ("answer", "context", "normalized", "text", "span"),
    [
        (
            "steve smith",
            "by Steve\tSmith's",
            ["by", "steve", "smith ' s"],
            "Steve Smith",
            (3, 14),
        ),
        ("1895", "(1895-1943).", ["( 1895 - 1943 ) ."], "1895", (1, 5)),
        ("[UNK]", " \U0001f600!", ["\U0001f600 !"], "\U0001f600!", (1, 3)),
        ("cafe", "(cafe\u0301)", ["( cafe )"], "(cafe\u0301)", (0, 7)),
        ("b", "a\u00a0b", ["a b"], "a\u00a0b", (0, 3)),
        ("", "a", ["a"], "a", (0, 1)),
    ],
    ids=["suffix", "marks", "unknown", "accent", "space", "nothing"],
)
def test_projection_finds_the_text_or_takes_whole_words(
    answer, context, normalized, text, span
):
    words = dataset.words(context)
    found = decoding.final_answer(answer, words, normalized)
    assert found == (text, span)


def test_continuations_are_joined():
    assert decoding.join_tokens(["un", "##aff", "##able", "!"]) == (
        "unaffable !"
    )
    assert decoding.join_tokens(["##s", "a"]) == "s a"


def test_logits_of_any_batches_come_into_the_windows_order():
    splits = np.array([0, 3, 4, 9])
    flat = np.arange(9, dtype=np.float32)

    def batch(rows, length):
        padded = np.full((len(rows), length), 99.0, np.float32)
        for i, row in enumerate(rows):
            part = flat[splits[row] : splits[row + 1]]
            padded[i, : len(part)] = part
        return {
            "start_logits": padded,
            "end_logits": -padded,
            "example_index": np.array(rows),
        }

    found = decoding.collect_logits([batch([2], 8), batch([1, 0], 4)], splits)
    np.testing.assert_array_equal(found.start, flat)
    np.testing.assert_array_equal(found.end, -flat)


@pytest.mark.parametrize(
    ("context", "answer", "text"),
    [
        ("he said:\r\nAnna is here.\r\n", "Anna", "Anna"),
        ("line\u2028Anna line", "Anna", "line\u2028Anna"),
        ("zero\u200bAnna is", "Anna", "zero\u200bAnna"),
        ("\ufeffAnna is", "Anna", "\ufeffAnna"),
        ("a cafe\u0301 (in Bern)", "cafe\u0301", "cafe\u0301"),
        ("a caf\u00e9 (in Bern)", "Bern", "Bern"),
        ("\U0001f600 \U0001f600 Anna", "Anna", "Anna"),
        ("was \u0130da Anna", "Anna", "Anna"),
        ("Anna\u00a0Lena is", "Lena", "Anna\u00a0Lena"),
        ("\u0645\u0631\u062d\u0628\u0627 Anna", "Anna", "Anna"),
        ("  Anna\t\tLena  ", "Anna\t\tLena", "Anna Lena"),
        ("x" * 250 + " Anna", "Anna", "Anna"),
    ],
    ids=[
        "crlf",
        "line_separator",
        "zero_width",
        "byte_order_mark",
        "combining",
        "composed",
        "emoji",
        "dotted",
        "no_break",
        "right_to_left",
        "tabs",
        "long_word",
    ],
)
def test_an_answer_in_any_text_is_found_where_it_is(context, answer, text):
    """The way there and back: characters -> tokens -> logits -> characters."""
    tokenizer = letter_tokenizer()
    start = context.index(answer)
    question = dataset.Question(
        id="1",
        text="who",
        paragraph=0,
        answers=[dataset.Answer(answer, start)],
    )
    found = dataset.for_training(
        dataset.QuestionSet(path="", contexts=[context], questions=[question])
    )
    sizes = settings.WindowSizes(
        max_seq_length=40, doc_stride=16, max_query_length=8
    )
    windows = windowing.make_windows(found, tokenizer, sizes, is_training=True)
    logits = np.full((2, windows.features.row_splits[-1]), -9.0, np.float32)
    begins = windows.features.row_splits[:-1]
    for values, name in zip(logits, ("start", "end"), strict=True):
        positions = windows.features.dense[f"{name}_positions"][:, 0]
        values[(begins + positions)[positions > 0]] = 9.0
    for exact, expected in ((True, answer), (False, text)):
        rules = settings.AnswerRules(exact_answers=exact)
        (answers,) = decoding.decode(
            found,
            windows,
            SpanLogits(*logits),
            tokenizer=tokenizer,
            rules=rules,
        )
        first, after = answers.entries[0].span
        assert first <= start and after >= start + len(answer)
        assert context[first:after].split() == expected.split()
        assert answers.entries[0].text == expected
