"""Proves that sets without a correlation have the score 0.

python -m pytest tests/tasks/embeddings/correlations_test.py
"""

import numpy as np
import pytest

from tasks.embeddings import objective


@pytest.mark.parametrize("count", [1, 4])
def test_it_is_0_where_it_is_undefined(count):
    vectors = np.random.default_rng(0).normal(size=(count, 2, 3))
    for values in (vectors, np.ones_like(vectors)):
        found = objective.correlations(values, np.ones((count, 1)))
        assert set(found.values()) == {0.0}


def test_it_is_that_of_cosines_and_scores():
    angles = np.array([0.0, 1.0, 2.0])
    ends = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    vectors = np.stack([np.tile([3.0, 0.0], (3, 1)), ends], axis=1)
    found = objective.correlations(vectors, np.cos(angles)[:, None])
    assert found == pytest.approx({"pearson": 1, "spearman": 1, "score": 1})
