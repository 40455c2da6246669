"""Tests the models: variables, gradients, seeds, padding, replicas.

python -m pytest tests/modeling/models_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import models
from weights import stored_weights

SEED = tf.constant([3, 5])
MODELS = {
    models.PretrainingModel: {},
    models.ClassificationModel: {"num_classes": 3},
    models.MultipleChoiceModel: {},
    models.QuestionAnsweringModel: {},
    models.TaggingModel: {"num_classes": 3},
}
# The same with a BiLSTM under the head.
TASK_MODELS = [name for name in MODELS if name is not models.PretrainingModel]


def _features(model_class, features):
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    if model_class is not models.MultipleChoiceModel:
        return {name: features[name] for name in names}
    return {name: features[name].reshape(2, 2, -1) for name in names[:3]}


def _logits(outputs):
    """Returns all float32 scores of any model as one vector."""
    if isinstance(outputs, models.PretrainingOutputs):
        outputs = outputs[:2]
    if not isinstance(outputs, tuple):
        outputs = (outputs,)
    return tf.concat([tf.reshape(x, [-1]) for x in outputs], axis=0)


def test_the_variable_tree_is_the_released_one(tiny_config):
    model = models.PretrainingModel(tiny_config)
    expected = stored_weights.shapes(
        tiny_config, stored_weights.MASKED_LM, stored_weights.NEXT_SENTENCE
    )
    assert {v.path: tuple(v.shape) for v in model.weights} == expected
    assert len(model.weights) == len(expected)


@pytest.mark.parametrize("model_class", MODELS)
def test_every_parameter_gets_a_gradient(model_class, tiny_config, features):
    model = model_class(tiny_config, **MODELS[model_class])
    inputs = _features(model_class, features)
    with tf.GradientTape() as tape:
        logits = _logits(model(inputs, dropout_seed=SEED))
        loss = tf.reduce_sum(tf.sin(logits * 3.0 + 0.3 * logits**2))
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(
        model.trainable_variables, gradients, strict=True
    ):
        assert gradient is not None, variable.path
        # A key's bias shifts all scores of a row alike: softmax ignores it.
        if not variable.path.endswith("key/bias"):
            assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, (
                variable.path
            )


def test_the_masked_lm_head_is_tied_to_the_word_embeddings(
    tiny_config, features
):
    model = models.PretrainingModel(tiny_config)
    unused = 29
    features["input_ids"][features["input_ids"] == unused] = 1
    before = np.array(model(features).masked_lm_logits)
    table = model.bert.embeddings.word_embeddings
    value = table.numpy()
    value[unused, 0] += 1.0
    table.assign(value)
    after = np.array(model(features).masked_lm_logits)
    changed = np.abs(after - before).max(axis=(0, 1)) > 1e-6
    assert np.flatnonzero(changed).tolist() == [unused]


@pytest.mark.all
def test_a_classifier_that_reads_left_to_right_has_seen_all(
    tiny_config, features, set_weights
):
    model = models.ClassificationModel(
        tiny_config, num_classes=3, attention="left_to_right"
    )
    set_weights(model)
    inputs = _features(models.ClassificationModel, features)
    before = model(inputs).numpy()
    lengths = inputs["input_mask"].sum(axis=1)
    for row, length in enumerate(lengths):
        for i in range(inputs["input_ids"].shape[1]):
            ids = inputs["input_ids"].copy()
            ids[row, i] = (ids[row, i] + 1) % 30
            after = model({**inputs, "input_ids": ids}).numpy()
            changed = np.abs(after[row] - before[row]).max()
            assert (changed > 1e-5) == (i < length), (row, i)


@pytest.mark.parametrize("model_class", TASK_MODELS)
def test_a_bilstm_shows_every_position_to_a_left_to_right_model(
    model_class, tiny_config, features, set_weights
):
    options = {**MODELS[model_class], "attention": "left_to_right"}
    model = set_weights(model_class(tiny_config, bilstm_size=6, **options))
    inputs = _features(model_class, features)
    before = _logits(model(inputs)).numpy()
    last = {k: v.copy() for k, v in inputs.items()}
    end = int(inputs["input_mask"].reshape(-1, 12)[0].sum()) - 1
    where = (0,) * (inputs["input_ids"].ndim - 1) + (end,)
    last["input_ids"][where] = (last["input_ids"][where] + 1) % 30
    after = _logits(model(last)).numpy()
    # The score of the first position, or of the first example.
    assert abs(after[0] - before[0]) > 1e-6
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(3 * _logits(model(inputs))))
    for found in tape.gradient(loss, model.bilstm.trainable_variables):
        assert np.abs(found).max() > 0
