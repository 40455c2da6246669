"""Proves that words keep their labels as tokens, in windows, and none is lost.

python -m pytest tests/tasks/ner/windowing_test.py
"""

import random

import numpy as np
import pytest

from data.tokenization import plain_wordpiece, vocabulary
from tasks.ner import windowing

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##b ##c \u4e00 .".split()
UNK, CLS, SEP = 1, 2, 3
# Format characters, a lone replacement character, a stray accent, no break.
NOTHING = ["\u200b", "\ufffd", "\u0301", "\u00ad", "\x00", "\u200e\u200f"]


@pytest.fixture(scope="module")
def tokenizer():
    return plain_wordpiece.PlainTokenizer(
        vocabulary.Vocabulary.from_tokens(TOKENS)
    )


def random_document(seed):
    rng = random.Random(seed)

    def words():
        length = rng.choice([1, 2, 3, 8, 30])
        return ["a" + "b" * rng.choice([0, 0, 0, 1, 4]) for _ in range(length)]

    return [words() for _ in range(rng.randint(1, 9))]


def encode(tokenizer, document, length, stride=None):
    """With a stride, windows are filled with the document."""
    context = "none" if stride is None else "maximal"
    windows = windowing.Windows(length, context, stride or 0)
    return windowing.encode(tokenizer, document, windows)


def test_first_tokens_of_words_are_marked(tokenizer):
    first, second = encode(
        tokenizer, [["abb", "x", "c"], ["\u4e00\u4e00"]], length=16
    )
    ids = [TOKENS[i] for i in [*first.ids, *second.ids]]
    assert " ".join(ids) == (
        "[CLS] a ##b ##b [UNK] c [SEP] [CLS] \u4e00 \u4e00 [SEP]"
    )
    # A word is 4, the first of a sentence is 1 more, its last one 2.
    assert first.words.tolist() == [0, 5, 0, 0, 4, 6, 0]
    assert second.words.tolist() == [0, 7, 0, 0]
    assert (first.first, second.first) == (0, 3)


@pytest.mark.parametrize("word", NOTHING, ids=ascii)
def test_a_word_that_normalizes_to_nothing_is_an_unknown_one(tokenizer, word):
    (window,) = encode(tokenizer, [["a", word, "b"]], length=8)
    assert window.ids[2] == UNK and window.words.tolist() == [0, 5, 4, 6, 0]


@pytest.mark.parametrize("stride", [None, 0])
def test_a_word_of_more_tokens_than_a_window_loses_its_end(tokenizer, stride):
    words = ["a", "a" + "b" * 150, "c", "a" + "c" * 29, "b"]
    windows = encode(tokenizer, [words], 32, stride)
    assert sum(len(window.positions) for window in windows) == 5
    assert max(len(window.ids) for window in windows) == 32
    # A window's 30 tokens, of which the first is another, and no token less.
    assert max(list(window.ids).count(8) for window in windows) == 29
    assert max(list(window.ids).count(9) for window in windows) == 29


@pytest.mark.parametrize("length", [3, 4, 8, 24, 64])
@pytest.mark.parametrize("stride", [None, 0, 10])
def test_every_word_is_predicted_once_and_in_order(tokenizer, length, stride):
    for seed in range(5):
        document = random_document(seed)
        numbers = []
        for window in encode(tokenizer, document, length, stride):
            numbers += range(window.first, window.first + len(window.positions))
            assert len(window.ids) <= length
            assert (window.ids[0], window.ids[-1]) == (CLS, SEP)
        assert numbers == list(range(sum(map(len, document))))


def windows_of(sizes, document, room, stride=0):
    rows = np.cumsum([0, *map(len, document)])
    splits = np.cumsum([0, *sizes])
    windows = windowing.Windows(room + 2, "maximal", stride)
    return windowing.find_windows(splits, rows, windows).tolist()


def test_the_context_is_the_documents_and_as_much_as_fits():
    """A sentence of 2 in a room of 6 has 2 on either side, if there are."""
    document = [["a"] * 2] * 5
    assert windows_of([1] * 10, document, 6) == [
        [0, 6, 0, 4],
        [2, 8, 4, 6],
        [4, 10, 6, 10],
    ]


def test_a_document_that_fits_is_one_window(tokenizer):
    document = random_document(3)
    assert len(encode(tokenizer, document, 2000, 0)) == 1
    assert len(encode(tokenizer, document, 2000)) == len(document)


@pytest.mark.parametrize("stride", [0, 7])
def test_a_word_is_predicted_where_it_has_most_context(stride):
    for seed in range(5):
        document = random_document(seed)
        sizes = [len(word) for words in document for word in words]
        splits = np.cumsum([0, *sizes])
        windows = windows_of(sizes, document, 20, stride)

        def context(word, window, splits=splits):
            before = splits[word] - splits[window[0]]
            return min(before, splits[window[1]] - splits[word + 1])

        for window in windows:
            for word in range(window[2], window[3]):
                others = [w for w in windows if w[0] <= word < w[1]]
                best = max(context(word, other) for other in others)
                assert context(word, window) == best
