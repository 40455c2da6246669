"""Proves that a CRF, which reads in order, is trained alike under XLA.

python -m pytest tests/tasks/ner/xla_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from tasks.ner import heads, windowing
from training import feed, optimizers, step

# XLA's random numbers are others: no dropout here.
CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=16,
    type_vocab_size=2,
)
CLASSES, BATCH, LENGTHS = 3, 4, (6, 9)
LABELS = ["a", "b", "c"]
HEAD = heads.head_of(LABELS, has_crf=True)


def draw(length):
    """A batch whose rows are padded from other positions on."""
    rng = np.random.default_rng(length)
    shape = BATCH, length
    mask = np.arange(length) < np.array([[length], [length - 2], [4], [1]])
    labels = np.where(mask, rng.integers(-1, CLASSES, shape), -1)
    words = np.full(shape, windowing.WORD)
    words[:, 0] += windowing.BEGINS
    words[0, 2:4] += (windowing.ENDS, windowing.BEGINS)
    values = {
        "input_ids": rng.integers(0, 20, shape) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros(shape),
        "label_ids": labels,
        "words": words,
    }
    return {name: x.astype(np.int32) for name, x in values.items()}


def make_batches(*, first_batch, part, num_parts):
    del first_batch, part, num_parts
    batches = [draw(length) for length in LENGTHS]
    signature = {
        name: tf.TensorSpec((BATCH, None, *x.shape[2:]), x.dtype)
        for name, x in batches[0].items()
    }
    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=signature
    )


def train(*, jit_compile):
    """Makes a step of each length; returns what they report, and weights."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = HEAD.build(CONFIG, seed=1)
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-3, num_train_steps=100),
        )
    run = step.TrainStep(
        step.Learner(HEAD, model, optimizer),
        strategy=strategy,
        seed=1,
        jit_compile=jit_compile,
    )
    batches = feed.distribute(strategy, make_batches, num_accumulation_steps=2)
    results = run(iter(batches), 0, len(LENGTHS))
    return results, [variable.numpy() for variable in model.weights]


@pytest.mark.all
def test_steps_of_varying_length_are_those_without_xla():
    (expected, weights), (found, compiled) = (
        train(jit_compile=jit_compile) for jit_compile in (False, True)
    )
    assert found.names == expected.names
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-4)
    norms = expected.gradient_norms
    assert (norms > 0.01).all()
    np.testing.assert_allclose(found.gradient_norms, norms, rtol=1e-4)
    for one, other in zip(compiled, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
