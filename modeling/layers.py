"""The layers of BERT's encoder (Vaswani et al., 2017; Devlin et al., 2019).

Shapes in modeling/ use these letters:

    B batch size            S sequence length       V vocabulary size
    H hidden size           N attention heads       D head size, H / N
    I intermediate size     L layers                C classes
    P predicted tokens      K choices               M pooled positions
    Q query positions: those that attend. Q = S except in the last layer, which
      only computes the positions that a head reads.

A `TransformerBlock` maps hidden states x [B, S, H] to new ones:

    query, key, value = x W_q + b_q, x W_k + b_k, x W_v + b_v, in N heads
    context = dropout(softmax(query key^T / sqrt(D) + attention_bias)) value
    x = LayerNorm(x + dropout(context W_o + b_o))
    x = LayerNorm(x + dropout(gelu(x W_1 + b_1) W_2 + b_2))

The first part of this file holds the formulas as pure functions, the second
part the layers, which own the weights. Each layer takes `path`, its scope in
the released checkpoints, and `make`, which creates its variables. Variables are
float32 and are cast to the compute dtype where they are used. Softmax and
LayerNorm always compute in float32.
"""

import keras
from keras import ops

from foundation import replacement
from modeling import dropout, variables
from modeling.config import LAYER_NORM_EPSILON, BertConfig

# Added to the scores of hidden positions, i.e. those that a query does not see.
# It fits into float16, and is low enough for a probability of zero.
# https://github.com/google-research/bert/blob/master/modeling.py#L709
HIDDEN_BIAS = -10000.0


ACTIVATIONS = {
    # The tanh approximation, as released:
    # https://github.com/google-research/bert/blob/master/modeling.py#L264
    "gelu": lambda x: ops.gelu(x, approximate=True),
    # x * Phi(x) exactly: "gelu" in transformers.
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


@replacement.replaceable
def add_bias(x, bias, *, activation: str = "linear"):
    """Computes activation(x + bias) of float [..., O] and float32 [O]."""
    # Not `+`: TensorFlow fuses the BiasAdd of ops.add with a matrix product.
    return ACTIVATIONS[activation](ops.add(x, ops.cast(bias, x.dtype)))


def layer_norm(x, gamma, beta, *, epsilon: float):
    """Normalizes the last axis to mean 0 and variance 1, scales and shifts it.

    Args:
        x: float [..., H].
        gamma: float32 [H], the scale.
        beta: float32 [H], the shift.
        epsilon: is added to the variance.
    """
    wide = ops.cast(x, "float32")
    centered = wide - ops.mean(wide, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    normalized = centered * ops.rsqrt(variance + epsilon)
    return ops.cast(gamma * normalized + beta, x.dtype)


@replacement.replaceable
def residual_norm(
    x, y, bias, gamma, beta, is_kept, *, rate: float, epsilon: float
):
    """Computes LayerNorm(x + dropout(y + bias)).

    Args:
        x: float [..., H].
        y: like x.
        bias: float32 [H].
        gamma: float32 [H].
        beta: float32 [H].
        is_kept: bool like x, or None without dropout; see dropout.draw.
        rate: dropout rate.
        epsilon: epsilon of LayerNorm.
    """
    x = x + dropout.keep(add_bias(y, bias), is_kept, rate=rate)
    return layer_norm(x, gamma, beta, epsilon=epsilon)


def softmax(scores, attention_bias):
    """Computes softmax(scores + attention_bias) over the last axis.

    Args:
        scores: float [B, N, Q, S].
        attention_bias: float32 [B, 1, 1 or Q, S].
    """
    wide = ops.cast(scores, "float32") + attention_bias
    return ops.cast(ops.softmax(wide, axis=-1), scores.dtype)


def attend(query, key, value, attention_bias, dropout_seed=None, *, rate=0.0):
    """Computes dropout(softmax(query key^T / sqrt(D) + bias)) value.

    Args:
        query: float [B, N, Q, D].
        key: float [B, N, S, D].
        value: float [B, N, S, D].
        attention_bias: float32 [B, 1, 1 or Q, S].
        dropout_seed: int32 [2], or None for inference.
        rate: dropout rate of the probabilities.

    Returns:
        float [B, N, Q, D].
    """
    # Scaling the queries is cheaper than scaling the scores.
    query = query * (query.shape[-1] ** -0.5)
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, Q, S]
    probabilities = softmax(scores, attention_bias)
    probabilities = dropout.dropout(probabilities, rate, dropout_seed)
    return ops.matmul(probabilities, value)


def attention_bias(
    input_mask, *, left_to_right: bool, packed: bool, query_positions=None
):
    """Computes what to add to scores: 0, or HIDDEN_BIAS at hidden positions.

        always          hides padding: input_mask 1 1 0 -> 0 0 HIDDEN_BIAS
        left_to_right   also hides the positions after that of the query
        packed          also hides positions with another instance number

    Args:
        input_mask: int32 [B, S], 1 = real, 0 = padding. If packed, instance
            numbers 1, 2, ... and 0 for padding.
        left_to_right: whether later positions are hidden.
        packed: whether other instances in the same row are hidden.
        query_positions: int32 [B, Q], or None for all positions in order.

    Returns:
        float32 [B, 1, 1, S] if all queries see the same positions, otherwise
        [B, 1, Q, S].
    """
    keys = input_mask[:, None, None, :]
    # As released, queries at padding positions see the real positions, too.
    is_visible = keys > 0  # [B, 1, 1, S]
    if packed:
        queries = input_mask
        if query_positions is not None:
            queries = gather(input_mask, query_positions)
        is_same = ops.equal(queries[:, None, :, None], keys)
        is_visible = ops.logical_and(is_visible, is_same)  # [B, 1, Q, S]
    if left_to_right:
        order = ops.arange(ops.shape(input_mask)[1], dtype="int32")
        queries = order[None] if query_positions is None else query_positions
        is_past = order <= queries[:, None, :, None]
        is_visible = ops.logical_and(is_visible, is_past)
    return (1.0 - ops.cast(is_visible, "float32")) * HIDDEN_BIAS


def shape_of(x) -> tuple:
    """Returns the shape of x for ops.reshape: -1 is the only unknown size.

    TensorFlow computes each unknown size of ops.shape with five operations,
    which were a fifth of all in the graph of a step.
    """
    shape = tuple(x.shape)
    # Of several unknown sizes, or without elements, -1 would be ambiguous.
    if shape.count(None) > 1 or 0 in shape:
        return ops.shape(x)
    return tuple(-1 if size is None else size for size in shape)


def gather(x, positions):
    """Selects positions, integers [B, Q], of x [B, S] or [B, S, H]."""
    batch, length = ops.shape(x)[:2]
    offsets = ops.arange(batch, dtype="int32") * length
    rows = ops.reshape(x, (-1, *x.shape[2:]))
    indices = ops.cast(positions, "int32") + offsets[:, None]
    return ops.take(rows, indices, axis=0)


class Layer(keras.layers.Layer):
    """A layer that creates its variables at once and casts by itself."""

    def __init__(self, path: str, make: variables.Maker):
        """Takes the scope in the checkpoint and the maker of variables."""
        name = path.rpartition("/")[2]
        super().__init__(name=name, dtype=make.dtype, autocast=False)
        self.built = True


class Dense(Layer):
    """Computes activation(x W + b).

    Checkpoint: {path}/kernel, {path}/bias
    """

    def __init__(
        self,
        path: str,
        inputs: int,
        outputs: int,
        make: variables.Maker,
        *,
        activation: str = "linear",
    ):
        """Creates the kernel [inputs, outputs] and the bias [outputs]."""
        super().__init__(path, make)
        self.activation = activation
        self.kernel = make.normal(f"{path}/kernel", (inputs, outputs))
        self.bias = make.zeros(f"{path}/bias", (outputs,))

    def call(self, x):
        """Maps float [..., inputs] to float [..., outputs]."""
        y = add_bias(self.product(x), self.bias, activation=self.activation)
        return ops.reshape(y, (*shape_of(x)[:-1], self.kernel.shape[1]))

    def product(self, x):
        """Computes x W as one matrix: [B, S, inputs] gives [B * S, outputs]."""
        x = ops.reshape(x, (-1, self.kernel.shape[0]))
        return ops.matmul(x, ops.cast(self.kernel, self.compute_dtype))


class LayerNorm(Layer):
    """Normalizes the last axis; see `layer_norm`.

    Checkpoint: {path}/gamma, {path}/beta
    """

    def __init__(self, path: str, size: int, make: variables.Maker):
        """Creates gamma and beta [size]."""
        super().__init__(path, make)
        self.gamma = make.ones(f"{path}/gamma", (size,))
        self.beta = make.zeros(f"{path}/beta", (size,))

    def call(self, x):
        """Maps float [..., H] to the same shape in the compute dtype."""
        return ops.cast(
            layer_norm(x, self.gamma, self.beta, epsilon=LAYER_NORM_EPSILON),
            self.compute_dtype,
        )


class ResidualOutput(Layer):
    """Ends each half of a block: LayerNorm(x + dropout(y W + b)).

    Checkpoint: bert/encoder/layer_N/{attention/,}output/...
    """

    def __init__(
        self, path: str, inputs: int, config: BertConfig, make: variables.Maker
    ):
        """Creates the projection to H and the LayerNorm."""
        super().__init__(path, make)
        size = config.hidden_size
        self.rate = config.hidden_dropout_prob
        self.dense = Dense(f"{path}/dense", inputs, size, make)
        self.layer_norm = LayerNorm(f"{path}/LayerNorm", size, make)

    def call(self, x, y, dropout_seed=None):
        """Maps float [B, Q, H] and [B, Q, inputs] to float [B, Q, H]."""
        y = self.dense.product(y)  # [B * Q, H]
        z = residual_norm(
            # With shape_of(y), TensorFlow removes this reshape of inference
            # and adds x in the product, which takes 4 % longer.
            ops.reshape(x, ops.shape(y)),
            y,
            self.dense.bias,
            self.layer_norm.gamma,
            self.layer_norm.beta,
            dropout.draw(y, self.rate, dropout_seed),
            rate=self.rate,
            epsilon=LAYER_NORM_EPSILON,
        )
        return ops.reshape(z, shape_of(x))


class Embeddings(Layer):
    """Represents each token by its word, its sentence and its position.

    1. word + token type + position embedding
    2. LayerNorm
    3. dropout

    Checkpoint: bert/embeddings/...
    """

    def __init__(self, path: str, config: BertConfig, make: variables.Maker):
        """Creates the three tables and the LayerNorm."""
        super().__init__(path, make)
        self.rate = config.hidden_dropout_prob

        def table(name, rows):
            return make.normal(f"{path}/{name}", (rows, config.hidden_size))

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table(
            "token_type_embeddings", config.type_vocab_size
        )
        self.position_embeddings = table(
            "position_embeddings", config.max_position_embeddings
        )
        self.layer_norm = LayerNorm(
            f"{path}/LayerNorm", config.hidden_size, make
        )

    def call(self, input_ids, segment_ids, position_ids, dropout_seed=None):
        """Embeds tokens.

        Args:
            input_ids: int32 [B, S].
            segment_ids: int32 [B, S].
            position_ids: int32 [B, S], or None for 0, 1, 2, ... in every row.
            dropout_seed: int32 [2], or None for inference.

        Returns:
            float [B, S, H].
        """
        words = ops.take(self.word_embeddings, input_ids, axis=0)
        # A product with a one-hot matrix: gathering from 2 rows is slower.
        types = ops.convert_to_tensor(self.token_type_embeddings)
        one_hot = ops.one_hot(segment_ids, types.shape[0], dtype=types.dtype)
        types = ops.matmul(one_hot, types)
        if position_ids is None:
            length = ops.shape(input_ids)[1]
            positions = self.position_embeddings[:length]  # [S, H]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        x = self.layer_norm(words + types + positions)  # [B, S, H]
        return dropout.dropout(x, self.rate, dropout_seed)


class SelfAttention(Layer):
    """Mixes the values of the visible positions for each query position.

    1. query, key and value projections, each split into N heads
    2. context = dropout(softmax(query key^T / sqrt(D) + bias)) value
    3. the contexts of all heads, concatenated

    Checkpoint: bert/encoder/layer_N/attention/self/...
    """

    def __init__(self, path: str, config: BertConfig, make: variables.Maker):
        """Creates the three projections."""
        super().__init__(path, make)
        self.num_heads = config.num_attention_heads
        self.rate = config.attention_probs_dropout_prob
        size = config.hidden_size
        self.query = Dense(f"{path}/query", size, size, make)
        self.key = Dense(f"{path}/key", size, size, make)
        self.value = Dense(f"{path}/value", size, size, make)

    def call(
        self, x, memory, attention_bias, dropout_seed=None, *, recompute=False
    ):
        """Computes the output of all heads.

        Args:
            x: float [B, Q, H], the hidden states of the query positions.
            memory: float [B, S, H], those of all positions: keys and values.
            attention_bias: float32 [B, 1, 1 or Q, S], added to the scores.
            dropout_seed: int32 [2], or None for inference.
            recompute: whether the backward pass computes the scores and the
                probabilities, float [B, N, Q, S], again.

        Returns:
            float [B, Q, H].
        """
        query, key, value = (
            self.split_heads(y)
            for y in (self.query(x), self.key(memory), self.value(memory))
        )

        def attend_all(query, key, value):
            return attend(
                query, key, value, attention_bias, dropout_seed, rate=self.rate
            )

        # The explicit seed repeats the masks of dropout.
        attend_all = keras.remat(attend_all) if recompute else attend_all
        context = attend_all(query, key, value)  # [B, N, Q, D]
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, Q, N, D]
        return ops.reshape(context, shape_of(x))

    def split_heads(self, x):
        """Maps float [B, S, H] to float [B, N, S, D]."""
        *rows, size = shape_of(x)
        shape = (*rows, self.num_heads, size // self.num_heads)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))


class TransformerBlock(Layer):
    """One of the L layers: attention, then a feed-forward network.

    Checkpoint: bert/encoder/layer_N/...
    """

    def __init__(self, path: str, config: BertConfig, make: variables.Maker):
        """Creates both halves."""
        super().__init__(path, make)
        size, wide = config.hidden_size, config.intermediate_size
        self.attention = SelfAttention(f"{path}/attention/self", config, make)
        self.attention_output = ResidualOutput(
            f"{path}/attention/output", size, config, make
        )
        self.intermediate = Dense(
            f"{path}/intermediate/dense",
            size,
            wide,
            make,
            activation=config.hidden_act,
        )
        self.block_output = ResidualOutput(f"{path}/output", wide, config, make)

    def call(
        self,
        x,
        memory,
        attention_bias,
        dropout_seed=None,
        *,
        recompute_attention=False,
    ):
        """Maps float [B, Q, H] to the same shape; Args as in SelfAttention."""
        seeds = dropout.split(dropout_seed, 3)
        context = self.attention(
            x, memory, attention_bias, seeds[0], recompute=recompute_attention
        )
        x = self.attention_output(x, context, seeds[1])
        return self.block_output(x, self.intermediate(x), seeds[2])
