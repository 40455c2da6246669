"""The loss of sentence tasks, and the predictions and metrics of their logits.

    classification, multiple_choice   logits [B, C]  cross entropy
    regression                        logits [B, 1]  squared error
    multi_label                       logits [B, C]  C binary cross entropies

`ClassificationObjective` computes the loss on tensors while a model is trained.
Everything else is NumPy in float64, over the predictions of a complete set:

    evaluate(kind, ("f1", "accuracy"), logits, label_ids)
        -> {"f1": 0.852, "accuracy": 0.799, "score": 0.8255, "loss": 0.5}
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import scipy.special
from absl import logging
from keras import ops

from data import examples
from jobs import run_directory
from modeling import losses, models
from modeling.config import BertConfig
from tasks.classification import metrics, outcomes, settings
from weights import kinds

_LOSSES = {
    examples.CLASSIFICATION: losses.classification,
    examples.MULTIPLE_CHOICE: losses.classification,
    examples.REGRESSION: losses.regression,
    examples.MULTI_LABEL: losses.multi_label,
}
_NAME = "classification_loss"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationObjective:
    """The head, the loss and the predictions of a sentence model.

    Attributes:
      config: hyperparameters of the encoder.
      kind: one of `data.examples`.
      labels: names of the classes, in the order of the model's outputs; () for
        a regression.
      class_weights: weight of the examples of each label in the training loss;
        () for equal weights.
      window_pooling: see models.DocumentModel; None if texts are not divided.
    """

    per_token: ClassVar[bool] = False
    config: BertConfig
    kind: str
    labels: Sequence[str] = ()
    class_weights: Sequence[float] = ()
    window_pooling: str | None = None

    @property
    def num_classes(self) -> int:
        """The number of the model's outputs."""
        return len(self.labels) or 1

    @property
    def names(self) -> list[str] | None:
        """The labels that are stored with a model; None if it has no classes.

        Outputs for endings and for values are not classes.
        """
        has_classes = self.kind in (
            examples.CLASSIFICATION,
            examples.MULTI_LABEL,
        )
        return list(self.labels) if has_classes else None

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        return {
            "labels": self.names,
            "problem_type": kinds.KINDS[self.kind].problem_type,
        }

    def make_model(self, **options: Any) -> keras.Model:
        """Makes the model; see task_model.Objective."""
        if self.kind == examples.MULTIPLE_CHOICE:
            return models.MultipleChoiceModel(self.config, **options)
        if self.window_pooling is not None:
            return models.DocumentModel(
                self.config,
                num_classes=self.num_classes,
                window_pooling=self.window_pooling,
                **options,
            )
        return models.ClassificationModel(
            self.config, num_classes=self.num_classes, **options
        )

    def load_files(self, model: keras.Model, folder: str) -> Collection[str]:
        """Returns (): all weights are in one file."""
        del model, folder
        return ()

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of examples, or the sum of their weights."""
        if self.class_weights:
            return {_NAME: ops.sum(self._example_weights(features))}
        count = ops.shape(features["input_ids"])[0]
        return {_NAME: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss, and the accuracy if there are classes."""
        logits = model(features, dropout_seed=dropout_seed)
        return self.hard_losses(logits, features)

    def hard_losses(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[dict, dict]:
        """Returns what `forward` does, from the logits."""
        logits, labels = outputs, features["label_ids"]
        if self.kind != examples.MULTI_LABEL:
            labels = ops.reshape(labels, (-1,))
        if self.class_weights:
            weights = self._example_weights(features)
            loss = losses.classification(logits, labels, weights)
        else:
            loss = _LOSSES[self.kind](logits, labels)
        training_metrics = {}
        if _LOSSES[self.kind] is losses.classification:
            training_metrics["accuracy"] = losses.classification_accuracy(
                logits, labels
            )
        return {_NAME: loss}, training_metrics

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See distillation.Objective; a regression has no temperature."""
        logits = teacher["logits"]
        if self.kind == examples.REGRESSION:
            return losses.regression(outputs, logits[:, 0])
        if self.kind == examples.MULTI_LABEL:
            return losses.soft_multi_label(outputs, logits, temperature)
        weights = (
            self._example_weights(features) if self.class_weights else None
        )
        return losses.soft_classification(outputs, logits, temperature, weights)

    def of_teacher(
        self, config: BertConfig, folder: str
    ) -> "ClassificationObjective":
        """See distillation.Objective.

        A teacher of windows pools their logits as in its own training.
        """
        trained = run_directory.training_flags(folder)
        pooling = settings.LongTexts.of_training(trained).pooling
        if self.window_pooling is None:
            if pooling is not None:
                logging.warning(
                    "%s was trained with --long_texts=windows, but reads texts "
                    "that are cut",
                    folder,
                )
            pooling = None
        else:
            pooling = pooling or "mean"
        return dataclasses.replace(self, config=config, window_pooling=pooling)

    def _example_weights(self, features: Mapping[str, Any]) -> Any:
        """Returns float32 [B], the weights of the examples' classes."""
        weights = ops.convert_to_tensor(self.class_weights, "float32")
        return ops.take(weights, ops.reshape(features["label_ids"], (-1,)))

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the logits float32 [B, C]."""
        return {"logits": model(features)}


def balanced_weights(label_ids: np.ndarray, num_classes: int) -> list[float]:
    """Returns weights with which all classes count the same: N / (C * count).

    Args:
      label_ids: int [N, 1], labels of the training set.
      num_classes: number of all classes; a class without examples gets the
        weight 1.
    """
    counts = np.bincount(label_ids[:, 0], minlength=num_classes)
    mean = len(label_ids) / np.count_nonzero(counts)
    return [float(mean / count) if count else 1.0 for count in counts]


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
      kind: kind of the task.
      names: names of metrics, keys of metrics.METRICS.
      logits: float [N, C].
      label_ids: encoded labels, as data.examples.encode_labels returns them.
      selected_by: the metrics whose mean is the score, by which runs are
        compared; None for all. A higher score is better.
      positive: the class whose "f1" is computed, if there are two.
    """
    values = scores(names, kind, logits, label_ids, positive=positive)
    loss = float(example_losses(kind, logits, label_ids).mean())
    score = float(np.mean([values[name] for name in selected_by or names]))
    return {**values, "score": score, "loss": loss}


def scores(
    names: Sequence[str],
    kind: str,
    logits: np.ndarray,
    label_ids: np.ndarray,
    *,
    positive: int = 1,
) -> dict[str, float]:
    """Returns the named metrics; see evaluate."""
    references = label_ids if kind == examples.MULTI_LABEL else label_ids[:, 0]
    predictions = outcomes.decisions(kind, logits)
    if kind == examples.CLASSIFICATION and positive != 1:
        references, predictions = 1 - references, 1 - predictions
    return metrics.compute(names, predictions, references)
