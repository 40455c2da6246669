"""Proves the masking facts of the released code over many instances.

Fractions are compared within five standard deviations of the binomial, at
fixed seeds.
pytest tests/data/pretraining/masking_test.py
"""

import itertools
import types

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

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
    masked = masking.mask(
        *data,
        rule=Settings(**rule),
        vocabulary=WORDS,
        rng=np.random.Generator(np.random.SFC64(seed)),
    )
    return types.SimpleNamespace(**masked)


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


def words_of(row, candidates):
    """Groups of positions that form words, as the released code makes them."""
    groups = []
    for position in np.flatnonzero(candidates):
        if groups and row[position] >= CONTINUATIONS:
            groups[-1].append(int(position))
        else:
            groups.append([int(position)])
    return groups


@hypothesis.settings(
    max_examples=60, derandomize=True, deadline=None, database=None
)
@hypothesis.given(
    seed=strategies.integers(0, 2**32 - 1),
    masked_lm_prob=strategies.sampled_from([0.05, 0.15, 0.5, 1.0]),
    max_predictions_per_seq=strategies.integers(1, LENGTH),
    do_whole_word_mask=strategies.booleans(),
)
def test_any_row_is_masked_by_the_rule(seed, **rule):
    data = ids, candidates, lengths = batch(40, seed=seed)
    before = ids.copy()
    masked = mask(data, seed, **rule)
    np.testing.assert_array_equal(ids, before)
    again = mask(data, seed, **rule)
    np.testing.assert_array_equal(masked.input_ids, again.input_ids)
    limits = masking.prediction_counts(lengths, Settings(**rule))
    for row, limit in enumerate(limits):
        weights = masked.masked_lm_weights[row]
        count = int(weights.sum())
        assert weights.tolist() == [1.0] * count + [0.0] * (
            len(weights) - count
        )
        assert not masked.masked_lm_ids[row, count:].any()
        assert not masked.masked_lm_positions[row, count:].any()
        positions = masked.masked_lm_positions[row, :count].tolist()
        assert positions == sorted({*positions})
        assert candidates[row, positions].all()
        restored = masked.input_ids[row].copy()
        restored[positions] = masked.masked_lm_ids[row, :count]
        np.testing.assert_array_equal(restored, ids[row])
        room = limit - count
        assert room >= 0
        if not rule["do_whole_word_mask"]:
            assert count == min(limit, candidates[row].sum())
            continue
        for word in words_of(ids[row], candidates[row]):
            inside = len({*positions} & {*word})
            # Words that do not fit, and no others, are passed over.
            assert inside == len(word) or inside == 0 and len(word) > room


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
