"""Tagging on tensors: what is trained on, and what a word's logits become.

Only the first piece of every word has a label and is scored; see data.tagging.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special
from keras import ops

from data import tagging
from data.features import Features
from modeling import losses

LOSS = "tagging_loss"


class TaggingTask:
    """Joins labeled words, a model, a loss and a metric."""

    def loss_weights(self, features: dict) -> dict[str, Any]:
        """Returns the number of words."""
        is_word = features["label_ids"] >= 0
        return {LOSS: ops.sum(ops.cast(is_word, "float32"))}

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracy over words."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        loss = losses.tagging(logits, labels)
        accuracy = losses.tagging_accuracy(logits, labels)
        return {LOSS: loss}, {"accuracy": accuracy}

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns the logits float32 [B, S, C]."""
        return {"logits": model(features)}


def of_words(
    features: Features,
    name: str,
    batches: Iterable[Mapping[str, np.ndarray]],
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields some words in a row, and what is said where each begins [n, ...].

    Args:
      features: of data.tagging.
      name: of what is said of every piece.
      batches: of that [B, S, ...] and example_index [B].
    """
    places = tagging.word_places(features)
    rows = np.searchsorted(features.row_splits, places, "right") - 1
    columns = places - features.row_splits[rows]
    firsts = np.searchsorted(rows, np.arange(len(features) + 1))
    for batch in batches:
        for row, values in zip(
            batch["example_index"], batch[name], strict=True
        ):
            words = slice(firsts[row], firsts[row + 1])
            yield words, values[columns[words]]


def word_logits(
    features: Features,
    num_classes: int,
    batches: Iterable[Mapping[str, np.ndarray]],
) -> np.ndarray:
    """Returns float32 [W, C]: what is predicted where each word begins.

    Args:
      features: of data.tagging.
      num_classes: C.
      batches: of logits [B, S, C] and example_index [B].
    """
    count = len(tagging.word_places(features))
    result = np.zeros((count, num_classes), np.float32)
    for words, logits in of_words(features, "logits", batches):
        result[words] = logits
    return result


def word_losses(logits: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
    """Returns float64 [W], the cross entropy of every word."""
    shares = scipy.special.log_softmax(logits.astype(np.float64), axis=1)
    return -shares[np.arange(len(logits)), label_ids]


def best_tags(logits: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Returns the most probable tag of every word by itself."""
    return [labels[i] for i in logits.argmax(axis=1)]
