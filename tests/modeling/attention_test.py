"""Proves that attention's own derivative is that of its formula.

python -m pytest tests/modeling/attention_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import attention, dropout

SEED = [5, 6]
B, N, SMALL, USUAL = 3, 2, (7, 4), (64, 32)  # The last two: S and D.


def draw(sizes, dtype):
    S, D = sizes  # noqa: N806
    shapes = {"query": (S, D), "key": (D, S), "value": (S, D), "": (S, D)}
    rng = np.random.default_rng(0)
    inputs = {
        name: tf.constant(rng.normal(size=(B, N, *shape)), dtype)
        for name, shape in shapes.items()
    }
    inputs["query"] *= D**-0.5
    mask = rng.random((B, 1, S, S)) < 0.7
    mask[0, 0, 0] = False  # A row that sees nothing weighs all alike.
    bias = tf.constant(np.where(mask, 0.0, -10000.0), tf.float32)
    return inputs, bias, inputs.pop("")


def formula(inputs, bias, seed, rate):
    """Computes the same, step by step; TensorFlow derives it."""
    scores = tf.cast(inputs["query"] @ inputs["key"], tf.float32) + bias
    probs = tf.cast(tf.nn.softmax(scores), inputs["query"].dtype)
    return dropout.dropout(probs, rate, seed) @ inputs["value"]


def attend(inputs, bias, seed, rate):
    return attention.attend(**inputs, bias=bias, dropout_seed=seed, rate=rate)


def values_and_gradients(function, dtype, seed, rate, sizes=SMALL):
    inputs, bias, upstream = draw(sizes, dtype)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(inputs, bias, seed, rate)
    gradients = tape.gradient(result, inputs, upstream)
    assert result.dtype == dtype
    assert {x.dtype for x in gradients.values()} == {result.dtype}
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
    run = (
        tf.function(values_and_gradients) if is_graph else values_and_gradients
    )
    ours = run(attend, tf.float32, seed, rate)
    theirs = values_and_gradients(formula, tf.float32, seed, rate)
    assert distance(ours, theirs) < 1e-6


def test_dropout_is_at_work():
    some = values_and_gradients(attend, tf.float32, tf.constant(SEED), 0.3)
    none = values_and_gradients(attend, tf.float32, None, 0.3)
    assert distance(some[:1], none[:1]) > 0.1


def test_bfloat16_is_as_near_to_float32_as_the_formula():
    rest = tf.constant(SEED), 0.1, USUAL
    exact = values_and_gradients(formula, tf.float32, *rest)
    ours = values_and_gradients(attend, tf.bfloat16, *rest)
    theirs = values_and_gradients(formula, tf.bfloat16, *rest)
    for x, y, z in zip(ours, theirs, exact, strict=True):
        assert error(x, z) < 1.2 * error(y, z)
