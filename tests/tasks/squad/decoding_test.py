"""Proves that answers are the released ones, number for number.

The golden answers are google-research/bert's own; see
tests/testdata/make_golden_squad.py.

python -m pytest tests/tasks/squad/decoding_test.py
"""

import dataclasses
import json
import pathlib
from unittest import mock

import numpy as np
import pytest

from data.tokenization import normalization, plain_wordpiece, vocabulary
from tasks.squad import answering, dataset, decoding, settings

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parents[3] / "tests/testdata/golden_squad.json"
    ).read_text()
)
LENGTH, STRIDE, QUERY = GOLDEN["sizes"]
TOKENIZER = plain_wordpiece.PlainTokenizer(
    vocabulary.Vocabulary.from_tokens(GOLDEN["tokens"])
)
SETTINGS = settings.AnswerSettings(
    max_seq_length=LENGTH,
    doc_stride=STRIDE,
    max_query_length=QUERY,
    max_answer_length=9,
)
PAIRS = [(q, c) for c in GOLDEN["contexts"] for q in GOLDEN["questions"]]


def logit(position, factor):
    return (position * factor % 101 - 50) / 8


def golden_outputs(features):
    positions = np.arange(features.row_splits[-1])
    return {
        "start_logits": logit(positions, 37),
        "end_logits": logit(positions, 53),
    }


def decode(predict=golden_outputs, **rules):
    """Returns the lists of answers to the golden questions."""
    changed = dataclasses.replace(SETTINGS, **rules)
    answerer = answering.Answerer(TOKENIZER, changed)
    return [found for _, found in answerer.answers(PAIRS, predict)]


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
def test_lists_are_the_released_ones_to_the_last_digit(version):
    negative = version == "2.0"
    answers = decode(version_2_with_negative=negative)
    golden = GOLDEN[version]
    compared = 0
    for number, given in enumerate(answers):
        name = f"q{number}"
        if name not in golden["predictions"]:
            continue  # Without windows; see below.
        compared += 1
        assert listed(given) == golden["nbest_predictions"][name]
        text = given.text(0.0 if negative else None)
        assert text == golden["predictions"][name]
        if negative:
            assert given.null_odds == golden["null_odds"][name]
    assert compared == len(golden["predictions"]) == 12


def test_questions_are_decoded_together_or_apart(monkeypatch):
    together = decode(version_2_with_negative=True)
    monkeypatch.setattr(answering, "_CHUNK", 2)
    assert decode(version_2_with_negative=True) == together


def test_a_paragraph_without_tokens_is_answered_too():
    assert decode()[-1].text(None) == "empty"
    last = decode(version_2_with_negative=True)[-1]
    assert last.text(0.0) == ""
    assert [e.text for e in last.entries] == [""]
    assert last.null_odds == decoding.NO_ANSWER_ODDS
    for negative in (False, True):
        rules = {"version_2_with_negative": negative}
        chosen = dataclasses.replace(SETTINGS, **rules)
        answerer = answering.Answerer(TOKENIZER, chosen)
        ((given, _),) = answerer.answers([PAIRS[-1]], golden_outputs)
        assert (given.text, given.span) == ("", None)


def test_a_list_of_nothing_but_no_answer_does_not_crash():
    """Where all best positions are outside of the paragraph."""

    def outside(features):
        logits = np.full(features.row_splits[-1], -9.0)
        logits[features.row_splits[:-1]] = 5.0
        return {"start_logits": logits, "end_logits": logits}

    for given in decode(outside, n_best_size=1, version_2_with_negative=True):
        assert given.text(0.0) == ""
        assert given.null_odds == decoding.NO_ANSWER_ODDS
        assert given.entries[0].probability == 1.0


def test_exact_answers_are_the_characters_of_their_tokens():
    found = decode(exact_answers=True)
    for (_, context), given in zip(PAIRS, found, strict=True):
        for entry in given.entries:
            if entry.span is not None:
                assert entry.text == context[slice(*entry.span)]
    # Where the released way takes a complete sentence without spaces.
    assert max(len(e.text) for e in decode()[7].entries) == 21
    assert max(len(e.text) for e in found[7].entries) <= 12


def letter_tokenizer():
    letters = [chr(i) for i in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *".:()"]
    tokens += [f"##{letter}" for letter in letters]
    return plain_wordpiece.PlainTokenizer(
        vocabulary.Vocabulary.from_tokens(tokens)
    )


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
    sizes = settings.AnswerSettings(
        max_seq_length=32,
        doc_stride=8,
        max_query_length=8,
        exact_answers=exact,
    )

    def at_random(features):
        start, end = rng.normal(size=(2, features.row_splits[-1]))
        return {"start_logits": start, "end_logits": end}

    answerer = answering.Answerer(letter_tokenizer(), sizes)
    with mock.patch.object(normalization, "Normalization") as table:
        decoded = answerer.answers([("b", x) for x in contexts], at_random)
    table.assert_not_called()  # It takes 28 ms: once for all questions.
    answers = 0
    for context, (_, given) in zip(contexts, decoded, strict=True):
        for entry in given.entries:
            if entry.span is not None:
                answers += 1
                covered = context[slice(*entry.span)]
                assert covered.split() == entry.text.split()
    assert answers > 2000


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


def test_logits_that_are_no_numbers_are_noticed(caplog):
    def broken(features):
        logits = np.full(features.row_splits[-1], np.nan)
        return {"start_logits": logits, "end_logits": logits}

    decode()
    assert not caplog.text
    decode(broken)
    assert "logits are not finite numbers" in caplog.text
