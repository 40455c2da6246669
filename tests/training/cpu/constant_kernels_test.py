"""Compares predictions with constant kernels and with variables.

python -m pytest tests/training/cpu/constant_kernels_test.py
"""

import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import inference, strategy
from training.cpu import onednn

X = np.arange(12, dtype=np.float32).reshape(4, 3)


class Objective:
    """Predicts the output of the model."""

    def predict(self, model, features):
        return {"y": model(features["x"])}


def make_batches(*, first_batch, part, num_parts):
    del first_batch, part, num_parts
    columns = {
        "x": X,
        "example_index": np.arange(4, dtype=np.int32),
        "is_real_example": np.ones(4, np.int32),
    }
    data = tf.data.Dataset.from_tensor_slices(columns)
    return data.batch(2, drop_remainder=True)


@pytest.fixture
def model():
    return make_model("mixed_bfloat16")


def make_model(policy):
    layers = [keras.layers.Dense(n, dtype=policy) for n in (2, 1)]
    made = keras.Sequential([keras.Input((3,)), *layers])
    made.dtype_policy = keras.DTypePolicy(policy)
    # Positive, so that nothing cancels: bfloat16 has three digits.
    shapes = [w.shape for w in made.get_weights()]
    made.set_weights([np.full(shape, 0.3) for shape in shapes])
    return made


@pytest.fixture
def predictor(model):
    return make_predictor(model)


def make_predictor(model):
    return inference.Predictor(
        Objective(), model, strategy=strategy.create("one_device")
    )


def predict(predictor):
    return predictor(make_batches, 4)["y"].astype(np.float32)


def expected(model):
    (a, b, c, d) = model.get_weights()
    return (X @ a + b) @ c + d


def constant_shapes(predictor):
    (function,) = predictor._compiled.values()
    return [
        tuple(op.outputs[0].shape)
        for op in function.graph.get_operations()
        if op.type == "Const" and op.outputs[0].dtype == tf.float32
    ]


def test_kernels_are_constants_and_predictions_the_same(model, predictor):
    np.testing.assert_allclose(predict(predictor), expected(model), rtol=0.03)
    assert {(3, 2), (2, 1)} <= set(constant_shapes(predictor))


@pytest.mark.parametrize("number", range(4))
def test_changed_weights_are_met_by_the_next_prediction(
    number, model, predictor
):
    before = predict(predictor)
    variable = model.variables[number]
    variable.assign(variable.numpy() + 1)
    after = predict(predictor)
    np.testing.assert_allclose(after, expected(model), rtol=0.03)
    assert (np.abs(after - before) > 0.1).any()


def test_graphs_of_former_weights_are_freed(model, predictor):
    predict(predictor)
    (function,) = predictor._compiled.values()
    graph = weakref.ref(function.graph)
    del function
    model.variables[0].assign(model.variables[0].numpy() + 1)
    predict(predictor)
    assert graph() is None


def test_unchanged_weights_are_not_traced_again(model, predictor):
    predict(predictor)
    traced = list(predictor._compiled.values())
    model.variables[0].assign(model.variables[0].numpy())
    predict(predictor)
    assert list(predictor._compiled.values()) == traced


def test_a_large_model_keeps_its_variables(model, predictor, monkeypatch):
    monkeypatch.setattr(onednn, "_MOST_BYTES", 31)  # Of 32.
    np.testing.assert_allclose(predict(predictor), expected(model), rtol=0.03)
    assert not {(3, 2), (2, 1)} & set(constant_shapes(predictor))


def test_while_weights_change_one_graph_is_used(model, predictor):
    with predictor.while_weights_change():
        predict(predictor)
        (traced,) = predictor._compiled.values()
        assert not {(3, 2), (2, 1)} & set(constant_shapes(predictor))
        model.variables[0].assign(model.variables[0].numpy() + 1)
        after = predict(predictor)
        assert list(predictor._compiled.values()) == [traced]
    np.testing.assert_allclose(after, expected(model), rtol=0.03)
    # Afterwards, copies of the weights are used again.
    np.testing.assert_allclose(predict(predictor), expected(model), rtol=0.03)
    assert [has_copies for has_copies, _ in predictor._compiled] == [
        False,
        True,
    ]
