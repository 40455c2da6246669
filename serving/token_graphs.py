"""The graphs of tasks of tokens, whose texts are divided into windows.

    texts -> tokens -> windows -> logits -> the best answer, or labels

`AnswerGraph` gives the best answer as `run_squad.py --exact_answers` does, the
characters of its tokens; lists of answers and complete words are made outside,
by tasks.squad.decoding. `LabelGraph` gives the label of each token with its
characters; tasks.ner makes words, sentences and entities of them, outside.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from serving import model_inputs, predictors, text_graph
from serving.opened_model import Loaded
from tasks.squad import windowing
from tasks.squad.settings import NUM_SPECIAL

if TYPE_CHECKING:
    from data.tokenization.graph_tokenization import TokensWithOffsets

_SPECIAL = 2  # Special tokens of a single text.


class _Windows(NamedTuple):
    """W windows of B texts.

    Attributes:
      texts: int64 [W]; the text of each window.
      first: int64 [W]; its first token among those of all texts.
      offsets: int64 [W]; the position of this token in the window.
      logits: float32 [W, None, N], ragged; of all tokens of the window.
      lengths: int64 [W]; the number of the text's tokens.
    """

    texts: tf.Tensor
    first: tf.Tensor
    offsets: tf.Tensor
    logits: tf.RaggedTensor
    lengths: tf.Tensor

    def has_most_context(self, size_weight: float = 0.0) -> tf.Tensor:
        """Returns bool [sum of lengths]; see windowing.max_context."""
        left = tf.ragged.range(self.lengths)
        rows, left = left.value_rowids(), left.values
        return model_inputs.has_most_context(
            tf.gather(self.first, rows) + left,
            left,
            tf.gather(self.lengths, rows) - 1 - left,
            size_weight=size_weight,
        )


class _TokenGraph(text_graph.TextGraph):
    width: int  # Outputs of a token.

    def _token_logits(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Maps the features of windows to float32 [B, S, width]."""
        raise NotImplementedError

    def _windows(
        self,
        tokens: "TokensWithOffsets",
        query: tf.RaggedTensor | None,
        stride: int,
    ) -> _Windows:
        """Computes the windows of texts, with the query of each before it."""
        begin = tokens.row_splits[:-1]
        lengths = tokens.row_splits[1:] - begin
        room = self.max_seq_length - _SPECIAL + 0 * lengths
        if query is not None:
            room = self.max_seq_length - NUM_SPECIAL - query.row_lengths()
        parts = model_inputs.divide(lengths, room, stride)
        has_tokens = parts.lengths > 0
        texts, starts, lengths = (tf.boolean_mask(x, has_tokens) for x in parts)
        first = tf.gather(begin, texts) + starts
        part = model_inputs.gather_ranges(tokens.ids, first, first + lengths)
        offsets, before = tf.ones_like(first), None
        if query is not None:
            before = tf.gather(query, texts)
            offsets = before.row_lengths() + 2
        sequences = model_inputs.join(
            self.tokenizer.vocabulary,
            part if before is None else before,
            None if before is None else part,
            self.max_seq_length,
        )
        logits = model_inputs.token_outputs(
            self._token_logits, sequences, self.width
        )
        splits = sequences.input_ids.row_splits
        logits = tf.RaggedTensor.from_row_splits(logits[: splits[-1]], splits)
        return _Windows(texts, first, offsets, logits, lengths)


class LabelGraph(_TokenGraph):
    """The labels of tokens, without the scores of a CRF."""

    outputs = ("label", "score", "start", "end")

    def __init__(self, loaded: Loaded):
        """Takes a tagger."""
        super().__init__(loaded)
        self.width = len(self.setup.labels or ())

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to the labels of its tokens.

        Returns:
          label string [B, T]; score float32 [B, T], its probability; start and
          end int32 [B, T], its characters. Rows are padded with "", 0 and -1.
        """
        tokens = self.tokenizer.encode_graph_with_offsets(text)
        room = self.max_seq_length - _SPECIAL
        windows = self._windows(tokens, None, max(1, room // 2))
        begin = windows.logits.row_starts() + windows.offsets
        logits = model_inputs.gather_ranges(
            windows.logits.values, begin, begin + windows.lengths
        ).values
        # Each token once, from the window where it has most context.
        logits = tf.boolean_mask(logits, windows.has_most_context())
        probabilities = tf.nn.softmax(logits)

        def rows(values: tf.Tensor, padding: object) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_splits(values, tokens.row_splits)
            return ragged.to_tensor(padding)

        best = tf.argmax(logits, axis=1)
        return {
            "label": rows(tf.gather(tf.constant(self.setup.labels), best), ""),
            "score": rows(tf.reduce_max(probabilities, axis=1), 0.0),
            "start": rows(tf.cast(tokens.starts, tf.int32), -1),
            "end": rows(tf.cast(tokens.ends, tf.int32), -1),
        }

    def _token_logits(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.model(features)


class AnswerGraph(_TokenGraph):
    """The best answer to a question."""

    inputs = {
        "question": tf.TensorSpec([None], tf.string),
        "context": tf.TensorSpec([None], tf.string),
    }
    outputs = ("answer", "start", "end", "score")
    width = 2

    def __init__(self, loaded: Loaded):
        """Takes a model of SQuAD 1.1 or 2.0."""
        super().__init__(loaded)
        self._settings = predictors.answer_settings(self.setup)

    def predict(
        self, question: tf.Tensor, context: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Maps question and context string [B] to answers.

        Returns:
          answer string [B], "" without one; start and end int32 [B], its
          characters in the context, -1 without one; score float32 [B], its
          probability among the n best.
        """
        sizes = self._settings
        tokens = self.tokenizer.encode_graph_with_offsets(context)
        query = self.tokenizer.encode_graph(question)
        query = model_inputs.take(
            query, tf.minimum(query.row_lengths(), sizes.max_query_length)
        )
        windows = self._windows(tokens, query, sizes.doc_stride)
        return self._best(windows, tokens, tf.size(question, tf.int64))

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to two float32 [B, S]."""
        return self.model(features)._asdict()

    def _token_logits(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.stack(self.model(features), axis=-1)

    def _best(
        self, windows: _Windows, tokens: "TokensWithOffsets", count: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the outputs; see decoding._answer_list."""
        rules, n = self._settings, self._settings.n_best_size
        questions, scores, first, last = self._spans(windows)
        start, end = (
            tf.gather(tokens.starts, first),
            tf.gather(tokens.ends, last),
        )
        # Both sorts are stable.
        order = tf.argsort(-scores)
        order = tf.gather(order, tf.argsort(tf.gather(questions, order)))
        questions, scores, start, end = (
            tf.gather(x, order) for x in (questions, scores, start, end)
        )
        text = self._texts(tokens, questions, start, end)
        # Each text of a question once, at its first rank, and n of them.
        key = tf.strings.join([tf.strings.as_string(questions), text], " ")
        unique, number = tf.unique(key, out_idx=tf.int64)
        chosen = tf.math.unsorted_segment_min(
            tf.range(tf.size(key, tf.int64)), number, tf.size(unique)
        )
        rows, values = tf.gather(questions, chosen), tf.gather(scores, chosen)
        rank = tf.range(tf.size(rows, tf.int64))
        rank -= tf.searchsorted(rows, rows, out_type=tf.int64)
        nulls = self._null_scores(windows, count)
        if rules.version_2_with_negative:
            # "No answer" is one of the n if it is better than the last.
            rank += tf.cast(tf.gather(nulls, rows) > values, tf.int64)
        chosen, rows, values = (
            tf.boolean_mask(x, rank < n) for x in (chosen, rows, values)
        )
        # The best of each question; a question without a span has none.
        index = tf.searchsorted(rows, tf.range(count), out_type=tf.int64)
        is_found = _occurs(rows, count)
        best = tf.gather(tf.pad(chosen, [[0, 1]]), tf.where(is_found, index, 0))
        top = tf.where(is_found, tf.gather(tf.pad(scores, [[0, 1]]), best), 0.0)
        totals = tf.math.unsorted_segment_sum(
            tf.exp(values - tf.gather(top, rows)), rows, count
        )
        is_answer, null_share = is_found, tf.zeros_like(top)
        if rules.version_2_with_negative:
            null_share = tf.exp(nulls - top)
            is_answer &= nulls - top <= self._settings.threshold
        score = tf.where(is_answer, tf.ones_like(top), null_share)
        score /= totals + null_share

        def given(values: tf.Tensor, nothing: object) -> tf.Tensor:
            values = tf.gather(tf.pad(values, [[0, 1]]), best)
            return tf.where(is_answer, values, nothing)

        texts = tf.gather(tf.concat([text, [""]], 0), best)
        return {
            "answer": tf.where(is_answer, texts, ""),
            "start": given(tf.cast(start, tf.int32), -1),
            "end": given(tf.cast(end, tf.int32), -1),
            "score": tf.cast(
                tf.where(is_found, score, tf.ones_like(top)), tf.float32
            ),
        }

    def _spans(self, windows: _Windows) -> tuple[tf.Tensor, ...]:
        """Returns the spans that may be answers; see decoding.best_spans.

        Returns:
          Each [C]: question int64, score float64, first and last token int64.
        """
        rules = self._settings
        n = rules.n_best_size
        padded = windows.logits.to_tensor(-math.inf, shape=[None, None, 2])
        padded = tf.pad(
            padded, [[0, 0], [0, n], [0, 0]], constant_values=-math.inf
        )
        best = tf.math.top_k(tf.transpose(padded, [0, 2, 1]), n)
        # Positions in the paragraph's part of the window.
        positions = tf.cast(best.indices, tf.int64)
        positions -= windows.offsets[:, None, None]
        size = windows.lengths[:, None, None]
        is_good = (positions >= 0) & (positions < size)
        start, end = positions[:, 0, :, None], positions[:, 1, None, :]
        length = end - start + 1
        is_span = is_good[:, 0, :, None] & is_good[:, 1, None, :]
        is_span &= (length >= 1) & (length <= rules.max_answer_length)
        window, i, j = tf.unstack(tf.where(is_span), num=3, axis=1)
        at_start, at_end = tf.stack([window, i], 1), tf.stack([window, j], 1)
        values = tf.cast(best.values, tf.float64)
        scores = tf.gather_nd(values[:, 0], at_start)
        scores += tf.gather_nd(values[:, 1], at_end)
        start = tf.gather_nd(positions[:, 0], at_start)
        end = tf.gather_nd(positions[:, 1], at_end)
        begin = tf.cumsum(windows.lengths, exclusive=True)
        is_best = tf.gather(
            windows.has_most_context(windowing.SIZE_WEIGHT),
            tf.gather(begin, window) + start,
        )
        first = tf.gather(windows.first, window)
        spans = tf.gather(windows.texts, window), scores, first + start
        return tuple(tf.boolean_mask(x, is_best) for x in (*spans, first + end))

    def _null_scores(self, windows: _Windows, count: tf.Tensor) -> tf.Tensor:
        """Returns float64 [B], the lowest sum of the logits of [CLS]."""
        first = tf.gather(windows.logits.values, windows.logits.row_starts())
        sums = tf.reduce_sum(tf.cast(first, tf.float64), axis=1)
        return tf.math.unsorted_segment_min(sums, windows.texts, count)

    def _texts(
        self,
        tokens: "TokensWithOffsets",
        questions: tf.Tensor,
        start: tf.Tensor,
        end: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the characters of the paragraphs, string [C]."""
        decoded = tokens.normalized.decoded
        base = tf.gather(tokens.normalized.decoded_splits, questions)
        codes = model_inputs.gather_ranges(decoded, base + start, base + end)
        return tf.strings.unicode_encode(codes, "UTF-8")


def _occurs(rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns bool [B]: whether each row is among the given ones."""
    ones = tf.ones_like(rows)
    return tf.math.unsorted_segment_max(ones, rows, count) > 0
