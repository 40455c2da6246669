"""The base of the graphs of tasks: strings to results, in TensorFlow."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from serving.opened_model import Loaded


class TextGraph:
    """A task as TensorFlow operations.

    Attributes:
      inputs: name of a text input -> its specification, batch first.
      outputs: names of the outputs.
      setup: what is known of the model.
      model: the Keras model.
      head: what it computes; None of a masked LM.
      tokenizer: tokenizer of the model.
      max_seq_length: the most tokens of a text, or of a window.
      has_sequences: whether an example has several sequences: choices, windows.
      predict: maps B > 0 texts, string tensors by the names of `inputs`, to
        the task's outputs, each [B, ...].
    """

    inputs: Mapping[str, tf.TensorSpec] = {
        "text": tf.TensorSpec([None], tf.string)
    }
    outputs: tuple[str, ...]
    has_sequences = False
    predict: Callable[..., dict[str, tf.Tensor]]

    def __init__(self, loaded: Loaded):
        """Takes a loaded model of the task."""
        self.setup, self.model = loaded.setup, loaded.model
        self.head = loaded.head
        self.tokenizer = loaded.setup.tokenizer
        self.max_seq_length = loaded.setup.max_seq_length

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps the model's features to its outputs, float32.

        Args:
          features: int32 [B, S], of several sequences [B, K, S].

        Returns:
          logits: [B, C]; of multiple choice [B, K], of a tagger [B, S, C].
          Other tasks have other names.
        """
        return {"logits": self.model(features)}
