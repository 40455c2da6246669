"""Dropout's masks as XLA makes them best: a hash of each element's index.

TensorFlow's generators are an operation each, which XLA expands to dozens of
kernels that write random words to memory. A hash is arithmetic on an index: XLA
computes it inside the kernel that uses the mask, or stores a byte per element.
It is the same on every device that XLA compiles for; TensorFlow chooses its
generator by device. On one H100 it takes 7 % off a step (docs/LOG.md).

    word = mix(index, seed),  kept where word >= rate * 2^32
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# An odd number near 2^32 / 1.618, whose multiples are spread evenly.
_STRIDE = 0x9E3779B9
# Of Chris Wellons' lowbias32: each word bit depends on each index bit.
_FACTORS = (0x7FEB352D, 0x846CA68B, 0x7FEB352D)


def keep(
    seed: tf.Tensor, *, shape: Sequence[int | tf.Tensor], threshold: int
) -> tf.Tensor:
    """Draws which elements to keep.

    Args:
        seed: int32 [2].
        shape: of the result.
        threshold: the share to drop, times 2^16.

    Returns:
        bool of the shape.
    """
    size = math.prod(shape)
    words = _words(tf.range(size), seed)
    return tf.reshape(words >= np.uint32(threshold << 16), shape)


def fold_in(seed: tf.Tensor, *, data: int) -> tf.Tensor:
    """Derives the seed of part number `data`: int32 [2] of the same."""
    numbers = tf.constant([2 * data, 2 * data + 1])
    return tf.bitcast(_words(numbers, seed), tf.int32)


def _words(index: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Hashes int32 [n] and a seed to uint32 [n].

    Half of the seed comes in between the products, with two of them after it:
    otherwise two seeds would give the same words in another order, or words
    whose difference is the same everywhere.
    """
    key = tf.bitcast(seed, tf.uint32)
    x = tf.cast(index, tf.uint32) * np.uint32(_STRIDE) + key[0]
    x = _xor_shift(x, 16) * np.uint32(_FACTORS[0])
    x = tf.bitwise.bitwise_xor(_xor_shift(x, 15), key[1])
    x = x * np.uint32(_FACTORS[1])
    x = _xor_shift(x, 16) * np.uint32(_FACTORS[2])
    return _xor_shift(x, 15)


def _xor_shift(x: tf.Tensor, bits: int) -> tf.Tensor:
    shifted = tf.bitwise.right_shift(x, np.uint32(bits))
    return tf.bitwise.bitwise_xor(x, shifted)


# By the names that modeling.dropout gives its functions; see fusion.
KERNELS: Mapping[str, Callable[..., Any]] = {
    "dropout_mask": keep,
    "dropout_fold_in": fold_in,
}
