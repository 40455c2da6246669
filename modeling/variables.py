"""Creates variables under the names of the released checkpoints.

The initial value of a variable is a function of a seed and the variable's path
("bert/embeddings/word_embeddings"): the same on every backend and machine,
whatever else the model contains.
"""

import contextlib
import hashlib
from collections.abc import Callable

import keras
import numpy as np


class Maker:
    """Creates float32 variables."""

    def __init__(self, *, stddev: float, seed: int, dtype=None):
        """Stores what random values depend on, and the policy of the layers.

        Args:
            stddev: standard deviation of the normal distribution before it is
                cut at 2 sigma. The cut leaves 0.88 of it, as in the released
                initializer:
                https://github.com/google-research/bert/blob/master/modeling.py#L377
            seed: any integer.
            dtype: a Keras dtype policy, e.g. "mixed_bfloat16", of the layers
                that create their variables with this maker.
        """
        self.dtype = dtype
        self._stddev = stddev
        self._seed = seed

    def normal(self, path: str, shape: tuple) -> keras.Variable:
        """Creates a variable drawn from the truncated normal distribution."""

        def draw(shape, dtype):
            values = truncated_normal(shape, seed=self._seed, path=path)
            return keras.ops.cast(values * np.float32(self._stddev), dtype)

        return _variable(path, shape, draw)

    def zeros(self, path: str, shape: tuple) -> keras.Variable:
        """Creates a variable of zeros."""
        return _variable(path, shape, keras.ops.zeros)

    def ones(self, path: str, shape: tuple) -> keras.Variable:
        """Creates a variable of ones."""
        return _variable(path, shape, keras.ops.ones)


def truncated_normal(shape: tuple, *, seed: int, path: str) -> np.ndarray:
    """Draws standard normal float32 values; those beyond 2 are drawn again."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "little"))
    values = rng.standard_normal(int(np.prod(shape)), dtype=np.float32)
    outside = np.flatnonzero(np.abs(values) > 2)
    while outside.size:
        values[outside] = rng.standard_normal(outside.size, dtype=np.float32)
        outside = outside[np.abs(values[outside]) > 2]
    return values.reshape(shape)


def _variable(path: str, shape: tuple, draw: Callable) -> keras.Variable:
    """Creates a variable with exactly this path.

    It is never cast automatically: the layers cast where it is cheap, e.g. the
    rows that were gathered from a table.
    """
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(
            draw, shape=shape, dtype="float32", autocast=False, name=name
        )
