"""Proves that micro-batches train as one batch, also with a large vocabulary.

TensorFlow's graph optimizer treats gradients above some megabytes differently.

python -m pytest tests/tasks/pretraining/accumulation_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives
from training import feed, optimizers, step

BATCH, LENGTH, PREDICTIONS = 8, 16, 4
CONFIG = BertConfig(
    vocab_size=30522,
    hidden_size=128,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=512,
    type_vocab_size=2,
)


def make_batches(**unused):
    rng = np.random.default_rng(1)
    shape, masked = (BATCH, LENGTH), (BATCH, PREDICTIONS)
    features = {
        "input_ids": rng.integers(1, CONFIG.vocab_size, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
        "masked_lm_positions": rng.integers(1, LENGTH, masked),
        "masked_lm_ids": rng.integers(1, CONFIG.vocab_size, masked),
        "next_sentence_labels": rng.integers(0, 2, (BATCH, 1)),
    }
    features = {name: x.astype(np.int32) for name, x in features.items()}
    features["masked_lm_weights"] = np.ones(masked, np.float32)
    return tf.data.Dataset.from_tensors(features).repeat()


def train(num_accumulation_steps):
    """Returns the losses and the weights of steps in two calls."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = models.PretrainingModel(CONFIG, seed=1)
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-3, num_train_steps=100),
        )
    run = step.TrainStep(
        step.Learner(objectives.PretrainingObjective(), model, optimizer),
        strategy=strategy,
        seed=1,
    )
    batches = iter(
        feed.distribute(
            strategy,
            make_batches,
            num_accumulation_steps=num_accumulation_steps,
            is_endless=True,
        )
    )
    sums = [run(batches, first, 2).sums for first in (0, 2)]
    return sums, [variable.numpy() for variable in model.weights]


@pytest.mark.all
def test_micro_batches_train_as_one_batch():
    losses, weights = train(1)
    found, others = train(2)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for one, other in zip(others, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
