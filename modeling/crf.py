"""A linear-chain CRF on a tagger's scores (Lafferty et al., 2001).

The words of a row are those places that have a label; places between them,
pieces that continue a word and padding, are passed over. A row may hold several
sentences, or a part of one: every sentence is a chain of its own, and only its
true first and last word have scores of standing there.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from modeling import lstm, models, variables
from modeling.config import BertConfig
from modeling.losses import Weighted

BEGINS, ENDS = 1, 2  # Bits of `boundaries`: a sentence's first and last word.
# An encoder's learning rate would move transitions by 0.03 in three epochs.
RATE = 100.0
# Finite: sums of it stay exact enough, and no gradient is NaN.
_NEVER = -1e4


class Scores(NamedTuple):
    """One value for every tag behind another, [C, C], at first, [C], last."""

    transitions: Any
    start: Any
    end: Any


class CrfTaggingModel(keras.Model):
    """Adds scores of one tag following another to a TaggingModel.

    1. transitions [C, C] from row to column, start [C], end [C]: RATE times
       what is learned, so that they learn RATE times as fast as the rest
    2. what is forbidden has a score that no sentence reaches

    Checkpoint: crf/transitions, crf/start, crf/end; the tagger's own names.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int,
        forbidden: Scores | None = None,
        **options: Any,
    ):
        """Makes the model.

        Args:
            config: The released hyperparameters.
            num_classes: C.
            forbidden: Of bool, or None where tags may stand in any order.
            **options: Of TaggingModel.
        """
        super().__init__(dtype=options.get("dtype"), autocast=False)
        self.tagger = models.TaggingModel(
            config, num_classes=num_classes, **options
        )
        shapes = Scores((num_classes,) * 2, (num_classes,), (num_classes,))
        if forbidden is None:
            forbidden = Scores(*(np.zeros(shape, bool) for shape in shapes))
        self._forbidden = forbidden
        make = variables.Maker(stddev=0.0, seed=0)
        self.learned = [
            make.zeros(f"crf/{name}", shape)
            for name, shape in zip(Scores._fields, shapes, strict=True)
        ]
        self.built = True

    @property
    def config(self) -> BertConfig:
        """The tagger's."""
        return self.tagger.config

    @property
    def bert(self) -> Any:
        """The tagger's encoder."""
        return self.tagger.bert

    @property
    def scores(self) -> Scores:
        """What sentences are scored by, as NumPy arrays."""
        learned = map(ops.convert_to_numpy, self.learned)
        return Scores(
            *(
                np.where(never, np.float32(_NEVER), RATE * x)
                for x, never in zip(learned, self._forbidden, strict=True)
            )
        )

    def set_scores(self, scores: Scores) -> None:
        """Sets what `scores` returns; what is forbidden stays so."""
        for variable, values, never in zip(
            self.learned, scores, self._forbidden, strict=True
        ):
            variable.assign(np.where(never, 0.0, values) / RATE)

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        return self.tagger(features, dropout_seed=dropout_seed)

    def sequence_loss(self, logits, label_ids, boundaries) -> Weighted:
        """Scores whole sentences of tags.

        Args:
            logits: float [B, S, C].
            label_ids: int32 [B, S], -1 = ignored.
            boundaries: int32 [B, S], BEGINS, ENDS, their sum or 0.

        Returns:
            Minus the logarithm of the sentences' probabilities, over words.
        """
        known = label_ids >= 0
        classes = ops.shape(logits)[2]
        tags = ops.one_hot(ops.maximum(label_ids, 0), classes)
        flags = [known, boundaries % 2 == BEGINS, boundaries >= ENDS]
        flags = [ops.cast(flag, "float32")[..., None] for flag in flags]
        # Scores, tags and the three flags: [B, S, 2 C + 3].
        places = ops.concatenate([logits, tags, *flags], axis=-1)
        weight = ops.sum(flags[0])
        return Weighted(ops.sum(self._surprise(places)), weight)

    def _surprise(self, places):
        """Maps [B, S, 2 C + 3] to what the rows' tags cost, [B, 1]."""
        learned = self._tensors()
        batch, _, width = ops.shape(places)
        nothing = ops.zeros((batch, (width - 3) // 2))
        zero = ops.zeros((batch, 1))

        def step(carry, inputs):
            return _step(learned, carry, inputs)

        start = (nothing, nothing, zero, zero)
        alpha, _, cost, is_open = lstm.last_carry(step, start, places)
        # The rest of a sentence that goes on elsewhere.
        return cost + is_open * ops.logsumexp(alpha, axis=1, keepdims=True)

    def _tensors(self) -> Scores:
        """Returns the scores; gradients are those of what is learned."""
        found = []
        for variable, never in zip(self.learned, self._forbidden, strict=True):
            x = ops.convert_to_tensor(variable)
            # RATE times x, without its gradient growing as well: that would
            # be most of the norm that all gradients are clipped by.
            x = x + ops.stop_gradient((RATE - 1.0) * x)
            found.append(ops.where(ops.convert_to_tensor(never), _NEVER, x))
        return Scores(*found)


def _step(scores: Scores, carry, inputs):
    """Goes on by one place: [B, C], [B, C], [B, 1], [B, 1].

    The carry: the scores of all beginnings that end in each tag, the true tag
    before, what it cost so far, and whether a sentence has begun.
    """
    alpha, last, cost, is_open = carry
    classes = ops.shape(alpha)[1]
    logits, tag = inputs[:, :classes], inputs[:, classes:-3]
    is_word, begins, ends = ops.split(inputs[:, -3:], 3, axis=1)
    first = begins * scores.start  # [B, C]
    paths = alpha[:, :, None] + scores.transitions  # [B, C, C]
    behind = ops.where(is_open > 0, ops.logsumexp(paths, axis=1), first)
    known = ops.matmul(last, scores.transitions)
    known = ops.where(is_open > 0, known, first)
    reached = logits + behind
    gained = ops.sum(
        tag * (logits + known + ends * scores.end), axis=1, keepdims=True
    )
    whole = ops.logsumexp(reached + scores.end, axis=1, keepdims=True)
    return (
        ops.where(is_word > 0, reached, alpha),
        ops.where(is_word > 0, tag, last),
        cost + is_word * (ends * whole - gained),
        ops.where(is_word > 0, 1.0 - ends, is_open),
    )
