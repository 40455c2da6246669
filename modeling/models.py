"""BERT with a head: one class for each use.

A model takes a dict of features, which may contain other entries, and, for
training, an explicit dropout seed:

    outputs = model(features, dropout_seed=seed)
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from foundation import errors
from modeling import dropout, encoder, heads, lstm, pooling, variables
from modeling.config import BertConfig

# The parts of a model whose seeds are derived from the model's.
_ENCODER, _HEAD = 0, 1
WINDOW_POOLINGS = ("mean", "max", "attention")
_EXCLUDED = -1e9  # The score of a window that an example lacks.


class PretrainingOutputs(NamedTuple):
    """The outputs of pre-training."""

    # float32 [B, P, V], or [B, S, V] without positions.
    masked_lm_logits: Any
    # float32 [B, 2], [B, M, 2] if M positions were given, None without a head.
    next_sentence_logits: Any


class SpanOutputs(NamedTuple):
    """The outputs of question answering: float32 [B, S] each."""

    start_logits: Any
    end_logits: Any


class EncoderModel(keras.Model):
    """An encoder; subclasses put layers on it.

        class Model(models.EncoderModel):
            def __init__(self, config, **options):
                super().__init__(config, pooler=False, **options)
                size = config.hidden_size
                self.value = layers.Dense("value", size, 1, self.make)

            def call(self, features, dropout_seed=None):
                x = self.encode(features, dropout_seed).sequence_output
                return self.value(x)

    Attributes:
      config: the hyperparameters.
      make: makes the variables of layers.
      bert: the encoder.
    """

    bilstm_size = 0

    def __init__(
        self,
        config: BertConfig,
        *,
        pooler: bool,
        bilstm_size: int = 0,
        seed: int = 0,
        dtype=None,
        **options: Any,
    ):
        """Creates the encoder.

        Args:
            config: the released hyperparameters.
            pooler: whether there is a pooler.
            bilstm_size: refused unless 0; see `_TaskModel`.
            seed: seed of the initial weights.
            dtype: a Keras dtype policy, e.g. "mixed_bfloat16".
            **options: attention and recompute; see BertEncoder.
        """
        super().__init__(dtype=dtype, autocast=False)
        if bilstm_size:
            raise errors.InputError("--bilstm_size: not for this kind of model")
        self.config = config
        self.make = variables.Maker(
            stddev=config.initializer_range, seed=seed, dtype=dtype
        )
        self.bert = encoder.BertEncoder(
            config, self.make, pooler=pooler, **options
        )
        self.built = True

    def encode(
        self,
        features: Mapping[str, Any],
        dropout_seed,
        positions=None,
        packed=False,
    ) -> encoder.EncoderOutputs:
        """Encodes all positions, or int32 [B, P] chosen ones.

        Args:
            features: input_ids, input_mask, segment_ids int32 [B, S];
                optionally position_ids int32 [B, S], next_sentence_positions
                int32 [B, M].
            dropout_seed: that of `call`.
            positions: see BertEncoder.encode_positions.
            packed: see BertEncoder.
        """
        names = "input_ids", "input_mask", "segment_ids"
        for name in names:
            if name not in features:
                raise errors.InputError(f"the features lack {name}")
        inputs = [features[name] for name in names]
        options = {
            "position_ids": features.get("position_ids"),
            "pooled_positions": features.get("next_sentence_positions"),
            "dropout_seed": dropout.fold_in(dropout_seed, _ENCODER),
            "packed": packed,
        }
        if positions is None:
            return self.bert(*inputs, **options)
        return self.bert.encode_positions(positions, *inputs, **options)

    def pooled(self, features: Mapping[str, Any], dropout_seed):
        """Returns float [B, H], pooled at a position that sees all others.

        That is the first position, in a left-to-right model the last real one.
        """
        is_left_to_right = self.bert.attention == "left_to_right"
        if is_left_to_right:
            lengths = ops.sum(features["input_mask"], axis=1, keepdims=True)
            # A row that only fills up a batch may have length 0.
            last = ops.maximum(lengths - 1, 0)  # [B, 1]
            features = {**features, "next_sentence_positions": last}
        none = features["input_ids"][:, :0]
        outputs = self.encode(features, dropout_seed, positions=none)
        pooled = outputs.pooled_output
        return pooled[:, 0] if is_left_to_right else pooled


def head_seed(dropout_seed):
    """Returns the seed of the dropout on the encoder; that of `call` is given.

    Both are int32 [2], or None for inference.
    """
    return dropout.fold_in(dropout_seed, _HEAD)


class PretrainingModel(EncoderModel):
    """Has the heads of pre-training: masked LM and next sentence."""

    def __init__(
        self, config: BertConfig, *, next_sentence: bool = True, **options: Any
    ):
        """Creates the model.

        Args:
            config: the released hyperparameters.
            next_sentence: whether there is a pooler with its head; a pure
                language model has none.
            **options: see EncoderModel.
        """
        super().__init__(config, pooler=next_sentence, **options)
        self.masked_lm = heads.MaskedLmHead(config, self.make)
        self.next_sentence = None
        if next_sentence:
            self.next_sentence = heads.ScoreHead(
                "cls/seq_relationship/", 2, config.hidden_size, self.make
            )

    def call(self, features: dict, dropout_seed=None, packed=False):
        """Predicts the tokens at the masked positions, or at all, and the pair.

        Args:
            features: those of `encode`; optionally masked_lm_positions int32
                [B, P].
            dropout_seed: int32 [2], or None for inference.
            packed: see BertEncoder.

        Returns:
            PretrainingOutputs.
        """
        outputs = self.encode(
            features,
            dropout_seed,
            positions=features.get("masked_lm_positions"),
            packed=packed,
        )
        head, table = self.next_sentence, self.bert.embeddings.word_embeddings
        return PretrainingOutputs(
            self.masked_lm(
                outputs.sequence_output, ops.convert_to_tensor(table)
            ),
            None if head is None else head(outputs.pooled_output),
        )


class _TaskModel(EncoderModel):
    """An encoder, optionally a BiLSTM on it, and a ScoreHead."""

    def __init__(
        self,
        scope: str,
        outputs: int,
        config: BertConfig,
        *,
        pooler: bool,
        rate: float | None = None,
        bilstm_size: int = 0,
        seed: int = 0,
        **options: Any,
    ):
        """Creates the encoder and the head.

        Args:
            scope: scope of the head's variables; see ScoreHead.
            outputs: the number of scores.
            config: the released hyperparameters.
            pooler: whether the head reads the pooled output; a BiLSTM replaces
                the pooler.
            rate: dropout rate before the head; None for the config's.
            bilstm_size: units in each direction of the BiLSTM that the paper
                (5.1) puts on a left-to-right model; 0 = none.
            seed: seed of the initial weights.
            **options: see EncoderModel.
        """
        pooler = pooler and not bilstm_size
        super().__init__(config, pooler=pooler, seed=seed, **options)
        self.bilstm_size, self.bilstm = bilstm_size, None
        inputs = config.hidden_size
        if bilstm_size:
            self.bilstm = lstm.BidirectionalLstm(
                "bilstm", inputs, bilstm_size, seed=seed
            )
            inputs = 2 * bilstm_size
        rate = config.hidden_dropout_prob if rate is None else rate
        self.head = heads.ScoreHead(
            scope, outputs, inputs, self.make, rate=rate
        )

    def _score_positions(self, features: dict, dropout_seed):
        """Maps features of [B, S] to float32 [B, S, outputs]."""
        x = self.encode(features, dropout_seed).sequence_output
        if self.bilstm is not None:
            x = self.bilstm(x, features["input_mask"] > 0)
        return self.head(x, head_seed(dropout_seed))

    def _score_sequence(self, features: dict, dropout_seed):
        """Maps features of [B, S] to float32 [B, outputs]."""
        x = self._sequence_vector(features, dropout_seed)
        return self.head(x, head_seed(dropout_seed))

    def _sequence_vector(self, features: dict, dropout_seed):
        """Maps features of [B, S] to what the head reads, float [B, F]."""
        if self.bilstm is None:
            return self.pooled(features, dropout_seed)
        x = self.encode(features, dropout_seed).sequence_output
        return self.bilstm(x, features["input_mask"] > 0, is_pooled=True)


class ClassificationModel(_TaskModel):
    """Scores classes, or one value, from the pooled output.

    A left-to-right model pools the last real position instead of the first.
    """

    def __init__(self, config: BertConfig, *, num_classes: int, **options):
        """Creates the model; with one class it is a regression.

        In every model of this file `options` are attention, bilstm_size,
        recompute, seed and dtype; see EncoderModel.
        """
        super().__init__("", num_classes, config, pooler=True, **options)
        self.num_classes = num_classes

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, C]."""
        return self._score_sequence(features, dropout_seed)


class DocumentModel(ClassificationModel):
    """Scores texts that are divided into windows; see data.features.Windows.

    The logits of the windows are pooled: their mean, their maximum, or their
    mean weighted by a learned attention over the windows (softmax of a linear
    layer on the pooled outputs), which begins as the mean.

    Variable of the attention: window_attention/kernel [H, 1]
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int,
        window_pooling: str = "mean",
        **options,
    ):
        """Creates the model.

        Args:
            config: the released hyperparameters.
            num_classes: see ClassificationModel.
            window_pooling: one of WINDOW_POOLINGS.
            **options: as for ClassificationModel.
        """
        super().__init__(config, num_classes=num_classes, **options)
        self.window_pooling = window_pooling
        self.window_attention = None
        if window_pooling == "attention":
            self.window_attention = self.make.zeros(
                "window_attention/kernel",
                (2 * self.bilstm_size or config.hidden_size, 1),
            )

    def call(self, features: dict, dropout_seed=None):
        """Maps features of int32 [B, K, S] to logits float32 [B, C].

        A window whose input_mask is 0 does not count. Features of [B, S] are
        texts of one window.
        """
        if len(features["input_ids"].shape) == 2:
            return super().call(features, dropout_seed)
        count = ops.shape(features["input_ids"])[1]
        x = self._sequence_vector(flat(features), dropout_seed)
        logits = self.head(x, head_seed(dropout_seed))
        logits = ops.reshape(logits, (-1, count, self.num_classes))
        is_window = ops.max(features["input_mask"], axis=2) > 0  # [B, K]
        if self.window_pooling == "max":
            logits = ops.where(is_window[..., None], logits, _EXCLUDED)
            return ops.max(logits, axis=1)
        scores = ops.zeros_like(ops.cast(is_window, "float32"))
        if self.window_attention is not None:
            scores = ops.matmul(ops.cast(x, "float32"), self.window_attention)
            scores = ops.reshape(scores, (-1, count))
        scores = ops.where(is_window, scores, _EXCLUDED)
        weights = ops.softmax(scores, axis=1)
        return ops.sum(weights[..., None] * logits, axis=1)


class MultipleChoiceModel(_TaskModel):
    """Scores each of K choices with the same weights."""

    def __init__(self, config: BertConfig, **options):
        """Creates the model; `options` as for ClassificationModel."""
        super().__init__("", 1, config, pooler=True, **options)

    def call(self, features: dict, dropout_seed=None):
        """Maps features of int32 [B, K, S] to logits float32 [B, K]."""
        shape = ops.shape(features["input_ids"])
        if len(shape) != 3:
            raise errors.InputError(f"input_ids must be [B, K, S], not {shape}")
        logits = self._score_sequence(
            flat(features), dropout_seed
        )  # [B * K, 1]
        return ops.reshape(logits, (-1, shape[1]))


class PositionsModel(EncoderModel):
    """Scores the concatenated vectors of some positions of a sequence."""

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int,
        num_positions: int,
        find_positions: Callable[[Mapping[str, Any]], Any],
        **options: Any,
    ):
        """Creates the model, whose encoder has no pooler.

        Args:
            config: the released hyperparameters.
            num_classes: C.
            num_positions: P.
            find_positions: features -> int32 [B, P].
            **options: see EncoderModel.
        """
        super().__init__(config, pooler=False, **options)
        self.num_classes, self._find_positions = num_classes, find_positions
        self._size = num_positions * config.hidden_size
        self.scores = heads.ScoreHead(
            "positions/",
            num_classes,
            self._size,
            self.make,
            rate=config.hidden_dropout_prob,
        )

    def call(self, features: Mapping[str, Any], dropout_seed=None):
        """Returns logits float32 [B, C]; features are int32 [B, S]."""
        positions = self._find_positions(features)
        x = self.encode(features, dropout_seed, positions).sequence_output
        vectors = ops.reshape(x, (-1, self._size))  # [B, P, H]
        return self.scores(vectors, head_seed(dropout_seed))


class QuestionAnsweringModel(_TaskModel):
    """Scores every position as the start and as the end of the answer."""

    def __init__(self, config: BertConfig, **options):
        """Creates the model; `options` as for ClassificationModel."""
        super().__init__(
            "cls/squad/", 2, config, pooler=False, rate=0.0, **options
        )

    def call(self, features: dict, dropout_seed=None) -> SpanOutputs:
        """Maps features of [B, S] to two float32 [B, S]."""
        logits = self._score_positions(features, dropout_seed)  # [B, S, 2]
        return SpanOutputs(logits[..., 0], logits[..., 1])


class TaggingModel(_TaskModel):
    """Scores C tags at every position."""

    def __init__(self, config: BertConfig, *, num_classes: int, **options):
        """Creates the model; `options` as for ClassificationModel."""
        super().__init__("", num_classes, config, pooler=False, **options)
        self.num_classes = num_classes

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        return self._score_positions(features, dropout_seed)


class EmbeddingModel(EncoderModel):
    """Makes a vector of each text; the encoder has no pooler and no head."""

    def __init__(
        self,
        config: BertConfig,
        *,
        pooling_names: str = "mean",
        normalize: bool = True,
        **options: Any,
    ):
        """Creates the model.

        Args:
            config: the released hyperparameters.
            pooling_names: see pooling.pool.
            normalize: whether vectors have length 1.
            **options: see EncoderModel.
        """
        super().__init__(config, pooler=False, **options)
        self.pooling_names, self.normalize = pooling_names, normalize

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to float32 [B, H], [B, K, S] to [B, K, H]."""
        *batch, _ = ops.shape(features["input_ids"])
        rows = flat(features)
        x = self.encode(rows, dropout_seed).sequence_output
        x = pooling.pool(self.pooling_names, x, rows["input_mask"])
        x = pooling.normalized(x) if self.normalize else x
        return ops.reshape(x, (-1, *batch[1:], x.shape[-1]))


def flat(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns features of [B, K, S] as B * K sequences: [B * K, S]."""
    length = ops.shape(features["input_ids"])[-1]
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: ops.reshape(features[name], (-1, length)) for name in names}
