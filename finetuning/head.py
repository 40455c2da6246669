"""The part of a task that knows Keras: from the encoder to outputs and a loss.

A Head is what training.step and training.inference call an objective. Tasks
import theirs in Task.head, so that files are checked before Keras is imported.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from data.features import Features
from data.tokenization import wordpiece
from modeling import losses
from modeling.config import BertConfig
from weights import model_directory

TEACHER = "teacher_"  # Prefix of a teacher's outputs among the features.
_SOFT_LOSS = "distillation_loss"


class Head:
    """What a task computes on the encoder. Subclasses override what differs.

    Attributes:
      per_token: whether outputs are [B, S, ...], else [B, ...].
      is_frozen: whether `prepare` computes with the pre-trained weights, which
        the training does not change.
      loss_name: the name of the loss in metrics.
      architecture: the class of transformers with the same head; of other
        heads, transformers loads the encoder.
      labels: names of the outputs, which are stored with the weights; None if
        they have no names.
      problem_type: transformers' name for the kind of classification.
      pipeline_tag: the Hub's name for the task.
    """

    per_token = False
    is_frozen = False
    loss_name = "task_loss"
    architecture = "BertModel"
    labels: Sequence[str] | None = None
    problem_type: str | None = None
    pipeline_tag = "text-classification"

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """Makes the model with random weights.

        Args:
          config: the hyperparameters.
          **options: attention, bilstm_size, recompute, seed and dtype, see
            modeling.models.
        """
        raise NotImplementedError

    def prepare(
        self,
        network: Any,
        features: Features,
        batch_size: int,
        split: str | None = None,
    ) -> Features:
        """Returns the features that the trained part of the model reads.

        Args:
          network: the network.Network, with its weights.
          features: the features of sequences, or what this has returned.
          batch_size: rows per batch.
          split: the set, if they may be kept beside the run.
        """
        return features

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """Returns the loss of the outputs for a batch, and metrics by name."""
        raise NotImplementedError

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """Returns the loss against a teacher, of the weight of `loss`.

        Args:
          outputs: what the model returns.
          teacher: the teacher's predictions by name: [B, D] or [B, S, D].
          features: the batch.
          temperature: the divisor of all logits.
        """
        raise NotImplementedError

    def weight(self, features: Mapping[str, Any]) -> Any:
        """Returns what the loss of a batch is divided by, float32 []."""
        return ops.cast(ops.shape(features["input_ids"])[0], "float32")

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the outputs by name, [B, ...] or [B, S, ...]."""
        return {"logits": model(features)}

    def constants(self, model: keras.Model) -> dict[str, Any]:
        """Returns arrays of the weights that Task.decode needs, by name."""
        return {}

    def save(
        self, model: Any, directory: str, tokenizer: wordpiece.Tokenizer
    ) -> None:
        """Writes a model directory that transformers reads."""
        model_directory.save(
            model,
            directory,
            tokenizer,
            labels=self.labels,
            problem_type=self.problem_type,
        )

    def load_files(self, model: Any, directory: str) -> Sequence[str]:
        """Assigns weights from further files of a model directory.

        Returns:
          The paths of these variables.
        """
        return ()

    # What training.step calls.

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the weight of the loss by its name."""
        return {self.loss_name: self.weight(features)}

    def forward(
        self,
        model: keras.Model,
        features: Mapping[str, Any],
        dropout_seed: Any = None,
    ) -> tuple[dict, dict]:
        """Returns the losses and the metrics by name."""
        outputs = model(features, dropout_seed=dropout_seed)
        loss, metrics = self.loss(outputs, features)
        return {self.loss_name: loss}, metrics


@dataclasses.dataclass(frozen=True)
class Student:
    """The loss of a head whose targets are a teacher's outputs, too.

        loss = (1 - weight) * Head.loss + weight * Head.soft_loss

    Attributes:
      head: the head of the task.
      temperature: divisor of the logits of both models (Hinton et al. 2015).
      weight: weight of the soft loss.
    """

    head: Head
    temperature: float
    weight: float

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the weight of the task's loss for both losses."""
        weight = self.head.weight(features)
        return {self.head.loss_name: weight, _SOFT_LOSS: weight}

    def forward(
        self,
        model: keras.Model,
        features: Mapping[str, Any],
        dropout_seed: Any = None,
    ) -> tuple[dict, dict]:
        """Returns both losses, and the metrics of the task."""
        outputs = model(features, dropout_seed=dropout_seed)
        hard, metrics = self.head.loss(outputs, features)
        teacher = {
            name.removeprefix(TEACHER): values
            for name, values in features.items()
            if name.startswith(TEACHER)
        }
        soft = self.head.soft_loss(outputs, teacher, features, self.temperature)
        return {
            self.head.loss_name: hard._replace(
                factor=(1.0 - self.weight) * hard.factor
            ),
            _SOFT_LOSS: soft._replace(factor=self.weight),
        }, metrics
