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

    sequence_output: float [B, S, H], the last layer; [B, P, H] if
        output_positions were given.
    pooled_output: float [B, H] ([B, M, H] if pooled_positions were given), or
        None without a pooler.
    all_encoder_layers: L times float [B, S, H]; the last is sequence_output.
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

    recompute_choices = "none", "attention", "all"

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
        self.attention = _checked(attention)
        if recompute not in self.recompute_choices:
            raise errors.InputError(
                f"recompute {recompute!r} is none of: "
                + ", ".join(self.recompute_choices)
            )
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
        output_positions=None,
        attention=None,
    ) -> EncoderOutputs:
        """Encodes.

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
            output_positions: int32 [B, P], the positions of sequence_output (P
                may be 0), or None for all. The last block then computes these
                and the pooled positions only; the others serve as keys and
                values.
            attention: one of ATTENTIONS, or None for the model's own.
        """
        _check_ids(self.config, input_ids, input_mask, segment_ids)
        seed, *seeds = dropout.split(dropout_seed, 1 + len(self.blocks))
        x = self.embeddings(input_ids, segment_ids, position_ids, seed)
        causal = _checked(attention or self.attention) == "left_to_right"
        bias = layers.attention_bias(
            input_mask, left_to_right=causal, packed=packed
        )
        states = [x]
        for block, seed in zip(self.blocks[:-1], seeds[:-1], strict=True):
            x = self._run(block, x, x, bias, seed)
            states.append(x)

        if self.pooler is None:
            pooled = input_ids[:, :0]
        elif pooled_positions is None:
            pooled = ops.zeros_like(input_ids[:, :1])
        else:
            pooled = pooled_positions
        pooled = ops.cast(pooled, "int32")  # [B, M]
        if output_positions is None:
            x = self._run(self.blocks[-1], x, x, bias, seeds[-1])
            at_pooled = layers.gather(x, pooled)  # [B, M, H]
        else:
            output_positions = ops.cast(output_positions, "int32")
            queries = ops.concatenate([pooled, output_positions], axis=1)
            bias = layers.attention_bias(
                input_mask,
                left_to_right=causal,
                packed=packed,
                query_positions=queries,
            )
            at_queries = layers.gather(x, queries)
            x = self._run(self.blocks[-1], at_queries, x, bias, seeds[-1])
            count = ops.shape(pooled)[1]
            at_pooled, x = x[:, :count], x[:, count:]
        states.append(x)

        pooled_output = None
        if self.pooler is not None:
            pooled_output = self.pooler(at_pooled)
            if pooled_positions is None:
                pooled_output = pooled_output[:, 0]
        return EncoderOutputs(x, pooled_output, tuple(states[1:]), states[0])

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


def _checked(attention: str) -> str:
    """Returns a kind of attention; raises InputError if there is no such."""
    if attention not in ATTENTIONS:
        raise errors.InputError(
            f"attention {attention!r} is none of: {', '.join(ATTENTIONS)}"
        )
    return attention


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
