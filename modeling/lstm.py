"""Bidirectional LSTMs, and the tagger of the feature-based approach.

A recurrence maps its state, a tuple of [B, size], and the input at a position
to the next state. It is run by keras.layers.RNN: the loop of keras.ops.scan has
no known maximum length in TensorFlow, so that XLA cannot differentiate it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from modeling import dropout, encoder, variables
from modeling.config import BertConfig

# Maps the state and the input [B, inputs] to the next state.
Step = Callable[[tuple, Any], tuple]


def all_outputs(
    step: Step, start: Sequence[Any], x, *, backwards: bool = False
):
    """Returns the first part of the state after every position.

    Args:
        step: computes the next state.
        start: the first state, [B, size] each.
        x: float [B, S, inputs].
        backwards: whether to begin with the last position.

    Returns:
        float [B, S, size], in the order of the positions.
    """
    outputs = _run(
        step, start, x, go_backwards=backwards, return_sequences=True
    )
    return ops.flip(outputs, axis=1) if backwards else outputs


def last_state(step: Step, start: Sequence[Any], x) -> tuple:
    """Returns the state after the last position; see all_outputs."""
    _, *state = _run(step, start, x, return_state=True)
    return tuple(state)


def _run(step: Step, start: Sequence[Any], x, **options: bool):
    cell = _Cell(step, start)
    layer = keras.layers.RNN(cell, dtype=cell.compute_dtype, **options)
    return layer(x, initial_state=list(start))


class _Cell:
    """A step, with the methods and attributes that keras.layers.RNN uses."""

    def __init__(self, step: Step, start: Sequence[Any]):
        self._step = step
        self.state_size = [part.shape[-1] for part in start]
        self.compute_dtype = keras.backend.standardize_dtype(start[0].dtype)

    def call(self, inputs, states):
        state = list(self._step(tuple(states), inputs))
        return state[0], state

    __call__ = call


class Lstm(keras.layers.Layer):
    """Reads a sequence in one direction (Hochreiter and Schmidhuber, 1997).

    1. i, f, g, o = x W + h U + b; f is increased by 1, so that it starts open
    2. c = sigmoid(f) c + sigmoid(i) tanh(g)
    3. h = sigmoid(o) tanh(c)

    Padding, on either side, changes neither state. The products x W of all
    positions are one matrix product, which on a CPU is faster than
    keras.layers.LSTM.

    Checkpoint: {path}/kernel [inputs, 4 size], {path}/recurrent_kernel
    [size, 4 size], {path}/bias [4 size]
    """

    def __init__(
        self, path: str, inputs: int, size: int, *, backwards: bool, seed: int
    ):
        """Creates the weights; their initial scale preserves the variance."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.size = size
        self._backwards = backwards
        of_inputs = variables.Maker(stddev=inputs**-0.5, seed=seed)
        of_states = variables.Maker(stddev=size**-0.5, seed=seed)
        self.kernel = of_inputs.normal(f"{path}/kernel", (inputs, 4 * size))
        self.recurrent_kernel = of_states.normal(
            f"{path}/recurrent_kernel", (size, 4 * size)
        )
        self.bias = of_inputs.zeros(f"{path}/bias", (4 * size,))
        self.built = True

    def call(self, x, mask):
        """Maps float32 [B, S, inputs], bool [B, S] to float32 [B, S, size]."""
        batch, length, inputs = ops.shape(x)
        x = ops.matmul(ops.reshape(x, (-1, inputs)), self.kernel) + self.bias
        x = ops.reshape(x, (batch, length, 4 * self.size))
        is_real = ops.cast(mask, x.dtype)[..., None]
        x = ops.concatenate([x, is_real], axis=-1)  # [B, S, 4 size + 1]
        start = ops.zeros((batch, self.size), x.dtype)
        return all_outputs(
            self._step, (start, start), x, backwards=self._backwards
        )

    def _step(self, state, inputs):
        """Maps (h, c) [B, size] and [B, 4 size + 1] to the next (h, c)."""
        h, c = state
        x, is_real = inputs[:, :-1], inputs[:, -1:]
        gates = x + ops.matmul(h, self.recurrent_kernel)
        i, f, g, o = ops.split(gates, 4, axis=1)
        next_c = ops.sigmoid(f + 1.0) * c + ops.sigmoid(i) * ops.tanh(g)
        next_h = ops.sigmoid(o) * ops.tanh(next_c)
        return (
            is_real * next_h + (1.0 - is_real) * h,
            is_real * next_c + (1.0 - is_real) * c,
        )


class BidirectionalLstm(keras.layers.Layer):
    """Reads a sequence in both directions, in float32.

    Checkpoint: {path}/forward/..., {path}/backward/...
    """

    def __init__(self, path: str, inputs: int, size: int, *, seed: int):
        """Creates two LSTMs of the same size."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.directions = [
            Lstm(f"{path}/{name}", inputs, size, backwards=back, seed=seed)
            for name, back in (("forward", False), ("backward", True))
        ]
        self.built = True

    def call(self, x, mask, is_pooled=False):
        """Maps float [B, S, inputs], bool [B, S] to float32 [B, S, 2 size].

        Pooled, the result is the final state of each direction, [B, 2 size].
        """
        x = ops.cast(x, "float32")
        states = [direction(x, mask) for direction in self.directions]
        if is_pooled:  # Padding keeps the states.
            states = [states[0][:, -1], states[1][:, 0]]
        return ops.concatenate(states, axis=-1)


class ScalarMix(keras.layers.Layer):
    """Computes a learned mean of layers (Peters et al., 2018, equation 1).

    1. s = softmax of one learned scalar for each layer, 0 at first
    2. gamma * sum of s_j * layer_j; gamma is learned, 1 at first

    Checkpoint: {path}/scalars, {path}/gamma
    """

    def __init__(self, path: str, layers: int, *, make: variables.Maker):
        """Creates the scalars of a number of layers."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.scalars = make.zeros(f"{path}/scalars", (layers,))
        self.gamma = make.ones(f"{path}/gamma", ())
        self.built = True

    def call(self, x):
        """Maps float [..., layers, H] to float [..., H]."""
        probabilities = ops.softmax(self.scalars)[:, None]
        return self.gamma * ops.sum(x * probabilities, axis=-2)


class BiLstmTagger(keras.Model):
    """Tags words from the activations of a frozen encoder (paper, 5.3).

    1. the layers of each word, concatenated or as their learned mean
    2. dropout and bidirectional LSTM, `depth` times
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
        """Creates the model.

        Args:
            num_layers: the number of the encoder's layers in the input.
            hidden_size: H, their size.
            is_mixed: whether to use their learned mean.
            num_classes: C.
            size: units in each direction of the LSTMs.
            depth: the number of bidirectional LSTMs.
            rate: dropout rate.
            seed: seed of the initial weights.
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
            features: activations float [B, S, num_layers, H], input_mask int32
                [B, S].
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
        *seeds, last_seed = dropout.split(dropout_seed, len(self.lstms) + 1)
        for layer, seed in zip(self.lstms, seeds, strict=True):
            x = layer(dropout.dropout(x, self._rate, seed), mask)
        x = dropout.dropout(x, self._rate, last_seed)
        scores = ops.matmul(x, ops.transpose(self.output_weights))
        return scores + self.output_bias


class FrozenTaggingModel(keras.Model):
    """A frozen encoder and a tagger that is called with its activations.

    Checkpoint: bert/..., bilstm/...
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        layers: Sequence[int],
        num_classes: int,
        dtype: Any = None,
        attention: str = "bidirectional",
        **options: Any,
    ):
        """Creates the model.

        Args:
            config: the released hyperparameters.
            layers: numbers of the layers that are read: 0 is the embeddings, L
                the last one.
            num_classes: C.
            dtype: policy of the encoder.
            attention: see encoder.BertEncoder.
            **options: is_mixed, size, depth, rate and seed of BiLstmTagger.
        """
        super().__init__(dtype=dtype, autocast=False)
        self.config, self.num_classes = config, num_classes
        self._layer_numbers = list(layers)
        self.bert = encoder.make_encoder(
            config, dtype=dtype, attention=attention
        )
        self.bert.trainable = False
        self.bilstm = BiLstmTagger(
            num_layers=len(layers),
            hidden_size=config.hidden_size,
            num_classes=num_classes,
            **options,
        )
        self.built = True

    def activations(self, features: dict):
        """Maps features of [B, S] to float16 [B, S, layers, H]."""
        outputs = self.bert(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
        )
        states = [outputs.embedding_output, *outputs.all_encoder_layers]
        chosen = [ops.cast(states[i], "float16") for i in self._layer_numbers]
        return ops.stack(chosen, axis=2)

    def call(self, features: dict, dropout_seed=None):
        """Maps activations to logits; see BiLstmTagger."""
        return self.bilstm(features, dropout_seed=dropout_seed)
