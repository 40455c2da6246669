"""Compares oneDNN's primitives with the formulas of the layers.

python -m pytest tests/training/cpu/onednn_test.py
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from modeling import config, layers, models
from training import inference, strategy
from training.cpu import onednn

TINY = config.BertConfig(
    vocab_size=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=8,
)


def normalize(x, gamma, beta):
    """Returns what a graph of unknown lengths computes by the primitive."""
    signature = tf.TensorSpec([*x.shape[:-2], None, x.shape[-1]], x.dtype)

    @tf.function(input_signature=[signature], autograph=False)
    def graph(x):
        # The graph optimizer replaces no input or output of a graph.
        return onednn.layer_norm(x + 0, gamma, beta, epsilon=1e-12) + 0

    return graph(x)


@pytest.mark.parametrize("shape", [(7, 48), (3, 5, 48), (1, 48)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_primitive_normalizes_as_the_formula_does(shape, dtype):
    if dtype == "bfloat16" and not onednn.layer_norm_is_correct():
        pytest.skip("oneDNN has no bfloat16 instructions here")
    draw = np.random.default_rng(1)
    x = tf.cast(draw.normal(3, 2, shape), dtype)
    # Values that bfloat16 represents: the test compares the arithmetic.
    gamma = tf.cast(draw.integers(1, 9, 48) / 4, tf.float32)
    beta = tf.cast(draw.integers(-8, 8, 48) / 4, tf.float32)
    found = normalize(x, gamma, beta)
    wide = tf.cast(x, tf.float32)
    mean, variance = tf.nn.moments(wide, -1, keepdims=True)
    expected = (wide - mean) / tf.sqrt(variance + 1e-12) * gamma + beta
    assert found.dtype == dtype and found.shape == x.shape
    tolerance = 2e-6 if dtype == "float32" else 2.0**-8
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), expected, rtol=tolerance, atol=tolerance
    )


def test_a_row_of_equal_values_becomes_the_shift():
    x, beta = tf.fill([2, 16], 5.0), tf.range(16.0)
    found = normalize(x, tf.ones(16), beta)
    np.testing.assert_array_equal(found, [beta, beta])


@pytest.mark.parametrize("size", [40, 64, 136])
def test_softmax_of_bfloat16_is_that_of_float32_rounded(size):
    if not onednn.softmax_is_correct():
        pytest.skip("oneDNN has no bfloat16 instructions here")
    draw = np.random.default_rng(1)
    scores = tf.cast(draw.normal(0, 6, (2, 3, 5, size)), tf.bfloat16)
    hidden = draw.integers(0, 2, (2, 1, 1, size))
    bias = tf.constant(hidden * -1e9, tf.float32)

    @tf.function(autograph=False)
    def graph(scores):
        return onednn.softmax(scores + 0, bias) + 0

    wide = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
    np.testing.assert_array_equal(graph(scores), tf.cast(wide, tf.bfloat16))


def bfloat16_normalization(x, gamma, beta, *, epsilon):
    """Rounds intermediate values, as TensorFlow does without oneDNN."""
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    normalized = (x - mean) * tf.math.rsqrt(variance + epsilon)
    gamma, beta = tf.cast(gamma, x.dtype), tf.cast(beta, x.dtype)
    return gamma * normalized + beta


def bfloat16_softmax(scores, attention_bias):
    """Rounds intermediate values, as TensorFlow does without oneDNN."""
    powers = tf.exp(scores + tf.cast(attention_bias, scores.dtype))
    return powers / tf.reduce_sum(powers, axis=-1, keepdims=True)


def test_an_inexact_primitive_is_not_correct(monkeypatch):
    monkeypatch.setattr(onednn, "layer_norm", bfloat16_normalization)
    monkeypatch.setattr(onednn, "softmax", bfloat16_softmax)
    assert not onednn.layer_norm_is_correct()
    assert not onednn.softmax_is_correct()


def chosen(monkeypatch, *, has_bfloat16, is_correct):
    """Returns the names of the functions that are replaced."""
    monkeypatch.setattr(
        onednn.precision, "cpu_multiplies_bfloat16", lambda: has_bfloat16
    )
    for name in ("softmax_is_correct", "layer_norm_is_correct"):
        monkeypatch.setattr(onednn, name, lambda: is_correct)
    onednn._primitives.cache_clear()
    functions = layers.softmax, layers.layer_norm, layers.add_bias
    names = {f.__name__ for f in functions if onednn.choose(f) is not f}
    onednn._primitives.cache_clear()
    return names


@pytest.mark.parametrize(
    ("has_bfloat16", "is_correct", "expected"),
    [
        (True, True, {"softmax", "layer_norm"}),
        (False, True, set()),
        (True, False, set()),
    ],
)
def test_primitives_need_the_hardware_and_correct_results(
    monkeypatch, has_bfloat16, is_correct, expected
):
    found = chosen(
        monkeypatch, has_bfloat16=has_bfloat16, is_correct=is_correct
    )
    assert found == expected


@pytest.mark.parametrize(
    "setting",
    [("TF_ENABLE_ONEDNN_OPTS", "0"), ("ONEDNN_MAX_CPU_ISA", "AVX2")],
    ids=lambda setting: setting[0],
)
def test_without_bfloat16_instructions_the_formula_runs(setting, repository):
    """Also if the CPU has them and a setting hides them."""
    program = """
import foundation.tensorflow_setup
from training import precision
from training.cpu import onednn
precision.cpu_multiplies_bfloat16 = lambda: True
assert not onednn._primitives(), onednn._primitives()
"""
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=repository,
        env={**os.environ, **dict([setting])},
        check=True,
    )


def test_the_choice_is_the_same_while_a_graph_is_traced():
    onednn._primitives.cache_clear()

    @tf.function(autograph=False)
    def graph():
        return tf.constant(list(onednn._primitives()), tf.string)

    inside = [name.decode() for name in graph().numpy()]
    onednn._primitives.cache_clear()
    assert inside == list(onednn._primitives())


class Objective:
    """Predicts logits and keeps the graph."""

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


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32"])
def test_predictions_in_bfloat16_use_it_in_every_layer(monkeypatch, policy):
    primitives, count = {}, 0
    if policy == "mixed_bfloat16" and onednn.layer_norm_is_correct():
        primitives, count = {"layer_norm": onednn.layer_norm}, 5
    monkeypatch.setattr(onednn, "_primitives", lambda: primitives)
    one = strategy.create("one_device")
    model = models.ClassificationModel(TINY, num_classes=2, dtype=policy)
    task = Objective()
    predicted = inference.Predictor(task, model, strategy=one)(make_batches, 3)
    names = [operation.type for operation in task.graph.get_operations()]
    assert names.count("FusedBatchNormV3") == count
    features = next(iter(make_batches(first_batch=0, part=0, num_parts=1)))
    inputs = {
        x: features[x] for x in ("input_ids", "input_mask", "segment_ids")
    }
    np.testing.assert_allclose(
        predicted["logits"],
        tf.cast(model(inputs), tf.float32),
        atol=1e-6 if policy == "float32" else 2e-3,
    )
