"""What the logits of a sentence model say: probabilities, classes and values.

NumPy alone: the server computes them without TensorFlow.
"""

from collections.abc import Sequence

import numpy as np
import scipy.special

from data import examples


def probabilities(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns float64 [N, C]; for a regression, the values themselves."""
    logits = logits.astype(np.float64)
    if kind == examples.REGRESSION:
        return logits
    if kind == examples.MULTI_LABEL:
        return 0.5 * (1.0 + np.tanh(0.5 * logits))
    return np.exp(scipy.special.log_softmax(logits, axis=1))


def decisions(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns classes int [N], values float [N], or int [N, C] of 0 and 1."""
    if kind == examples.REGRESSION:
        return logits[:, 0].astype(np.float64)
    if kind == examples.MULTI_LABEL:
        return (logits > 0).astype(np.int64)
    return logits.argmax(axis=1)


def label_names(
    kind: str, labels: Sequence[str], logits: np.ndarray
) -> list[str]:
    """Returns each prediction as text: a value, a label, or labels "a,b"."""
    decided = decisions(kind, logits)
    if kind == examples.REGRESSION:
        return [f"{value:.4f}" for value in decided]
    if kind == examples.MULTI_LABEL:
        chosen = (np.flatnonzero(x).tolist() for x in decided)
        return [",".join(labels[i] for i in ids) for ids in chosen]
    return [labels[i] for i in decided.tolist()]
