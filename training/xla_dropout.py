"""Dropout masks for steps that XLA compiles: a hash of each element's index.

XLA expands TensorFlow's random generator to dozens of GPU kernels that write
random words to memory, and TensorFlow chooses the generator by device. A hash
is arithmetic on the index: XLA computes it inside the kernel that uses the
mask, and the mask is the same on every device. On one H100 a step takes 7 %
less time (docs/LOG.md).

    word = mix(index, seed),  kept where word >= rate * 2^32
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

# An odd number near 2^32 / 1.618, whose multiples are spread evenly.
_STRIDE = 0x9E3779B9
# Of Chris Wellons' lowbias32: each word bit depends on each index bit.
_FACTORS = (0x7FEB352D, 0x846CA68B, 0x7FEB352D)


def choose(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Replaces the two random draws of modeling.dropout by hashes.

    See foundation.replacement.
    """
    replacements: dict[str, Callable[..., tf.Tensor]] = {
        "draw_mask": draw_mask,
        "derive_seed": derive_seed,
    }
    return replacements.get(function.__name__, function)


def draw_mask(
    seed: tf.Tensor, *, shape: Sequence[int | tf.Tensor], threshold: int
) -> tf.Tensor:
    """Draws bool of a shape; an element is False with threshold / 2^16.

    Args:
        seed: int32 [2].
        shape: shape of the result.
        threshold: the fraction to drop, times 2^16.
    """
    words = hash_words(tf.range(math.prod(shape)), seed)
    return tf.reshape(words >= np.uint32(threshold << 16), shape)


def derive_seed(seed: tf.Tensor, *, number: int) -> tf.Tensor:
    """Hashes a seed, int32 [2], and a number to int32 [2]."""
    numbers = tf.constant([2 * number, 2 * number + 1])
    return tf.bitcast(hash_words(numbers, seed), tf.int32)


def hash_words(index: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Hashes int32 [n] and a seed to uint32 [n].

    The second half of the seed enters between the products, with two products
    after it. Otherwise two seeds could give the same words in another order, or
    words with a constant difference.
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
