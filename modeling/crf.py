"""A linear-chain CRF on a tagger's logits (Lafferty et al., 2001).

A row contains words at the positions that have a label. The CRF skips all other
positions: continuations of a word, and padding. A row may contain several
sentences, or a part of one; each sentence is a separate chain, and only its
real first and last word get the scores `start` and `end`.
"""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from modeling import lstm, models, variables
from modeling.config import BertConfig
from modeling.losses import Weighted

BEGINS, ENDS = 1, 2  # Bits of `boundaries`: a sentence's first and last word.
# With an encoder's learning rate, transitions would change by 0.03 in three
# epochs.
RATE = 100.0
# Finite, so that sums stay exact enough and no gradient is NaN.
_FORBIDDEN = -1e4


class Scores(NamedTuple):
    """The scores of tag sequences."""

    transitions: Any  # [C, C], of a column's tag after a row's.
    start: Any  # [C], of a sentence's first tag.
    end: Any  # [C], of its last tag.


class CrfTaggingModel(keras.Model):
    """Adds the scores of tag sequences to a TaggingModel.

    The scores are RATE times the learned variables, so that they learn RATE
    times as fast as the other weights.

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
        """Creates the model.

        Args:
            config: the released hyperparameters.
            num_classes: C.
            forbidden: Scores of bool: the tags that never follow, begin or end;
                None allows all.
            **options: options of TaggingModel.
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
        """The tagger's hyperparameters."""
        return self.tagger.config

    @property
    def bert(self) -> Any:
        """The tagger's encoder."""
        return self.tagger.bert

    @property
    def scores(self) -> Scores:
        """The scores as NumPy arrays."""
        learned = map(ops.convert_to_numpy, self.learned)
        pairs = zip(learned, self._forbidden, strict=True)
        low = np.float32(_FORBIDDEN)
        return Scores(*(np.where(bad, low, RATE * x) for x, bad in pairs))

    def set_scores(self, scores: Scores) -> None:
        """Sets the scores, except the forbidden ones."""
        triples = zip(self.learned, scores, self._forbidden, strict=True)
        for variable, values, bad in triples:
            variable.assign(np.where(bad, 0.0, values) / RATE)

    def call(self, features: dict, dropout_seed=None):
        """Maps features of [B, S] to logits float32 [B, S, C]."""
        return self.tagger(features, dropout_seed=dropout_seed)

    def sequence_loss(self, logits, label_ids, boundaries) -> Weighted:
        """Computes the negative log-likelihood of the sentences' tags.

        Args:
            logits: float [B, S, C].
            label_ids: int32 [B, S], -1 = ignored.
            boundaries: int32 [B, S], BEGINS, ENDS, their sum or 0.

        Returns:
            The sum over all sentences, and the number of words.
        """
        is_word = label_ids >= 0
        classes = ops.shape(logits)[2]
        tags = ops.one_hot(ops.maximum(label_ids, 0), classes)
        flags = [is_word, boundaries % 2 == BEGINS, boundaries >= ENDS]
        flags = [ops.cast(flag, "float32")[..., None] for flag in flags]
        x = ops.concatenate([logits, tags, *flags], axis=-1)  # [B, S, 2 C + 3]
        step = functools.partial(_step, self._score_tensors())
        nothing, zero = (
            ops.zeros_like(x[:, 0, :size]) for size in (classes, 1)
        )
        start = (nothing, nothing, zero, zero)
        alpha, _, loss, is_open = lstm.last_state(step, start, x)
        # A sentence that the row does not end may continue in any way.
        loss += is_open * ops.logsumexp(alpha, axis=1, keepdims=True)
        return Weighted(ops.sum(loss), ops.sum(flags[0]))

    def _score_tensors(self) -> Scores:
        """Returns the scores; their gradients are those of the variables."""
        found = []
        for variable, bad in zip(self.learned, self._forbidden, strict=True):
            x = ops.convert_to_tensor(variable)
            # RATE * x with the gradient of x: a gradient RATE times as large
            # would dominate the norm by which all gradients are clipped.
            x = x + ops.stop_gradient((RATE - 1.0) * x)
            bad = ops.convert_to_tensor(bad)
            found.append(ops.where(bad, _FORBIDDEN, x))
        return Scores(*found)


def _step(scores: Scores, state, inputs):
    """Processes one position.

    Args:
        scores: scores of tag sequences.
        state: alpha [B, C], the log of the summed exponentials of all tag
            sequences so far that end in each tag; last_tag [B, C], one-hot;
            loss [B, 1], minus the score of the true tags so far, plus the
            normalizers of finished sentences; is_open [B, 1], whether a
            sentence has begun and not ended.
        inputs: [B, 2 C + 3]; see sequence_loss.

    Returns:
        The next state.
    """
    alpha, last_tag, loss, is_open = state
    classes = ops.shape(alpha)[1]
    logits, tag = inputs[:, :classes], inputs[:, classes:-3]
    is_word, begins, ends = ops.split(inputs[:, -3:], 3, axis=1)

    start = begins * scores.start  # [B, C]
    paths = alpha[:, :, None] + scores.transitions  # [B, C, C]
    before = ops.where(is_open > 0, ops.logsumexp(paths, axis=1), start)
    next_alpha = logits + before
    normalizer = ops.logsumexp(next_alpha + scores.end, axis=1, keepdims=True)

    transition = ops.matmul(last_tag, scores.transitions)
    transition = ops.where(is_open > 0, transition, start)
    true_score = ops.sum(
        tag * (logits + transition + ends * scores.end), axis=1, keepdims=True
    )
    return (
        ops.where(is_word > 0, next_alpha, alpha),
        ops.where(is_word > 0, tag, last_tag),
        loss + is_word * (ends * normalizer - true_score),
        ops.where(is_word > 0, 1.0 - ends, is_open),
    )
