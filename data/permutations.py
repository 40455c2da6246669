"""The order of training: permutations and parts of batches, from numbers.

    keys(0 ... N - 1, seed, purpose, epoch) -> N hashes; their order permutes N

Works on NumPy arrays and, in a graph, on TensorFlow tensors.
"""

from typing import Any

import numpy as np

from foundation import errors

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


def permutation(count: int, *words: int, dtype: Any = np.uint64) -> np.ndarray:
    """Returns a permutation that is keyed by words, the same everywhere.

    Args:
      count: N.
      *words: integers of either sign.
      dtype: as which type the keys of 64 bits are sorted.
    """
    unsigned = [np.array([word % 2**64], np.uint64) for word in words]
    with np.errstate(over="ignore"):
        hashes = keys(np.arange(count, dtype=np.uint64), *unsigned)
    return np.argsort(hashes.view(dtype), kind="stable")


def rows_of_part(batch_size: int, part: int, num_parts: int) -> slice:
    """Returns the rows of one of `num_parts` equal parts of a batch."""
    if batch_size % num_parts:
        raise errors.InputError(
            f"batch size {batch_size} does not divide by {num_parts} workers"
        )
    rows = batch_size // num_parts
    return slice(part * rows, (part + 1) * rows)
