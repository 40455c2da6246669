"""Tests that concurrent predictions stay in order and take few batches.

python -m pytest tests/training/inference_test.py
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from training import inference

SIZES = (5, 3, 4, 2, 6)


class Objective:
    """Predicts the sum of each row, and the row itself."""

    def predict(self, model, features):
        del model
        x = features["x"]
        return {"sum": tf.reduce_sum(x, 1), "row": x}


class Model:
    """Is never called."""

    compute_dtype = "float32"


SPEC = {
    "x": tf.TensorSpec((3, None), tf.float32),
    "example_index": tf.TensorSpec((3,), tf.int32),
    "is_real_example": tf.TensorSpec((3,), tf.int32),
}


def arrays():
    for number, size in enumerate(SIZES):
        rows = np.arange(3 * number, 3 * number + 3)
        yield {
            "x": np.full((3, size), number, np.float32),
            "example_index": rows.astype(np.int32),
            # The last batch is not full.
            "is_real_example": (rows < 14).astype(np.int32),
        }


def make_batches(*, first_batch, part, num_parts):
    del first_batch, part, num_parts
    return tf.data.Dataset.from_generator(arrays, output_signature=SPEC)


class Arrays:
    """The same batches without a dataset."""

    element_spec = SPEC

    def arrays(self):
        """Yields all batches."""
        return arrays()

    dataset = staticmethod(make_batches)


def make_predictor():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    return inference.Predictor(Objective(), Model(), strategy=strategy)


def test_batches_come_in_order_with_real_examples_only():
    found = list(make_predictor().batches(make_batches))
    rows = np.concatenate([values["example_index"] for values in found])
    assert rows.tolist() == list(range(14))
    assert [values["row"].shape for values in found] == [
        (3, 5), (3, 3), (3, 4), (3, 2), (2, 6),
    ]  # fmt: skip
    for number, values in enumerate(found):
        assert (values["sum"] == number * SIZES[number]).all()


def num_functions():
    return len(context.context().list_function_names())


def test_a_stream_of_sets_leaves_nothing_in_tensorflow():
    """As every dataset does: 10 million rows have 2,442 sets."""
    predictor = make_predictor()
    expected = list(predictor.batches(make_batches))
    list(predictor.batches(Arrays()))
    before = num_functions()
    found = list(predictor.batches(Arrays()))
    assert num_functions() == before
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    list(predictor.batches(make_batches))
    assert num_functions() > before


def test_an_error_in_a_batch_is_that_of_the_caller():
    class Broken(Objective):
        def predict(self, model, features):
            wrong = tf.debugging.assert_less(features["x"], 3.0)
            with tf.control_dependencies([wrong]):
                return super().predict(model, features)

    predictor = inference.Predictor(
        Broken(), Model(), strategy=tf.distribute.OneDeviceStrategy("CPU:0")
    )
    seen = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        for values in predictor.batches(make_batches):
            seen.append(values["sum"][0])
    assert seen == [0.0, 3.0, 8.0]
