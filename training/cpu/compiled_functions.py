"""Functions of the layers, compiled by XLA together with their gradients.

XLA makes one loop of the dozen operations of a function, where TensorFlow makes
a pass over memory for each. Inside the loop all values are float32, which is
more exact than bfloat16 and, on a CPU, faster than rounding after every
operation. The backward pass computes the function again instead of storing its
intermediate values. Matrix products and softmax are not compiled: XLA is slower
at them on a CPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops

from foundation import replacement

# The names of replaceable functions of modeling/ that are faster compiled. To
# compile others, e.g. the dropout of probabilities, for every length of a run
# takes longer than it saves.
COMPILED = frozenset({"add_bias", "residual_norm"})


class Compiler:
    """Replaces functions by compiled ones; see foundation.replacement."""

    def __init__(self):
        """Compiles nothing yet."""
        self._compiled: dict[Any, Callable[..., tf.Tensor]] = {}

    def __call__(
        self, function: Callable[..., tf.Tensor]
    ) -> Callable[..., tf.Tensor]:
        """Returns the compiled function, or the function itself."""
        if function.__name__ not in COMPILED:
            return function
        return functools.partial(self._call, function)

    def _call(
        self, function: Callable[..., tf.Tensor], *tensors: Any, **options: Any
    ) -> tf.Tensor:
        """Returns function(*tensors, **options), in the first one's dtype."""
        is_given = tuple(x is not None for x in tensors)
        key = (function, is_given, *sorted(options.items()))
        if key not in self._compiled:

            def wide(*arguments):
                rest = map(_widened, arguments)
                filled = [next(rest) if x else None for x in is_given]
                # What the function calls is compiled as a part of it.
                with replacement.using(None):
                    result = function(*filled, **options)
                return tf.cast(result, arguments[0].dtype)

            self._compiled[key] = _with_gradient(wide)
        given = [ops.convert_to_tensor(x) for x in tensors if x is not None]
        return self._compiled[key](*given)


def _widened(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) if x.dtype.is_floating else x


def _with_gradient(function: Callable[..., tf.Tensor]) -> Callable:
    """Compiles a function of tensors and its gradient, for each shape once."""
    compiled = functools.partial(
        tf.function, jit_compile=True, autograph=False, reduce_retracing=True
    )
    forward = compiled(function)

    @compiled
    def backward(upstream, *tensors):
        floating = [x for x in tensors if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floating)
            result = function(*tensors)
        return tape.gradient(result, floating, upstream)

    @tf.custom_gradient
    def call(*tensors):
        def gradients(upstream):
            results = iter(backward(upstream, *tensors))
            return [
                next(results) if x.dtype.is_floating else None for x in tensors
            ]

        return forward(*tensors), gradients

    return call
