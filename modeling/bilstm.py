"""The tagger of the paper's feature-based approach: a BiLSTM on activations."""

import keras
from keras import ops

from modeling import dropout, lstm, scalar_mix, variables


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
            self.mix = scalar_mix.ScalarMix("bilstm/mix", num_layers, make=make)
            inputs = hidden_size
        self.lstms = []
        for i in range(depth):
            self.lstms.append(
                lstm.BidirectionalLstm(
                    f"bilstm/lstm_{i}", inputs, size, seed=seed
                )
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
