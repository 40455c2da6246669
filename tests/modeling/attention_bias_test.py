"""Tests which positions each kind of attention hides.

python -m pytest tests/modeling/attention_bias_test.py
"""

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
