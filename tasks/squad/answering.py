"""Question answering on tensors: the head, the loss and the logits.

The model has two logits for each token of a window: the answer starts at the
token with the highest start logit and ends at that with the highest end logit.
Both are trained with the cross entropy over all positions of a window. If the
answer is not in the window, both labels are 0, the position of [CLS].
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from keras import ops

from data.features import Features
from foundation import errors
from jobs.task_model import TaskModel
from modeling import losses, models
from modeling.config import BertConfig
from tasks.squad import blocks, prompt
from weights import task_files

_LOSS = "span_loss"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanObjective:
    """The head, the loss and the predictions of question answering.

    Attributes:
      config: hyperparameters of the encoder.
      with_negative: whether questions may have no answer (SQuAD 2.0).
    """

    per_token: ClassVar[bool] = True
    config: BertConfig
    with_negative: bool = False

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        return dataclasses.asdict(
            task_files.SquadSettings(version_2_with_negative=self.with_negative)
        )

    def make_model(self, **options: Any) -> models.QuestionAnsweringModel:
        """Makes the model; see task_model.Objective."""
        return models.QuestionAnsweringModel(self.config, **options)

    def load_files(self, model: Any, folder: str) -> Collection[str]:
        """Returns (): all weights are in one file."""
        del model, folder
        return ()

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of windows."""
        count = ops.shape(features["input_ids"])[0]
        return {_LOSS: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracies of both positions."""
        logits = model(features, dropout_seed=dropout_seed)
        return self.hard_losses(logits, features)

    def hard_losses(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[dict, dict]:
        """Returns what `forward` does, from the logits."""
        logits = outputs
        start = ops.reshape(features["start_positions"], (-1,))
        end = ops.reshape(features["end_positions"], (-1,))
        loss = losses.span(logits.start_logits, logits.end_logits, start, end)
        accuracy = losses.classification_accuracy
        return {_LOSS: loss}, {
            "start_accuracy": accuracy(logits.start_logits, start),
            "end_accuracy": accuracy(logits.end_logits, end),
        }

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See distillation.Objective."""
        names = ("start_logits", "end_logits")
        return losses.soft_span(
            [getattr(outputs, name) for name in names],
            [teacher[name][..., 0] for name in names],
            features["input_mask"],
            temperature,
        )

    def of_teacher(self, config: BertConfig, folder: str) -> "SpanObjective":
        """See distillation.Objective; both answer the same SQuAD.

        Raises:
          InputError: only one of both may leave a question without an answer.
        """
        stored = task_files.read_settings(folder)
        if stored and stored.version_2_with_negative != self.with_negative:
            raise errors.InputError(
                f"--version_2_with_negative is {self.with_negative}, but "
                f"{stored.version_2_with_negative} of the teacher in {folder}"
            )
        return dataclasses.replace(self, config=config)

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns both logits, float32 [B, S]."""
        logits = model(features)
        return {
            "start_logits": logits.start_logits,
            "end_logits": logits.end_logits,
        }


def model_logits(task_model: TaskModel, *, pads: bool) -> blocks.Logits:
    """Returns a function that computes a model's logits of windows.

    Args:
      task_model: the model.
      pads: see TaskModel.predict.
    """
    config = task_model.config

    def predictions(features: Features) -> Iterator[dict[str, np.ndarray]]:
        return task_model.predictions(
            features, config.predict_batch_size, pads=pads
        )

    return prompt.model_logits(predictions, config.devices.precision)
