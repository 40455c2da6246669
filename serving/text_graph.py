"""The base of the tasks' graphs: strings to answers, as TensorFlow operations.

`task_graphs`, `question_answering` and `tagging` have the tasks; `saved_model`
and `onnx_model` write them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from serving.opened_model import OpenedModel


class TextGraph:
    """A task as TensorFlow operations.

    Attributes:
      task: an export_name of weights.kinds.
      inputs: name of a text input -> its specification, batch first.
      labels: names of the classes, or None.
      settings: how the task is computed, for export.json.
      opened: the files that the model comes from.
      model: the Keras model.
      tokenizer: tokenizer of the model.
      max_seq_length: the most tokens of a text, or of a window.
      predict: maps B > 0 texts, string tensors by the names of `inputs`, to
        the task's outputs, each [B, ...].
    """

    task: str
    inputs: Mapping[str, tf.TensorSpec]
    labels: list[str] | None = None
    settings: Mapping[str, Any] = {}
    predict: Callable[..., dict[str, tf.Tensor]]

    def __init__(self, opened: OpenedModel, model: Any):
        """Takes what `opened` has loaded for the task."""
        self.opened, self.model = opened, model
        self.tokenizer = opened.start.tokenizer
        self.max_seq_length = opened.max_seq_length

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps the model's features to its outputs, float32.

        Args:
          features: int32 [B, S], of multiple choice [B, K, S].

        Returns:
          logits: [B, C]; of multiple choice [B, K], of a tagger [B, S, C].
          Other tasks have other names.
        """
        return {"logits": self.model(features)}
