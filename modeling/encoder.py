"""BERT's encoder: ids in, hidden states and the pooled first place out."""

from typing import Any, NamedTuple

import keras
from keras import ops

from foundation import errors
from modeling import dropout, layers, variables
from modeling.config import BertConfig

ATTENTIONS = ("bidirectional", "left_to_right")


class EncoderOutputs(NamedTuple):
    """All that heads and feature extraction read.

    sequence_output: float [B, S, H], the last layer; [B, R, H] where it was
        asked for R places of it.
    pooled_output: float [B, H] ([B, M, H] if M pooled positions were given),
        or None without a pooler.
    all_encoder_layers: L times float [B, S, H]; the last is sequence_output.
    embedding_output: float [B, S, H].
    """

    sequence_output: Any
    pooled_output: Any
    all_encoder_layers: tuple
    embedding_output: Any


class Pooler(keras.layers.Layer):
    """Takes a place, as a rule the first, through a dense layer and tanh.

    Checkpoint: bert/pooler/...
    """

    def __init__(self, path, size, *, make, dtype=None):
        """Makes the projection H -> H."""
        super().__init__(name="pooler", dtype=dtype, autocast=False)
        self.dense = layers.Dense(
            f"{path}/dense", size, size, make=make, dtype=self.dtype_policy
        )
        self.built = True

    def call(self, x):
        """Maps float [B, M, H] to the same shape."""
        rows = ops.reshape(x, (-1, ops.shape(x)[2]))
        shape = (-1, *ops.shape(x)[1:])
        return ops.reshape(ops.tanh(self.dense(rows)), shape)


class BertEncoder(keras.layers.Layer):
    """Encodes a batch of word pieces.

    1. embeddings
    2. L transformer blocks, the last of them at the places that are read
    3. pooler

    Checkpoint: bert/...
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        attention: str = "bidirectional",
        pooler: bool = True,
        recompute: bool = False,
        make: variables.Maker,
        dtype=None,
    ):
        """Makes all variables.

        Args:
            config: The released hyperparameters.
            attention: "bidirectional", or "left_to_right": a place does not
                see those after it.
            pooler: Whether there is a pooler (language models need none).
            recompute: Whether the backward pass computes each block again
                instead of keeping its activations in memory.
            make: Makes the variables.
            dtype: A Keras dtype policy, e.g. "mixed_bfloat16".
        """
        super().__init__(name="bert", dtype=dtype, autocast=False)
        if attention not in ATTENTIONS:
            raise errors.InputError(
                f"attention {attention!r} is none of: {', '.join(ATTENTIONS)}"
            )
        self.config = config
        self.attention = attention
        self.recompute = recompute
        options = {"make": make, "dtype": self.dtype_policy}
        self.embeddings = layers.Embeddings(
            "bert/embeddings", config, **options
        )
        self.blocks = [
            layers.TransformerBlock(
                f"bert/encoder/layer_{i}", config, **options
            )
            for i in range(config.num_hidden_layers)
        ]
        self.pooler = (
            Pooler("bert/pooler", config.hidden_size, **options)
            if pooler
            else None
        )
        self.built = True

    def call(
        self,
        input_ids,
        input_mask,
        segment_ids,
        position_ids=None,
        pooled_positions=None,
        dropout_seed=None,
        packed=False,
        positions=None,
    ) -> EncoderOutputs:
        """Encodes.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 = real, 0 = padding; instance numbers
                if packed.
            segment_ids: int32 [B, S].
            position_ids: int32 [B, S], or None for 0, 1, 2, ...
            pooled_positions: int32 [B, M], or None for the first place.
            dropout_seed: int32 [2], or None for inference.
            packed: Whether several instances share a row and must not see
                each other.
            positions: int32 [B, R], what is read of the last layer besides
                the pooled places (R may be 0), or None for all of it. Of other
                places the last block computes keys and values only.

        Returns:
            EncoderOutputs.
        """
        _check_ids(self.config, input_ids, input_mask, segment_ids)
        seeds = _seeds(dropout_seed, 1 + len(self.blocks))
        x = self.embeddings(input_ids, segment_ids, position_ids, seeds[0])
        bias = self._bias(input_mask, packed)
        shape = (-1, ops.shape(input_ids)[1], self.config.hidden_size)
        whole = self.blocks if positions is None else self.blocks[:-1]
        states = self._run_whole(whole, x, bias, seeds[1:], shape)
        pooled = self._pooled_places(input_ids, pooled_positions)
        if positions is None:
            at_pooled = layers.gather(states[-1], pooled)  # [B, M, H]
        else:
            read = ops.concatenate([pooled, ops.cast(positions, "int32")], 1)
            bias = self._bias(input_mask, packed, read)
            last = self._run_last_at(read, states[-1], bias, seeds[-1])
            number = ops.shape(pooled)[1]
            at_pooled = last[:, :number]
            states.append(last[:, number:])
        pooled = self._pool(at_pooled, is_first=pooled_positions is None)
        return EncoderOutputs(states[-1], pooled, tuple(states[1:]), states[0])

    def _bias(self, input_mask, packed, positions=None):
        return layers.attention_bias(
            input_mask,
            left_to_right=self.attention == "left_to_right",
            packed=packed,
            positions=positions,
        )

    def _run_whole(self, blocks, x, bias, seeds, shape):
        """Maps float [T, H] to x and each block's, float [B, S, H]."""
        states = [x]
        for block, seed in zip(blocks, seeds[: len(blocks)], strict=True):
            x = self._run(block, x, x, bias, seed)
            states.append(x)
        return [ops.reshape(state, shape) for state in states]

    def _run_last_at(self, positions, states, bias, seed):
        """Runs the last block at [B, R] of [B, S, H]; returns [B, R, H]."""
        size = self.config.hidden_size
        x = ops.reshape(layers.gather(states, positions), (-1, size))
        seen = ops.reshape(states, (-1, size))
        x = self._run(self.blocks[-1], x, seen, bias, seed)
        return ops.reshape(x, (-1, ops.shape(positions)[1], size))

    def _run(self, block, x, seen, bias, seed):
        """Runs one block, remembering its input only if so asked."""

        def run(x, seen):
            return block(x, seen, bias, dropout_seed=seed)

        # Explicit seeds make the second computation the same as the first.
        return keras.remat(run)(x, seen) if self.recompute else run(x, seen)

    def _pooled_places(self, input_ids, positions):
        """Returns int32 [B, M]: those given or the first; none to no pooler."""
        if self.pooler is None:
            positions = input_ids[:, :0]
        elif positions is None:
            positions = ops.zeros_like(input_ids[:, :1])
        return ops.cast(positions, "int32")

    def _pool(self, x, *, is_first: bool):
        """Maps float [B, M, H] to the same shape, or [B, H] of the first."""
        if self.pooler is None:
            return None
        x = self.pooler(x)
        return x[:, 0] if is_first else x


def _seeds(dropout_seed, count: int) -> list:
    """Derives one seed per part, or None for each."""
    if dropout_seed is None:
        return [None] * count
    return [dropout.fold_in(dropout_seed, i) for i in range(count)]


def _check_ids(config: BertConfig, input_ids, *others) -> None:
    """Refuses, at the door, what could only fail far inside."""
    shape = tuple(input_ids.shape)
    if len(shape) != 2:
        raise errors.InputError(f"input_ids must be [B, S], but are {shape}")
    longest = config.max_position_embeddings
    if shape[1] is not None and shape[1] > longest:
        raise errors.InputError(
            f"sequences of {shape[1]} pieces are longer than the model's "
            f"max_position_embeddings {longest}"
        )
    for ids in (input_ids, *others):
        other = tuple(ids.shape)
        if len(other) != 2 or any(
            a != b and None not in (a, b)
            for a, b in zip(shape, other, strict=True)
        ):
            raise errors.InputError(
                "input_ids, input_mask and segment_ids differ in shape: "
                f"{shape} and {other}"
            )
        if not keras.backend.standardize_dtype(ids.dtype).startswith("int"):
            raise errors.InputError(
                f"ids and masks must be integers, but one is {ids.dtype}"
            )


def make_encoder(config: BertConfig, **options: Any) -> BertEncoder:
    """Makes an encoder without a head; `options` are attention and dtype."""
    make = variables.Maker(stddev=config.initializer_range, seed=0)
    return BertEncoder(config, pooler=False, make=make, **options)
