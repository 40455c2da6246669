"""Proves that oneDNN's kernels compute what the layers ask for.

python -m pytest tests/training/cpu/onednn_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from foundation import fusion
from modeling import config, layers, models
from training import prediction, strategy
from training.cpu import onednn

TINY = config.BertConfig(
    vocab_size=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=8,
)


def normalize(x, gamma, beta, dtype):
    """Returns what a graph of unknown lengths computes by the kernel."""
    signature = tf.TensorSpec([*x.shape[:-2], None, x.shape[-1]], x.dtype)

    @tf.function(input_signature=[signature], autograph=False)
    def graph(x):
        with fusion.using(onednn.kernels()):
            # The optimizer replaces no input or output of a graph.
            return layers.normalize(x + 0, gamma, beta, dtype=dtype) + 0

    return graph(x)


@pytest.mark.parametrize("shape", [(7, 48), (3, 5, 48), (1, 48)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernel_normalizes_as_the_formula_does(shape, dtype):
    draw = np.random.default_rng(1)
    x = tf.cast(draw.normal(3, 2, shape), dtype)
    # Values that bfloat16 holds: it is the arithmetic that is compared.
    gamma = tf.cast(draw.integers(1, 9, 48) / 4, tf.float32)
    beta = tf.cast(draw.integers(-8, 8, 48) / 4, tf.float32)
    found = normalize(x, gamma, beta, dtype)
    wide = tf.cast(x, tf.float32)
    mean, variance = tf.nn.moments(wide, -1, keepdims=True)
    expected = (wide - mean) / tf.sqrt(variance + 1e-12) * gamma + beta
    assert found.dtype == dtype and found.shape == x.shape
    places = 2e-6 if dtype == "float32" else 2.0**-8
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), expected, rtol=places, atol=places
    )


def test_a_row_of_equal_values_becomes_the_shift():
    x, beta = tf.fill([2, 16], 5.0), tf.range(16.0)
    found = normalize(x, tf.ones(16), beta, "float32")
    np.testing.assert_array_equal(found, [beta, beta])


@pytest.mark.parametrize("size", [40, 64, 136])
def test_softmax_of_bfloat16_is_that_of_float32_rounded(size):
    if "softmax" not in onednn.kernels():
        pytest.skip("this processor does not multiply bfloat16")
    draw = np.random.default_rng(1)
    scores = tf.cast(draw.normal(0, 6, (2, 3, 5, size)), tf.bfloat16)
    hidden = draw.integers(0, 2, (2, 1, 1, size))
    bias = tf.constant(hidden * -1e9, tf.float32)

    @tf.function(autograph=False)
    def graph(scores):
        return onednn.softmax(scores + 0, bias) + 0

    wide = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
    np.testing.assert_array_equal(graph(scores), tf.cast(wide, tf.bfloat16))


class Task:
    """Tells what a model computes, and in which graph."""

    graph = None

    def predict(self, model, features):
        self.graph = tf.compat.v1.get_default_graph()
        return {"logits": model(features)}


def make_batches(*, first_batch, part, num_parts):
    del first_batch, part, num_parts
    ids = np.arange(24, dtype=np.int32).reshape(3, 8) % 20
    columns = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "example_index": np.arange(3, dtype=np.int32),
        "is_real_example": np.ones(3, np.int32),
    }
    return tf.data.Dataset.from_tensor_slices(columns).batch(
        3, drop_remainder=True
    )


@pytest.mark.parametrize(
    ("policy", "kernels"), [("mixed_bfloat16", 5), ("float32", 0)]
)
def test_predictions_in_bfloat16_use_it_in_every_layer(policy, kernels):
    one = strategy.create("one_device")
    model = models.ClassificationModel(TINY, num_classes=2, dtype=policy)
    task = Task()
    answers = prediction.Predictor(task, model, strategy=one)(make_batches, 3)
    names = [operation.type for operation in task.graph.get_operations()]
    assert names.count("FusedBatchNormV3") == kernels
    features = next(iter(make_batches(first_batch=0, part=0, num_parts=1)))
    inputs = {
        x: features[x] for x in ("input_ids", "input_mask", "segment_ids")
    }
    np.testing.assert_allclose(
        answers["logits"],
        tf.cast(model(inputs), tf.float32),
        atol=2e-3 if kernels else 1e-6,
    )
