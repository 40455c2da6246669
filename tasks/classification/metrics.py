"""The metrics of sentence tasks, NumPy functions of predictions and references.

    classification, multiple_choice   classes int [N]
    regression                        values float [N]
    multi_label                       decisions int [N, C] of 0 and 1

    compute(("f1", "accuracy"), predictions, references)
        -> {"f1": 0.852, "accuracy": 0.799}

The module does not import TensorFlow.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.stats
import sklearn.metrics


def compute(
    names: Sequence[str], predictions: np.ndarray, references: np.ndarray
) -> dict[str, float]:
    """Returns each named metric.

    Args:
      names: names of metrics, keys of METRICS.
      predictions: classes int [N], values float [N], or decisions int [N, C].
      references: likewise.
    """
    return {name: METRICS[name](predictions, references) for name in names}


def accuracy(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns the fraction of examples all of whose labels are correct."""
    correct = np.asarray(predictions) == np.asarray(references)
    return float(correct.reshape(len(correct), -1).all(axis=1).mean())


def f1(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns F1 of class 1, 0 if nothing is predicted or labeled so."""
    return float(
        sklearn.metrics.f1_score(
            np.equal(references, 1), np.equal(predictions, 1), zero_division=0
        )
    )


def f1_macro(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns the mean F1 over the classes, of classes [N] or int [N, C]."""
    if np.ndim(references) == 2:
        columns = zip(np.transpose(predictions), references.T, strict=True)
        return float(np.mean([f1(*pair) for pair in columns]))
    return float(
        sklearn.metrics.f1_score(
            references, predictions, average="macro", zero_division=0
        )
    )


def f1_micro(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns F1 over all decisions together, int [N, C] of 0 and 1."""
    return f1(np.ravel(predictions), np.ravel(references))


def matthews_correlation(
    predictions: np.ndarray, references: np.ndarray
) -> float:
    """Returns Matthews' coefficient, 0 if either side is constant."""
    with warnings.catch_warnings():
        # scikit-learn warns that it is undefined for a single class.
        warnings.simplefilter("ignore")
        return float(sklearn.metrics.matthews_corrcoef(references, predictions))


def pearson(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns the linear correlation, 0 if either side is constant."""
    return _correlation(scipy.stats.pearsonr, predictions, references)


def spearman(predictions: np.ndarray, references: np.ndarray) -> float:
    """Returns the correlation of ranks, 0 if either side is constant."""
    return _correlation(scipy.stats.spearmanr, predictions, references)


def _correlation(correlate, predictions, references) -> float:
    predictions = np.asarray(predictions, np.float64)
    references = np.asarray(references, np.float64)
    if len(references) < 2 or 0 in (np.ptp(predictions), np.ptp(references)):
        return 0.0
    return float(correlate(predictions, references)[0])


def mean_squared_error(
    predictions: np.ndarray, references: np.ndarray
) -> float:
    """Returns the mean of the squared differences."""
    difference = np.asarray(predictions, np.float64) - references
    return float(np.mean(difference**2))


METRICS = {
    function.__name__: function
    for function in (
        accuracy,
        f1,
        f1_macro,
        f1_micro,
        matthews_correlation,
        pearson,
        spearman,
        mean_squared_error,
    )
}
