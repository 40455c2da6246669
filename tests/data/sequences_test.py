"""Proves that a token is read where it has most context.

python -m pytest tests/data/sequences_test.py
"""

import numpy as np
import pytest

from data import sequences


@pytest.mark.parametrize("size_weight", [0.0, 0.01])
def test_the_first_window_with_most_context_counts(size_weight):
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 9, 50)
    left = sequences.ranges(np.zeros_like(sizes), sizes)
    items = sequences.ranges(rng.integers(0, 20, 50), sizes)
    right = np.repeat(sizes, sizes) - 1 - left
    found = sequences.has_most_context(
        items, left, right, size_weight=size_weight
    )
    for item in set(items.tolist()):
        rows = np.flatnonzero(items == item).tolist()
        best = max(  # The first of equal ones.
            rows,
            key=lambda row: (
                min(left[row], right[row])
                + size_weight * (left[row] + right[row] + 1)
            ),
        )
        assert np.flatnonzero(found & (items == item)).tolist() == [best]
    assert not len(sequences.has_most_context(*[np.zeros(0, np.int64)] * 3))
