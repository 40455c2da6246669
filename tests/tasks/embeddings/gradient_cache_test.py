"""Proves that vectors encoded in parts have the gradients of the whole batch.

python -m pytest tests/tasks/embeddings/gradient_cache_test.py
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling import dropout, losses, models
from modeling.config import BertConfig
from tasks.embeddings import gradient_cache

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=12,
)


def make_features(count, length=9):
    generator = np.random.default_rng(3)
    lengths = generator.integers(2, length + 1, (count, 1))
    return {
        "input_ids": tf.constant(
            generator.integers(1, 50, (count, length)), tf.int32
        ),
        "input_mask": tf.constant(np.arange(length) < lengths, tf.int32),
        "segment_ids": tf.zeros((count, length), tf.int32),
    }


def gradients_of(model, features, encode):
    """Returns the loss of two columns of texts, and its gradients."""
    variables = [v.value for v in model.trainable_variables]

    @tf.function
    def step(features):
        with tf.GradientTape() as tape:
            vectors = encode(features)
            half = tf.shape(vectors)[0] // 2
            logits = losses.cosine_logits(vectors[:half], vectors[half:], 20.0)
            loss = losses.classification(logits, tf.range(half))
            value = loss.sum / loss.weight
        gradients = tape.gradient(value, variables)
        return value, [tf.convert_to_tensor(g) for g in gradients]

    return step(features)


@pytest.mark.parametrize("size", [3, pytest.param(20, marks=pytest.mark.all)])
def test_gradients_are_those_of_the_whole_batch(size):
    model = models.EmbeddingModel(CONFIG, seed=1)
    features = make_features(8)
    loss, expected = gradients_of(model, features, model)
    parts_loss, found = gradients_of(
        model,
        features,
        lambda rows: gradient_cache.encode(
            lambda part, seed: model(part, dropout_seed=seed),
            rows,
            None,
            size=size,
        ),
    )
    np.testing.assert_allclose(parts_loss, loss, rtol=1e-5)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-6)


def test_both_passes_have_the_dropout_masks_of_each_part():
    model = models.EmbeddingModel(CONFIG, seed=1)
    features = make_features(6)
    seed = tf.constant([5, 9])

    def by_hand(rows):
        parts = [
            model(
                {name: x[i : i + 3] for name, x in rows.items()},
                dropout_seed=dropout.fold_in(seed, i // 3),
            )
            for i in (0, 3)
        ]
        return keras.ops.concatenate(parts, axis=0)

    loss, expected = gradients_of(model, features, by_hand)
    parts_loss, found = gradients_of(
        model,
        features,
        lambda rows: gradient_cache.encode(
            lambda part, seed: model(part, dropout_seed=seed),
            rows,
            seed,
            size=3,
        ),
    )
    np.testing.assert_allclose(parts_loss, loss, rtol=1e-5)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-6)
