"""The parts of BERT's encoder, from the embeddings to one transformer block.

The letters of all shapes in modeling/:

    B batch   S sequence length   H hidden size   N heads   D head size (H / N)
    I intermediate size   V vocabulary   P predictions per sequence
    C classes   K choices (multiple choice)   L layers   T = B * S
    R places that are read, of the last layer   M of them for the pooler

Between embeddings and heads the activations are matrices [T, H], or [B * R, H]:
products with weights are then plain matrix products. Every layer takes the
released name of its checkpoint scope as `path` and makes its variables by a
`variables.Maker`. Variables are float32; a layer casts them to its compute
dtype where it uses them. Softmax and LayerNorm sum in float32 whatever the
compute dtype.
"""

import math

import keras
from keras import ops

import fusion
from modeling import (
    activations,
    attention,
    derivatives,
    dropout,
    parts,
    variables,
)
from modeling.config import BertConfig


class Dense(keras.layers.Layer):
    """Multiplies by a matrix and adds a bias.

    Checkpoint: {path}/kernel, {path}/bias
    """

    def __init__(self, path, inputs, outputs, *, make, dtype=None):
        """Makes kernel [inputs, outputs] and bias [outputs]."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        self.kernel = make.normal(f"{path}/kernel", (inputs, outputs))
        self.bias = make.zeros(f"{path}/bias", (outputs,))
        self.built = True

    def call(self, x):
        """Maps float [..., inputs] to float [..., outputs]."""
        return fusion.part(parts.add_bias, self.product(x), self.bias)

    def product(self, x):
        """Maps the same without the bias."""
        return ops.matmul(x, ops.cast(self.kernel, self.compute_dtype))


class LayerNorm(keras.layers.Layer):
    """Normalizes the last axis to mean 0 and variance 1, in float32.

    Checkpoint: {path}/gamma, {path}/beta
    """

    def __init__(self, path, size, *, make, dtype=None):
        """Makes gamma and beta [size]."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        self.gamma = make.ones(f"{path}/gamma", (size,))
        self.beta = make.zeros(f"{path}/beta", (size,))
        self.built = True

    def call(self, x):
        """Maps float [..., H] to the same shape in the compute dtype."""
        return parts.normalize(
            x, self.gamma, self.beta, dtype=self.compute_dtype
        )


class Embeddings(keras.layers.Layer):
    """Sums what a piece is, which sentence it is in and where it stands.

    1. word + token type + position embedding
    2. LayerNorm
    3. dropout

    Checkpoint: bert/embeddings/...
    """

    def __init__(self, path, config: BertConfig, *, make, dtype=None):
        """Makes the three tables and the normalization."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        size = config.hidden_size
        self.rate = config.hidden_dropout_prob
        self.word_embeddings = make.normal(
            f"{path}/word_embeddings", (config.vocab_size, size)
        )
        self.token_type_embeddings = make.normal(
            f"{path}/token_type_embeddings", (config.type_vocab_size, size)
        )
        self.position_embeddings = make.normal(
            f"{path}/position_embeddings",
            (config.max_position_embeddings, size),
        )
        self.layer_norm = LayerNorm(
            f"{path}/LayerNorm", size, make=make, dtype=self.dtype_policy
        )
        self.built = True

    def call(self, input_ids, segment_ids, position_ids, dropout_seed=None):
        """Embeds.

        Args:
            input_ids: int32 [B, S].
            segment_ids: int32 [B, S].
            position_ids: int32 [B, S], or None for 0, 1, 2, ... in every row.
            dropout_seed: int32 [2], or None for inference.

        Returns:
            float [T, H].
        """
        length, size = ops.shape(input_ids)[1], self.word_embeddings.shape[1]
        if position_ids is None:
            positions = self.position_embeddings[:length]  # [S, H]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        x = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, H]
        x = x + self._segments(segment_ids) + positions
        x = ops.reshape(x, (-1, size))  # [T, H]
        return dropout.dropout(self.layer_norm(x), self.rate, dropout_seed)

    def _segments(self, segment_ids):
        """Looks up [B, S, H]; a product, as gathering from 2 rows is slow."""
        table = ops.convert_to_tensor(self.token_type_embeddings)
        one_hot = ops.one_hot(segment_ids, table.shape[0], dtype=table.dtype)
        return ops.matmul(one_hot, table)

    def vocabulary_scores(self, x):
        """Multiplies float [T, H] by the transposed word table: [T, V]."""
        table = ops.convert_to_tensor(self.word_embeddings)
        return _times_rows(x, ops.cast(table, self.compute_dtype))


class SelfAttention(keras.layers.Layer):
    """Lets every position gather from those that it may see.

    1. query, key and value projections, split into N heads
    2. scores = query . key / sqrt(D) + mask
    3. probabilities = softmax(scores), dropout
    4. context = probabilities . value, heads side by side

    Checkpoint: bert/encoder/layer_N/attention/self/...
    """

    def __init__(self, path, config: BertConfig, *, make, dtype=None):
        """Makes the three projections."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        self.heads = config.num_attention_heads
        self.head_size = config.head_size
        self.rate = config.attention_probs_dropout_prob
        size = config.hidden_size
        options = {"make": make, "dtype": self.dtype_policy}
        self.query = Dense(f"{path}/query", size, size, **options)
        self.key = Dense(f"{path}/key", size, size, **options)
        self.value = Dense(f"{path}/value", size, size, **options)
        self.built = True

    def call(self, x, seen, attention_bias, dropout_seed=None):
        """Attends.

        Args:
            x: float [B * R, H], the places that gather; as a rule all S.
            seen: float [T, H], those they gather from; x itself, if all.
            attention_bias: float32 [B, 1, 1 or R, S], added to the scores.
            dropout_seed: int32 [2], or None for inference.

        Returns:
            float [B * R, H].
        """
        batch, *_, length = ops.shape(attention_bias)
        shape = (-1, length, self.heads, self.head_size)
        # Scaling the queries is the smaller product; 1/8 for D = 64 is exact.
        query = fusion.part(
            parts.add_bias_and_scale,
            self.query.product(x),
            self.query.bias,
            scale=1.0 / math.sqrt(self.head_size),
        )
        query = ops.reshape(query, (batch, -1, *shape[2:]))
        query = ops.transpose(query, (0, 2, 1, 3))
        key = ops.transpose(ops.reshape(self.key(seen), shape), (0, 2, 3, 1))
        value = ops.transpose(
            ops.reshape(self.value(seen), shape), (0, 2, 1, 3)
        )
        context = attention.attend(
            query, key, value, attention_bias, dropout_seed, rate=self.rate
        )
        context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, (-1, self.heads * self.head_size))


class ResidualOutput(keras.layers.Layer):
    """Ends each half of a block: projects, adds the residual, normalizes.

    Checkpoint: bert/encoder/layer_N/{attention/output,output}/...
    """

    def __init__(self, path, inputs, config: BertConfig, *, make, dtype=None):
        """Makes the projection to H and the normalization."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        self.rate = config.hidden_dropout_prob
        options = {"make": make, "dtype": self.dtype_policy}
        self.dense = Dense(
            f"{path}/dense", inputs, config.hidden_size, **options
        )
        self.layer_norm = LayerNorm(
            f"{path}/LayerNorm", config.hidden_size, **options
        )
        self.built = True

    def call(self, x, residual, dropout_seed=None):
        """Maps float [T, inputs] and the residual [T, H] to float [T, H]."""
        product = self.dense.product(x)
        return fusion.part(
            parts.end_half_block,
            product,
            self.dense.bias,
            residual,
            self.layer_norm.gamma,
            self.layer_norm.beta,
            dropout.keep(product, self.rate, dropout_seed),
            rate=self.rate,
        )


class FeedForward(keras.layers.Layer):
    """Widens to I and applies the activation.

    Checkpoint: bert/encoder/layer_N/intermediate/...
    """

    def __init__(self, path, config: BertConfig, *, make, dtype=None):
        """Makes the projection to I."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        self.dense = Dense(
            f"{path}/dense",
            config.hidden_size,
            config.intermediate_size,
            make=make,
            dtype=self.dtype_policy,
        )
        self.activation = activations.BY_NAME[config.hidden_act]
        self.built = True

    def call(self, x, *, is_training: bool):
        """Maps float [T, H] to float [T, I]."""
        activation = self.activation
        if activation is activations.gelu and not is_training:
            activation = activations.gelu_fused
        return fusion.part(
            parts.activate,
            self.dense.product(x),
            self.dense.bias,
            activation=activation,
        )


class TransformerBlock(keras.layers.Layer):
    """Is one of the L layers: attention, then feed-forward, both residual.

    Checkpoint: bert/encoder/layer_N/...
    """

    def __init__(
        self,
        path: str,
        config: BertConfig,
        *,
        make: variables.Maker,
        dtype=None,
    ):
        """Makes the block's four parts."""
        super().__init__(name=_name(path), dtype=dtype, autocast=False)
        options = {"make": make, "dtype": self.dtype_policy}
        self.attention = SelfAttention(
            f"{path}/attention/self", config, **options
        )
        self.attention_output = ResidualOutput(
            f"{path}/attention/output", config.hidden_size, config, **options
        )
        self.intermediate = FeedForward(
            f"{path}/intermediate", config, **options
        )
        self.output_dense = ResidualOutput(
            f"{path}/output", config.intermediate_size, config, **options
        )
        self.built = True

    def call(self, x, seen, attention_bias, dropout_seed=None):
        """Maps float [B * R, H] to the same; see SelfAttention."""
        seeds = [None, None, None]
        if dropout_seed is not None:
            seeds = [dropout.fold_in(dropout_seed, i) for i in range(3)]
        context = self.attention(x, seen, attention_bias, seeds[0])
        x = self.attention_output(context, x, seeds[1])
        wide = self.intermediate(x, is_training=dropout_seed is not None)
        return self.output_dense(wide, x, seeds[2])


@derivatives.own_derivative
def _times_rows(x, table):
    """Multiplies [T, H] by the transpose of [V, H].

    The derived gradient of the table would be a product [H, V] and its
    transpose, a pass over the largest matrix of the model.
    """

    def gradients(upstream):
        by_table = ops.matmul(ops.transpose(upstream), x)
        return ops.matmul(upstream, table), by_table

    return ops.matmul(x, ops.transpose(table)), gradients


def _name(path: str) -> str:
    """Returns the last part of a path, the layer's own name."""
    return path.rpartition("/")[2]
