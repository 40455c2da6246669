"""The logits of a text's windows, pooled."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

from modeling import losses, models

CONFIG = tiny_runs.config([str(i) for i in range(30)], initializer_range=0.3)


def _features(seed=0):
    """Returns three texts of 4, 1 and 2 windows."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 30, (3, 4, 7)).astype(np.int32)
    lengths = np.array([[7, 7, 7, 3], [5, 0, 0, 0], [7, 2, 0, 0]])
    mask = (np.arange(7) < lengths[..., None]).astype(np.int32)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
    }


def _model(pooling, **options):
    return models.DocumentModel(
        CONFIG, num_classes=3, window_pooling=pooling, seed=2, **options
    )


@pytest.mark.parametrize("options", [{}, {"bilstm_size": 4}])
@pytest.mark.parametrize("pooling", models.WINDOW_POOLINGS)
def test_logits_are_those_of_the_windows_pooled(pooling, options):
    features, model = _features(), _model(pooling, **options)
    if pooling == "attention":
        values = np.random.default_rng(1).normal(
            size=model.window_attention.shape
        )
        model.window_attention.assign(values)
    found = np.array(model(features))
    for i, count in enumerate((4, 1, 2)):
        windows = {name: x[i, :count] for name, x in features.items()}
        logits = np.array(model(windows))  # Texts of one window each.
        assert logits.shape == (count, 3)
        if pooling == "max":
            expected = logits.max(axis=0)
        elif pooling == "mean":
            expected = logits.mean(axis=0)
        else:
            vectors = np.array(model._sequence_vector(windows, None))
            weights = np.exp(vectors @ values)
            expected = (weights / weights.sum() * logits).sum(axis=0)
        np.testing.assert_allclose(found[i], expected, atol=1e-5)


@pytest.mark.parametrize("pooling", models.WINDOW_POOLINGS)
def test_texts_of_one_window_train_as_texts_that_are_not_divided(pooling):
    features = {name: x[:, :1] for name, x in _features().items()}
    plain = {name: x[:, 0] for name, x in features.items()}
    document = _model(pooling)
    sentence = models.ClassificationModel(CONFIG, num_classes=3, seed=2)
    seed = tf.constant([3, 4])
    paths = [x.path for x in sentence.trainable_variables]
    results = []
    for model, inputs in ((document, features), (sentence, plain)):
        by_path = {x.path: x.value for x in model.trainable_variables}
        variables = [by_path[path] for path in paths]
        with tf.GradientTape() as tape:
            logits = model(inputs, dropout_seed=seed)
            loss = losses.classification(logits, tf.constant([0, 1, 2])).sum
        gradients = tape.gradient(loss, variables)
        results.append((logits, [tf.convert_to_tensor(x) for x in gradients]))
    (logits, gradients), (expected, expected_gradients) = results
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    for x, y in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
