"""Has TensorFlow forget custom gradients once they have been taken.

It registers the derivative of each by a name, in every graph anew, for as long
as the process lives. What is registered refers to tensors, these to their
graph, and a graph to the weights that it reads: every run of a grid would leave
its weights and slots in memory.
"""

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import ops

_PREFIX = "CustomGradient-"


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Within it gradients are taken; afterwards not again, of that graph."""
    names = _registered()
    before = set(names)
    try:
        yield
    finally:
        for name in set(names) - before:
            if name.startswith(_PREFIX):
                del names[name]


def _registered() -> dict:
    """Returns TensorFlow's own table, which is not part of its interface."""
    registry = getattr(ops, "gradient_registry", None)
    # Of another TensorFlow nothing is forgotten, which costs only memory.
    return getattr(registry, "_registry", {})
