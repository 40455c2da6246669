"""Vectors of a batch of groups of texts, for goldens of losses."""

import numpy as np

BATCH, SIZE = 5, 6
SCORES = [0.0, 0.2, 1.0, 0.55, -0.4]
# Name -> number of texts in a group, and the scale; None for scores.
CASES = {
    "pairs": (2, 20.0),
    "triples": (3, 20.0),
    "two negatives": (4, 5.0),
    "scores": (2, None),
}


def vectors(texts: int) -> np.ndarray:
    """Returns float32 [texts, BATCH, SIZE]."""
    rng = np.random.default_rng(texts)
    return rng.normal(0, 2, (texts, BATCH, SIZE)).astype(np.float32)
