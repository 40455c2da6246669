"""Sentence models as export/ builds them: head and predictions."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from modeling import losses
from modeling.config import BertConfig
from tasks.classification import heads, label_kinds


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationObjective:
    """The head and the predictions of a sentence model.

    Attributes:
      config: hyperparameters of the encoder.
      kind: one of `data.examples`.
      labels: names of the classes, in the order of the model's outputs; () for
        a regression.
      window_pooling: see models.DocumentModel; None if texts are not divided.
    """

    config: BertConfig
    kind: str
    labels: Sequence[str] = ()
    window_pooling: str | None = None

    @property
    def head(self) -> heads.SentenceHead:
        """The head of the task."""
        kind = label_kinds.KINDS[self.kind](self.labels)
        return heads.head_of(kind, window_pooling=self.window_pooling)

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        head = self.head
        return {"labels": head.labels, "problem_type": head.problem_type}

    def make_model(self, **options: Any) -> keras.Model:
        """See task_model.Objective."""
        return self.head.build(self.config, **options)

    def load_files(self, model: keras.Model, folder: str) -> Collection[str]:
        """Returns (): all weights are in one file."""
        del model, folder
        return ()

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """See step.Objective."""
        return self.head.loss_weights(features)

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict[str, losses.Weighted], dict[str, losses.Weighted]]:
        """See step.Objective."""
        return self.head.forward(model, features, dropout_seed)

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the logits float32 [B, C]."""
        return self.head.predict(model, features)
