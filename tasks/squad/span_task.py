"""Question answering on tensors: two scores for every piece of a window.

The answer starts where one is highest and ends where the other is; both are
trained by cross entropy over all places of a window. Where the answer is not
in the window, [CLS] is both.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from modeling import losses, models
from modeling.config import BertConfig

_NAME = "span_loss"


class SpanLogits(NamedTuple):
    """Scores of all pieces of all windows: float32 [T] each."""

    start: np.ndarray
    end: np.ndarray


class QuestionAnsweringTask:
    """Joins windows, a model, a loss and two metrics."""

    def loss_weights(self, features: dict) -> dict[str, Any]:
        """Returns the number of windows."""
        count = ops.shape(features["input_ids"])[0]
        return {_NAME: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and how often either place is right."""
        outputs = model(features, dropout_seed=dropout_seed)
        start, end = (
            ops.reshape(features[f"{name}_positions"], (-1,))
            for name in ("start", "end")
        )
        loss = losses.span(outputs.start_logits, outputs.end_logits, start, end)
        right = losses.classification_accuracy
        return {_NAME: loss}, {
            "start_accuracy": right(outputs.start_logits, start),
            "end_accuracy": right(outputs.end_logits, end),
        }

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns both logits, float32 [B, S]."""
        outputs = model(features)
        return {
            "start_logits": outputs.start_logits,
            "end_logits": outputs.end_logits,
        }


def make_model(config: BertConfig, **options: Any) -> keras.Model:
    """Makes the model; `options` as for QuestionAnsweringModel."""
    return models.QuestionAnsweringModel(config, **options)


def collect(
    batches: Iterable[Mapping[str, np.ndarray]], row_splits: np.ndarray
) -> SpanLogits:
    """Puts what batches of different lengths say into the windows' order.

    Args:
      batches: of training.prediction: both logits and `example_index`.
      row_splits: int [W + 1]; where each window's pieces begin.
    """
    start, end = np.zeros((2, row_splits[-1]), np.float32)
    for values in batches:
        rows = values["example_index"]
        length = values["start_logits"].shape[1]
        place = row_splits[rows][:, None] + np.arange(length)
        is_piece = place < row_splits[rows + 1][:, None]
        for name, into in (("start_logits", start), ("end_logits", end)):
            into[place[is_piece]] = values[name][is_piece]
    return SpanLogits(start, end)
