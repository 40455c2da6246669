"""The graph of each task: strings to results, as TensorFlow operations.

    opened_model.Loaded -> `make` -> text_graph.TextGraph

The method `predict` maps strings to the results of the task, and `logits` maps
the model's features to its outputs. The texts of the tasks in this file are cut
at the maximum length; `token_graphs` divides texts into windows.
"""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from serving import model_inputs, text_graph, token_graphs
from serving.opened_model import Loaded
from tasks.fill_mask.masked_words import MASK

_MASKS_AT_ONCE = 256  # With 30,522 words, 30 MB of logits.


class SentenceGraph(text_graph.TextGraph):
    """Classification, regression and multi-label classification."""

    def __init__(self, loaded: Loaded):
        """Takes the model; its kind determines the task."""
        super().__init__(loaded)
        names = ["text"]
        if self.setup.are_pairs:
            names.append("text_pair")
        elif self.setup.are_pairs is None:
            logging.warning(
                "%s: it is not known whether the model was trained with pairs "
                "of texts; the graph takes single texts, with --text_pair "
                "pairs",
                self.setup.name,
            )
        self.inputs = {name: tf.TensorSpec([None], tf.string) for name in names}
        self.has_sequences = self.setup.windows is not None
        lists = ("labels", "probabilities")
        self.outputs = {
            "regression": ("score",),
            "multilabel": lists,
            "classification": ("label", "score", *lists),
        }[self.setup.task]

    def predict(
        self, text: tf.Tensor, text_pair: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Maps texts, string [B], to the outputs of the task.

        Returns:
          classification: label string [B], score float32 [B], labels string
            [B, C], probabilities float32 [B, C].
          regression: score float32 [B].
          multilabel: labels string [B, C], probabilities float32 [B, C].
        """
        logits = self.model(self._features(text, text_pair))
        if self.setup.labels is None:
            return {"score": logits[:, 0]}
        names = tf.constant(self.setup.labels)
        labels = tf.broadcast_to(names, tf.shape(logits))
        if self.setup.task == "multilabel":
            probabilities = tf.sigmoid(logits)
            return {"labels": labels, "probabilities": probabilities}
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=1)),
            "score": tf.reduce_max(probabilities, axis=1),
            "labels": labels,
            "probabilities": probabilities,
        }

    def _features(
        self, text: tf.Tensor, text_pair: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        """Returns the model's features [B, S], or [B, K, S] of windows."""
        if self.setup.windows is None:
            return _encode(
                self.tokenizer, text, text_pair, self.max_seq_length
            ).features()
        encode = self.tokenizer.encode_graph
        return model_inputs.join_windows(
            self.tokenizer.vocabulary,
            encode(text),
            None if text_pair is None else encode(text_pair),
            self.max_seq_length,
            **self.setup.windows._asdict(),
        )


class MultipleChoiceGraph(text_graph.TextGraph):
    """Multiple choice: the model scores each pair of context and ending."""

    inputs = {
        "context": tf.TensorSpec([None], tf.string),
        "endings": tf.TensorSpec([None, None], tf.string),
    }

    outputs = ("choice", "probabilities")
    has_sequences = True

    def predict(
        self, context: tf.Tensor, endings: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Maps context string [B] and endings string [B, K] to the choice.

        Returns:
          choice int32 [B], counted from 0, and probabilities float32 [B, K].
        """
        choices = tf.shape(endings)[1]
        sequences = _encode(
            self.tokenizer,
            tf.repeat(context, choices),
            tf.reshape(endings, [-1]),
            self.max_seq_length,
        )
        features = sequences.features()
        shape = tf.stack([tf.shape(context)[0], choices, -1])
        features = {k: tf.reshape(x, shape) for k, x in features.items()}
        logits = self.model(features)
        return {
            "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }


class FillMaskGraph(text_graph.TextGraph):
    """Ranks the vocabulary for every mask of a text.

    fill_mask.py refuses a text that is too long. This graph cuts it, and masks
    beyond the cut get no words.
    """

    outputs = ("words", "probabilities")

    def __init__(self, loaded: Loaded):
        """Takes a masked LM."""
        super().__init__(loaded)
        top_k = self.setup.settings["top_k"]
        self._top_k = min(top_k, len(self.tokenizer.vocabulary))
        # A left-to-right model predicts a token at the position before it.
        self._offset = 1 if self.setup.left_to_right else 0

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to the best tokens of its masks.

        Returns:
          words string [B, M, k] and probabilities float32 [B, M, k]; M is the
          largest number of masks. Rows without a mask hold "" and 0.
        """
        vocabulary = self.tokenizer.vocabulary
        ids = self._encode_masked(text)
        count = tf.reduce_max(_mask_positions(ids, vocabulary).row_lengths())
        sequences = model_inputs.join(
            vocabulary, ids, None, self.max_seq_length
        )
        positions = _mask_positions(sequences.input_ids, vocabulary)
        # The model needs at least one position.
        is_mask = tf.sequence_mask(
            positions.row_lengths(), tf.maximum(count, 1)
        )
        positions = positions.to_tensor(self._offset)
        missing = tf.shape(is_mask)[1] - tf.shape(positions)[1]
        positions = tf.pad(
            positions, [[0, 0], [0, missing]], constant_values=self._offset
        )
        encoded = self.model.bert.encode_positions(
            positions - self._offset, **sequences.features()
        )
        values, ids = self._rank(encoded.sequence_output)
        words = tf.gather(tf.constant(vocabulary.tokens), ids)
        is_mask = is_mask[:, :, None]
        return {
            "words": tf.where(is_mask, words, "")[:, :count],
            "probabilities": tf.where(is_mask, values, 0.0)[:, :count],
        }

    def _rank(self, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best probabilities and ids, [B, P, k], for [B, P, H].

        Some at a time: the logits of all may not fit into memory.
        """
        shape = tf.shape(outputs)
        rows = tf.reshape(outputs, [-1, outputs.shape[-1]])

        def rank(first):
            some = rows[first : first + _MASKS_AT_ONCE]
            logits = self.model.masked_lm(some[None])[0]
            # Embeddings may be padded.
            logits = logits[:, : len(self.tokenizer.vocabulary)]
            return tuple(tf.math.top_k(tf.nn.softmax(logits), self._top_k))

        ranked = tf.map_fn(
            rank,
            tf.range(0, tf.shape(rows)[0], _MASKS_AT_ONCE),
            parallel_iterations=1,
            fn_output_signature=tuple(
                tf.RaggedTensorSpec([None, self._top_k], dtype, ragged_rank=0)
                for dtype in (tf.float32, tf.int32)
            ),
        )
        shape = [shape[0], shape[1], self._top_k]
        return tuple(tf.reshape(x.values, shape) for x in ranked)

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to mlm_logits float32 [B, S, V]."""
        return {"mlm_logits": self.model(features).masked_lm_logits}

    def _encode_masked(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids int32 [B, None]; tokenizes what is between the masks."""
        parts = tf.strings.split(text, MASK)
        ids = self.tokenizer.encode_graph(parts.values)
        mask = tf.fill([ids.nrows(), 1], self.tokenizer.vocabulary.mask_id)
        ids = tf.concat([ids, mask], axis=1)
        ids = parts.with_values(ids).merge_dims(1, 2)
        # There is no mask after the last part.
        return model_inputs.take(ids, tf.maximum(ids.row_lengths() - 1, 0))


class EmbeddingGraph(text_graph.TextGraph):
    """Sentence embeddings: one vector for each text."""

    outputs = ("embedding",)

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to embedding float32 [B, size]."""
        sequences = _encode(self.tokenizer, text, None, self.max_seq_length)
        return self.logits(sequences.features())

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to embedding float32 [B, size]."""
        (embedding,) = self.head.predict(self.model, features).values()
        return {"embedding": embedding}


def _encode(
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


def _mask_positions(
    ids: tf.RaggedTensor, words: vocabulary.Vocabulary
) -> tf.RaggedTensor:
    positions = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32))
    return tf.ragged.boolean_mask(positions, tf.equal(ids, words.mask_id))


# Task -> class of its graph.
_GRAPHS: Mapping[str, type[text_graph.TextGraph]] = {
    "classification": SentenceGraph,
    "regression": SentenceGraph,
    "multilabel": SentenceGraph,
    "multiple_choice": MultipleChoiceGraph,
    "question_answering": token_graphs.AnswerGraph,
    "token_classification": token_graphs.LabelGraph,
    "fill_mask": FillMaskGraph,
    "sentence_embedding": EmbeddingGraph,
}


def make(loaded: Loaded) -> text_graph.TextGraph:
    """Returns the graph of a model's task, with the model's weights.

    Raises:
      InputError: the model has no vectors for the second text of a pair.
    """
    setup = loaded.setup
    graph = _GRAPHS[setup.task](loaded)
    num_segments = setup.config.type_vocab_size
    if len(graph.inputs) > 1 and num_segments < 2:
        raise errors.InputError(
            f"{setup.name}: {' and '.join(graph.inputs)} need 2 segments, but "
            f"type_vocab_size of the model is {num_segments}"
        )
    logging.info(
        "%s: %s of up to %d tokens",
        setup.name,
        setup.task,
        setup.max_seq_length,
    )
    return graph
