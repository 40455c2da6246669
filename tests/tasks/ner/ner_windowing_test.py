"""Proves that words keep their labels as tokens, in windows, and none is lost.

python -m pytest tests/tasks/ner/ner_windowing_test.py
"""

import random

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from tasks.ner import settings, windowing, word_files

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##b ##c \u4e00 .".split()
UNK, CLS, SEP = 1, 2, 3
# Format characters, a lone replacement character, a stray accent, no break.
NOTHING = ["\u200b", "\ufffd", "\u0301", "\u00ad", "\x00", "\u200e\u200f"]


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(TOKENS))


def sentences(*documents, has_documents=True):
    """Takes documents, lists of sentences, lists of words."""
    rows = [words for document in documents for words in document]
    return word_files.Sentences(
        path="words.txt",
        words=[word for words in rows for word in words],
        lines=np.arange(sum(map(len, rows))) + 1,
        tags=None,
        row_splits=np.cumsum([0, *map(len, rows)]),
        documents=np.cumsum([0, *map(len, documents)]),
        has_documents=has_documents,
    )


def random_documents(seed, count=6):
    rng = random.Random(seed)

    def words():
        length = rng.choice([1, 2, 3, 8, 30])
        return ["a" + "b" * rng.choice([0, 0, 0, 1, 4]) for _ in range(length)]

    return sentences(
        *([words() for _ in range(rng.randint(1, 9))] for _ in range(count))
    )


def encode(tokenizer, found, **options):
    labels = np.arange(len(found.words))
    sizes = settings.WindowSettings(**options)
    return windowing.encode(tokenizer, found, labels, sizes)


def rows(features, name):
    return np.split(features.ragged[name], features.row_splits[1:-1])


def test_first_tokens_bear_the_labels(tokenizer):
    found = sentences([["abb", "x", "c"], ["\u4e00\u4e00"]])
    features = encode(tokenizer, found, max_seq_length=16)
    ids = [TOKENS[i] for i in features.ragged["input_ids"]]
    assert " ".join(ids) == (
        "[CLS] a ##b ##b [UNK] c [SEP] [CLS] \u4e00 \u4e00 [SEP]"
    )
    assert features.ragged["label_ids"].tolist() == (
        [-1, 0, -1, -1, 1, 2, -1] + [-1, 3, -1, -1]
    )
    assert not features.ragged["segment_ids"].any()


@pytest.mark.parametrize("word", NOTHING, ids=ascii)
def test_a_word_that_normalizes_to_nothing_is_an_unknown_one(tokenizer, word):
    assert tokenizer.tokenize([word]) == [[]]
    found = sentences([["a", word, "b"], [word]])
    features = encode(tokenizer, found, max_seq_length=8)
    ids, labels = features.ragged["input_ids"], features.ragged["label_ids"]
    assert ids[labels == 1] == ids[labels == 3] == UNK
    assert len(windowing.word_positions(features)) == 4


@pytest.mark.parametrize("context", ["none", "maximal"])
def test_a_word_of_more_than_a_hundred_tokens_loses_its_end(tokenizer, context):
    found = sentences([["a", "a" + "b" * 150, "c", "a" + "c" * 199, "b"]])
    features = encode(
        tokenizer, found, max_seq_length=32, document_context=context
    )
    positions = windowing.word_positions(features)
    assert features.ragged["label_ids"][positions].tolist() == [0, 1, 2, 3, 4]
    assert features.lengths.max() <= 32
    # A window's 30 tokens, of which the first is another, and no token less.
    assert max(np.sum(row == 8) for row in rows(features, "input_ids")) == 29


@pytest.mark.parametrize("context", ["none", "maximal"])
def test_a_word_that_fits_is_whole(tokenizer, context, caplog):
    found = sentences([["a", "a" + "b" * 29, "c"]])
    features = encode(
        tokenizer, found, max_seq_length=32, document_context=context
    )
    assert np.sum(features.ragged["input_ids"] == 8) == 29
    assert "tokens fit" not in caplog.text


@pytest.mark.parametrize("length", [3, 4, 8, 24, 64])
@pytest.mark.parametrize("stride", [None, 0, 10])
def test_every_word_is_predicted_once_and_in_order(tokenizer, length, stride):
    for seed in range(5):
        found = random_documents(seed)
        features = encode(
            tokenizer,
            found,
            max_seq_length=length,
            document_context="none" if stride is None else "maximal",
            doc_stride=stride or 0,
        )
        positions = windowing.word_positions(features)
        labels = features.ragged["label_ids"][positions]
        np.testing.assert_array_equal(labels, np.arange(len(found.words)))
        assert features.lengths.max() <= length
        assert (
            features.ragged["input_ids"][features.row_splits[:-1]] == CLS
        ).all()
        assert (
            features.ragged["input_ids"][features.row_splits[1:] - 1] == SEP
        ).all()


def test_sentences_that_fit_are_left_alone(tokenizer):
    found = random_documents(1)
    features = encode(tokenizer, found, max_seq_length=256)
    assert len(features) == len(found)


def windows_of(found, splits, room, stride=0):
    windows = windowing.find_windows(
        found,
        splits,
        settings.WindowSettings(
            max_seq_length=room + 2,
            document_context="maximal",
            doc_stride=stride,
        ),
    )
    return windows.tolist()


def test_the_context_is_the_documents_and_as_much_as_fits():
    """A sentence of 2 in a room of 6 has 2 on either side, if there are."""
    found = sentences([["a"] * 2] * 5, [["a"] * 3])
    splits = np.arange(14)
    assert windows_of(found, splits, 6) == [
        [0, 6, 0, 4],
        [2, 8, 4, 6],
        [4, 10, 6, 10],
        [10, 13, 10, 13],
    ]


def test_a_document_that_fits_is_one_sequence(tokenizer):
    found = random_documents(3)
    features = encode(
        tokenizer, found, max_seq_length=2000, document_context="maximal"
    )
    assert len(features) == len(found.documents) - 1


@pytest.mark.parametrize("stride", [0, 7])
def test_a_word_is_predicted_where_it_has_most_context(stride):
    for seed in range(5):
        found = random_documents(seed)
        sizes = np.array([len(word) for word in found.words])
        splits = np.concatenate([[0], np.cumsum(sizes)])
        windows = windows_of(found, splits, 20, stride)

        def context(word, window, splits=splits):
            before = splits[word] - splits[window[0]]
            return min(before, splits[window[1]] - splits[word + 1])

        for window in windows:
            for word in range(window[2], window[3]):
                others = [w for w in windows if w[0] <= word < w[1]]
                best = max(context(word, other) for other in others)
                assert context(word, window) == best


def test_a_stride_saves_sequences(tokenizer):
    found = sentences(*[[["a"] * 3] * 40] * 4)
    counts = [
        len(
            encode(
                tokenizer,
                found,
                max_seq_length=32,
                document_context="maximal",
                doc_stride=stride,
            )
        )
        for stride in (0, 5, 15)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 3 * counts[2]


def test_context_needs_documents(tokenizer):
    found = sentences([["a"]], has_documents=False)
    with pytest.raises(errors.InputError, match="words.txt: .*-DOCSTART-"):
        encode(tokenizer, found, max_seq_length=8, document_context="maximal")
