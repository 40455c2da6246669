"""What stands on the encoder: one small layer per kind of output.

Logits are float32 whatever the compute dtype. The score tables
(`output_weights`) are [outputs, H], as released, and so multiplied transposed.
"""

import keras
from keras import ops

from modeling import dropout, layers, variables
from modeling.config import BertConfig


class MaskedLmHead(keras.layers.Layer):
    """Scores every vocabulary piece at the given places.

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
        """Makes the transform and the bias; borrows the embeddings."""
        super().__init__(name="predictions", dtype=dtype, autocast=False)
        path, size = "cls/predictions", config.hidden_size
        options = {"make": make, "dtype": self.dtype_policy}
        self.dense = layers.Dense(
            f"{path}/transform/dense", size, size, **options
        )
        self.activation = layers.BY_NAME[config.hidden_act]
        self.layer_norm = layers.LayerNorm(
            f"{path}/transform/LayerNorm", size, **options
        )
        self.output_bias = make.zeros(
            f"{path}/output_bias", (config.vocab_size,)
        )
        self.embeddings = embeddings
        self.built = True

    def call(self, x):
        """Maps float [T, H] to float32 [T, V]."""
        x = self.layer_norm(self.activation(self.dense(x)))
        scores = self.embeddings.vocabulary_scores(x)
        return ops.cast(scores, "float32") + self.output_bias


class ScoreHead(keras.layers.Layer):
    """Scores float [..., H] against a few learned rows, after dropout.

    The next-sentence head (cls/seq_relationship), the classifier (no scope),
    and the span head (cls/squad) of the released code are all this.

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
        """Makes the table and the bias.

        Args:
            scope: Released name up to the variable, "" or ending in "/".
            outputs: Number of scores.
            inputs: H, of what is scored.
            make: Makes the variables.
            rate: Of the dropout on the input, when training.
            dtype: A Keras dtype policy.
        """
        name = scope.rstrip("/").rpartition("/")[2] or "classifier"
        super().__init__(name=name, dtype=dtype, autocast=False)
        shape = (outputs, inputs)
        self.rate = rate
        self.output_weights = make.normal(f"{scope}output_weights", shape)
        self.output_bias = make.zeros(f"{scope}output_bias", (outputs,))
        self.built = True

    def call(self, x, dropout_seed=None):
        """Maps float [..., H] to float32 [..., outputs]."""
        x = dropout.dropout(x, self.rate, dropout_seed)
        # A few scores cost nothing in full precision.
        x = ops.cast(x, "float32")
        return ops.matmul(x, ops.transpose(self.output_weights)) + (
            self.output_bias
        )
