"""Proves the correlations of sets, and which pairs the report shows.

python -m pytest tests/tasks/embeddings/correlations_test.py
"""

import re

import numpy as np
import pytest

from tasks.embeddings import metrics, task
from tasks.embeddings.text_groups import Group


@pytest.mark.parametrize("count", [1, 4])
def test_it_is_0_where_it_is_undefined(count):
    vectors = np.random.default_rng(0).normal(size=(count, 2, 3))
    for values in (vectors, np.ones_like(vectors)):
        found = metrics.correlations(values, np.ones((count, 1)))
        assert set(found.values()) == {0.0}


def test_it_is_that_of_cosines_and_scores():
    angles = np.array([0.0, 1.0, 2.0])
    ends = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    vectors = np.stack([np.tile([3.0, 0.0], (3, 1)), ends], axis=1)
    found = metrics.correlations(vectors, np.cos(angles)[:, None])
    assert found == pytest.approx({"pearson": 1, "spearman": 1, "score": 1})


def test_the_pair_whose_cosine_contradicts_its_score_is_the_worst():
    cosines = np.array([0.9, 0.1, 0.5, 0.6])
    scores = np.array([[0.8], [1.0], [0.4], [0.5]])
    groups = [Group(f"a/dev.tsv:{2 + i}", (f"a{i}", f"b{i}")) for i in range(4)]
    for given in (scores, None):
        section = task._worst_pairs(groups, cosines, given)
        lines = re.findall(r"dev.tsv:(\d)", section.body)
        assert (lines[0], len(lines)) == ("3", 4)
        assert "a1 | b1" in section.body
