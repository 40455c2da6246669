"""The heads of sentence tasks: the model and the loss of each kind of label.

classification, multiple choice   logits [B, C]  cross entropy
regression                        logits [B, 1]  squared error
several labels                    logits [B, C]  C binary cross entropies
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from finetuning import head
from modeling import losses, models
from modeling.config import BertConfig
from tasks.classification import label_kinds


class SentenceHead(head.Head):
    """Scores of classes, or a value, from the pooled output.

    Subclasses have the losses of other kinds than one of several classes.
    """

    loss_name = "classification_loss"
    architecture = "BertForSequenceClassification"

    def __init__(
        self,
        kind: label_kinds.OneLabel,
        *,
        class_weights: Sequence[float] | None = None,
        window_pooling: str | None = None,
    ):
        """Takes what the labels are.

        Args:
          kind: what the labels are.
          class_weights: weight of the examples of each label in the loss.
          window_pooling: see models.DocumentModel; None if texts are not
            divided.
        """
        self.kind = kind
        self.labels = kind.names
        self.problem_type = kind.problem_type
        self._num_classes = len(kind.labels) or 1
        self._class_weights = class_weights
        self._window_pooling = window_pooling

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        options["num_classes"] = self._num_classes
        if self._window_pooling is None:
            return models.ClassificationModel(config, **options)
        return models.DocumentModel(
            config, window_pooling=self._window_pooling, **options
        )

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """See Head."""
        label_ids = ops.reshape(features["label_ids"], (-1,))
        loss = losses.classification(
            outputs, label_ids, self._example_weights(features)
        )
        accuracy = losses.accuracy(outputs, label_ids)
        return loss, {"accuracy": accuracy}

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See Head."""
        return losses.soft_classification(
            outputs,
            teacher["logits"],
            temperature,
            self._example_weights(features),
        )

    def weight(self, features: Mapping[str, Any]) -> Any:
        """See Head; of weighted classes, the sum of their weights."""
        weights = self._example_weights(features)
        return super().weight(features) if weights is None else ops.sum(weights)

    def _example_weights(self, features: Mapping[str, Any]) -> Any:
        """Returns float32 [B], the weights of the examples' classes."""
        if self._class_weights is None:
            return None
        weights = ops.convert_to_tensor(self._class_weights, "float32")
        return ops.take(weights, ops.reshape(features["label_ids"], (-1,)))


class AnyHead(SentenceHead):
    """Any of C classes."""

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """See Head."""
        return losses.multi_label(outputs, features["label_ids"]), {}

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See Head."""
        return losses.soft_multi_label(outputs, teacher["logits"], temperature)


class ValueHead(SentenceHead):
    """A value."""

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """See Head."""
        values = ops.reshape(features["label_ids"], (-1,))
        return losses.regression(outputs, values), {}

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See Head; values have no temperature."""
        return losses.regression(outputs, teacher["logits"][:, 0])


class ChoiceHead(SentenceHead):
    """One of K texts."""

    architecture = "BertForMultipleChoice"
    pipeline_tag = "multiple-choice"

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return models.MultipleChoiceModel(config, **options)


class TokenHead(SentenceHead):
    """Scores of classes from the vectors of certain tokens, one each."""

    loss_name = "classification_loss"
    architecture = "BertModel"  # transformers has none with such a head.

    def __init__(self, kind: label_kinds.OneLabel, token_ids: Sequence[int]):
        """`token_ids` are in every sequence; the first of each one counts."""
        super().__init__(kind)
        self._token_ids = token_ids

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return models.PositionsModel(
            config,
            num_classes=self._num_classes,
            num_positions=len(self._token_ids),
            find_positions=self._positions,
            **options,
        )

    def _positions(self, features: Mapping[str, Any]) -> Any:
        """Returns int32 [B, P]."""
        ids = features["input_ids"]
        found = [ops.argmax(ids == x, axis=1) for x in self._token_ids]
        return ops.cast(ops.stack(found, axis=1), "int32")


_HEADS = {
    label_kinds.OneLabel: SentenceHead,
    label_kinds.AnyLabels: AnyHead,
    label_kinds.Value: ValueHead,
    label_kinds.Choice: ChoiceHead,
}


def head_of(kind: label_kinds.OneLabel, **options: Any) -> SentenceHead:
    """Returns the head of a kind of label; see SentenceHead."""
    return _HEADS[type(kind)](kind, **options)
