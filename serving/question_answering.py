"""Exported question answering: question and paragraph to answers.

    texts -> tokens -> windows -> logits -> spans -> texts -> answers

The results are those of run_squad.py: `tasks.squad.windowing` cuts the windows,
and `tasks.squad.decoding` explains the order of the spans, "no answer" and how
the tokens of a span become complete words of the paragraph. Here all questions
of a batch are decoded together. Letters are the characters of a paragraph that
are not white space; a span becomes a range of letters, and thus of characters.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from data.tokenization import normalization
from data.tokenization.graph_tokenization import TokensWithOffsets
from serving import model_inputs, text_graph
from serving.opened_model import OpenedModel
from tasks.squad import dataset, decoding, windowing
from tasks.squad.settings import NUM_SPECIAL

_STARTS_WORD = 1 << 21  # Larger than any code point.


class Windows(NamedTuple):
    """W windows of B questions.

    Attributes:
      questions: int64 [W]; the question of each window.
      offsets: int64 [W]; position of the paragraph's first token in the window.
      lengths: int64 [W]; number of the paragraph's tokens.
      first_tokens: int64 [W]; the first of them in the documents.
    """

    questions: tf.Tensor
    offsets: tf.Tensor
    lengths: tf.Tensor
    first_tokens: tf.Tensor


class Spans(NamedTuple):
    """C spans that may be answers.

    Attributes:
      questions: int64 [C].
      scores: float64 [C], the sum of both logits.
      first: int64 [C]; the first token in the documents.
      last: int64 [C]; the last token.
    """

    questions: tf.Tensor
    scores: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor


class AnswerGraph(text_graph.TextGraph):
    """Question answering."""

    task = "question_answering"
    inputs = {
        "question": tf.TensorSpec([None], tf.string),
        "context": tf.TensorSpec([None], tf.string),
    }

    def __init__(self, opened: OpenedModel):
        """Loads a model of SQuAD 1.1 or 2.0."""
        task_model, settings = opened.answerer()
        super().__init__(opened, task_model.model)
        self.settings = settings.besides_length
        self._sizes = self._rules = settings
        self._threshold = settings.threshold

    def predict(
        self, question: tf.Tensor, context: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Maps question and context string [B] to answers.

        Returns:
          answer string [B], "" without one; start and end int32 [B], its
          characters in the context, -1 without one; score float32 [B], its
          probability among the n best; and these, answers string [B, n] and
          scores float32 [B, n], padded with "" and 0.
        """
        documents = self.tokenizer.encode_graph_with_offsets(context)
        windows, sequences = self._windows(question, documents)
        logits = model_inputs.token_outputs(self._span_logits, sequences, 2)
        splits = sequences.input_ids.row_splits
        logits = tf.RaggedTensor.from_row_splits(logits[: splits[-1]], splits)
        spans = self._spans(windows, logits, documents)
        count = tf.size(question, tf.int64)
        nulls = _null_scores(windows, logits, count)
        if not self._rules.version_2_with_negative:
            # Only a question without any span has "no answer".
            impossible = tf.constant(-math.inf, tf.float64)
            has_span = _occurs(spans.questions, count)
            nulls = tf.where(has_span, impossible, 0.0)
        return self._answers(spans, nulls, documents)

    def logits(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps features of [B, S] to two float32 [B, S]."""
        return self.model(features)._asdict()

    def _span_logits(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.stack(self.model(features), axis=-1)

    def _windows(
        self, question: tf.Tensor, documents: TokensWithOffsets
    ) -> tuple[Windows, model_inputs.Sequences]:
        """Cuts the paragraphs into windows; see windowing.cut."""
        sizes = self._sizes
        queries = self.tokenizer.encode_graph(question)
        queries = model_inputs.take(
            queries, tf.minimum(queries.row_lengths(), sizes.max_query_length)
        )
        begin = documents.row_splits[:-1]
        num_tokens = documents.row_splits[1:] - begin
        room = sizes.max_seq_length - queries.row_lengths() - NUM_SPECIAL
        parts = model_inputs.divide(num_tokens, room, sizes.doc_stride)
        has_tokens = parts.lengths > 0
        rows, starts, lengths = (tf.boolean_mask(x, has_tokens) for x in parts)
        first_tokens = tf.gather(begin, rows) + starts
        sequences = model_inputs.join(
            self.tokenizer.vocabulary,
            tf.gather(queries, rows),
            model_inputs.gather_ranges(
                documents.ids, first_tokens, first_tokens + lengths
            ),
            sizes.max_seq_length,
        )
        offsets = tf.gather(queries.row_lengths(), rows) + 2
        return Windows(rows, offsets, lengths, first_tokens), sequences

    def _spans(
        self,
        windows: Windows,
        logits: tf.RaggedTensor,
        documents: TokensWithOffsets,
    ) -> Spans:
        """Returns the spans that may be answers; see decoding.best_spans."""
        n = self._rules.n_best_size
        padded = logits.to_tensor(-math.inf, shape=[None, None, 2])
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
        is_span &= (length >= 1) & (length <= self._rules.max_answer_length)
        window, i, j = tf.unstack(tf.where(is_span), num=3, axis=1)
        start = tf.gather_nd(positions[:, 0], tf.stack([window, i], 1))
        end = tf.gather_nd(positions[:, 1], tf.stack([window, j], 1))
        values = tf.cast(best.values, tf.float64)
        scores = tf.gather_nd(values[:, 0], tf.stack([window, i], 1))
        scores += tf.gather_nd(values[:, 1], tf.stack([window, j], 1))
        begin = tf.cumsum(windows.lengths, exclusive=True)
        is_best = _has_most_context(windows)
        is_best = tf.gather(is_best, tf.gather(begin, window) + start)
        first = tf.gather(windows.first_tokens, window)
        spans = Spans(
            tf.gather(windows.questions, window),
            scores,
            first + start,
            first + end,
        )
        return Spans(*(tf.boolean_mask(x, is_best) for x in spans))

    def _answers(
        self, spans: Spans, nulls: tf.Tensor, documents: TokensWithOffsets
    ) -> dict[str, tf.Tensor]:
        """Returns the outputs; see decoding._answer_list.

        Args:
          spans: the spans of all questions.
          nulls: float64 [B], the scores of "no answer"; -inf if it is none.
          documents: the paragraphs.
        """
        n = self._rules.n_best_size
        count = tf.size(nulls, tf.int64)
        start, end = self._characters(spans, documents)
        text = _texts(
            documents, start, end, joins_words=not self._rules.exact_answers
        )
        rows = tf.boolean_mask(tf.range(count), nulls > -math.inf)
        questions = tf.concat([spans.questions, rows], 0)
        scores = tf.concat([spans.scores, tf.gather(nulls, rows)], 0)
        text = tf.concat([text, tf.fill(tf.shape(rows), "")], 0)
        outside = tf.fill(tf.shape(rows), tf.constant(-1, tf.int64))
        base = tf.gather(documents.normalized.decoded_splits, spans.questions)
        start = tf.concat([start - base, outside], 0)
        end = tf.concat([end - base, outside], 0)
        # Both sorts are stable.
        order = tf.argsort(-scores)
        order = tf.gather(order, tf.argsort(tf.gather(questions, order)))
        questions, scores, text, start, end = (
            tf.gather(x, order) for x in (questions, scores, text, start, end)
        )
        # Each text of a question once, at its first rank.
        key = tf.strings.join([tf.strings.as_string(questions), text], " ")
        unique, number = tf.unique(key, out_idx=tf.int64)
        first = tf.math.unsorted_segment_min(
            tf.range(tf.size(key, tf.int64)), number, tf.size(unique)
        )
        # tf.unique keeps the order, so these are sorted by question.
        questions, scores, text, start, end = (
            tf.gather(x, first) for x in (questions, scores, text, start, end)
        )
        is_text = tf.not_equal(text, "")
        rank = tf.range(tf.size(questions, tf.int64))
        rank -= tf.searchsorted(questions, questions, out_type=tf.int64)
        is_kept = (rank < n) | ~is_text
        questions, scores, text, start, end, is_text = (
            tf.boolean_mask(x, is_kept)
            for x in (questions, scores, text, start, end, is_text)
        )
        by_question = tf.RaggedTensor.from_value_rowids(
            scores, questions, count
        )
        probabilities = tf.exp(
            scores - tf.gather(tf.reduce_max(by_question, axis=1), questions)
        )
        totals = tf.math.segment_sum(probabilities, questions)
        probabilities = tf.cast(
            probabilities / tf.gather(totals, questions), tf.float32
        )
        best = self._chosen(by_question, is_text)
        best_start, best_end = (
            tf.cast(tf.gather(x, best), tf.int32) for x in (start, end)
        )
        return {
            "answer": tf.gather(text, best),
            "start": best_start,
            "end": best_end,
            "score": tf.gather(probabilities, best),
            "answers": by_question.with_values(text).to_tensor(""),
            "scores": by_question.with_values(probabilities).to_tensor(0.0),
        }

    def _chosen(self, scores: tf.RaggedTensor, is_text: tf.Tensor) -> tf.Tensor:
        """Returns int64 [B], the index of the answer among all entries."""
        begin = scores.row_starts()
        if not self._rules.version_2_with_negative:
            return begin
        questions = scores.value_rowids()
        index = tf.range(tf.size(questions, tf.int64))
        count = scores.nrows()
        # Each question has one entry without a text.
        null = tf.boolean_mask(index, ~is_text)
        text = tf.math.unsorted_segment_min(
            tf.boolean_mask(index, is_text),
            tf.boolean_mask(questions, is_text),
            count,
        )
        has_text = text < tf.size(questions, tf.int64)
        text = tf.where(has_text, text, null)
        odds = tf.gather(scores.values, null) - tf.gather(scores.values, text)
        odds = tf.where(
            has_text, odds, tf.constant(decoding.NO_ANSWER_ODDS, tf.float64)
        )
        return tf.where(odds > self._threshold, null, text)

    def _characters(
        self, spans: Spans, documents: TokensWithOffsets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the characters of answers in all paragraphs: int64 [C] each.

        See decoding._projector and decoding.final_text.
        """
        base = tf.gather(documents.normalized.decoded_splits, spans.questions)
        token_start = base + tf.gather(documents.starts, spans.first)
        if self._rules.exact_answers:
            return token_start, base + tf.gather(documents.ends, spans.last)
        letters = _Letters(documents)
        begin, end = letters.of_words(
            token_start, base + tf.gather(documents.starts, spans.last)
        )
        first, last = letters.of_codes(
            tf.gather(documents.first_codes, spans.first),
            tf.gather(documents.end_codes, spans.last),
        )
        low, high = letters.codes_of_letters(begin, end)
        # Tokens before each token that are [UNK]: their text is not found.
        vocabulary = self.tokenizer.vocabulary
        is_unknown = tf.equal(documents.ids, vocabulary.unk_id)
        unknown = tf.cumsum(tf.cast(is_unknown, tf.int64))
        unknown = tf.pad(unknown, [[1, 0]])
        is_found = tf.equal(
            tf.gather(unknown, spans.last + 1), tf.gather(unknown, spans.first)
        )
        # Letters correspond to codes if there are as many.
        is_found &= tf.equal(end - begin, high - low)
        is_continuation = tf.constant(vocabulary.is_continuation)
        starts_word = ~tf.gather(is_continuation, documents.ids)
        place = letters.find(
            tf.boolean_mask(documents.first_codes, starts_word),
            first,
            last,
            tf.where(is_found, low, first),
        )
        shift = begin - low
        return letters.characters(
            tf.where(is_found, place + shift, begin),
            tf.where(is_found, place + last - first + shift, end),
        )


def _null_scores(
    windows: Windows, logits: tf.RaggedTensor, count: tf.Tensor
) -> tf.Tensor:
    """Returns float64 [B], the scores of "no answer"; 0 without a window.

    It is the lowest sum of the logits of [CLS].
    """
    first = tf.gather(logits.values, logits.row_starts())
    sums = tf.reduce_sum(tf.cast(first, tf.float64), axis=1)
    lowest = tf.math.unsorted_segment_min(sums, windows.questions, count)
    return tf.where(_occurs(windows.questions, count), lowest, 0.0)


def _occurs(questions: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns bool [B]: whether each question is among the given ones."""
    ones = tf.ones_like(questions)
    return tf.math.unsorted_segment_max(ones, questions, count) > 0


def _has_most_context(windows: Windows) -> tf.Tensor:
    """Returns bool [sum of lengths]; see windowing.max_context."""
    left = tf.ragged.range(windows.lengths)
    rows, left = left.value_rowids(), left.values
    return model_inputs.has_most_context(
        tf.gather(windows.first_tokens, rows) + left,
        left,
        tf.gather(windows.lengths, rows) - 1 - left,
        size_weight=windowing.SIZE_WEIGHT,
    )


def _texts(
    documents: TokensWithOffsets,
    starts: tf.Tensor,
    ends: tf.Tensor,
    *,
    joins_words: bool,
) -> tf.Tensor:
    """Returns characters of the paragraphs; words are joined by one space."""
    # Many spans become the same characters.
    count = tf.size(documents.normalized.decoded, tf.int64) + 1
    unique, number = tf.unique(starts * count + ends, out_idx=tf.int64)
    codes = model_inputs.gather_ranges(
        documents.normalized.decoded, unique // count, unique % count
    )
    texts = tf.strings.unicode_encode(codes, "UTF-8")
    if joins_words:
        spaces = "".join(rf"\x{{{ord(x):x}}}" for x in dataset.WHITESPACE)
        texts = tf.strings.regex_replace(texts, f"[{spaces}]+", " ")
    return tf.gather(texts, number)


class _Letters:
    """The letters of paragraphs, and the codes that tokens are made of.

    Codes are the normalized characters; of these, spaces are left out.
    """

    def __init__(self, documents: TokensWithOffsets):
        normalized = documents.normalized
        decoded = normalized.decoded
        self._splits = normalized.decoded_splits
        spaces = [ord(char) for char in dataset.WHITESPACE]
        is_letter = ~tf.reduce_any(
            tf.equal(decoded[:, None], tf.constant(spaces)), axis=1
        )
        self._positions = tf.where(is_letter)[:, 0]
        self._letters_before = _count(is_letter)
        # Words are numbered over all paragraphs.
        count = tf.size(decoded, tf.int64)
        firsts = tf.boolean_mask(self._splits, self._splits < count)
        is_first = tf.scatter_nd(firsts[:, None], tf.ones_like(firsts), [count])
        after_space = tf.concat([[True], ~is_letter[:-1]], 0)[:count]
        is_start = is_letter & (after_space | (is_first > 0))
        self._word = tf.cumsum(tf.cast(is_start, tf.int64)) - 1
        self._word_letters = tf.concat(
            [
                tf.gather(self._letters_before, tf.where(is_start)[:, 0]),
                [tf.size(self._positions, tf.int64)],
            ],
            0,
        )
        is_code = tf.not_equal(normalized.codes, normalization.SPACE)
        self._codes_before = _count(is_code)
        self._codes = tf.boolean_mask(normalized.codes, is_code)
        self._code_words = tf.gather(
            self._word, tf.boolean_mask(normalized.source, is_code)
        )

    def of_words(
        self, first: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the letters of the words from one character to another."""
        return (
            tf.gather(self._word_letters, tf.gather(self._word, first)),
            tf.gather(self._word_letters, tf.gather(self._word, last) + 1),
        )

    def of_codes(
        self, first: tf.Tensor, end: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the indices without spaces of normalized codes."""
        return (
            tf.gather(self._codes_before, first),
            tf.gather(self._codes_before, end),
        )

    def codes_of_letters(
        self, begin: tf.Tensor, end: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the codes of complete words, given by their letters."""
        first, last = (
            tf.gather(self._word, tf.gather(self._positions, x))
            for x in (begin, end - 1)
        )
        return (
            tf.searchsorted(self._code_words, first, out_type=tf.int64),
            tf.searchsorted(
                self._code_words, last, side="right", out_type=tf.int64
            ),
        )

    def find(
        self,
        word_starts: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        low: tf.Tensor,
    ) -> tf.Tensor:
        """Finds where the codes [first, last) occur first, from `low` on.

        Args:
          word_starts: int64; normalized codes that begin a word or a
            punctuation mark. A text has a space before each but its first.
          first: int64 [C].
          last: int64 [C].
          low: int64 [C], at most `first`.

        Returns:
          int64 [C], from low to first.
        """
        starts = tf.gather(self._codes_before, word_starts)
        marks = tf.scatter_nd(
            starts[:, None],
            tf.fill(tf.shape(starts), _STARTS_WORD),
            [tf.size(self._codes, tf.int64)],
        )
        spaced = self._codes + marks

        def is_before(distance):
            is_same = tf.equal(spaced[distance:], spaced[:-distance])
            others = _count(tf.pad(~is_same, [[distance, 0]]))
            begin = tf.maximum(first - distance, 0)
            return (
                (first - distance >= low)
                & tf.equal(
                    tf.gather(self._codes, first), tf.gather(self._codes, begin)
                )
                & tf.equal(
                    tf.gather(others, last), tf.gather(others, first + 1)
                )
            )

        def step(distance, place):
            place = tf.where(is_before(distance), first - distance, place)
            return distance + 1, place

        farthest = tf.reduce_max(tf.concat([[0], first - low], 0))
        _, place = tf.while_loop(
            lambda distance, _: distance <= farthest,
            step,
            (tf.constant(1, tf.int64), first),
        )
        return place

    def characters(
        self, begin: tf.Tensor, end: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the characters of letters [begin, end)."""
        return (
            tf.gather(self._positions, begin),
            tf.gather(self._positions, end - 1) + 1,
        )


def _count(is_counted: tf.Tensor) -> tf.Tensor:
    """Returns int64 [N + 1], the number of true elements before each index."""
    return tf.pad(tf.cumsum(tf.cast(is_counted, tf.int64)), [[1, 0]])
