"""BERT's encoder: token ids in, hidden states and the pooled output out."""

import itertools
from typing import Any, NamedTuple

import keras
from keras import ops

from foundation import errors
from modeling import dropout, layers, variables
from modeling.config import BertConfig

ATTENTIONS = ("bidirectional", "left_to_right")


class EncoderOutputs(NamedTuple):
    """The outputs of an encoder.

    sequence_output: float [B, S, H], the last layer; [B, P, H] of chosen
        positions.
    pooled_output: float [B, H] ([B, M, H] if pooled_positions were given), or
        None without a pooler.
    all_encoder_layers: float [B, S, H] of the lower layers; the last of L is
        sequence_output.
    embedding_output: float [B, S, H].
    """

    sequence_output: Any
    pooled_output: Any
    all_encoder_layers: tuple
    embedding_output: Any


class BertEncoder(layers.Layer):
    """Encodes a batch of token sequences.

    1. embeddings
    2. L transformer blocks
    3. pooler: dense and tanh, by default at the first position

    Checkpoint: bert/...
    """

    def __init__(
        self,
        config: BertConfig,
        make: variables.Maker,
        *,
        attention: str = "bidirectional",
        pooler: bool = True,
        recompute: str = "none",
    ):
        """Creates all variables.

        Args:
            config: the released hyperparameters.
            make: creates the variables.
            attention: "bidirectional", or "left_to_right": no position sees
                those after it.
            pooler: whether there is a pooler (language models have none).
            recompute: what the backward pass computes again instead of keeping
                it in memory: "none", "attention", i.e. the tensors
                [B, N, Q, S], or "all", i.e. all but each block's inputs.
        """
        super().__init__("bert", make)
        self.config = config
        if attention not in ATTENTIONS:
            raise errors.InputError(
                f"attention {attention!r} is none of: {', '.join(ATTENTIONS)}"
            )
        self.attention = attention
        self.recompute = recompute
        self.embeddings = layers.Embeddings("bert/embeddings", config, make)
        self.blocks = [
            layers.TransformerBlock(f"bert/encoder/layer_{i}", config, make)
            for i in range(config.num_hidden_layers)
        ]
        self.pooler = None
        if pooler:
            size = config.hidden_size
            self.pooler = layers.Dense(
                "bert/pooler/dense", size, size, make, activation="tanh"
            )

    def call(
        self,
        input_ids,
        input_mask,
        segment_ids,
        position_ids=None,
        pooled_positions=None,
        dropout_seed=None,
        packed=False,
    ) -> EncoderOutputs:
        """Encodes all positions.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 = real, 0 = padding; instance numbers
                if packed.
            segment_ids: int32 [B, S].
            position_ids: int32 [B, S], or None for 0, 1, 2, ...
            pooled_positions: int32 [B, M], or None for the first position.
            dropout_seed: int32 [2], or None for inference.
            packed: whether several instances share a row and must not see
                each other.
        """
        states, bias, seed = self._lower_blocks(
            input_ids,
            input_mask,
            segment_ids,
            position_ids,
            dropout_seed,
            packed,
        )
        x = self._run(self.blocks[-1], states[-1], states[-1], bias, seed)
        pooled = self._pooled_positions(input_ids, pooled_positions)
        at_pooled = layers.gather(x, pooled)  # [B, M, H]
        return self._outputs(x, at_pooled, states, pooled_positions is None)

    def encode_positions(
        self,
        positions,
        input_ids,
        input_mask,
        segment_ids,
        position_ids=None,
        pooled_positions=None,
        dropout_seed=None,
        packed=False,
    ) -> EncoderOutputs:
        """Encodes chosen positions, int32 [B, P]; P may be 0.

        The last block computes these and the pooled positions only; the others
        serve as keys and values. The other arguments are those of `call`.
        """
        states, _, seed = self._lower_blocks(
            input_ids,
            input_mask,
            segment_ids,
            position_ids,
            dropout_seed,
            packed,
        )
        pooled = self._pooled_positions(input_ids, pooled_positions)
        positions = ops.cast(positions, "int32")
        queries = ops.concatenate([pooled, positions], axis=1)
        bias = layers.attention_bias(
            input_mask,
            left_to_right=self.attention == "left_to_right",
            packed=packed,
            query_positions=queries,
        )
        at_queries = layers.gather(states[-1], queries)
        x = self._run(self.blocks[-1], at_queries, states[-1], bias, seed)
        count = ops.shape(pooled)[1]
        at_pooled, x = x[:, :count], x[:, count:]
        return self._outputs(x, at_pooled, states, pooled_positions is None)

    def _lower_blocks(
        self, ids, input_mask, segment_ids, position_ids, dropout_seed, packed
    ):
        """Returns all states but the last, their bias, the last block's seed.

        The states are float [B, S, H] of the embeddings and each block.
        """
        _check_ids(self.config, ids, input_mask, segment_ids)
        seed, *seeds = dropout.split(dropout_seed, 1 + len(self.blocks))
        x = self.embeddings(ids, segment_ids, position_ids, seed)
        bias = layers.attention_bias(
            input_mask,
            left_to_right=self.attention == "left_to_right",
            packed=packed,
        )
        states = [x]
        for block, seed in zip(self.blocks[:-1], seeds[:-1], strict=True):
            x = self._run(block, x, x, bias, seed)
            states.append(x)
        return states, bias, seeds[-1]

    def _pooled_positions(self, input_ids, pooled_positions):
        """Returns int32 [B, M]: those given, the first, or none to pool."""
        if self.pooler is None:
            pooled_positions = input_ids[:, :0]
        elif pooled_positions is None:
            # Not [:, :1], whose size is not known if S is not.
            pooled_positions = ops.zeros_like(input_ids[:, 0])[:, None]
        return ops.cast(pooled_positions, "int32")

    def _outputs(self, x, at_pooled, states, is_first) -> EncoderOutputs:
        pooled_output = None
        if self.pooler is not None:
            pooled_output = self.pooler(at_pooled)
            if is_first:
                pooled_output = pooled_output[:, 0]
        return EncoderOutputs(x, pooled_output, (*states[1:], x), states[0])

    def _run(self, block, x, memory, bias, seed):
        if self.recompute != "all":
            again = self.recompute == "attention"
            return block(x, memory, bias, seed, recompute_attention=again)
        # The explicit seed repeats the masks of dropout.
        return keras.remat(lambda *xs: block(*xs, bias, seed))(x, memory)


def make_encoder(
    config: BertConfig, *, dtype=None, **options: Any
) -> BertEncoder:
    """Creates an encoder without a pooler; see BertEncoder for `options`."""
    make = variables.Maker(stddev=config.initializer_range, seed=0, dtype=dtype)
    return BertEncoder(config, make, pooler=False, **options)


def _check_ids(config: BertConfig, *ids) -> None:
    """Raises InputError unless all are integers of one shape [B, S]."""
    shape, longest = tuple(ids[0].shape), config.max_position_embeddings
    if len(shape) != 2:
        raise errors.InputError(f"input_ids must be [B, S], but are {shape}")
    if shape[1] is not None and shape[1] > longest:
        raise errors.InputError(
            f"sequences of {shape[1]} tokens are longer than the model's "
            f"max_position_embeddings {longest}"
        )
    for x in ids:
        pairs = itertools.zip_longest(shape, x.shape, fillvalue=0)
        if any(a != b and None not in (a, b) for a, b in pairs):
            raise errors.InputError(
                "input_ids, input_mask and segment_ids differ in shape: "
                f"{shape} and {tuple(x.shape)}"
            )
        if not keras.backend.standardize_dtype(x.dtype).startswith("int"):
            raise errors.InputError(
                f"ids and masks must be integers, but one is {x.dtype}"
            )
