"""Proves that the masks that XLA computes are as good as random ones.

pytest tests/training/xla_dropout_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

import fusion
from modeling import dropout
from training import xla_dropout

THRESHOLD = round(0.1 * 2**16)


def mask(seed, shape=(1000, 1000)):
    kept = xla_dropout.keep(tf.constant(seed), shape=shape, threshold=THRESHOLD)
    return kept.numpy()


def test_the_share_that_is_dropped_is_the_rate():
    for seed in ((0, 0), (1, 0), (0, 1), (-1, 2**31 - 1)):
        kept = mask(seed)
        # Five standard deviations of a million draws.
        assert kept.mean() == pytest.approx(1 - THRESHOLD / 2**16, abs=0.0015)
        assert kept.mean(axis=0).std() == pytest.approx(0.0095, rel=0.15)
        assert kept.mean(axis=1).std() == pytest.approx(0.0095, rel=0.15)


@pytest.mark.parametrize("shift", [1, 2, 3, 64, 128, 768, 1000, 4096])
def test_neighbors_do_not_depend_on_each_other(shift):
    kept = mask((12345, -678)).ravel() - (1 - THRESHOLD / 2**16)
    together = (kept[shift:] * kept[:-shift]).mean() / kept.var()
    assert abs(together) < 0.005


@pytest.mark.parametrize("other", [(6, 7), (5, 8), (7, 5), (5, -7)])
def test_masks_of_different_seeds_do_not_depend_on_each_other(other):
    first, second = (mask(seed) * 1.0 for seed in ((5, 7), other))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.005


def test_seeds_of_parts_differ():
    seeds = {
        tuple(
            xla_dropout.fold_in(tf.constant(seed), data=data).numpy().tolist()
        )
        for seed in ((0, 0), (0, 1), (1, 0))
        for data in range(100)
    }
    assert len(seeds) == 300


def test_the_mask_is_the_same_with_and_without_xla():
    def draw(seed):
        seed = xla_dropout.fold_in(seed, data=3)
        return xla_dropout.keep(seed, shape=(7, 33), threshold=THRESHOLD)

    seed = tf.constant([3, -77])
    compiled = tf.function(draw, jit_compile=True)(seed)
    np.testing.assert_array_equal(compiled, draw(seed))


def test_dropout_uses_it_where_the_caller_says_so():
    seed = tf.constant([3, 4])
    x = tf.ones([50, 20])
    plain = dropout.keep(x, 0.1, seed)
    with fusion.using(xla_dropout.KERNELS):
        hashed = dropout.keep(x, 0.1, seed)
        part = dropout.fold_in(seed, 2)
    expected = xla_dropout.keep(seed, shape=(50, 20), threshold=6554)
    np.testing.assert_array_equal(hashed, expected)
    np.testing.assert_array_equal(part, xla_dropout.fold_in(seed, data=2))
    assert (plain.numpy() != hashed.numpy()).any()
