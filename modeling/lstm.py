"""Reads sequences place by place, on every backend.

keras.ops.scan would do, but its loop in TensorFlow does not say how many steps
it takes at most, and XLA cannot differentiate such a loop. Keras's recurrent
layer says it; in JAX it is a scan.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from modeling import dropout, variables

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


def all_outputs(
    step: Step, start: Sequence[Any], x, *, backwards: bool = False
):
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


# ----------------------------------------------------------------------
# A bidirectional LSTM of explicit weights, on every backend.
#
# The products with the inputs of all steps are one matrix product; a step adds
# that with the state. On a CPU this is faster than keras.layers.LSTM, whose
# seed generators moreover have other paths in every process.


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
        return all_outputs(
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


# ----------------------------------------------------------------------
# A learned mean of layers.


class ScalarMix(keras.layers.Layer):
    """Weighs J layers, as ELMo does (Peters et al., 2018, equation 1).

    1. s = softmax of J learned scalars, all equal at first
    2. gamma * sum of s_j * layer_j, gamma being learned, 1 at first

    Checkpoint: {path}/scalars [J], {path}/gamma []
    """

    def __init__(self, path: str, layers: int, *, make: variables.Maker):
        """Makes the scalars of so many layers."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.scalars = make.zeros(f"{path}/scalars", (layers,))
        self.gamma = make.ones(f"{path}/gamma", ())
        self.built = True

    def call(self, x):
        """Maps float [..., J, H] to float [..., H]."""
        shares = ops.softmax(self.scalars)[:, None]
        return self.gamma * ops.sum(x * shares, axis=-2)


# ----------------------------------------------------------------------
# The tagger of the paper's feature-based approach: a BiLSTM on activations.


class BiLstmTagger(keras.Model):
    """Tags words by what a frozen encoder says of them.

    1. the layers of every word, side by side or as their learned mean
    2. dropout, LSTMs of both directions side by side; as often as depth says
    3. dropout, scores of C tags

    Checkpoint: bilstm/...
    """

    def __init__(
        self,
        *,
        num_layers: int,
        hidden_size: int,
        is_mixed: bool,
        num_classes: int,
        size: int = 768,
        depth: int = 2,
        rate: float = 0.1,
        seed: int = 0,
    ):
        """Makes the model.

        Args:
            num_layers: J, the encoder's layers that it reads.
            hidden_size: H, their size.
            is_mixed: Whether it reads their learned mean.
            num_classes: C.
            size: Of each direction.
            depth: How many LSTMs stand one upon the other.
            rate: Of the dropout.
            seed: Of the initial weights.
        """
        super().__init__(name="bilstm", autocast=False)
        self.num_classes = num_classes
        self._rate = rate
        make = variables.Maker(stddev=0.02, seed=seed)
        self.mix = None
        inputs = num_layers * hidden_size
        if is_mixed:
            self.mix = ScalarMix("bilstm/mix", num_layers, make=make)
            inputs = hidden_size
        self.lstms = []
        for i in range(depth):
            self.lstms.append(
                BidirectionalLstm(f"bilstm/lstm_{i}", inputs, size, seed=seed)
            )
            inputs = 2 * size
        self.output_weights = make.normal(
            "bilstm/output_weights", (num_classes, inputs)
        )
        self.output_bias = make.zeros("bilstm/output_bias", (num_classes,))
        self.built = True

    def call(self, features: dict, dropout_seed=None):
        """Scores every word.

        Args:
            features: activations float [B, S, J, H], input_mask int32 [B, S].
            dropout_seed: int32 [2], or None for inference.

        Returns:
            float32 [B, S, C].
        """
        x = ops.cast(features["activations"], "float32")
        mask = features["input_mask"] > 0
        if self.mix is not None:
            x = self.mix(x)
        else:
            length, layers, size = ops.shape(x)[1:]
            x = ops.reshape(x, (-1, length, layers * size))
        for i, layer in enumerate(self.lstms):
            x = self._drop(x, i, dropout_seed)
            x = layer(x, mask)
        x = self._drop(x, len(self.lstms), dropout_seed)
        return ops.matmul(x, ops.transpose(self.output_weights)) + (
            self.output_bias
        )

    def _drop(self, x, part: int, seed):
        if seed is None:
            return x
        return dropout.dropout(x, self._rate, dropout.fold_in(seed, part))
