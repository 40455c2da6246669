"""Tests that dropout is exact in rate and a pure function of its seed.

python -m pytest tests/modeling/dropout_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import dropout

SHAPE = (199, 1001)
SIZE = 199 * 1001
# The first random words of the seed [1, 2].
WORDS = [1105988140, 1738052849, -335576002]


def _mask(seed, rate=0.1):
    x = tf.ones(SHAPE)
    return dropout.dropout(x, rate, tf.constant(seed)).numpy() == 0


def _assert_independent(one, two, rate=0.1):
    """Checks that both happen as often as chance has it (5 sigma)."""
    together = rate * rate
    bound = 5 * np.sqrt(together * (1 - together) / one.size)
    assert abs((one & two).mean() - together) < bound


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_the_rate(rate):
    bound = 5 * np.sqrt(rate * (1 - rate) / SIZE)
    assert abs(_mask([1, 2], rate).mean() - rate) < bound


@pytest.mark.parametrize("shape", [(4, 8), (3, 5, 7)])
def test_the_mask_is_of_the_halves_of_random_words(shape):
    """Little ends first; another order would change every run."""
    x, seed, size = tf.ones(shape), tf.constant([1, 2]), int(np.prod(shape))
    words = tf.random.stateless_uniform(
        [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32
    ).numpy()
    assert words[:3].tolist() == WORDS
    halves = words.astype("<i4").view("<i2")[:size].reshape(shape)
    keep = halves >= round(0.3 * 2**16) - 2**15
    for run in (dropout.dropout, tf.function(dropout.dropout)):
        np.testing.assert_array_equal(run(x, 0.3, seed).numpy() > 0, keep)


def test_parts_of_counted_up_seeds_never_share_a_mask():
    seeds = [
        tuple(
            dropout.fold_in(
                dropout.fold_in(tf.constant([9, step]), layer), part
            ).numpy()
        )
        for step in range(4)
        for layer in range(5)
        for part in range(3)
    ]
    assert len(set(seeds)) == len(seeds)
    masks = [_mask(seed) for seed in seeds[:8]]
    for i, one in enumerate(masks):
        for two in masks[:i]:
            _assert_independent(one, two)


def test_without_seed_or_rate_nothing_happens():
    x = tf.ones((2, 2))
    assert dropout.dropout(x, 0.5, None) is x
    assert dropout.dropout(x, 0.0, tf.constant([1, 2])) is x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_type_keeps_its_type_shape_and_mask(dtype):
    x = tf.cast(tf.ones((3, 5, 7)), dtype)
    out = dropout.dropout(x, 0.3, tf.constant([1, 2]))
    assert out.dtype == dtype and out.shape == (3, 5, 7)
    full = dropout.dropout(tf.ones((3, 5, 7)), 0.3, tf.constant([1, 2]))
    np.testing.assert_array_equal(out.numpy() == 0, full.numpy() == 0)


def test_dynamic_shapes_give_the_mask_of_static_ones():
    seed = tf.constant([1, 2])
    dynamic = tf.function(
        lambda x: dropout.dropout(x, 0.3, seed),
        input_signature=[tf.TensorSpec([None, None])],
    )
    for shape in ((3, 5), (4, 4)):
        np.testing.assert_array_equal(
            dynamic(tf.ones(shape)), dropout.dropout(tf.ones(shape), 0.3, seed)
        )
