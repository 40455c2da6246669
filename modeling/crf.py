"""A linear-chain CRF on a tagger's scores (Lafferty et al., 2001).

The words of a row are those places that have a label; places between them,
pieces that continue a word and padding, are passed over.
"""

from typing import Any

import keras
from keras import ops

from modeling import models, variables
from modeling.config import BertConfig
from modeling.losses import Weighted


class CrfTaggingModel(keras.Model):
    """Adds scores of one tag following another to a TaggingModel.

    Checkpoint: crf/transitions [C, C] from row to column, crf/start [C],
    crf/end [C]; the tagger's own names.
    """

    def __init__(self, config: BertConfig, *, num_classes: int, **options: Any):
        """Makes the model; all transitions are 0 until they learn."""
        super().__init__(dtype=options.get("dtype"), autocast=False)
        self.tagger = models.TaggingModel(
            config, num_classes=num_classes, **options
        )
        make = variables.Maker(stddev=0.0, seed=0)
        shape = (num_classes, num_classes)
        self.transitions = make.zeros("crf/transitions", shape)
        self.start = make.zeros("crf/start", (num_classes,))
        self.end = make.zeros("crf/end", (num_classes,))
        self.built = True

    @property
    def config(self) -> BertConfig:
        """The tagger's."""
        return self.tagger.config

    @property
    def bert(self) -> Any:
        """The tagger's encoder."""
        return self.tagger.bert

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        return self.tagger(features, dropout_seed=dropout_seed)

    def sequence_loss(self, logits, label_ids) -> Weighted:
        """Scores whole rows of tags.

        Args:
            logits: float [B, S, C].
            label_ids: int32 [B, S], -1 = ignored.

        Returns:
            Minus the logarithm of the rows' probabilities, over words.
        """
        known = label_ids >= 0
        score, normalizer = self._scores(logits, label_ids, known)
        weight = ops.sum(ops.cast(known, "float32"))
        return Weighted(ops.sum(normalizer - score), weight)

    def _scores(self, logits, label_ids, known):
        """Returns the rows' own score and that of all rows, [B] each."""
        batch, _, classes = ops.shape(logits)
        tags = ops.one_hot(ops.maximum(label_ids, 0), classes)
        is_word = ops.cast(known, "float32")[..., None]
        # Scores, tags and whether it is a word: [S, B, 2 C + 1].
        steps = ops.concatenate([logits, tags, is_word], axis=-1)
        steps = ops.transpose(steps, (1, 0, 2))
        nothing = ops.zeros((batch, classes))
        begin = ops.zeros((batch, 1))
        carry, _ = ops.scan(self._step, (nothing, nothing, begin, begin), steps)
        alpha, last, score, is_begun = carry
        end = ops.sum(last * self.end, axis=1)
        total = ops.logsumexp(alpha + self.end, axis=1)
        return score[:, 0] + end, total * is_begun[:, 0]

    def _step(self, carry, inputs):
        """Goes on by one place: [B, C], [B, C], [B, 1], [B, 1]."""
        alpha, last, score, is_begun = carry
        classes = ops.shape(alpha)[1]
        logits, tag = inputs[:, :classes], inputs[:, classes:-1]
        is_word = inputs[:, -1:]
        paths = alpha[:, :, None] + self.transitions  # [B, C, C]
        follows = ops.logsumexp(paths, axis=1)
        reached = logits + ops.where(is_begun > 0, follows, self.start)
        before = ops.where(
            is_begun > 0, ops.matmul(last, self.transitions), self.start
        )
        gained = ops.sum(tag * (logits + before), axis=1, keepdims=True)
        after = (
            ops.where(is_word > 0, reached, alpha),
            ops.where(is_word > 0, tag, last),
            score + is_word * gained,
            ops.maximum(is_begun, is_word),
        )
        return after, after
