"""Fast bfloat16 predictions on a CPU: kernels as constants of the graph.

oneDNN reorders a constant kernel once into the layout of its fastest product,
which then also adds the bias and applies GELU. The kernel of a variable is used
in its own layout, by a slower product.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# TensorFlow copies the constants of a graph a dozen times before its first run.
# With the 340 MB of BERT-Base it starts 14 s later and takes 3.6 GB more, and
# then predicts in three quarters of the time.
_MOST_BYTES = 128 << 20
_DTYPES = ("bfloat16",)  # float32 gains less than 10 % (docs/LOG.md).


class Predictions:
    """The kernels of a model as constants, as long as they do not change.

    Attributes:
      has_copies: whether there are any.
    """

    def __init__(self, model: Any):
        """Copies the kernels, none of a large model or of other dtypes."""
        kernels = []
        if model.compute_dtype in _DTYPES:
            kernels = [v for v in model.variables if v.path.endswith("kernel")]
        size = sum(int(np.prod(v.shape)) * 4 for v in kernels)
        self._variables = kernels if size <= _MOST_BYTES else []
        self._values = [np.array(_view(v)) for v in self._variables]
        self.has_copies = bool(self._variables)

    def are_current(self) -> bool:
        """Returns whether the variables still have these values."""
        return all(
            np.array_equal(value, _view(variable))
            for variable, value in zip(
                self._variables, self._values, strict=True
            )
        )

    @contextlib.contextmanager
    def in_graph(self) -> Iterator[None]:
        """Makes layers that its body calls in a graph use the constants."""
        constants = map(tf.constant, self._values)
        pairs = list(zip(self._variables, constants, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            yield


def _view(variable: keras.Variable) -> np.ndarray:
    """Returns a variable's value, without a copy if it is on the CPU."""
    return np.asarray(variable.value)
