"""A bidirectional LSTM of explicit weights, on every backend.

The products with the inputs of all steps are one matrix product; a step adds
that with the state. On a CPU this is faster than keras.layers.LSTM, whose
seed generators moreover have other paths in every process.
"""

import keras
from keras import ops

from modeling import recurrence, variables


class Lstm(keras.layers.Layer):
    """Reads a sequence in one direction (Hochreiter and Schmidhuber, 1997).

    1. i, f, g, o = x W + h U + b; 1 is added to f, so that it starts open
    2. c = sigmoid(f) c + sigmoid(i) tanh(g)
    3. h = sigmoid(o) tanh(c)

    Padding changes neither state, on whichever side it is.

    Checkpoint: {path}/kernel [inputs, 4 size], {path}/recurrent_kernel
    [size, 4 size], {path}/bias [4 size]
    """

    def __init__(
        self, path: str, inputs: int, size: int, *, backwards: bool, seed: int
    ):
        """Makes the weights, drawn so that sums keep their variance."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.size = size
        self._backwards = backwards
        self.kernel = _normal(f"{path}/kernel", inputs, 4 * size, seed)
        self.recurrent_kernel = _normal(
            f"{path}/recurrent_kernel", size, 4 * size, seed
        )
        make = variables.Maker(stddev=0.0, seed=seed)
        self.bias = make.zeros(f"{path}/bias", (4 * size,))
        self.built = True

    def call(self, x, mask):
        """Maps float [B, S, inputs] and bool [B, S] to float [B, S, size]."""
        batch, length, inputs = ops.shape(x)
        x = ops.matmul(ops.reshape(x, (-1, inputs)), self.kernel) + self.bias
        x = ops.reshape(x, (batch, length, 4 * self.size))
        keep = ops.cast(mask, x.dtype)[..., None]
        places = ops.concatenate([x, keep], axis=-1)  # [B, S, 4 size + 1]
        start = ops.zeros((batch, self.size), x.dtype)
        return recurrence.outputs(
            self._step, (start, start), places, backwards=self._backwards
        )

    def _step(self, carry, inputs):
        """Maps (h, c) [B, size] and [B, 4 size + 1] to the next two."""
        h, c = carry
        x, keep = inputs[:, :-1], inputs[:, -1:]
        gates = x + ops.matmul(h, self.recurrent_kernel)
        i, f, g, o = ops.split(gates, 4, axis=1)
        cell = ops.sigmoid(f + 1.0) * c + ops.sigmoid(i) * ops.tanh(g)
        state = ops.sigmoid(o) * ops.tanh(cell)
        state = keep * state + (1.0 - keep) * h
        cell = keep * cell + (1.0 - keep) * c
        return state, cell


class BidirectionalLstm(keras.layers.Layer):
    """Reads a sequence from both ends, the states side by side.

    Checkpoint: {path}/forward/..., {path}/backward/...
    """

    def __init__(self, path: str, inputs: int, size: int, *, seed: int):
        """Makes two LSTMs of the same size."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.directions = [
            Lstm(f"{path}/{name}", inputs, size, backwards=back, seed=seed)
            for name, back in (("forward", False), ("backward", True))
        ]
        self.built = True

    def call(self, x, mask):
        """Maps float [B, S, inputs], bool [B, S] to float [B, S, 2 size]."""
        return ops.concatenate([d(x, mask) for d in self.directions], axis=-1)


def _normal(path: str, inputs: int, outputs: int, seed: int):
    make = variables.Maker(stddev=inputs**-0.5, seed=seed)
    return make.normal(path, (inputs, outputs))
