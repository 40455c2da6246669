"""Long texts as windows: in memory and in batches."""

import encoded_texts
import numpy as np
import pytest

from data import features, length_groups
from data.tokenization import vocabulary, wordpiece

WORDS = ["the", "cat", "sat", "on", "a", "mat"]


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens([*vocabulary.SPECIAL_TOKENS, *WORDS])
    )


def _text(length, start=0):
    return " ".join(WORDS[(start + i) % len(WORDS)] for i in range(length))


def _windows(made, i):
    """Returns the token ids of the windows of example i."""
    first, end = made.window_splits[i : i + 2]
    ids, splits = made.ragged["input_ids"], made.row_splits
    return [ids[splits[j] : splits[j + 1]].tolist() for j in range(first, end)]


def test_windows_cover_a_text_and_overlap(tokenizer):
    texts = [_text(n) for n in (0, 1, 6, 7, 9, 10, 30)]
    made = encoded_texts.encode(
        tokenizer,
        texts,
        None,
        max_seq_length=8,
        windows=features.Windows(stride=3, most=100),
    )
    assert made.counts.tolist() == [1, 1, 1, 2, 2, 3, 9]
    for i, text in enumerate(texts):
        expected = tokenizer.encode([text]).ids.tolist()
        joined = {}
        for number, ids in enumerate(_windows(made, i)):
            assert ids[0] == tokenizer.vocabulary.cls_id
            assert ids[-1] == tokenizer.vocabulary.sep_id
            assert len(ids) <= 8
            for j, token in enumerate(ids[1:-1], 3 * number):
                assert joined.setdefault(j, token) == token
        assert [joined[j] for j in range(len(joined))] == expected


def test_batches_have_every_window_and_little_padding(tokenizer):
    rng = np.random.default_rng(0)
    texts = [_text(int(n)) for n in rng.integers(1, 60, 64)]
    made = encoded_texts.encode(
        tokenizer,
        texts,
        None,
        max_seq_length=16,
        windows=features.Windows(stride=7, most=9),
    )
    sizes = {"batch_size": 8, "lengths": [8, 16]}
    batches = length_groups.OrderedBatches(made, **sizes)
    rows, tokens = [], 0
    for batch in batches.arrays():
        is_window = batch["input_mask"].any(axis=2)
        rows += batch["example_index"].tolist()
        assert np.array_equal(
            is_window.sum(axis=1), made.counts[batch["example_index"]]
        )
        tokens += batch["input_mask"].size
    assert sorted(rows) == list(range(64))
    assert tokens < 1.35 * made.sizes.sum()
    one_length = length_groups.train_batches(
        made, batch_size=8, seed=1, lengths=[16]
    )
    shape = one_length.element_spec["input_ids"].shape
    assert shape == (8, made.counts.max(), 16)
