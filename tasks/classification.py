"""Sentence tasks on tensors: what they are trained on and what they predict.

    classification, multiple_choice   logits [B, C]  cross entropy
    regression                        logits [B, 1]  squared error
    multi_label                       logits [B, C]  C binary cross entropies

The scores that are reported are computed from the predictions of all examples
together, in float64, wherever they were computed.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import scipy.special
from keras import ops

from data import examples
from modeling import losses, models
from modeling.config import BertConfig
from tasks import metrics

_LOSSES = {
    examples.CLASSIFICATION: losses.classification,
    examples.MULTIPLE_CHOICE: losses.classification,
    examples.REGRESSION: losses.regression,
    examples.MULTI_LABEL: losses.multi_label,
}
_NAME = "classification_loss"


class ClassificationTask:
    """Joins labeled sentences, a model, a loss and a metric."""

    def __init__(self, kind: str):
        """Creates the task of one kind of `data.examples`."""
        self.kind = kind

    def loss_weights(self, features: dict) -> dict[str, Any]:
        """Returns the number of examples."""
        count = ops.shape(features["input_ids"])[0]
        return {_NAME: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss, and the accuracy where there are classes."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        if self.kind != examples.MULTI_LABEL:
            labels = ops.reshape(labels, (-1,))
        loss = _LOSSES[self.kind](logits, labels)
        measured = {}
        if _LOSSES[self.kind] is losses.classification:
            measured["accuracy"] = losses.classification_accuracy(
                logits, labels
            )
        return {_NAME: loss}, measured

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns the logits float32 [B, C]."""
        return {"logits": model(features)}


def make_model(
    config: BertConfig, *, kind: str, num_classes: int, **options: Any
) -> keras.Model:
    """Makes the model of a task; `options` as for ClassificationModel."""
    if kind == examples.MULTIPLE_CHOICE:
        return models.MultipleChoiceModel(config, **options)
    return models.ClassificationModel(
        config, num_classes=num_classes, **options
    )


def probabilities(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns float64 [N, C]: what test_results.tsv holds (values as such)."""
    logits = logits.astype(np.float64)
    if kind == examples.REGRESSION:
        return logits
    if kind == examples.MULTI_LABEL:
        return 0.5 * (1.0 + np.tanh(0.5 * logits))
    return np.exp(scipy.special.log_softmax(logits, axis=1))


def decisions(kind: str, logits: np.ndarray) -> np.ndarray:
    """Returns classes int [N], values float [N], or int [N, C] of 0 and 1."""
    if kind == examples.REGRESSION:
        return logits[:, 0].astype(np.float64)
    if kind == examples.MULTI_LABEL:
        return (logits > 0).astype(np.int64)
    return logits.argmax(axis=1)


def example_losses(
    kind: str, logits: np.ndarray, label_ids: np.ndarray
) -> np.ndarray:
    """Returns float64 [N], the loss of every example."""
    logits = logits.astype(np.float64)
    if kind == examples.REGRESSION:
        return (logits[:, 0] - label_ids[:, 0]) ** 2
    if kind == examples.MULTI_LABEL:
        signs = 1 - 2 * label_ids
        return np.logaddexp(0.0, signs * logits).mean(axis=1)
    rows = np.arange(len(logits))
    return -scipy.special.log_softmax(logits, axis=1)[rows, label_ids[:, 0]]


def scores(
    names: Sequence[str],
    kind: str,
    logits: np.ndarray,
    label_ids: np.ndarray,
    *,
    positive: int = 1,
) -> dict[str, float]:
    """Returns the named metrics; see evaluate."""
    truth = label_ids if kind == examples.MULTI_LABEL else label_ids[:, 0]
    made = decisions(kind, logits)
    if kind == examples.CLASSIFICATION and positive != 1:
        truth, made = 1 - truth, 1 - made
    return metrics.score(names, made, truth)


def evaluate(
    kind: str,
    names: Sequence[str],
    logits: np.ndarray,
    label_ids: np.ndarray,
    *,
    selected_by: Sequence[str] | None = None,
    positive: int = 1,
) -> dict[str, float]:
    """Returns the named metrics, the "score" and the "loss".

    Args:
      kind: of the task.
      names: of tasks.metrics.
      logits: float [N, C].
      label_ids: as `data.examples.encode_labels` gives them.
      selected_by: the names whose mean is the score, by which runs are
        compared, the higher the better; None for all.
      positive: the class that "f1" is of, where there are two.
    """
    values = scores(names, kind, logits, label_ids, positive=positive)
    loss = float(example_losses(kind, logits, label_ids).mean())
    score = float(np.mean([values[name] for name in selected_by or names]))
    return {**values, "score": score, "loss": loss}
