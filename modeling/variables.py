"""Makes model variables under the names that released checkpoints have.

Every variable gets an explicit path ("bert/embeddings/word_embeddings"), and
its initial value is drawn from a generator keyed by (seed, path): the same on
every backend and machine, whatever else the model contains.
"""

import contextlib
import hashlib
from collections.abc import Callable

import keras
import numpy as np


class Maker:
    """Creates float variables; normal ones are a function of seed and path."""

    def __init__(self, *, stddev: float, seed: int):
        """Keeps what the draws depend on.

        Args:
            stddev: Of the normal distribution before it is cut at 2 sigma; what
                remains has 0.88 of it, as with the released initializer:
                https://github.com/google-research/bert/blob/master/modeling.py#L377
            seed: Any integer.
        """
        self._stddev = stddev
        self._seed = seed

    def normal(self, path: str, shape: tuple) -> keras.Variable:
        """Returns a variable drawn from the truncated normal distribution."""

        def draw(shape, dtype):
            values = truncated_normal(shape, seed=self._seed, path=path)
            return keras.ops.cast(values * np.float32(self._stddev), dtype)

        return _variable(path, shape, draw)

    def zeros(self, path: str, shape: tuple) -> keras.Variable:
        """Returns a variable of zeros."""
        return _variable(path, shape, keras.ops.zeros)

    def ones(self, path: str, shape: tuple) -> keras.Variable:
        """Returns a variable of ones."""
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
    """Creates the variable with exactly this path and no automatic casts."""
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        # The layers cast, once and where it is cheap: a table is gathered from
        # before its rows are cast.
        return keras.Variable(
            draw, shape=shape, dtype="float32", autocast=False, name=name
        )
