"""Compares outputs, losses and gradients with those of transformers.

The golden numbers were made by transformers 5.23 from the same formula
weights; see tests/testdata/make_golden_outputs.py. The tests run on every
backend of Keras:

KERAS_BACKEND=jax python -m pytest tests/modeling/golden_test.py
"""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from modeling import losses, models

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parent.parent / "testdata/golden_outputs.json"
    ).read_text()
)
TOLERANCE = 1e-5
VARIANTS = {
    "bidirectional": {},
    "left_to_right": {"attention": "left_to_right"},
    "gelu_erf": {},
}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request, tiny_config, set_weights):
    """The name of a variant and its model."""
    config = tiny_config
    if request.param == "gelu_erf":
        config = dataclasses.replace(config, hidden_act="gelu_erf")
    model = models.PretrainingModel(config, **VARIANTS[request.param])
    return request.param, set_weights(model)


def _losses(outputs, features):
    masked_lm = losses.masked_lm(
        outputs.masked_lm_logits,
        features["masked_lm_ids"],
        features["masked_lm_weights"],
    )
    next_sentence = losses.classification(
        outputs.next_sentence_logits,
        features["next_sentence_labels"],
        ops.ones(ops.shape(outputs.next_sentence_logits)[0]),
    )
    pairs = masked_lm, next_sentence
    return [x.sum / (x.weight + x.epsilon) for x in pairs]


def test_every_output_of_pretraining_equals_transformers(variant, features):
    name, model = variant
    names = ("input_ids", "input_mask", "segment_ids")
    states = model.bert(*(features[name] for name in names))
    ours = states._asdict() | model(features)._asdict()
    for key, expected in GOLDEN[name].items():
        if key.endswith(("_output", "_logits")):
            found = ops.convert_to_numpy(ours[key])
            np.testing.assert_allclose(
                found, expected, atol=TOLERANCE, rtol=0, err_msg=key
            )


def test_both_losses_equal_transformers(variant, features):
    name, model = variant
    masked_lm, next_sentence = _losses(model(features), features)
    golden = GOLDEN[name]
    assert float(masked_lm) == pytest.approx(
        golden["masked_lm_loss"], abs=TOLERANCE
    )
    assert float(next_sentence) == pytest.approx(
        golden["next_sentence_loss"], abs=TOLERANCE
    )


def _gradients(model, features):
    """Returns the gradients of both losses together, by the backend."""
    variables = model.trainable_variables

    def total():
        return sum(_losses(model(features), features))

    if keras.backend.backend() == "jax":
        import jax

        def loss(values):
            pairs = list(zip(variables, values, strict=True))
            with keras.StatelessScope(state_mapping=pairs):
                return total()

        return jax.grad(loss)([v.value for v in variables])
    if keras.backend.backend() == "torch":
        total().backward()
        return [v.value.grad for v in variables]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = total()
    found = tape.gradient(loss, [v.value for v in variables])
    return [tf.convert_to_tensor(x) for x in found]


def test_every_gradient_equals_transformers(variant, features):
    name, model = variant
    gradients = _gradients(model, features)
    expected = GOLDEN[name]["gradients"]
    assert {v.path for v in model.trainable_variables} == set(expected)
    for variable, gradient in zip(
        model.trainable_variables, gradients, strict=True
    ):
        flat = np.ravel(ops.convert_to_numpy(gradient)).astype(np.float64)
        ours = [np.linalg.norm(flat), flat @ np.cos(range(flat.size))]
        np.testing.assert_allclose(
            ours, expected[variable.path], atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize(
    ("model_class", "name"),
    [
        (models.ClassificationModel, "BertForSequenceClassification"),
        (models.TaggingModel, "BertForTokenClassification"),
        (models.QuestionAnsweringModel, "BertForQuestionAnswering"),
    ],
)
def test_every_finetuning_model_equals_transformers(
    model_class, name, tiny_config, set_weights, features
):
    options = {} if "Question" in name else {"num_classes": 3}
    model = set_weights(model_class(tiny_config, **options))
    outputs = keras.tree.map_structure(ops.convert_to_numpy, model(features))
    np.testing.assert_allclose(
        np.array(outputs), GOLDEN[name], atol=TOLERANCE, rtol=0
    )


def test_multiple_choice_scores_each_choice_as_a_pair(
    tiny_config, set_weights, features
):
    one = set_weights(models.ClassificationModel(tiny_config, num_classes=1))
    many = set_weights(models.MultipleChoiceModel(tiny_config))
    names = ("input_ids", "input_mask", "segment_ids")
    folded = {name: features[name].reshape(2, 2, -1) for name in names}
    scores = ops.convert_to_numpy(one(features))
    np.testing.assert_allclose(
        ops.convert_to_numpy(many(folded)), scores.reshape(2, 2), atol=1e-6
    )
