"""Tests the LSTM against that of Keras, its padding, and the mix of layers.

python -m pytest tests/modeling/bilstm_test.py
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling import lstm

SIZES = dict(num_layers=3, hidden_size=4, num_classes=5, size=6)
LENGTHS = [7, 4, 1]


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 4)).astype(np.float32)
    return x, np.arange(7)[None] < np.array(LENGTHS)[:, None]


def numpy(x):
    return keras.ops.convert_to_numpy(x)


@pytest.fixture(scope="module")
def pair(batch):
    """Ours, and Keras's with the same weights."""
    ours = lstm.BidirectionalLstm("a", 4, 6, seed=1)
    theirs = keras.layers.Bidirectional(
        keras.layers.LSTM(6, return_sequences=True)
    )
    theirs.build(batch[0].shape)
    weights = []
    for direction in ours.directions:
        bias = numpy(direction.bias) + 0.1
        direction.bias.assign(bias)
        forget = np.repeat([0.0, 1.0, 0.0, 0.0], 6)
        kernels = direction.kernel, direction.recurrent_kernel
        weights += [*map(numpy, kernels), bias + forget]
    theirs.set_weights(weights)
    return ours, theirs


def test_both_directions_are_those_of_keras(batch, pair):
    x, mask = batch
    ours, theirs = pair
    found, expected = numpy(ours(x, mask)), numpy(theirs(x, mask=mask))
    np.testing.assert_allclose(found[mask], expected[mask], atol=1e-6)


def test_their_gradients_are_those_of_keras(batch, pair):
    x, mask = tf.constant(batch[0]), tf.constant(batch[1])
    ours, theirs = pair
    parts = ("kernel", "recurrent_kernel", "bias")
    mine = [getattr(d, part) for d in ours.directions for part in parts]
    # The weight of each position in the loss; padding has none.
    factors = np.random.default_rng(3).standard_normal((3, 7, 12))
    factors = (factors * batch[1][..., None]).astype(np.float32)
    gradients = []
    for run, weights in (
        (lambda: ours(x, mask), mine),
        (lambda: theirs(x, mask=mask), theirs.weights),
    ):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(run() * factors)
        sources = [x, *(weight.value for weight in weights)]
        gradients.append(tape.gradient(loss, sources))
    for found, expected in zip(*gradients, strict=True):
        assert np.any(expected != 0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("is_mixed", [False, True], ids=["concat", "mix"])
def test_padding_changes_nothing(is_mixed):
    rng = np.random.default_rng(1)
    model = lstm.BiLstmTagger(is_mixed=is_mixed, **SIZES)
    x = rng.standard_normal((1, 3, 3, 4)).astype(np.float16)
    alone = model({"activations": x, "input_mask": np.ones((1, 3), np.int32)})
    longer = np.concatenate([x, np.full((1, 5, 3, 4), 9, np.float16)], axis=1)
    mask = (np.arange(8) < 3).astype(np.int32)[None]
    padded = model({"activations": longer, "input_mask": mask})
    assert numpy(alone).shape == (1, 3, 5)
    np.testing.assert_allclose(numpy(padded)[:, :3], numpy(alone), atol=1e-6)


def test_weights_are_a_function_of_the_seed_and_have_stable_paths():
    first, second, other = (
        lstm.BiLstmTagger(is_mixed=True, seed=seed, **SIZES)
        for seed in (1, 1, 2)
    )
    paths = [v.path for v in first.variables]
    assert len(set(paths)) == len(paths) == 2 + 2 + 2 * 2 * 3
    assert all(path.startswith("bilstm/") for path in paths)
    for a, b in zip(first.variables, second.variables, strict=True):
        assert a.path == b.path
        np.testing.assert_array_equal(numpy(a), numpy(b))
    assert np.any(numpy(first.weights[0]) != numpy(other.weights[0]))
