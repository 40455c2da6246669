"""Dropout whose mask is a pure function of an explicit seed.

A seed is an int32 tensor [2]. The caller of a model passes one; the model
derives a seed for each layer, and the layer one for each of its dropouts:

    dropout_seed --fold_in(seed, layer)--> --fold_in(seed, number)--> mask

So no two dropouts use the same mask, and no random generator has a state.
"""

import math

import keras
from keras import ops

from foundation import replacement

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def dropout(x, rate: float, seed):
    """Sets a fraction of the elements to zero and scales up the others.

    Args:
        x: float, any shape.
        rate: the fraction, rounded to a multiple of 2^-16.
        seed: int32 [2], or None for inference, which returns x itself.
    """
    is_kept = draw(x, rate, seed)
    return x if is_kept is None else keep(x, is_kept, rate=rate)


def draw(x, rate: float, seed):
    """Draws which elements of x to keep: bool, or None if all are kept."""
    threshold = round(rate * 2**16)
    if seed is None or threshold == 0:
        return None
    return draw_mask(seed, shape=ops.shape(x), threshold=threshold)


@replacement.replaceable
def draw_mask(seed, *, shape, threshold: int):
    """Draws bool of a shape; an element is False with threshold / 2^16."""
    halves = _random_int16(math.prod(shape), seed)
    return ops.reshape(halves >= threshold - 2**15, shape)


def keep(x, is_kept, *, rate: float):
    """Returns x / (1 - rate) where `is_kept`, bool of x's shape; 0 elsewhere.

    None keeps all elements of x as they are.
    """
    if is_kept is None:
        return x
    scale = ops.cast(1.0 / (1.0 - round(rate * 2**16) / 2**16), x.dtype)
    return ops.where(is_kept, x * scale, ops.zeros((), x.dtype))


def fold_in(seed, number: int):
    """Derives the seed of one of several parts of a model.

    Args:
        seed: int32 [2], or None.
        number: the number of the part among its siblings.

    Returns:
        int32 [2], or None for None. Masks of different parts, and of different
        seeds, are unrelated.
    """
    return None if seed is None else derive_seed(seed, number=number)


@replacement.replaceable
def derive_seed(seed, *, number: int):
    """Hashes a seed and a number to int32 [2]; see fold_in."""
    # The seed is hashed before the number is added: with successive seeds, the
    # parts of one would otherwise have the seeds of the next.
    offset = ops.convert_to_tensor([0, number], "int32")
    return _random_int32((2,), seed) + offset


def split(seed, count: int) -> list:
    """Derives the seeds of `count` parts; None for each if the seed is None."""
    return [fold_in(seed, number) for number in range(count)]


def _random_int16(size, seed):
    """Draws int16 [size], two from each random word of 32 bits."""
    # `view` needs a static last dimension, also where `size` is dynamic.
    words = _random_int32(((size + 1) // 2, 1), seed)
    # The unsigned type avoids a reshape of int32, which TensorFlow runs on the
    # host: the mask of a GPU would travel there and back.
    halves = ops.view(ops.view(words, "uint32"), "int16")
    return ops.reshape(halves, (-1,))[:size]


def _random_int32(shape, seed):
    """Draws uniform int32 of a shape."""
    # Without limits TensorFlow returns random words without a division.
    is_tensorflow = keras.backend.backend() == "tensorflow"
    limits = (None, None) if is_tensorflow else (_LOWEST, _HIGHEST)
    return keras.random.randint(
        shape, *limits, dtype="int32", seed=_FixedSeed(seed)
    )


class _FixedSeed(keras.random.SeedGenerator):
    """Passes exactly the given seed to keras.random, without a variable."""

    def __init__(self, seed):  # The parent's would create a state variable.
        # JAX requires unsigned keys.
        unsigned = keras.backend.backend() == "jax"
        self._seed = ops.cast(seed, "uint32") if unsigned else seed

    def next(self, ordered=True):
        """Returns the seed."""
        del ordered
        return self._seed
