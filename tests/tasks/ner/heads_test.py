"""Proves that first tokens alone are trained on, and every word gets a tag.

python -m pytest tests/tasks/ner/heads_test.py
"""

import keras
import numpy as np
import pytest

from modeling import models
from modeling.config import BertConfig
from tasks.ner import heads, tagging

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)


@pytest.fixture(scope="module")
def model():
    return models.TaggingModel(CONFIG, num_classes=3, seed=1)


def batch(labels):
    ids = np.arange(1, 13, dtype=np.int32).reshape(2, 6)
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
        "label_ids": np.array(labels, np.int32),
    }


def test_only_labeled_places_count(model):
    head = heads.Tags(["a", "b", "c"])
    labels = [[-1, 0, -1, 2, 1, -1], [-1, 1, -1, -1, -1, -1]]
    features = batch(labels)
    losses, metrics = head.forward(model, features)
    weights = head.loss_weights(features)
    assert float(weights["tagging_loss"]) == 4
    assert float(losses["tagging_loss"].weight) == 4
    logits = keras.ops.convert_to_numpy(model(features))
    positions = np.array(labels) >= 0
    expected = tagging.word_losses(
        logits[positions], features["label_ids"][positions]
    )
    found = losses["tagging_loss"].sum / losses["tagging_loss"].weight
    assert float(found) == pytest.approx(expected.mean(), rel=1e-5)
    right = logits[positions].argmax(axis=1) == features["label_ids"][positions]
    accuracy = metrics["accuracy"].sum / metrics["accuracy"].weight
    assert float(accuracy) == right.mean()
