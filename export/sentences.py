"""Exported sentence tasks: text to labels, scores, choices or vectors.

Each class maps strings to answers (`predict`) and the model's features to
logits (`logits`), with TensorFlow operations only. The results are those of
run_classifier.py and extract_features.py.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from data import examples
from data.tokenization import wordpiece
from export import model_inputs
from tasks.features import feature_extraction

# Kinds of data.examples -> tasks of export.json.
TASKS = {
    examples.CLASSIFICATION: "classification",
    examples.REGRESSION: "regression",
    examples.MULTI_LABEL: "multilabel",
}


class SentenceGraph:
    """Classification, regression and multi-label classification."""

    def __init__(
        self,
        kind: str,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        labels: Sequence[str],
        has_pairs: bool,
        max_seq_length: int,
    ):
        """Takes a ClassificationModel; `kind` is one of data.examples."""
        self.task = TASKS[kind]
        is_regression = kind == examples.REGRESSION
        self.labels = None if is_regression else list(labels)
        names = ["text", "text_pair"] if has_pairs else ["text"]
        self.inputs = {name: tf.TensorSpec([None], tf.string) for name in names}
        self.model = model
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length

    def predict(
        self, text: tf.Tensor, text_pair: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Maps texts, string [B], to the outputs of the task.

        Returns:
          Of a classification label string [B] and its score float32 [B]; of a
          regression score float32 [B]; of a multi-label classification and a
          classification labels string [B, C] and probabilities float32 [B, C].
        """
        sequences = encode(
            self._tokenizer, text, text_pair, self._max_seq_length
        )
        logits = self.model(sequences.features())
        if self.labels is None:
            return {"score": logits[:, 0]}
        names = tf.constant(self.labels)
        labels = tf.broadcast_to(names, tf.shape(logits))
        if self.task == "multilabel":
            probabilities = tf.sigmoid(logits)
            return {"labels": labels, "probabilities": probabilities}
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=1)),
            "score": tf.reduce_max(probabilities, axis=1),
            "labels": labels,
            "probabilities": probabilities,
        }

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to logits float32 [B, C]."""
        return {"logits": self.model(features)}


class MultipleChoiceGraph:
    """Multiple choice: the model scores each pair of context and ending."""

    task = "multiple_choice"
    labels = None
    inputs = {
        "context": tf.TensorSpec([None], tf.string),
        "endings": tf.TensorSpec([None, None], tf.string),
    }

    def __init__(
        self,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        max_seq_length: int,
    ):
        """Takes a MultipleChoiceModel."""
        self.model = model
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length

    def predict(
        self, context: tf.Tensor, endings: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Maps context string [B] and endings string [B, K] to the choice.

        Returns:
          choice int32 [B], counted from 0, and probabilities float32 [B, K].
        """
        choices = tf.shape(endings)[1]
        sequences = encode(
            self._tokenizer,
            tf.repeat(context, choices),
            tf.reshape(endings, [-1]),
            self._max_seq_length,
        )
        features = sequences.features()
        shape = tf.stack([tf.shape(context)[0], choices, -1])
        features = {k: tf.reshape(x, shape) for k, x in features.items()}
        logits = self.model(features)
        return {
            "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, K, S] to logits float32 [B, K]."""
        return {"logits": self.model(features)}


class EmbeddingGraph:
    """Sentence embeddings: one vector for each text."""

    task = "sentence_embedding"
    labels = None
    inputs = {"text": tf.TensorSpec([None], tf.string)}

    def __init__(
        self,
        extraction: feature_extraction.ExtractionTask,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        max_seq_length: int,
    ):
        """Takes an encoder and how its layers become vectors."""
        self.model = model
        self._extraction = extraction
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to embedding float32 [B, H]."""
        sequences = encode(self._tokenizer, text, None, self._max_seq_length)
        return self.logits(sequences.features())

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to embedding float32 [B, H]."""
        (embedding,) = self._extraction.predict(self.model, features).values()
        return {"embedding": embedding}


def encode(
    tokenizer: wordpiece.Tokenizer,
    first: tf.Tensor,
    second: tf.Tensor | None,
    max_seq_length: int,
) -> model_inputs.Sequences:
    """Tokenizes texts string [N], or pairs, and joins them to sequences."""
    ids = tokenizer.encode_graph(first)
    pair_ids = None if second is None else tokenizer.encode_graph(second)
    return model_inputs.join(
        tokenizer.vocabulary, ids, pair_ids, max_seq_length
    )
