"""Parts of a model and their derivatives, each compiled by XLA.

XLA makes one loop of the dozen operations of a part, where TensorFlow passes
over memory for each. Within the loop all is float32, which is more exact than
bfloat16 and, on a CPU, costs less than rounding after every operation. Products
with matrices, at which XLA is slower on a CPU, stay outside. The derivative
computes the part again instead of keeping what lies between its operations.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from keras import ops


class Compiler:
    """Compiles every part once for each shape; see fusion."""

    def __init__(self):
        """Compiles nothing yet."""
        self._compiled: dict[Any, Callable] = {}

    def __call__(
        self,
        function: Callable[..., tf.Tensor],
        tensors: Sequence[tf.Tensor | None],
        options: Mapping[str, Any],
    ) -> tf.Tensor:
        """Returns function(*tensors, **options), in the first one's dtype."""
        is_given = tuple(x is not None for x in tensors)
        key = (function, is_given, *sorted(options.items()))
        if key not in self._compiled:

            def part(*given):
                wide = iter([_widened(x) for x in given])
                filled = [next(wide) if x else None for x in is_given]
                result = function(*filled, **options)
                return tf.cast(result, given[0].dtype)

            self._compiled[key] = _differentiable(part)
        given = [ops.convert_to_tensor(x) for x in tensors if x is not None]
        return self._compiled[key](*given)


def _widened(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) if x.dtype.is_floating else x


def _differentiable(function: Callable[..., tf.Tensor]) -> Callable:
    """Returns the same function of tensors, compiled with its derivative."""
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
            found = iter(backward(upstream, *tensors))
            return [
                next(found) if x.dtype.is_floating else None for x in tensors
            ]

        return forward(*tensors), gradients

    return call
