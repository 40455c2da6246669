"""Proves that attention's own derivative is that of its formula.

python -m pytest tests/modeling/attention_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import dropout, layers

SEED = [5, 6]
SMALL, USUAL = (3, 2, 7, 4), (3, 2, 64, 32)  # B, N, S, D


def draw(shape, dtype, sharpness=1.0, offset=0.0):
    """Returns inputs, the mask's bias and a gradient, rounded to bfloat16."""
    batch, heads, length, size = shape
    rng = np.random.default_rng(0)

    def normal(*shape, scale=1.0, offset=0.0):
        values = rng.normal(size=(batch, heads, *shape)) * scale + offset
        return tf.cast(tf.cast(values, tf.bfloat16), dtype)

    inputs = {
        "query": normal(length, size, scale=sharpness * size**-0.5),
        "key": normal(size, length),
        "value": normal(length, size, offset=offset),
    }
    mask = rng.random((batch, 1, length, length)) < 0.7
    mask[0, 0, 0] = False  # A row that sees nothing weighs all alike.
    mask[0, 0, 1] = np.arange(length) == 0  # And one that sees one place.
    bias = tf.constant(np.where(mask, 0.0, -10000.0), tf.float32)
    return inputs, bias, normal(length, size, offset=offset / 3)


def formula(inputs, bias, seed, rate):
    """Computes the same, step by step; TensorFlow derives it."""
    scores = tf.cast(inputs["query"] @ inputs["key"], tf.float32) + bias
    probs = tf.cast(tf.nn.softmax(scores), inputs["query"].dtype)
    return dropout.dropout(probs, rate, seed) @ inputs["value"]


def attend(inputs, bias, seed, rate):
    return layers.attend(**inputs, bias=bias, dropout_seed=seed, rate=rate)


def run(function, dtype, seed, rate, shape=SMALL, **kind):
    """Returns the result and the gradients of queries, keys and values."""
    inputs, bias, upstream = draw(shape, dtype, **kind)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(inputs, bias, seed, rate)
    gradients = tape.gradient(result, inputs, upstream)
    assert {x.dtype for x in (result, *gradients.values())} == {dtype}
    return [tf.cast(x, tf.float32) for x in (result, *gradients.values())]


def distance(one, other):
    """Returns the largest difference, relative to a tensor's largest value."""
    return max(
        np.abs(a - b).max() / np.abs(b).max()
        for a, b in zip(one, other, strict=True)
    )


def error(x, exact):
    return np.sqrt(np.square(x - exact).mean())


@pytest.mark.parametrize("is_graph", [False, True])
@pytest.mark.parametrize(
    ("seed", "rate"), [(None, 0.3), (SEED, 0.0), (SEED, 0.3)]
)
def test_derivative_is_that_of_the_formula(seed, rate, is_graph):
    seed = None if seed is None else tf.constant(seed)
    call = tf.function(run) if is_graph else run
    ours = call(attend, tf.float32, seed, rate)
    assert distance(ours, run(formula, tf.float32, seed, rate)) < 1e-6


def test_dropout_is_at_work():
    some = run(attend, tf.float32, tf.constant(SEED), 0.3)
    none = run(attend, tf.float32, None, 0.3)
    assert distance(some[:1], none[:1]) > 0.1


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("sharpness", [1.0, 8.0])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_half_precision_is_as_near_to_float32(dtype, sharpness, offset):
    """Also where heads look at one place, and values have much in common."""
    kind = {"shape": USUAL, "sharpness": sharpness, "offset": offset}
    rest = tf.constant(SEED), 0.1
    exact = run(formula, tf.float32, *rest, **kind)
    ours = run(attend, dtype, *rest, **kind)
    theirs = run(formula, dtype, *rest, **kind)
    for x, y, z in zip(ours, theirs, exact, strict=True):
        assert error(x, z) < 1.3 * error(y, z)


def test_what_sees_one_place_has_no_gradient_to_its_query():
    _, by_query, *_ = run(attend, tf.bfloat16, tf.constant(SEED), 0.3)
    assert not np.any(by_query[0, :, 1])
    assert np.all(np.any(by_query[1:], axis=-1))
