"""Reads sequences place by place, on every backend.

keras.ops.scan would do, but its loop in TensorFlow does not say how many steps
it takes at most, and XLA cannot differentiate such a loop. Keras's recurrent
layer says it; in JAX it is a scan.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras

# Maps the carry, a tuple of [B, size], and the place's input to the next carry.
Step = Callable[[tuple, Any], tuple]


class _Cell:
    """What keras.layers.RNN takes for a step; the first of the carry is out."""

    def __init__(self, step: Step, carry: Sequence[Any]):
        self._step = step
        self.state_size = [part.shape[-1] for part in carry]
        self.compute_dtype = keras.backend.standardize_dtype(carry[0].dtype)

    def call(self, inputs, states):
        """Maps [B, inputs] and the carry to the output and the next carry."""
        carry = list(self._step(tuple(states), inputs))
        return carry[0], carry

    __call__ = call


def outputs(step: Step, start: Sequence[Any], x, *, backwards: bool = False):
    """Returns the first part of the carry behind every place.

    Args:
        step: What happens at a place.
        start: The first carry, [B, size] each.
        x: float [B, S, inputs].
        backwards: Whether the last place comes first.

    Returns:
        float [B, S, size], in the order of the places.
    """
    found = _loop(step, start, x, go_backwards=backwards, return_sequences=True)
    return keras.ops.flip(found, axis=1) if backwards else found


def last_carry(step: Step, start: Sequence[Any], x) -> tuple:
    """Returns the carry behind the last place; see outputs."""
    _, *carry = _loop(step, start, x, return_state=True)
    return tuple(carry)


def _loop(step: Step, start: Sequence[Any], x, **options: bool):
    cell = _Cell(step, start)
    layer = keras.layers.RNN(cell, dtype=cell.compute_dtype, **options)
    return layer(x, initial_state=list(start))
