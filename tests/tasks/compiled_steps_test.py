"""Proves that every task trains and predicts under XLA, with static shapes.

The compiled programs have no callback to the host and no dynamic shape, as a
TPU requires, and give the results of the uncompiled ones. One task is a part of
make test, the others of make test-all:

    python -m pytest tests/tasks/compiled_steps_test.py
"""

import re

import numpy as np
import pytest
import tensorflow as tf

from modeling import models
from modeling.config import BertConfig
from tasks.classification import heads as sentence_heads
from tasks.classification import label_kinds
from tasks.ner import heads, windowing
from tasks.pretraining import objectives
from tasks.squad import heads as squad_heads
from training import feed, inference, optimizers, step
from weights import kinds

# Masks of dropout differ under XLA.
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
B, S, P, C, K = 4, 8, 2, 3, 3
LABELS = ("B-x", "I-x", "O")
FROZEN = heads.FrozenTags(
    LABELS, [0, 1], None, is_mixed=True, size=5, depth=1, rate=0.0
)
# The instructions of HLO that call the host or exchange data with it.
HOST = re.compile(
    r"callback|infeed|outfeed|host-?(compute|transfer)|[ =](send|recv)\(",
    re.IGNORECASE,
)


def draw():
    """Features of all tasks."""
    rng = np.random.default_rng(1)
    mask = np.arange(S) < np.array([[S], [S], [5], [3]])

    def ids(*shape, most=CONFIG.vocab_size):
        return rng.integers(0, most, shape)

    values = {
        "input_ids": ids(B, S) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((B, S)),
        "masked_lm_positions": np.tile([1, 2], (B, 1)),
        "masked_lm_ids": ids(B, P),
        "next_sentence_labels": ids(B, 1, most=2),
        "label_ids": ids(B, most=C),
        "start_positions": np.ones(B),
        "end_positions": np.full(B, 2),
    }
    features = {name: x.astype(np.int32) for name, x in values.items()}
    weights = np.ones((B, P), np.float32)
    return features | {"masked_lm_weights": weights}


def packed():
    """Rows of two instances each."""
    lengths = np.arange(S) < 4
    values = {
        "input_mask": np.tile(np.where(lengths, 1, 2), (B, 1)),
        "position_ids": np.tile(np.arange(S) % 4, (B, 1)),
        "next_sentence_positions": np.tile([0, 4], (B, 1)),
        "next_sentence_labels": np.tile([0, 1], (B, 1)),
    }
    found = {name: x.astype(np.int32) for name, x in values.items()}
    weights = np.ones((B, 2), np.float32)
    return draw() | found | {"next_sentence_weights": weights}


def choices():
    """Each example has K choices."""
    names = ("input_ids", "input_mask", "segment_ids")
    features = draw()
    repeated = {name: np.stack([features[name]] * K, 1) for name in names}
    ids = repeated["input_ids"]
    for i in range(1, K):  # Equal choices would be equally likely.
        ids[:, i] = np.where(ids[:, i] > 0, 1 + ids[:, i] // (i + 1), 0)
    return features | repeated


def tagged():
    """Every position but the last is a word."""
    features = draw()
    labels = np.where(features["input_mask"], features["input_ids"] % C, -1)
    words = np.full((B, S), windowing.WORD, np.int32)
    words[:, 0] += windowing.BEGINS
    words[:, 2] += windowing.ENDS
    activations = np.random.default_rng(2).standard_normal((B, S, 2, 8))
    return features | {
        "label_ids": labels.astype(np.int32),
        "words": words,
        "activations": activations.astype(np.float16),
    }


def classifier(kind, make_features=draw, labels=LABELS):
    head = sentence_heads.head_of(label_kinds.KINDS[kind](labels))
    return of(head, make_features)


def of(head, make_features):
    return lambda: head.build(CONFIG), lambda: head, make_features


def tagger(head):
    return of(head, tagged)


def pretraining(name, features=draw, **options):
    return (
        lambda: models.PretrainingModel(CONFIG, **options),
        lambda: objectives.PretrainingObjective(name),
        features,
    )


# Name -> functions that make the model, the task and a batch.
TASKS = {
    "classification": classifier(kinds.CLASSIFICATION),
    "multi_label": classifier(
        kinds.MULTI_LABEL,
        lambda: draw() | {"label_ids": np.eye(B, C, dtype=np.int32)},
    ),
    "regression": classifier(
        kinds.REGRESSION,
        lambda: draw() | {"label_ids": np.ones(B, np.float32)},
        labels=(),
    ),
    "multiple_choice": classifier(kinds.MULTIPLE_CHOICE, choices),
    "squad": of(squad_heads.SpanHead(), draw),
    "tagging": tagger(heads.Tags(LABELS)),
    "tagging_crf": tagger(heads.head_of(LABELS, has_crf=True)),
    "tagging_features": tagger(FROZEN),
    "pretraining": pretraining("masked_lm_and_next_sentence"),
    "packed": pretraining("masked_lm_and_next_sentence", packed),
    "recomputed": pretraining("masked_lm_and_next_sentence", recompute="all"),
    "recomputed_attention": pretraining(
        "masked_lm_and_next_sentence", recompute="attention"
    ),
    "masked_lm": pretraining("masked_lm", next_sentence=False),
    "left_to_right": pretraining(
        "left_to_right", attention="left_to_right", next_sentence=False
    ),
}
EACH = [
    pytest.param(
        name, marks=() if name == "classification" else pytest.mark.all
    )
    for name in TASKS
]


def check_program(function, *arguments):
    """Compiles a function and reads its program."""
    text = function.experimental_get_compiler_ir(*arguments)(stage="hlo")
    assert "ENTRY" in text
    assert not HOST.search(text), HOST.search(text)
    # A dynamic dimension is written as f32[<=8].
    assert "<=" not in text


def batches_of(features):
    def make_batches(*, first_batch, part, num_parts):
        del first_batch, part, num_parts
        return tf.data.Dataset.from_tensors(features).repeat(3)

    return make_batches


def train(name, *, jit_compile):
    """Makes three steps; returns their results and the weights."""
    make_model, make_task, make_features = TASKS[name]
    device = tf.distribute.OneDeviceStrategy("CPU:0")
    with device.scope():
        model = make_model()
        # Updates are proportional to gradients: those that are 0 but for
        # rounding change nothing.
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(epsilon=1.0),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1.0, num_train_steps=100),
        )
    train_step = step.TrainStep(
        step.Learner(make_task(), model, optimizer),
        strategy=device,
        seed=1,
        jit_compile=jit_compile,
    )
    batches = feed.distribute(device, batches_of(make_features()))
    results = train_step(iter(batches), 0, 3)
    if jit_compile:
        first = next(iter(batches))
        number = tf.constant(0, tf.int64)
        device.run(
            lambda: check_program(train_step._compiled_step, first, number)
        )
    return results, [variable.numpy() for variable in model.weights]


@pytest.mark.parametrize("name", EACH)
def test_a_compiled_training_step_equals_the_uncompiled_one(name):
    expected, weights = train(name, jit_compile=False)
    found, compiled = train(name, jit_compile=True)
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        found.gradient_norms, expected.gradient_norms, rtol=1e-4
    )
    assert found.gradient_norms.min() > 0
    for one, other in zip(compiled, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [x for x in EACH if hasattr(TASKS[x.values[0]][1](), "predict")],
)
def test_compiled_predictions_equal_uncompiled_ones(name):
    make_model, make_task, make_features = TASKS[name]
    model, task, features = make_model(), make_task(), make_features()
    compiled = tf.function(
        lambda features: dict(task.predict(model, features)),
        jit_compile=True,
        autograph=False,
    )
    tensors = {k: tf.constant(v) for k, v in features.items()}
    check_program(compiled, tensors)
    rows = {
        "example_index": np.arange(B, dtype=np.int32),
        "is_real_example": np.ones(B, np.int32),
    }
    found, expected = (
        inference.Predictor(
            make_task(),
            model,
            strategy=tf.distribute.OneDeviceStrategy("CPU:0"),
            jit_compile=jit_compile,
        )(batches_of(features | rows), B)
        for jit_compile in (True, False)
    )
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
