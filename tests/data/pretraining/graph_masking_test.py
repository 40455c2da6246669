"""Proves that masks drawn in a graph have the distribution of masking.mask.

Fractions are compared within five standard deviations, at fixed seeds.
pytest tests/data/pretraining/graph_masking_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from data.pretraining import graph_masking, masking, packing
from data.pretraining.settings import Settings
from tests.data.pretraining import masking_test

LENGTH, SIZE, MASK = masking_test.LENGTH, masking_test.SIZE, masking_test.MASK


class Words:
    """The parts of a vocabulary that masking uses."""

    cls_id, sep_id = masking_test.CLS, masking_test.SEP
    mask_id = MASK
    replacement_ids = masking_test.WORDS.replacement_ids
    is_continuation = masking_test.WORDS.is_continuation

    def __len__(self):
        """Returns the number of tokens."""
        return SIZE


@pytest.fixture(params=[False, True], ids=["tokens", "whole words"])
def whole_words(request):
    return request.param


def draw(ids, instance, *, rate=0.15, step=3, first_row=0, seed=7, **rule):
    """Draws masks; `instance` has the number of each token's instance."""
    instances = max(int(instance.max()), 1)
    most = graph_masking.most_predictions(rate, ids.shape[1], instances)
    rule = Settings(max_predictions_per_seq=most, **rule)
    found = _draw(instances, rule, rate, seed)(
        tf.constant(ids),
        tf.constant(instance, tf.int32),
        tf.constant(step, tf.int64),
        tf.constant(first_row),
    )
    return masking.Masked(**{name: x.numpy() for name, x in found.items()})


def _draw(instances, rule, rate, seed):
    def call(ids, instance, step, first_row):
        return graph_masking.mask(
            {"input_ids": ids, "input_mask": instance},
            masked_lm_prob=tf.constant(rate, tf.float64),
            rule=rule,
            num_instances=instances,
            vocabulary=Words(),
            seed=seed,
            step=step,
            first_row=first_row,
        )

    return tf.function(call, autograph=False)


def batch(count, **options):
    """Returns ids, numbers of instances, candidates and lengths."""
    ids, candidates, lengths = masking_test.batch(count, **options)
    ids[ids == MASK] = 4
    return ids, (ids != masking_test.PAD) * 1, candidates, lengths


def packed(count):
    """Returns rows of several instances, and their instances alone."""
    rng = np.random.default_rng(3)
    alone = masking_test.batch(2 * count, seed=5)
    ids, candidates, lengths = (x[alone[2] <= LENGTH // 2] for x in alone)
    rows = np.sort(rng.permutation(len(ids)) // 2)
    columns = {
        "input_ids": ids,
        "input_mask": (ids != masking_test.PAD) * 1,
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": np.zeros_like(ids[:, :1]),
        "masked_lm_ids": np.zeros_like(ids[:, :1]),
        "masked_lm_weights": np.zeros_like(ids[:, :1]),
        "next_sentence_labels": np.zeros_like(ids[:, :1]),
    }
    rule = packing.PackingRule(
        max_seq_length=LENGTH, predictions_per_row=8, instances_per_row=2
    )
    made = packing.lay_out(columns, rows, int(rows.max()) + 1, rule)
    return made, (ids, candidates, lengths), rows


def test_the_number_of_predictions_is_that_of_stored_masks():
    """All lengths at some rates, one in each row: rounded half to even."""
    lengths = np.arange(3, 513)
    ids = np.full((len(lengths), 512), 9, np.int32)
    ids[:, 0] = masking_test.CLS
    instance = (np.arange(512) < lengths[:, None]) * 1
    for rate in (0.15, 0.3, 0.01, 0.5):
        masked = draw(ids, instance, rate=rate)
        rule = Settings(masked_lm_prob=rate, max_predictions_per_seq=512)
        np.testing.assert_array_equal(
            masked.masked_lm_weights.sum(1),
            masking.prediction_counts(lengths, rule),
        )
        assert masked.masked_lm_ids.shape[1] == int(np.ceil(512 * rate))


def check_invariants(masked, ids, candidates):
    """Checks what also holds for stored masks."""
    used = masked.masked_lm_weights > 0
    positions = np.where(used, masked.masked_lm_positions, ids.shape[1])
    assert ((np.diff(positions, axis=1) > 0) | ~used[:, 1:]).all()
    assert (np.diff(masked.masked_lm_weights, axis=1) <= 0).all()
    assert not masked.masked_lm_ids[~used].any()
    assert not masked.masked_lm_positions[~used].any()
    rows, columns = np.nonzero(used)
    at = rows, masked.masked_lm_positions[rows, columns]
    assert candidates[at].all()
    restored = masked.input_ids.copy()
    restored[at] = masked.masked_lm_ids[rows, columns]
    np.testing.assert_array_equal(restored, ids)
    assert (masked.input_ids != ids).any()


def test_no_special_token_is_masked_and_labels_restore(whole_words):
    ids, instance, candidates, _ = batch(3000)
    masked = draw(ids, instance, do_whole_word_mask=whole_words)
    check_invariants(masked, ids, candidates)


def position_frequencies(masked):
    used = masked.masked_lm_weights > 0
    found = np.zeros((len(used), LENGTH))
    rows, columns = np.nonzero(used)
    found[rows, masked.masked_lm_positions[rows, columns]] = 1
    return found


def test_every_token_is_chosen_as_often_as_by_stored_masks(whole_words):
    """One batch of a few rows, each many times, by both functions."""
    times, count = 4000, 8
    kinds = batch(count, seed=4)
    ids, instance, candidates, lengths = (np.tile(x.T, times).T for x in kinds)
    rule = dict(do_whole_word_mask=whole_words, masked_lm_prob=0.2)
    expected = masking_test.mask(
        (ids, candidates, lengths), max_predictions_per_seq=LENGTH, **rule
    )
    found = draw(ids, instance, rate=0.2, do_whole_word_mask=whole_words)
    first, second = (
        position_frequencies(x).reshape(times, count, LENGTH)
        for x in (expected, found)
    )
    for one, other in (
        (first, second),
        # Pairs: the tokens of a row are not chosen independently.
        (first * np.roll(first, 1, 2), second * np.roll(second, 1, 2)),
    ):
        means = one.mean(0), other.mean(0)
        middle = sum(means) / 2
        deviation = np.sqrt(2 * middle * (1 - middle) / times)
        assert (abs(means[0] - means[1]) <= 5 * deviation + 1e-9).all()
    sizes = [x.sum(2).mean(0) for x in (first, second)]
    np.testing.assert_allclose(*sizes, rtol=0.02)


@pytest.mark.parametrize(
    ("mask_prob", "random_prob"), [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0)]
)
def test_tokens_are_replaced_at_the_given_rates(
    whole_words, mask_prob, random_prob
):
    ids, instance, *_ = batch(8000)
    masked = draw(
        ids,
        instance,
        do_whole_word_mask=whole_words,
        mask_token_prob=mask_prob,
        random_token_prob=random_prob,
    )
    as_mask, kept, other, count = masking_test.fractions(None, masked)
    within = masking_test.within
    chance = random_prob / SIZE  # A random token may be [MASK] or the label.
    assert within(as_mask, mask_prob + chance * (mask_prob < 1), count)
    assert within(kept, max(1 - mask_prob - random_prob, 0) + chance, count)
    assert within(other, max(random_prob - 2 * chance, 0), count)


def test_random_tokens_come_evenly_from_the_whole_vocabulary():
    ids, instance, *_ = batch(20000)
    masked = draw(ids, instance, mask_token_prob=0.0, random_token_prob=1.0)
    used = masked.masked_lm_weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.masked_lm_positions, 1)
    seen = np.bincount(shown[used], minlength=SIZE)
    expected = used.sum() / SIZE
    assert abs(seen - expected).max() < 5.5 * expected**0.5


def test_whole_words_are_whole_and_as_many_as_fit():
    ids, instance, candidates, lengths = batch(2000)
    masked = draw(ids, instance, do_whole_word_mask=True)
    rule = Settings(max_predictions_per_seq=LENGTH)
    limits = masking.prediction_counts(lengths, rule)
    check_words(position_frequencies(masked), ids, candidates, limits)


def check_words(chosen, ids, candidates, limits):
    for row in range(len(ids)):
        positions = set(np.flatnonzero(chosen[row]).tolist())
        room = limits[row] - len(positions)
        assert room >= 0
        for word in masking_test.words_of(ids[row], candidates[row]):
            inside = len(positions & set(word))
            assert inside in (0, len(word))
            assert inside or len(word) > room


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_each_instance_of_a_packed_row_is_masked_by_itself(whole_words, rate):
    made, (ids, candidates, lengths), rows = packed(2000)
    masked = draw(
        made["input_ids"],
        made["input_mask"],
        rate=rate,
        do_whole_word_mask=whole_words,
    )
    check_invariants(
        masked,
        made["input_ids"],
        ~np.isin(made["input_ids"], (0, masking_test.CLS, masking_test.SEP)),
    )
    chosen = position_frequencies(masked)
    number = np.arange(len(rows)) - np.searchsorted(rows, rows)
    is_own = made["input_mask"][rows] == number[:, None] + 1
    alone = np.zeros_like(chosen, shape=ids.shape)
    alone[np.arange(LENGTH) < lengths[:, None]] = chosen[rows][is_own]
    rule = Settings(masked_lm_prob=rate, max_predictions_per_seq=LENGTH)
    limits = masking.prediction_counts(lengths, rule)
    if whole_words:
        check_words(alone, ids, candidates, limits)
    else:
        limits = np.minimum(limits, candidates.sum(1))
        np.testing.assert_array_equal(alone.sum(1), limits)


def test_masks_depend_on_seed_step_and_row_of_the_global_batch(whole_words):
    ids, instance, *_ = batch(40)

    def drawn(rows=slice(None), **keys):
        masked = draw(
            ids[rows],
            instance[rows],
            first_row=rows.start or 0,
            do_whole_word_mask=whole_words,
            **keys,
        )
        return np.concatenate([x.astype(float) for x in masked], 1)

    together = drawn()
    parts = [drawn(slice(n, n + 20)) for n in (0, 20)]
    np.testing.assert_array_equal(np.concatenate(parts), together)
    for other in (drawn(step=4), drawn(seed=8), drawn(seed=-7)):
        assert (other != together).any(axis=1).mean() > 0.5
    same = np.broadcast_to(ids[:1], ids.shape), instance[:1].repeat(40, 0)
    positions = draw(*same).masked_lm_positions
    assert len(np.unique(positions, axis=0)) > 20
