"""Permutations that are a pure function of numbers, on every machine.

    keys(0 ... N - 1, seed, purpose, epoch) -> N hashes; their order permutes N

Works on NumPy arrays and, in a graph, on TensorFlow tensors.
"""

from typing import Any

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15


def keys(numbers: Any, *words: Any) -> Any:
    """Hashes every number together with all words.

    Args:
      numbers: uint64 [N].
      *words: the key of the permutation; uint64 scalars.

    Returns:
      uint64 [N].
    """
    state = numbers
    for word in words:
        state = _splitmix64(state + _splitmix64(word + _GOLDEN))
    return state


def _splitmix64(x: Any) -> Any:
    """Applies the mixing function of the generator splitmix64."""
    # TensorFlow has no operator for shifts; a division by 2**n is one.
    x = (x ^ (x // (1 << 30))) * 0xBF58476D1CE4E5B9
    x = (x ^ (x // (1 << 27))) * 0x94D049BB133111EB
    return x ^ (x // (1 << 31))


def keys_of(count: int, *words: int) -> np.ndarray:
    """Returns `keys` of 0 ... count - 1, with words of either sign."""
    unsigned = [np.array([word % 2**64], np.uint64) for word in words]
    with np.errstate(over="ignore"):
        return keys(np.arange(count, dtype=np.uint64), *unsigned)
