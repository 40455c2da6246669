"""The head of question answering: where an answer starts and where it ends.

The model has two logits for each token of a window: the answer starts at the
token with the highest start logit and ends at that with the highest end logit.
Both are trained with the cross entropy over all positions of a window. If the
answer is not in the window, both labels are 0, the position of [CLS].
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from finetuning import head
from modeling import losses, models
from modeling.config import BertConfig

_NAMES = ("start_logits", "end_logits")


class SpanHead(head.Head):
    """A start logit and an end logit of each token."""

    per_token = True
    loss_name = "span_loss"
    architecture = "BertForQuestionAnswering"
    pipeline_tag = "question-answering"

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return models.QuestionAnsweringModel(config, **options)

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """See Head; the metrics are the accuracies of both positions."""
        start = ops.reshape(features["start_positions"], (-1,))
        end = ops.reshape(features["end_positions"], (-1,))
        loss = losses.span(outputs.start_logits, outputs.end_logits, start, end)
        accuracy = losses.accuracy
        return loss, {
            "start_accuracy": accuracy(outputs.start_logits, start),
            "end_accuracy": accuracy(outputs.end_logits, end),
        }

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See Head."""
        return losses.soft_span(
            [getattr(outputs, name) for name in _NAMES],
            [teacher[name] for name in _NAMES],
            features["input_mask"],
            temperature,
        )

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns both logits, float32 [B, S]."""
        return model(features)._asdict()
