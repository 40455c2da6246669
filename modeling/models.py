"""The encoder with its heads: one class per thing that BERT is used for.

Every model is called with a dict of features (records' names; others are
ignored) and, when training, an explicit dropout seed:

    outputs = model(features, dropout_seed=seed)
"""

from typing import Any, NamedTuple

import keras
from keras import ops

import errors
from modeling import dropout, encoder, heads, variables
from modeling.config import BertConfig

# Place of the head among the parts that get a seed folded from the model's.
_ENCODER, _HEAD = 0, 1


class PretrainingOutputs(NamedTuple):
    """What pre-training scores.

    masked_lm_logits: float32 [B, P, V], or [B, S, V] without positions.
    next_sentence_logits: float32 [B, 2] ([B, M, 2] if M places were given),
        or None without that head.
    encoder: EncoderOutputs.
    """

    masked_lm_logits: Any
    next_sentence_logits: Any
    encoder: encoder.EncoderOutputs


class SpanOutputs(NamedTuple):
    """What question answering scores: float32 [B, S] each."""

    start_logits: Any
    end_logits: Any


class PretrainingModel(keras.Model):
    """Has the two heads of pre-training: masked LM and next sentence."""

    def __init__(
        self,
        config: BertConfig,
        *,
        attention: str = "bidirectional",
        next_sentence: bool = True,
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the model.

        Args:
            config: The released hyperparameters.
            attention: "bidirectional" or "left_to_right".
            next_sentence: Whether there is a pooler with its head; a pure
                language model has none.
            recompute: Saves memory for time; see BertEncoder.
            seed: Of the initial weights.
            dtype: A Keras dtype policy, e.g. "mixed_bfloat16".
        """
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config,
            attention=attention,
            pooler=next_sentence,
            recompute=recompute,
            **options,
        )
        self.masked_lm = heads.MaskedLmHead(
            config, embeddings=self.bert.embeddings, **options
        )
        self.next_sentence = (
            heads.ScoreHead("cls/seq_relationship/", 2, config, **options)
            if next_sentence
            else None
        )
        self.built = True

    def call(self, features: dict, dropout_seed=None, packed=False):
        """Scores the masked places (all, without positions) and the pair.

        Args:
            features: input_ids, input_mask, segment_ids int32 [B, S];
                optionally masked_lm_positions int32 [B, P], position_ids
                int32 [B, S], next_sentence_positions int32 [B, M].
            dropout_seed: int32 [2], or None for inference.
            packed: See BertEncoder.

        Returns:
            PretrainingOutputs.
        """
        outputs = _encode(self.bert, features, dropout_seed, packed)
        positions = features.get("masked_lm_positions")
        if positions is None:
            logits = self.masked_lm(outputs.sequence_output)
        else:
            # Gathered before the vocabulary product, by far the largest one.
            x = encoder.gather_positions(outputs.sequence_output, positions)
            shape = (-1, ops.shape(positions)[1], self.config.vocab_size)
            logits = ops.reshape(self.masked_lm(x), shape)  # [B, P, V]
        pair_logits = None
        if self.next_sentence is not None:
            pair_logits = self.next_sentence(outputs.pooled_output)
        return PretrainingOutputs(logits, pair_logits, outputs)


class ClassificationModel(keras.Model):
    """Scores classes, or one value, from the pooled output."""

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int,
        attention: str = "bidirectional",
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the model; one class makes it a regression.

        `attention` is that of the pre-training; see BertEncoder. Read left to
        right, the last real place is pooled instead of the first.
        """
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        self.num_classes = num_classes
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config, attention=attention, recompute=recompute, **options
        )
        self.classifier = heads.ScoreHead(
            "", num_classes, config, rate=config.hidden_dropout_prob, **options
        )
        self.built = True

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, C]."""
        outputs = _encode_whole(self.bert, features, dropout_seed)
        seed = _fold(dropout_seed, _HEAD)
        return self.classifier(outputs.pooled_output, seed)


class MultipleChoiceModel(keras.Model):
    """Scores each of K continuations with one shared row."""

    def __init__(
        self,
        config: BertConfig,
        *,
        attention: str = "bidirectional",
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the model; `attention` as for ClassificationModel."""
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config, attention=attention, recompute=recompute, **options
        )
        self.classifier = heads.ScoreHead(
            "", 1, config, rate=config.hidden_dropout_prob, **options
        )
        self.built = True

    def call(self, features: dict, dropout_seed=None):
        """Maps features of int32 [B, K, S] to logits float32 [B, K]."""
        shape = ops.shape(features["input_ids"])
        if len(shape) != 3:
            raise errors.InputError(f"input_ids must be [B, K, S], not {shape}")
        names = ("input_ids", "input_mask", "segment_ids")
        flat = {
            name: ops.reshape(features[name], (-1, shape[2])) for name in names
        }
        outputs = _encode_whole(self.bert, flat, dropout_seed)
        seed = _fold(dropout_seed, _HEAD)
        logits = self.classifier(outputs.pooled_output, seed)  # [B * K, 1]
        return ops.reshape(logits, (-1, shape[1]))


class QuestionAnsweringModel(keras.Model):
    """Scores every place as start and as end of the answer."""

    def __init__(
        self,
        config: BertConfig,
        *,
        attention: str = "bidirectional",
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the model; `attention` as for ClassificationModel."""
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config,
            attention=attention,
            recompute=recompute,
            pooler=False,
            **options,
        )
        self.span = heads.ScoreHead("cls/squad/", 2, config, **options)
        self.built = True

    def call(self, features: dict, dropout_seed=None) -> SpanOutputs:
        """Maps features of [B, S] to two float32 [B, S]."""
        outputs = _encode(self.bert, features, dropout_seed)
        logits = self.span(outputs.sequence_output)  # [B, S, 2]
        return SpanOutputs(logits[..., 0], logits[..., 1])


class TaggingModel(keras.Model):
    """Scores C tags at every place."""

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int,
        attention: str = "bidirectional",
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the model; `attention` as for ClassificationModel."""
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        self.num_classes = num_classes
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config,
            attention=attention,
            recompute=recompute,
            pooler=False,
            **options,
        )
        self.classifier = heads.ScoreHead(
            "", num_classes, config, rate=config.hidden_dropout_prob, **options
        )
        self.built = True

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        outputs = _encode(self.bert, features, dropout_seed)
        seed = _fold(dropout_seed, _HEAD)
        return self.classifier(outputs.sequence_output, seed)


def _fold(dropout_seed, part: int):
    """Derives a part's seed; None stays None."""
    if dropout_seed is None:
        return None
    return dropout.fold_in(dropout_seed, part)


def _encode_whole(bert, features: dict, dropout_seed):
    """Encodes with pooled_output from a place that has seen everything.

    That is the first, and where places only see those before them, the last.
    """
    if bert.attention == "left_to_right":
        lengths = ops.sum(features["input_mask"], axis=1, keepdims=True)
        # A row that only fills up a batch may have none.
        last = ops.maximum(lengths - 1, 0)  # [B, 1]
        features = {**features, "next_sentence_positions": last}
    outputs = _encode(bert, features, dropout_seed)
    if bert.attention == "left_to_right":
        pooled = outputs.pooled_output[:, 0]
        outputs = outputs._replace(pooled_output=pooled)
    return outputs


def _encode(bert, features: dict, dropout_seed, packed: bool = False):
    """Runs the encoder on its part of the features."""
    for name in ("input_ids", "input_mask", "segment_ids"):
        if name not in features:
            raise errors.InputError(f"the features lack {name}")
    return bert(
        features["input_ids"],
        features["input_mask"],
        features["segment_ids"],
        position_ids=features.get("position_ids"),
        pooled_positions=features.get("next_sentence_positions"),
        dropout_seed=_fold(dropout_seed, _ENCODER),
        packed=packed,
    )
