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
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from foundation import fusion
from modeling import dropout, variables
from modeling.config import LAYER_NORM_EPSILON, BertConfig

# ----------------------------------------------------------------------
# What stands behind the first product of feed-forward layers and heads.


def gelu(x):
    """Computes the tanh form of GELU, the released activation.

    https://github.com/google-research/bert/blob/master/modeling.py#L264
    """
    # 0.5 (1 + tanh z) = sigmoid(2 z), and c (x + 0.044715 x^3) needs no power:
    # six passes over memory instead of nine.
    c = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (c + 0.044715 * c * ops.square(x)))


def gelu_erf(x):
    """Computes the error-function form of GELU, Hugging Face's "gelu"."""
    return (0.5 * x) * (1.0 + ops.erf(x * math.sqrt(0.5)))


def gelu_fused(x):
    """Computes the same as gelu, as TensorFlow fuses it with a product.

    It does so where no gradient is asked for; elsewhere it has more passes.
    """
    return ops.gelu(x, approximate=True)


BY_NAME = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


# ----------------------------------------------------------------------
# What a layer does around a product with a matrix, as pure functions.
#
# Each is a whole that fusion.part may have compiled: many cheap operations on
# one tensor, which cost passes over memory rather than arithmetic.


def add_bias(x, bias):
    """Adds float32 [N] to float [..., N] in the latter's dtype."""
    # Not +: on TensorFlow, only ops.add makes of it the addition of a bias
    # that is fused with the product and GELU.
    return ops.add(x, ops.cast(bias, x.dtype))


def add_bias_and_scale(x, bias, *, scale):
    """Returns (x + bias) * scale; see add_bias."""
    return add_bias(x, bias) * scale


def normalize(x, gamma, beta, *, dtype):
    """Normalizes the last axis in float32: fusion's kernel "layer_norm".

    Args:
        x: float [..., H].
        gamma: float32 [H], the scale.
        beta: float32 [H], the shift.
        dtype: of the result.

    Returns:
        [..., H].
    """
    options = {"epsilon": LAYER_NORM_EPSILON, "dtype": dtype}
    return fusion.kernel("layer_norm", _normalize, x, gamma, beta, **options)


def _normalize(x, gamma, beta, *, epsilon, dtype):
    x = ops.cast(x, "float32")
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * gamma
    return ops.cast(beta + centered * scale, dtype)


def activate(product, bias, *, activation):
    """Returns activation(product + bias): [T, I], float32 [I] -> [T, I]."""
    return activation(add_bias(product, bias))


def end_half_block(product, bias, residual, gamma, beta, kept, *, rate):
    """Adds the bias, drops out, adds the residual and normalizes.

    Args:
        product: float [T, H].
        bias: float32 [H].
        residual: like product.
        gamma: float32 [H].
        beta: float32 [H].
        kept: bool [T, H] of dropout.keep, or None.
        rate: of dropout.

    Returns:
        Like product.
    """
    x = dropout.apply(add_bias(product, bias), kept, rate)
    return normalize(x + residual, gamma, beta, dtype=product.dtype)


def gradient_of_scores(gradient, probs, kept, *, rate):
    """Derives softmax and dropout after it by the scores; see attention.

    Args:
        gradient: float [B, N, R, S], of what dropout left.
        probs: like it, the result of softmax.
        kept: bool [B, N, R, S] of dropout.keep, or None.
        rate: of dropout.

    Returns:
        Like gradient.
    """
    by_probs = ops.cast(dropout.apply(gradient, kept, rate), "float32")
    probs = ops.cast(probs, "float32")
    weighted = probs * by_probs
    total = ops.sum(weighted, axis=-1, keepdims=True)
    return ops.cast(weighted - probs * total, gradient.dtype)


# ----------------------------------------------------------------------
# Functions that give their own derivative, on every backend of Keras.


def own_derivative(function: Callable[..., tuple[Any, Callable]]) -> Callable:
    """Has a function of tensors differentiated as it says.

    Args:
        function: maps tensors to (result, gradients); gradients maps the
            gradient of the result to those of the tensors, one or a tuple of
            one for each, None where there is none. Under jax.checkpoint it may
            not refer to what is traced around it: hand that over as tensors.

    Returns:
        A function of the same tensors that returns the result.
    """

    @ops.custom_gradient
    def call(*tensors):
        result, gradients = function(*tensors)

        def derive(*arguments, upstream=None):
            if upstream is None:  # How a backend passes it differs.
                (upstream,) = arguments
            return gradients(upstream)

        return result, derive

    return call


# ----------------------------------------------------------------------
# From queries, keys and values to the context: softmax and two products.
#
#     scores = query . key + bias
#     probs = softmax(scores), in float32; then in the dtype of the queries
#     context = dropout(probs) . value
#
# A framework keeps softmax's float32 result for the way back, the largest
# tensor
# of a layer. Here the way back is by the probabilities that the products saw,
# in
# the dtype of the queries, and drops out of them again. All within it is summed
# in float32, of the same rounded values on both sides, so that a row that sees
# a
# single place has a gradient of exactly zero.


def attend(query, key, value, bias, dropout_seed=None, *, rate=0.0):
    """Attends.

    Args:
        query: float [B, N, R, D], scaled; as a rule R = S.
        key: [B, N, D, S].
        value: [B, N, S, D].
        bias: float32 [B, 1, 1 or R, S]; it has no gradient.
        dropout_seed: int32 [2], or None for inference.
        rate: of dropout.

    Returns:
        [B, N, R, D], in the dtype of the queries.
    """
    if dropout_seed is None:
        return ops.matmul(_probabilities(query, key, bias), value)

    @own_derivative
    def call(query, key, value, bias, dropout_seed):
        probs = _probabilities(query, key, bias)
        kept = dropout.keep(probs, rate, dropout_seed)
        context = ops.matmul(dropout.drop(probs, kept, rate), value)

        def gradients(upstream):
            by_scores = fusion.part(
                gradient_of_scores,
                ops.matmul(upstream, _transposed(value)),
                probs,
                kept,
                rate=rate,
            )
            dropped = dropout.drop(probs, kept, rate)
            return (
                ops.matmul(by_scores, _transposed(key)),
                ops.matmul(_transposed(query), by_scores),
                ops.matmul(_transposed(dropped), upstream),
                None,
                None,
            )

        return context, gradients

    return call(query, key, value, bias, dropout_seed)


def _probabilities(query, key, bias):
    scores = ops.matmul(query, key)  # [B, N, R, S]
    return fusion.kernel("softmax", _softmax, scores, bias)


def _softmax(scores, bias):
    wide = ops.cast(scores, "float32")
    return ops.cast(ops.softmax(wide + bias), scores.dtype)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))


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
        return fusion.part(add_bias, self.product(x), self.bias)

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
        return normalize(x, self.gamma, self.beta, dtype=self.compute_dtype)


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
            add_bias_and_scale,
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
        context = attend(
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
            end_half_block,
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
        self.activation = BY_NAME[config.hidden_act]
        self.built = True

    def call(self, x, *, is_training: bool):
        """Maps float [T, H] to float [T, I]."""
        activation = self.activation
        if activation is gelu and not is_training:
            activation = gelu_fused
        return fusion.part(
            activate,
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


@own_derivative
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


# ----------------------------------------------------------------------
# Some places of each row, in place of all S.


def gather(x, positions):
    """Picks places.

    Args:
        x: any dtype, [B, S] or [B, S, H].
        positions: int32 or int64 [B, R], in any order.

    Returns:
        [B, R] or [B, R, H].
    """
    batch, length = ops.shape(x)[:2]
    offsets = ops.arange(batch, dtype="int32") * length
    rows = ops.reshape(x, (-1, *ops.shape(x)[2:]))
    indices = ops.cast(positions, "int32") + offsets[:, None]
    return ops.take(rows, indices, axis=0)


# ----------------------------------------------------------------------
# What is added to attention scores so that some places are not seen.
#
# Made once per batch and used by every layer that computes all places:
#
#     bidirectional   input_mask 1 1 1 0 -> 0 0 0 -10000, the same for all rows
#     left_to_right   besides, row i does not see the places after i
#     packed          row i sees the places with its own instance number only

# https://github.com/google-research/bert/blob/master/modeling.py#L709
# It fits into float16, and is enough to make a probability zero.
HIDDEN = -10000.0


def attention_bias(
    input_mask, *, left_to_right: bool, packed: bool, positions=None
):
    """Computes the float32 bias.

    Args:
        input_mask: int32 [B, S], 1 = real, 0 = padding. If packed, instance
            numbers 1, 2, ... and 0 for padding.
        left_to_right: Hides what comes later.
        packed: Hides other instances of the same row.
        positions: int32 [B, R], the rows that are wanted, or None for all.

    Returns:
        float32 [B, 1, 1, S] or, where rows differ, [B, 1, S or R, S].
    """
    columns = input_mask[:, None, None, :]
    if packed:
        rows = input_mask
        if positions is not None:
            rows = gather(rows, positions)
        rows = rows[:, None, :, None]
        visible = ops.logical_and(ops.equal(rows, columns), columns > 0)
    else:
        # As released: also a padding row sees the real places.
        visible = columns > 0  # [B, 1, 1, S]
    if left_to_right:
        order = ops.arange(ops.shape(input_mask)[1], dtype="int32")
        rows = order[None, :] if positions is None else positions
        is_past = order <= rows[:, None, :, None]
        visible = ops.logical_and(visible, is_past)
    return (1.0 - ops.cast(visible, "float32")) * HIDDEN
