"""Exported fill-mask models: the most probable tokens of each [MASK].

The results are those of fill_mask.py. A text that is too long is cut, instead
of refused, and its masks beyond the cut get no words.
"""

from typing import Any

import tensorflow as tf

from data.tokenization import wordpiece
from export import model_inputs
from tasks.fill_mask.masked_words import MASK


class FillMaskGraph:
    """Ranks the vocabulary for every mask of a text."""

    task = "fill_mask"
    labels = None
    inputs = {"text": tf.TensorSpec([None], tf.string)}

    def __init__(
        self,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        top_k: int,
        max_seq_length: int,
    ):
        """Takes a PretrainingModel, and the number of words of a mask."""
        self.model = model
        self._tokenizer = tokenizer
        self._top_k = min(top_k, len(tokenizer.vocabulary))
        self._max_seq_length = max_seq_length
        # A left-to-right model predicts a token at the position before it.
        is_causal = model.bert.attention == "left_to_right"
        self._offset = 1 if is_causal else 0

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to the best tokens of its masks.

        Returns:
          words string [B, M, k] and probabilities float32 [B, M, k]; M is the
          largest number of masks. Rows without a mask hold "" and 0.
        """
        vocabulary = self._tokenizer.vocabulary
        ids = self._encode(text)
        count = tf.reduce_max(_mask_positions(ids, vocabulary).row_lengths())
        sequences = model_inputs.join(
            vocabulary, ids, None, self._max_seq_length
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
        outputs = self.model(
            {
                **sequences.features(),
                "masked_lm_positions": positions - self._offset,
            }
        )
        # Embeddings may be padded.
        logits = outputs.masked_lm_logits[..., : len(vocabulary)]
        best = tf.math.top_k(tf.nn.softmax(logits), self._top_k)
        words = tf.gather(tf.constant(vocabulary.tokens), best.indices)
        is_mask = is_mask[:, :, None]
        return {
            "words": tf.where(is_mask, words, "")[:, :count],
            "probabilities": tf.where(is_mask, best.values, 0.0)[:, :count],
        }

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to mlm_logits float32 [B, S, V]."""
        return {"mlm_logits": self.model(features).masked_lm_logits}

    def _encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids int32 [B, None]; tokenizes what is between the masks."""
        parts = tf.strings.split(text, MASK)
        ids = self._tokenizer.encode_graph(parts.values)
        mask = tf.fill([ids.nrows(), 1], self._tokenizer.vocabulary.mask_id)
        ids = tf.concat([ids, mask], axis=1)
        ids = parts.with_values(ids).merge_dims(1, 2)
        # There is no mask after the last part.
        return model_inputs.take(ids, tf.maximum(ids.row_lengths() - 1, 0))


def _mask_positions(ids: tf.RaggedTensor, vocabulary: Any) -> tf.RaggedTensor:
    positions = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32))
    return tf.ragged.boolean_mask(positions, tf.equal(ids, vocabulary.mask_id))
