"""Tests the order of a recurrence and its gradients, also under XLA.

python -m pytest tests/modeling/recurrence_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import lstm

BATCH, LENGTH, SIZE = 2, 5, 3
KEPT = 0.5


@pytest.fixture(scope="module")
def x():
    shape = (BATCH, LENGTH, SIZE)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def step(state, inputs):
    """A decaying sum, and the number of positions so far."""
    total, count = state
    return KEPT * total + inputs, count + 1.0


def start():
    return tf.ones((BATCH, SIZE)), tf.zeros((BATCH, 1))


def weights(backwards):
    """The weight of each position in the state after each: [S, S]."""
    positions = np.arange(LENGTH)
    distance = positions[:, None] - positions
    if backwards:
        distance = -distance
    return np.where(distance >= 0, KEPT ** np.abs(distance), 0.0)


def expected(x, backwards):
    total = np.einsum("ts,bsi->bti", weights(backwards), x)
    fading = KEPT ** np.arange(1, LENGTH + 1)  # Of the first state.
    return total + (fading[::-1] if backwards else fading)[:, None]


@pytest.mark.parametrize("backwards", [False, True])
def test_every_position_sees_those_before_it(x, backwards):
    found = lstm.all_outputs(step, start(), x, backwards=backwards)
    np.testing.assert_allclose(found, expected(x, backwards), rtol=1e-5)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("length", [LENGTH, None], ids=["static", "dynamic"])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
def test_gradients_are_those_of_the_formula(x, backwards, length, jit_compile):
    signature = [tf.TensorSpec((BATCH, length, SIZE))] * 2

    @tf.function(jit_compile=jit_compile, input_signature=signature)
    def differentiate(x, factors):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = lstm.all_outputs(step, start(), x, backwards=backwards)
            loss = tf.reduce_sum(found * factors)
        return tape.gradient(loss, x)

    factors = np.random.default_rng(1).standard_normal(x.shape)
    found = differentiate(x, factors.astype(np.float32))
    gradient = np.einsum("ts,bti->bsi", weights(backwards), factors)
    np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=1e-6)
