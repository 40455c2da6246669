"""Proves that plain Python finds the tokens of TensorFlow's operations.

python -m pytest tests/data/tokenization/plain_wordpiece_test.py
"""

import pickle
import random

import numpy as np
import pytest

from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from tests.data.tokenization import random_text

SWITCHES = [
    {},
    *(
        pytest.param(x, marks=pytest.mark.all)
        for x in (
            {"do_lower_case": False},
            {"strip_accents": False},
            {"do_lower_case": False, "strip_accents": True},
            {"tokenize_chinese_chars": False},
        )
    ),
]


@pytest.fixture(scope="module", autouse=True)
def shared_tokenizers():
    """Here every tokenizer makes its own graph."""


def same(words, texts, **switches):
    """Checks tokens, their types and their characters."""
    ours = plain_wordpiece.PlainTokenizer(words, **switches)
    theirs = wordpiece.Tokenizer(words, **switches)
    for _ in range(2):  # The second time, short chunks are known.
        found = ours.encode(texts), ours.encode_with_offsets(texts)
        expected = theirs.encode(texts), theirs.encode_with_offsets(texts)
        for arrays, wanted in zip(found, expected, strict=True):
            for array, values in zip(arrays, wanted, strict=True):
                assert array.dtype == values.dtype
                np.testing.assert_array_equal(array, values)


def known(texts):
    """Returns a vocabulary with nearly all characters of texts."""
    chars = sorted(set("".join(texts)) | set("".join(texts).lower()))
    chars = [char for i, char in enumerate(chars) if i % 40]
    pairs = sorted({text[i : i + 2].lower() for text in texts for i in (0, 5)})
    tokens = [*vocabulary.SPECIAL_TOKENS, *pairs, *chars]
    return vocabulary.Vocabulary.from_tokens(
        tokens + ["##" + token for token in pairs + chars]
    )


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_any_mixture_has_the_tokens_of_the_graph(switches):
    texts = random_text.texts(400, seed=5)
    texts += ["", " ", "  a  b ", "x" * 200 + " " + "y" * 201, "\ud800a \udfff"]
    # What is white space for Python, but not for BERT.
    texts += ["a\x0bb\x1cc\x85d\u2028e\u3000f", "\u03a3 A\u03a3 \u0301e\u0301"]
    same(known([x for x in texts if "\ud800" not in x]), texts, **switches)


def test_invalid_bytes_are_ignored_as_in_the_graph():
    generator = random.Random(1)
    parts = ["a", " ", "\u00e9", "\u4e2d", "\U0001f600", "\u0301", "e"]
    texts = []
    for _ in range(1000):
        text = "".join(generator.choices(parts, k=8)).encode()
        at = generator.randrange(len(text))
        wrong = bytes(generator.choices(range(256), k=generator.choice([0, 2])))
        texts.append(text[:at] + wrong + text[at + 1 :])
    words = known(["".join(parts)])
    same_ids = wordpiece.Tokenizer(words).encode(texts)
    found = plain_wordpiece.PlainTokenizer(words).encode(texts)
    np.testing.assert_array_equal(found.ids, same_ids.ids)
    np.testing.assert_array_equal(found.row_splits, same_ids.row_splits)


def test_only_so_many_short_chunks_are_kept(monkeypatch, repository):
    monkeypatch.setattr(plain_wordpiece, "_MAX_KEPT", 10)
    path = repository / "tests" / "testdata" / "tiny_vocab.txt"
    words = vocabulary.Vocabulary.from_file(path)
    tokenizer = plain_wordpiece.PlainTokenizer(words)
    texts = [f"{i} the {'a' * 50}{i}" for i in range(99)]
    for _ in range(2):
        assert tokenizer.tokenize(texts)[7][1] == "the"
        assert 0 < len(tokenizer._chunk_ids) <= 10
        assert max(map(len, tokenizer._chunk_ids)) <= 32
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert isinstance(copy, plain_wordpiece.PlainTokenizer)


ADDED = ["[E1]", "covid", "covid vaccine", "</s>", "\u732b", "<Caf\u00e9>"]


@pytest.mark.parametrize("switches", SWITCHES[:2], ids=str)
def test_added_tokens_are_found_in_any_text(switches):
    texts = random_text.texts(300, seed=7)
    rng = random.Random(8)
    for i, text in enumerate(texts):
        for token in rng.choices(
            [*ADDED, "COVID", "[e1]"], k=rng.randint(0, 3)
        ):
            at = rng.randint(0, len(text))
            text = text[:at] + token + text[at:]
        texts[i] = text
    texts += ["", "[E1]", "[E1][E1]x", "e\u0301[E1]\u0301 \ud800covid"]
    words = known(texts).with_added(ADDED)
    same(words, texts, **switches)
    assert pickle.loads(pickle.dumps(words)).added == tuple(ADDED)


def test_the_longest_added_token_is_taken_and_words_are_cut():
    base = known(["the cat, covids [e1]"])
    words = base.with_added(["[E1]", "covid", "covid vaccine"])
    assert words.tokens[:-3] == base.tokens
    assert words.sha256 != base.sha256
    ids = words.ids
    plain = plain_wordpiece.PlainTokenizer(words, do_lower_case=True)
    text = "the [E1]cat, Covid Vaccine covids [e1]"
    found = plain.encode_with_offsets([text])
    added = [
        (i, text[a:b])
        for i, a, b in zip(found.ids, found.starts, found.ends, strict=True)
        if i >= ids["[E1]"]
    ]
    assert added == [
        (ids["[E1]"], "[E1]"),
        (ids["covid vaccine"], "Covid Vaccine"),
        (ids["covid"], "covid"),
    ]
    cased = plain_wordpiece.PlainTokenizer(words, do_lower_case=False)
    assert cased.tokenize(["Covid covid"])[0].count("covid") == 1
