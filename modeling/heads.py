"""The heads on the encoder. Logits are float32 whatever the compute dtype."""

import keras
from keras import ops

from modeling import dropout, layers, variables
from modeling.config import BertConfig


class MaskedLmHead(keras.layers.Layer):
    """Predicts the token at each given position.

    1. dense H -> H, activation, LayerNorm
    2. product with the word embeddings (tied) + bias

    Checkpoint: cls/predictions/...
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        make: variables.Maker,
        embeddings: layers.Embeddings,
        dtype=None,
    ):
        """Creates the transform and the bias; uses the given embeddings."""
        super().__init__(name="predictions", dtype=dtype, autocast=False)
        path, size = "cls/predictions", config.hidden_size
        options = {"make": make, "dtype": self.dtype_policy}
        self.dense = layers.Dense(
            f"{path}/transform/dense",
            size,
            size,
            activation=config.hidden_act,
            **options,
        )
        self.layer_norm = layers.LayerNorm(
            f"{path}/transform/LayerNorm", size, **options
        )
        self.output_bias = make.zeros(
            f"{path}/output_bias", (config.vocab_size,)
        )
        self.embeddings = embeddings
        self.built = True

    def call(self, x):
        """Maps float [B, P, H] to float32 [B, P, V]."""
        x = self.layer_norm(self.dense(x))
        scores = self.embeddings.vocabulary_scores(x)
        return ops.cast(scores, "float32") + self.output_bias


class ScoreHead(keras.layers.Layer):
    """Applies dropout and a linear layer, in float32.

    The next-sentence head (cls/seq_relationship), the classifier (no scope)
    and the span head (cls/squad) of the released code.

    Checkpoint: {scope}output_weights [outputs, H], {scope}output_bias
    """

    def __init__(
        self,
        scope: str,
        outputs: int,
        inputs: int,
        *,
        make: variables.Maker,
        rate: float = 0.0,
        dtype=None,
    ):
        """Creates the weights and the bias.

        Args:
            scope: the released name up to the variable, "" or ending in "/".
            outputs: the number of scores.
            inputs: H, the size of the input.
            make: creates the variables.
            rate: of the dropout on the input.
            dtype: a Keras dtype policy.
        """
        name = scope.rstrip("/").rpartition("/")[2] or "classifier"
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.rate = rate
        self.output_weights = make.normal(
            f"{scope}output_weights", (outputs, inputs)
        )
        self.output_bias = make.zeros(f"{scope}output_bias", (outputs,))
        self.built = True

    def call(self, x, dropout_seed=None):
        """Maps float [..., H] to float32 [..., outputs]."""
        x = dropout.dropout(x, self.rate, dropout_seed)
        x = ops.cast(x, "float32")
        scores = ops.matmul(x, ops.transpose(self.output_weights))
        return scores + self.output_bias
