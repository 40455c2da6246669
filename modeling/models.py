"""The encoder with its heads: one class per thing that BERT is used for.

Every model is called with a dict of features (records' names; others are
ignored) and, when training, an explicit dropout seed:

    outputs = model(features, dropout_seed=seed)
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from foundation import errors
from modeling import dropout, encoder, heads, lstm, variables
from modeling.config import BertConfig

# Place of the head among the parts that get a seed folded from the model's.
_ENCODER, _HEAD = 0, 1


class PretrainingOutputs(NamedTuple):
    """What pre-training scores.

    masked_lm_logits: float32 [B, P, V], or [B, S, V] without positions.
    next_sentence_logits: float32 [B, 2] ([B, M, 2] if M places were given),
        or None without that head.
    """

    masked_lm_logits: Any
    next_sentence_logits: Any


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
            heads.ScoreHead(
                "cls/seq_relationship/", 2, config.hidden_size, **options
            )
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
        outputs = _encode(
            self.bert,
            features,
            dropout_seed,
            packed=packed,
            positions=features.get("masked_lm_positions"),
        )
        x = outputs.sequence_output  # [B, P or S, H]
        shape = (-1, ops.shape(x)[1], self.config.vocab_size)
        x = ops.reshape(x, (-1, self.config.hidden_size))
        logits = ops.reshape(self.masked_lm(x), shape)
        pair_logits = None
        if self.next_sentence is not None:
            pair_logits = self.next_sentence(outputs.pooled_output)
        return PretrainingOutputs(logits, pair_logits)


class _TaskModel(keras.Model):
    """An encoder, a BiLSTM on top where one is asked for, and a score head."""

    def __init__(
        self,
        scope: str,
        outputs: int,
        config: BertConfig,
        *,
        pooler: bool,
        rate: float,
        attention: str = "bidirectional",
        bilstm_size: int = 0,
        recompute: bool = False,
        seed: int = 0,
        dtype=None,
    ):
        """Makes the parts.

        Args:
            scope: Of the head's variables; see ScoreHead.
            outputs: Of the head.
            config: The released hyperparameters.
            pooler: Whether the head reads the pooled place; a BiLSTM takes
                the pooler's part.
            rate: Of the dropout before the head.
            attention: That of the pre-training; see BertEncoder.
            bilstm_size: Units in each direction of the BiLSTM that the paper
                (5.1) puts on a left-to-right model; 0 is none.
            recompute: See BertEncoder.
            seed: Of the initial weights.
            dtype: A Keras dtype policy, e.g. "mixed_bfloat16".
        """
        super().__init__(dtype=dtype, autocast=False)
        self.config = config
        self.bilstm_size = bilstm_size
        make = variables.Maker(stddev=config.initializer_range, seed=seed)
        options = {"make": make, "dtype": self.dtype_policy}
        self.bert = encoder.BertEncoder(
            config,
            attention=attention,
            recompute=recompute,
            pooler=pooler and not bilstm_size,
            **options,
        )
        self.bilstm = self._make_bilstm(seed)
        inputs = 2 * bilstm_size or config.hidden_size
        self.head = heads.ScoreHead(
            scope, outputs, inputs, rate=rate, **options
        )
        self.built = True

    def _make_bilstm(self, seed: int):
        if not self.bilstm_size:
            return None
        return lstm.BidirectionalLstm(
            "bilstm", self.config.hidden_size, self.bilstm_size, seed=seed
        )

    def _score(self, features: dict, dropout_seed):
        """Maps features of [B, S] to float32 [B, S, outputs]."""
        outputs = _encode(self.bert, features, dropout_seed)
        x = outputs.sequence_output
        if self.bilstm is not None:
            x = self._read_on(x, features)
        return self.head(x, _fold(dropout_seed, _HEAD))

    def _score_whole(self, features: dict, dropout_seed):
        """Maps features of [B, S] to float32 [B, outputs]."""
        if self.bilstm is None:
            x = _pooled(self.bert, features, dropout_seed)
        else:
            outputs = _encode(self.bert, features, dropout_seed)
            x = self._read_on(outputs.sequence_output, features)
            # Where each direction has read everything; padding keeps states.
            size = self.bilstm_size
            x = ops.concatenate([x[:, -1, :size], x[:, 0, size:]], axis=-1)
        return self.head(x, _fold(dropout_seed, _HEAD))

    def _read_on(self, x, features: dict):
        """Maps float [B, S, H] to float32 [B, S, 2 * bilstm_size]."""
        mask = features["input_mask"] > 0
        return self.bilstm(ops.cast(x, "float32"), mask)


class ClassificationModel(_TaskModel):
    """Scores classes, or one value, from the pooled output.

    Read left to right, the last real place is pooled instead of the first.
    """

    def __init__(self, config: BertConfig, *, num_classes: int, **options):
        """Makes the model; one class makes it a regression.

        `options` are those of the encoder and of the BiLSTM: attention,
        bilstm_size, recompute, seed and dtype, in every model of this file.
        """
        rate = config.hidden_dropout_prob
        super().__init__(
            "", num_classes, config, pooler=True, rate=rate, **options
        )
        self.num_classes = num_classes

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, C]."""
        return self._score_whole(features, dropout_seed)


class MultipleChoiceModel(_TaskModel):
    """Scores each of K continuations with one shared row."""

    def __init__(self, config: BertConfig, **options):
        """Makes the model; `options` as for ClassificationModel."""
        rate = config.hidden_dropout_prob
        super().__init__("", 1, config, pooler=True, rate=rate, **options)

    def call(self, features: dict, dropout_seed=None):
        """Maps features of int32 [B, K, S] to logits float32 [B, K]."""
        shape = ops.shape(features["input_ids"])
        if len(shape) != 3:
            raise errors.InputError(f"input_ids must be [B, K, S], not {shape}")
        names = ("input_ids", "input_mask", "segment_ids")
        flat = {
            name: ops.reshape(features[name], (-1, shape[2])) for name in names
        }
        logits = self._score_whole(flat, dropout_seed)  # [B * K, 1]
        return ops.reshape(logits, (-1, shape[1]))


class QuestionAnsweringModel(_TaskModel):
    """Scores every place as start and as end of the answer."""

    def __init__(self, config: BertConfig, **options):
        """Makes the model; `options` as for ClassificationModel."""
        super().__init__(
            "cls/squad/", 2, config, pooler=False, rate=0.0, **options
        )

    def call(self, features: dict, dropout_seed=None) -> SpanOutputs:
        """Maps features of [B, S] to two float32 [B, S]."""
        logits = self._score(features, dropout_seed)  # [B, S, 2]
        return SpanOutputs(logits[..., 0], logits[..., 1])


class TaggingModel(_TaskModel):
    """Scores C tags at every place."""

    def __init__(self, config: BertConfig, *, num_classes: int, **options):
        """Makes the model; `options` as for ClassificationModel."""
        rate = config.hidden_dropout_prob
        super().__init__(
            "", num_classes, config, pooler=False, rate=rate, **options
        )
        self.num_classes = num_classes

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        return self._score(features, dropout_seed)


def _fold(dropout_seed, part: int):
    """Derives a part's seed; None stays None."""
    if dropout_seed is None:
        return None
    return dropout.fold_in(dropout_seed, part)


def _pooled(bert, features: dict, dropout_seed):
    """Returns float [B, H] of a place that has seen everything.

    That is the first, and where places only see those before them, the last.
    """
    is_past = bert.attention == "left_to_right"
    if is_past:
        lengths = ops.sum(features["input_mask"], axis=1, keepdims=True)
        # A row that only fills up a batch may have none.
        last = ops.maximum(lengths - 1, 0)  # [B, 1]
        features = {**features, "next_sentence_positions": last}
    no_others = features["input_ids"][:, :0]
    outputs = _encode(bert, features, dropout_seed, positions=no_others)
    pooled = outputs.pooled_output
    return pooled[:, 0] if is_past else pooled


def _encode(bert, features: dict, dropout_seed, **options):
    """Runs the encoder on its part of the features; `options` are its own."""
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
        **options,
    )
