"""Proves the metrics on examples that are computed by hand.

python -m pytest tests/tasks/classification/metrics_test.py
"""

import numpy as np
import pytest

from tasks.classification import metrics

PREDICTIONS = np.array([1, 1, 1, 0, 0, 1])
REFERENCES = np.array([1, 0, 1, 0, 1, 1])
# true positives 3, false positives 1, false negatives 1, true negatives 1


def test_accuracy_f1_and_matthews_by_hand():
    names = ("accuracy", "f1", "matthews_correlation")
    values = metrics.compute(names, PREDICTIONS, REFERENCES)
    assert values["accuracy"] == pytest.approx(4 / 6)
    assert values["f1"] == pytest.approx(2 * 0.75 * 0.75 / 1.5)
    by_hand = (3 * 1 - 1 * 1) / np.sqrt(4 * 4 * 2 * 2)
    assert values["matthews_correlation"] == pytest.approx(by_hand)


def test_correlations_by_hand():
    values = metrics.compute(
        ("pearson", "spearman", "mean_squared_error"),
        np.array([1.0, 2.0, 3.0, 9.0]),
        np.array([1.0, 3.0, 2.0, 4.0]),
    )
    x, y = (
        np.array([-2.75, -1.75, -0.75, 5.25]),
        np.array([-1.5, 0.5, -0.5, 1.5]),
    )
    by_hand = (x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum())
    assert values["pearson"] == pytest.approx(by_hand)
    assert values["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert values["mean_squared_error"] == pytest.approx(27 / 4)


def test_constant_predictions_score_zero_and_not_nan():
    ones = np.ones(4)
    reals = np.array([0.5, 1.0, 2.0, 3.0])
    classes = np.array([0, 1, 1, 0])
    assert metrics.pearson(ones, reals) == 0.0
    assert metrics.spearman(ones, reals) == 0.0
    assert metrics.matthews_correlation(ones.astype(int), classes) == 0.0
    assert metrics.f1(np.zeros(4), classes) == 0.0


def test_several_labels_are_right_only_together():
    predictions = np.array([[1, 0, 1], [0, 0, 1]])
    references = np.array([[1, 0, 1], [0, 1, 1]])
    values = metrics.compute(("accuracy", "f1_micro"), predictions, references)
    assert values["accuracy"] == 0.5
    assert values["f1_micro"] == pytest.approx(2 * 1 * 0.75 / 1.75)
