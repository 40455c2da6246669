"""Dropout whose mask is a pure function of an explicit seed.

A seed is an int32 tensor of shape [2]. Whoever calls a model hands it one; the
model folds in the index of each layer, a layer the index of each place, so no
two places share a mask and no generator holds state:

    dropout_seed --fold_in(layer)--> layer seed --fold_in(place)--> mask
"""

import math

import keras
from keras import ops

import fusion

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


class _FixedSeed(keras.random.SeedGenerator):
    """Hands keras.random exactly the given seed, and keeps no variable."""

    def __init__(self, seed):  # The parent's would create a state variable.
        # JAX alone wants its keys unsigned.
        unsigned = keras.backend.backend() == "jax"
        self._seed = ops.cast(seed, "uint32") if unsigned else seed

    def next(self, ordered=True):
        """Returns the seed; there is no next one."""
        del ordered
        return self._seed


def fold_in(seed, data: int):
    """Derives the seed of part number `data`.

    Args:
        seed: int32 [2].
        data: A small number, the place of the part among its siblings.

    Returns:
        int32 [2]; different parts and different seeds give unrelated masks.
    """
    return fusion.kernel("dropout_fold_in", _fold_in, seed, data=data)


def _fold_in(seed, *, data):
    # Mixing before adding: the neighbors of a counted-up seed are then not the
    # seeds of its parts.
    return _random_words((2,), seed) + ops.convert_to_tensor([0, data], "int32")


def keep(x, rate: float, seed):
    """Draws which elements of x to keep.

    Args:
        x: any dtype and shape.
        rate: Share to drop. It is rounded to a multiple of 2^-16.
        seed: int32 [2], or None for inference.

    Returns:
        bool, the shape of x; None where nothing is dropped.
    """
    threshold = _threshold(rate)
    if seed is None or threshold == 0:
        return None
    options = {"shape": ops.shape(x), "threshold": threshold}
    return fusion.kernel("dropout_mask", _mask, seed, **options)


def _mask(seed, *, shape, threshold):
    """Draws bool of a shape, False in a share of threshold / 2^16."""
    halves = _random_halves(math.prod(shape), seed)
    return ops.reshape(halves >= threshold - 2**15, shape)


def apply(x, kept, rate: float):
    """Zeroes what is not kept and scales up the rest; None keeps all."""
    if kept is None:
        return x
    scale = 1.0 / (1.0 - _threshold(rate) / 2**16)
    return ops.where(kept, x * ops.cast(scale, x.dtype), ops.zeros((), x.dtype))


def drop(x, kept, rate: float):
    """Does the same as a part, which may be compiled; see fusion."""
    return x if kept is None else fusion.part(apply, x, kept, rate=rate)


def dropout(x, rate: float, seed):
    """Zeroes a share of `rate` of the elements and scales up the others.

    Args:
        x: float, any shape.
        rate: Share to drop. It is rounded to a multiple of 2^-16.
        seed: int32 [2], or None for inference: returns x itself.

    Returns:
        float, the shape of x.
    """
    return drop(x, keep(x, rate, seed), rate)


def _threshold(rate: float) -> int:
    return round(rate * 2**16)


def _random_halves(size, seed):
    """Draws int16 [size]: two from each random word, which halves the cost."""
    # `view` needs a static last dimension, also where `size` is dynamic.
    words = _random_words(((size + 1) // 2, 1), seed)
    # It reshapes; TensorFlow reshapes int32, but no other type, on the host,
    # where the mask of a GPU would have to travel to and from.
    halves = ops.view(ops.view(words, "uint32"), "int16")
    return ops.reshape(halves, (-1,))[:size]


def _random_words(shape, seed):
    """Draws int32 of a shape, uniform."""
    # Without limits TensorFlow takes whole words and divides nothing.
    is_tensorflow = keras.backend.backend() == "tensorflow"
    limits = (None, None) if is_tensorflow else (_LOWEST, _HIGHEST)
    return keras.random.randint(
        shape, *limits, dtype="int32", seed=_FixedSeed(seed)
    )
