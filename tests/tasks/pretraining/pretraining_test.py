"""Proves that each pre-training objective reads a record correctly.

python -m pytest tests/tasks/pretraining/pretraining_test.py
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives
from training import feed, inference, optimizers, step

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=8,
    type_vocab_size=2,
)
MASK = 4
# [CLS] 10 [MASK]=11 12 [SEP] 13 [SEP] [PAD]; the second record predicts two.
FEATURES = {
    "input_ids": np.array(
        [[2, 10, MASK, 12, 3, 13, 3, 0], [2, 20, MASK, 3, 25, MASK, 22, 3]],
        np.int32,
    ),
    "input_mask": np.array(
        [[1, 1, 1, 1, 1, 1, 1, 0], [1] * 8],
        np.int32,
    ),
    "segment_ids": np.array(
        [[0, 0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1]],
        np.int32,
    ),
    "masked_lm_positions": np.array([[2, 0, 0], [2, 5, 0]], np.int32),
    "masked_lm_ids": np.array([[11, 0, 0], [21, 26, 0]], np.int32),
    "masked_lm_weights": np.array([[1, 0, 0], [1, 1, 0]], np.float32),
    "next_sentence_labels": np.array([[0], [1]], np.int32),
}
ORIGINAL = [[2, 10, 11, 12, 3, 13, 3, 0], [2, 20, 21, 3, 25, 26, 22, 3]]


def _values(pairs):
    return {
        name: float(pair.sum) / (float(pair.weight) + pair.epsilon)
        for name, pair in pairs.items()
    }


def _run(objective, features, **options):
    task = objectives.PretrainingObjective(objective)
    model = models.PretrainingModel(
        CONFIG,
        attention=task.attention,
        next_sentence=task.predicts_next_sentence,
        seed=3,
    )
    terms, metrics = task.forward(model, features, **options)
    weights = task.loss_weights(features)
    assert {k: float(v) for k, v in weights.items()} == {
        k: float(v.weight) for k, v in terms.items()
    }
    return model, terms, metrics


def test_masks_are_undone_exactly():
    restored = objectives.unmasked_ids(FEATURES)
    assert ops.convert_to_numpy(restored).tolist() == ORIGINAL


def test_left_to_right_predicts_each_real_next_token():
    ids, weights = map(
        ops.convert_to_numpy, objectives.next_token_targets(FEATURES)
    )
    assert ids.tolist() == [row[1:] for row in ORIGINAL]
    assert weights.tolist() == [[1, 1, 1, 1, 1, 1, 0], [1] * 7]


def test_losses_are_the_papers_means():
    model, terms, metrics = _run(objectives.OBJECTIVES[0], FEATURES)
    outputs = model(FEATURES)
    logits = ops.convert_to_numpy(outputs.masked_lm_logits).astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = [
        log_probs[0, 0, 11],
        log_probs[1, 0, 21],
        log_probs[1, 1, 26],
    ]
    pair = ops.convert_to_numpy(outputs.next_sentence_logits)
    pair = pair - np.log(np.exp(pair).sum(-1, keepdims=True))
    values = _values(terms)
    expected = -sum(picked) / (3 + 1e-5)
    assert values["masked_lm_loss"] == pytest.approx(expected, rel=1e-5)
    expected = -(pair[0, 0] + pair[1, 1]) / 2
    assert values["next_sentence_loss"] == pytest.approx(expected, rel=1e-5)
    assert set(metrics) == {"masked_lm_accuracy", "next_sentence_accuracy"}


def test_the_left_to_right_loss_is_the_mean_over_real_next_tokens():
    model, terms, metrics = _run("left_to_right", FEATURES)
    ids = np.array(ORIGINAL, np.int32)
    positions = np.tile(np.arange(7, dtype=np.int32), (2, 1))
    inputs = {"input_ids": ids, "masked_lm_positions": positions}
    outputs = model({**FEATURES, **inputs})
    logits = ops.convert_to_numpy(outputs.masked_lm_logits).astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    is_real = FEATURES["input_mask"][:, 1:] > 0
    picked = np.take_along_axis(log_probs, ids[:, 1:, None], -1)[is_real]
    is_right = (logits.argmax(-1) == ids[:, 1:])[is_real]
    assert _values(terms)["masked_lm_loss"] == pytest.approx(
        -picked.sum() / (13 + 1e-5), rel=1e-5
    )
    assert _values(metrics) == {"masked_lm_accuracy": is_right.mean()}


def _first_step(task, *, evaluates=False):
    """Returns values of a step, of an evaluation before it, and the norm."""
    config = dataclasses.replace(
        CONFIG,
        num_hidden_layers=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = models.PretrainingModel(
            config, next_sentence=task.predicts_next_sentence, seed=3
        )
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-3, num_train_steps=100),
        )

    def make_batches(**unused):
        return tf.data.Dataset.from_tensors(FEATURES)

    evaluated = {}
    if evaluates:
        evaluate = inference.Evaluator(task, model, strategy=strategy)
        evaluated = evaluate(make_batches)
    run = step.TrainStep(
        step.Learner(task, model, optimizer), strategy=strategy, seed=1
    )
    results = run(iter(feed.distribute(strategy, make_batches)), 0, 1)
    means = results.sums[0] / results.weights[0]
    trained = dict(zip(results.names, means.tolist(), strict=True))
    return (trained, evaluated), float(results.gradient_norms[0])


def test_the_weight_of_the_next_sentence_loss_is_a_factor_of_its_gradient():
    without, norm = _first_step(objectives.PretrainingObjective("masked_lm"))
    both = objectives.OBJECTIVES[0]
    task = objectives.PretrainingObjective(both, 3.0)
    found, norm_of_both = _first_step(task, evaluates=True)
    for values in found:
        total = without[0]["loss"] + 3.0 * values["next_sentence_loss"]
        assert values["loss"] == pytest.approx(total, rel=1e-5)
    assert norm_of_both != pytest.approx(norm, rel=1e-2)
    # Where the factor is nearly 0, only the masked-LM gradient is left.
    task = objectives.PretrainingObjective(both, 1e-7)
    assert _first_step(task)[1] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
def test_padding_examples_weigh_nothing(objective):
    padded = {
        name: np.concatenate([values, np.zeros_like(values[:1])])
        for name, values in FEATURES.items()
    }
    padded["masked_lm_weights"][-1] = 1.0
    padded["input_mask"][-1] = 1
    padded["is_real_example"] = np.array([1, 1, 0], np.int32)
    _, terms, metrics = _run(objective, FEATURES)
    _, padded_terms, padded_metrics = _run(objective, padded)
    for before, after in ((terms, padded_terms), (metrics, padded_metrics)):
        assert _values(after) == pytest.approx(_values(before), rel=1e-5)


def test_objectives_without_next_sentence_have_neither_its_loss_nor_its_head():
    for objective in ("masked_lm", "left_to_right"):
        model, terms, _ = _run(objective, FEATURES)
        assert set(terms) == {"masked_lm_loss"}
        assert model.next_sentence is None
