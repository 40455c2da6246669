"""Tests which positions each kind of attention hides.

python -m pytest tests/modeling/attention_bias_test.py
"""

import itertools

import numpy as np

from modeling import layers


def _visible(input_mask, *, left_to_right=False, packed=False):
    """Returns which columns each row sees, of the only example."""
    bias = layers.attention_bias(
        np.array([input_mask], np.int32),
        left_to_right=left_to_right,
        packed=packed,
    )
    bias = np.array(bias)
    assert set(np.unique(bias)) <= {-10000.0, 0.0}
    return (bias[0, 0] == 0).astype(int).tolist()


def test_ordinary_rows_share_one_row_that_hides_padding():
    assert _visible([1, 1, 0]) == [[1, 1, 0]]


def test_an_ordinary_mask_does_not_separate_instance_numbers():
    assert _visible([1, 2, 0]) == [[1, 1, 0]]


def test_left_to_right_hides_what_comes_later():
    assert _visible([1, 1, 0], left_to_right=True) == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 0],
    ]


def test_packed_rows_see_their_own_instance():
    assert _visible([1, 1, 2, 0], packed=True) == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]


def test_packed_left_to_right_is_both():
    assert _visible([1, 1, 2, 2], packed=True, left_to_right=True) == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 1, 1],
    ]


def test_some_rows_are_those_of_all():
    mask = np.array([[1, 1, 2, 0], [1, 2, 2, 2]], np.int32)
    wanted = np.array([[3, 0, 2, 0], [1, 1, 0, 3]], np.int32)
    for left_to_right, packed in itertools.product([False, True], repeat=2):
        options = {"left_to_right": left_to_right, "packed": packed}
        rows = np.array(layers.attention_bias(mask, **options))
        some = layers.attention_bias(mask, query_positions=wanted, **options)
        if left_to_right or packed:  # Else all rows are one.
            rows = np.take_along_axis(rows, wanted[:, None, :, None], axis=2)
        np.testing.assert_array_equal(some, rows)
