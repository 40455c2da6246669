"""Proves the masking facts of the released code over many instances.

Fractions are compared within five standard deviations of the binomial, at
fixed seeds.
pytest tests/data/pretraining/masking_test.py
"""

import itertools
import types

import numpy as np
import pytest

from data.pretraining import masking
from data.pretraining.settings import Settings

LENGTH = 32
CLS, SEP, MASK, PAD = 1, 2, 3, 0
SIZE = 1000
CONTINUATIONS = 400  # Ids from here on are "##" tokens.
WORDS = types.SimpleNamespace(
    mask_id=MASK,
    replacement_ids=np.arange(SIZE, dtype=np.int32),
    is_continuation=np.arange(SIZE) >= CONTINUATIONS,
)


def batch(count, *, seed=0, least=5):
    """Random pairs of random lengths: ids, candidates and lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(least, LENGTH, count, endpoint=True)
    ids = rng.integers(4, SIZE, (count, LENGTH)).astype(np.int32)
    column = np.arange(LENGTH)
    middle = 2 + rng.integers(0, lengths - 4, count)
    is_sep = (column == middle[:, None]) | (column == lengths[:, None] - 1)
    ids[:, 0] = CLS
    ids[is_sep] = SEP
    ids[column >= lengths[:, None]] = PAD
    candidates = (column > 0) & (column < lengths[:, None]) & ~is_sep
    return ids, candidates, lengths


def mask(data, seed=1, **rule):
    rule = {"max_predictions_per_seq": 6} | rule
    return masking.mask(
        *data,
        rule=Settings(**rule),
        vocabulary=WORDS,
        rng=np.random.Generator(np.random.SFC64(seed)),
    )


def within(share, expected, count):
    """Five standard deviations of a share of `count` draws."""
    deviation = (expected * (1 - expected) / count) ** 0.5
    return abs(share - expected) <= 5 * deviation


@pytest.fixture(params=[False, True], ids=["tokens", "whole words"])
def whole_words(request):
    return request.param


def test_the_number_of_predictions_is_rounded_half_to_even():
    rule = Settings(masked_lm_prob=0.5, max_predictions_per_seq=6)
    counts = masking.prediction_counts(np.array([1, 3, 5, 7, 9, 30]), rule)
    assert counts.tolist() == [1, 2, 2, 4, 4, 6]
    rule = Settings()
    lengths = np.arange(1, 513)
    expected = [min(20, max(1, int(round(n * 0.15)))) for n in range(1, 513)]
    counts = masking.prediction_counts(lengths, rule)
    assert counts.tolist() == expected


def test_every_row_predicts_as_many_tokens_as_its_length_asks():
    data = batch(3000)
    masked = mask(data)
    rule = Settings(max_predictions_per_seq=6)
    np.testing.assert_array_equal(
        masked.masked_lm_weights.sum(1),
        np.minimum(
            masking.prediction_counts(data[2], rule), data[1].sum(axis=1)
        ),
    )


def test_positions_ascend_and_are_never_special_or_padding(whole_words):
    ids, candidates, _ = data = batch(3000)
    masked = mask(data, do_whole_word_mask=whole_words)
    used = masked.masked_lm_weights > 0
    positions = np.where(used, masked.masked_lm_positions, LENGTH)
    steps = np.diff(positions, axis=1)
    assert ((steps > 0) | ~used[:, 1:]).all()
    rows = np.arange(len(ids))[:, None]
    assert candidates[rows, masked.masked_lm_positions][used].all()


def test_rows_with_fewer_predictions_end_in_zeros(whole_words):
    masked = mask(batch(3000), do_whole_word_mask=whole_words)
    weights = masked.masked_lm_weights
    assert (np.diff(weights, axis=1) <= 0).all() and (weights == 0).any()
    assert not masked.masked_lm_ids[weights == 0].any()
    assert not masked.masked_lm_positions[weights == 0].any()


def test_the_labels_restore_the_sequence(whole_words):
    ids, candidates, lengths = batch(3000)
    before = ids.copy()
    masked = mask((ids, candidates, lengths), do_whole_word_mask=whole_words)
    np.testing.assert_array_equal(ids, before)
    restored = masked.input_ids.copy()
    rows, columns = np.nonzero(masked.masked_lm_weights)
    positions = masked.masked_lm_positions[rows, columns]
    restored[rows, positions] = masked.masked_lm_ids[rows, columns]
    np.testing.assert_array_equal(restored, ids)
    assert (masked.input_ids != ids).any()


def fractions(data, masked):
    """Fractions of [MASK], kept and other tokens among the predictions."""
    used = masked.masked_lm_weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.masked_lm_positions, 1)
    shown, labels = shown[used], masked.masked_lm_ids[used]
    return (
        (shown == MASK).mean(),
        (shown == labels).mean(),
        ((shown != MASK) & (shown != labels)).mean(),
        used.sum(),
    )


@pytest.mark.parametrize(
    "mask_prob, random_prob", [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.8, 0.2)]
)
def test_tokens_are_replaced_at_the_given_rates(
    whole_words, mask_prob, random_prob
):
    data = batch(20000)
    masked = mask(
        data,
        do_whole_word_mask=whole_words,
        mask_token_prob=mask_prob,
        random_token_prob=random_prob,
    )
    as_mask, kept, other, count = fractions(data, masked)
    chance = random_prob / SIZE  # A random token may be [MASK] or the label.
    assert within(as_mask, mask_prob + chance * (mask_prob < 1), count)
    assert within(kept, max(1 - mask_prob - random_prob, 0) + chance, count)
    assert within(other, max(random_prob - 2 * chance, 0), count)


def test_random_tokens_come_evenly_from_the_whole_vocabulary():
    masked = mask(batch(40000), mask_token_prob=0.0, random_token_prob=1.0)
    used = masked.masked_lm_weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.masked_lm_positions, 1)
    seen = np.bincount(shown[used], minlength=SIZE)
    expected = used.sum() / SIZE
    assert abs(seen - expected).max() < 5.5 * expected**0.5
    assert seen[[PAD, CLS, SEP, MASK]].all()


def test_every_set_of_candidates_is_equally_likely():
    ids = np.tile(
        np.array([CLS, 9, 9, 9, SEP, 9, 9, SEP], np.int32), (40000, 1)
    )
    candidates = ids == 9
    masked = mask(
        (ids, candidates, np.full(40000, 8)),
        masked_lm_prob=0.25,
        max_predictions_per_seq=2,
    )
    pairs = [tuple(x) for x in masked.masked_lm_positions.tolist()]
    for pair in itertools.combinations([1, 2, 3, 5, 6], 2):
        assert within(pairs.count(pair) / 40000, 0.1, 40000)


def words_of(row, candidates):
    """Groups of positions that form words, as the released code makes them."""
    groups = []
    for position in np.flatnonzero(candidates):
        if groups and row[position] >= CONTINUATIONS:
            groups[-1].append(int(position))
        else:
            groups.append([int(position)])
    return groups


def test_whole_words_are_whole_and_as_many_as_fit():
    ids, candidates, lengths = data = batch(2000)
    rule = dict(max_predictions_per_seq=6, do_whole_word_mask=True)
    masked = mask(data, **rule)
    limits = masking.prediction_counts(lengths, Settings(**rule))
    for row in range(2000):
        used = masked.masked_lm_weights[row] > 0
        chosen = set(masked.masked_lm_positions[row][used].tolist())
        room = limits[row] - len(chosen)
        for word in words_of(ids[row], candidates[row]):
            inside = len(chosen & set(word))
            assert inside in (0, len(word))
            # Passing over is allowed for words that do not fit, only.
            assert inside or len(word) > room
        assert room >= 0


def test_a_word_that_does_not_fit_is_passed_over_not_the_end():
    row = [CLS, 10, 500, 501, 502, SEP, 11, SEP]
    ids = np.tile(np.array(row, np.int32), (2000, 1))
    masked = mask(
        (ids, (ids > 3), np.full(2000, 8)),
        masked_lm_prob=0.2,
        do_whole_word_mask=True,
    )
    # Two positions at most: the word of four never fits, the other always does.
    assert (masked.masked_lm_positions[:, 0] == 6).all()
    assert (masked.masked_lm_weights.sum(1) == 1).all()


def test_the_order_in_which_words_are_tried_is_random():
    row = [CLS, 10, 500, SEP, 11, 12, SEP]
    ids = np.tile(np.array(row, np.int32), (30000, 1))
    masked = mask(
        (ids, (ids > 3), np.full(30000, 7)),
        masked_lm_prob=0.3,
        do_whole_word_mask=True,
    )
    # Tried first, the long word fills both positions; else 11 and 12 do.
    first = (masked.masked_lm_positions[:, 0] == 1).mean()
    assert within(first, 1 / 3, 30000)


def test_a_continuation_at_the_start_of_b_belongs_to_the_last_word_of_a():
    row = [CLS, 10, SEP, 500, SEP]
    ids = np.tile(np.array(row, np.int32), (200, 1))
    masked = mask(
        (ids, (ids > 3), np.full(200, 5)),
        masked_lm_prob=0.4,
        do_whole_word_mask=True,
    )
    assert (masked.masked_lm_positions[:, :2] == [1, 3]).all()


def test_the_same_seed_gives_the_same_masks(whole_words):
    data = batch(500)
    rule = {"do_whole_word_mask": whole_words}
    one, two, other = (mask(data, seed, **rule) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.input_ids, two.input_ids)
    assert (one.input_ids != other.input_ids).any()


def test_more_predictions_than_candidates_take_every_candidate(whole_words):
    ids, candidates, lengths = data = batch(300)
    masked = mask(
        data,
        masked_lm_prob=1.0,
        max_predictions_per_seq=LENGTH,
        do_whole_word_mask=whole_words,
    )
    np.testing.assert_array_equal(
        masked.masked_lm_weights.sum(1), candidates.sum(1)
    )
