"""Tests scaled dot-product attention and its gradients.

python -m pytest tests/modeling/attention_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import dropout, layers

SEED = [5, 6]
BATCH, HEADS, LENGTH, SIZE = 3, 2, 7, 4


def draw(dtype):
    """Returns queries, keys and values, the bias and an upstream gradient."""
    rng = np.random.default_rng(0)

    def normal():
        values = rng.normal(size=(BATCH, HEADS, LENGTH, SIZE))
        return tf.cast(tf.cast(values, tf.bfloat16), dtype)

    inputs = {name: normal() for name in ("query", "key", "value")}
    mask = rng.random((BATCH, 1, LENGTH, LENGTH)) < 0.7
    mask[0, 0, 0] = False  # This query sees nothing: all weights are equal.
    mask[0, 0, 1] = np.arange(LENGTH) == 0  # This one sees one position.
    bias = tf.constant(np.where(mask, 0.0, -10000.0), tf.float32)
    return inputs, bias, normal()


def formula(query, key, value, bias, seed, rate):
    """Computes the same by TensorFlow's operations."""
    scores = tf.matmul(query / 2.0, key, transpose_b=True)  # D = 4.
    probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
    probabilities = tf.cast(probabilities, query.dtype)
    return dropout.dropout(probabilities, rate, seed) @ value


def attend(query, key, value, bias, seed, rate):
    return layers.attend(query, key, value, bias, seed, rate=rate)


def run(function, dtype, seed, rate):
    """Returns the result and the gradients of queries, keys and values."""
    inputs, bias, upstream = draw(dtype)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(**inputs, bias=bias, seed=seed, rate=rate)
    gradients = tape.gradient(result, inputs, upstream)
    assert {x.dtype for x in (result, *gradients.values())} == {dtype}
    return [tf.cast(x, tf.float32) for x in (result, *gradients.values())]


def distance(one, other):
    """Returns the largest difference, relative to a tensor's largest value."""
    return max(
        np.abs(a - b).max() / np.abs(b).max()
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("is_graph", [False, True])
@pytest.mark.parametrize(
    ("seed", "rate"), [(None, 0.3), (SEED, 0.0), (SEED, 0.3)]
)
def test_results_and_gradients_are_those_of_the_formula(seed, rate, is_graph):
    seed = None if seed is None else tf.constant(seed)
    call = tf.function(run) if is_graph else run
    ours = call(attend, tf.float32, seed, rate)
    assert distance(ours, run(formula, tf.float32, seed, rate)) < 1e-6


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_half_precision_stays_close_to_float32(dtype):
    exact = run(attend, tf.float32, tf.constant(SEED), 0.1)
    assert distance(run(attend, dtype, tf.constant(SEED), 0.1), exact) < 0.02


def test_a_query_that_sees_one_position_has_no_gradient():
    _, by_query, *_ = run(attend, tf.bfloat16, tf.constant(SEED), 0.3)
    assert not np.any(by_query[0, :, 1])
    assert np.all(np.any(by_query[1:], axis=-1))
