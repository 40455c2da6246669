"""Proves that embeddings have the losses of sentence-transformers 6.2.

python -m pytest tests/modeling/embedding_losses_test.py
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from modeling import losses
from tests.modeling import embedding_vectors

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata/embedding_losses.json"
GOLDEN = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", embedding_vectors.CASES)
def test_losses_and_gradients_are_those_of_sentence_transformers(name):
    texts, scale = embedding_vectors.CASES[name]
    values = tf.constant(embedding_vectors.vectors(texts))
    with tf.GradientTape() as tape:
        tape.watch(values)
        if scale is None:
            scores = tf.constant(embedding_vectors.SCORES)
            loss = losses.cosine_regression(values[0], values[1], scores)
        else:
            others = tf.reshape(values[1:], (-1, embedding_vectors.SIZE))
            logits = losses.cosine_logits(values[0], others, scale)
            loss = losses.classification(logits, tf.range(len(logits)))
        mean = loss.sum / loss.weight
    assert loss.weight == embedding_vectors.BATCH
    np.testing.assert_allclose(mean, GOLDEN[name]["loss"], rtol=2e-6)
    gradients = tape.gradient(mean, values)
    np.testing.assert_allclose(
        gradients, GOLDEN[name]["gradients"], rtol=1e-4, atol=2e-7
    )


def test_the_accuracy_counts_anchors_nearest_to_their_own_positive():
    logits = tf.constant([[3.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    found = losses.accuracy(logits, tf.range(2))
    assert (found.sum, found.weight) == (1, 2)
