"""The heads on the encoder. Logits are float32 whatever the compute dtype."""

from keras import ops

from modeling import dropout, layers, variables
from modeling.config import BertConfig


class MaskedLmHead(layers.Layer):
    """Predicts the token at each given position.

    1. dense H -> H, activation, LayerNorm
    2. product with the word embeddings (tied) + bias

    Checkpoint: cls/predictions/...
    """

    def __init__(self, config: BertConfig, make: variables.Maker):
        """Creates the transform and the bias."""
        path, size = "cls/predictions", config.hidden_size
        super().__init__(path, make)
        self.dense = layers.Dense(
            f"{path}/transform/dense",
            size,
            size,
            make,
            activation=config.hidden_act,
        )
        self.layer_norm = layers.LayerNorm(
            f"{path}/transform/LayerNorm", size, make
        )
        self.output_bias = make.zeros(
            f"{path}/output_bias", (config.vocab_size,)
        )

    def call(self, x, table):
        """Maps float [B, P, H] and the word embeddings to float32 [B, P, V]."""
        x = self.layer_norm(self.dense(x))
        *leading, size = layers.shape_of(x)
        table = ops.cast(table, self.compute_dtype)  # [V, H]
        x = ops.matmul(ops.reshape(x, (-1, size)), ops.transpose(table))
        scores = ops.reshape(x, (*leading, table.shape[0]))
        return ops.cast(scores, "float32") + self.output_bias


class ScoreHead(layers.Layer):
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
        make: variables.Maker,
        *,
        rate: float = 0.0,
    ):
        """Creates the weights and the bias.

        Args:
            scope: the released name up to the variable, "" or ending in "/".
            outputs: the number of scores.
            inputs: H, the size of the input.
            make: creates the variables.
            rate: dropout rate of the input.
        """
        super().__init__(scope.rstrip("/") or "classifier", make)
        self.rate = rate
        self.output_weights = make.normal(
            f"{scope}output_weights", (outputs, inputs)
        )
        self.output_bias = make.zeros(f"{scope}output_bias", (outputs,))

    def call(self, x, dropout_seed=None):
        """Maps float [..., H] to float32 [..., outputs]."""
        x = dropout.dropout(x, self.rate, dropout_seed)
        x = ops.cast(x, "float32")
        scores = ops.matmul(x, ops.transpose(self.output_weights))
        return scores + self.output_bias
