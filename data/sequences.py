"""Windows that overlap: in which of them a token is read.

`serving.text_graphs` does the same inside a graph.
"""

import numpy as np


def has_most_context(
    items: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    *,
    size_weight: float = 0.0,
) -> np.ndarray:
    """Returns in which of its windows each item has most context: bool [R].

    The context of an item is the smaller number of tokens before and after it
    in the window. Of windows with equal context, it is the first.

    Args:
      items: int [R], from 0; an item in a window, in the order of the windows.
      before: int [R]; tokens before it in the window.
      after: int [R]; tokens after it.
      size_weight: how much more context a window counts for each token of it,
        if an item is a token.
    """
    context = np.minimum(before, after) + size_weight * (before + after + 1)
    best = np.full(int(items.max(initial=-1)) + 1, -1.0)
    np.maximum.at(best, items, context)
    rows = np.flatnonzero(context == best[items])
    _, first = np.unique(items[rows], return_index=True)
    result = np.zeros(len(items), bool)
    result[rows[first]] = True
    return result


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the concatenation of all range(start, start + length)."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
