"""What SavedModels contain: texts to results, as TensorFlow operations.

    texts --tokens--> windows --model--> logits --> results

A text that is longer than a window is cut, or divided into windows, as
`data.sequences` does it with NumPy. GRAPHS has the function of each task. Its
results are those of the predictor, except for answers and
entities: here these are the best answer, as `run_squad.py --exact_answers`
gives it, and the label of each token.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from data.tokenization.graph_tokenization import ragged, row_ids, select
from data.tokenization.vocabulary import Vocabulary
from serving.opened_model import OpenedModel
from tasks.squad import windowing
from tasks.squad.settings import AnswerSettings

_WINDOWS_AT_ONCE = 32
_ANY = tf.int64.max  # Windows of a text.
_Tensors = dict[str, tf.Tensor]


class Windows(NamedTuple):
    """W windows of B texts, [CLS] text [SEP] or [CLS] before [SEP] text [SEP].

    Attributes:
      texts: int64 [W]; the text of each window.
      starts: int64 [W]; its first token in the text.
      lengths: int64 [W]; how many tokens of the text it has.
      offsets: int64 [W]; the position of the first of them in the window.
      ids: int32 [W, None], ragged.
      segment_ids: int32 [W, None], ragged.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor
    offsets: tf.Tensor
    ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor

    def features(
        self, arrange: Callable[[tf.RaggedTensor], Any] = lambda x: x
    ) -> _Tensors:
        """Returns the model's features, padded to the longest window.

        Args:
          arrange: maps ragged [W, None] to rows of other axes or order.
        """
        return {
            "input_ids": arrange(self.ids).to_tensor(),
            "input_mask": arrange(tf.ones_like(self.ids)).to_tensor(),
            "segment_ids": arrange(self.segment_ids).to_tensor(),
        }

    def has_most_context(self, size_weight: float = 0.0) -> tf.Tensor:
        """Returns whether a window is the one in which a token is read.

        See data.sequences.has_most_context.

        Returns:
          bool [sum of lengths].
        """
        left = tf.ragged.range(self.lengths)
        windows, left = row_ids(left.row_splits), left.values
        right = tf.gather(self.lengths, windows) - 1 - left
        # Numbers of tokens over all texts: none has more than all together.
        most = tf.reduce_max(self.starts + self.lengths) + 1
        tokens = tf.gather(self.texts * most + self.starts, windows) + left
        _, tokens = tf.unique(tokens, out_idx=tf.int64)
        context = tf.cast(tf.minimum(left, right), tf.float64)
        context += size_weight * tf.cast(left + right + 1, tf.float64)
        count = tf.size(tokens, tf.int64)
        best = tf.math.unsorted_segment_max(context, tokens, count)
        is_best = tf.equal(context, tf.gather(best, tokens))
        # Of windows with equal context, the first.
        numbers = tf.where(is_best, tf.range(count), count)
        first = tf.math.unsorted_segment_min(numbers, tokens, count)
        return tf.equal(tf.gather(first, tokens), tf.range(count))


def windows(
    words: Vocabulary,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int,
    *,
    stride: int = 1,
    most: int = 1,
    least: int | None = None,
) -> Windows:
    """Divides texts, of pairs the second ones, into windows that overlap.

    With one window of a text, texts and pairs are cut. A second text without
    tokens gets no [SEP], and the first one is divided in its place.

    Args:
      words: vocabulary of the model.
      first: int32 [B, None], the ids of the texts.
      second: the ids of the second texts, or None for single texts.
      max_seq_length: the longest window, special tokens included.
      stride: tokens from the start of a window to that of the next, at most.
      most: the largest number of windows of a text.
      least: the number of tokens to which the first text of a pair is cut if
        the second one needs the rest; None for half of the room.
    """
    if second is None:
        second = ragged(first.values[:0], tf.zeros_like(first.row_splits))
    a, b = first.row_lengths(), second.row_lengths()
    is_pair = tf.cast(b > 0, tf.int64)
    room = max_seq_length - 2 - is_pair
    half = (room + 1) // 2 if least is None else least
    before = is_pair * tf.minimum(a, tf.maximum(room - b, half))
    room -= before
    # A window is five ranges of these values.
    values = [[words.cls_id, words.sep_id], first.values, second.values]
    first_begin = first.row_starts() + 2
    second_begin = second.row_starts() + tf.size(first.values, tf.int64) + 2
    begin = tf.where(b > 0, second_begin, first_begin)
    lengths = tf.where(b > 0, b, a)
    strides = tf.maximum(tf.minimum(room, stride), 1)
    counts = 1 + tf.maximum(-((room - lengths) // strides), 0)
    numbers = tf.ragged.range(tf.minimum(counts, most))
    texts = row_ids(numbers.row_splits)

    def each(of_texts: tf.Tensor) -> tf.Tensor:
        return tf.gather(of_texts, texts)

    starts = numbers.values * each(strides)
    lengths = tf.minimum(each(lengths) - starts, each(room))
    before, is_pair, one = each(before), each(is_pair), tf.ones_like(texts)
    parts = [  # First value, number of values, segment.
        (0 * one, one, 0 * one),  # [CLS]
        (each(first_begin), before, 0 * one),
        (one, is_pair, 0 * one),  # [SEP], of a pair.
        (each(begin) + starts, lengths, is_pair),
        (one, one, is_pair),  # [SEP]
    ]
    begins, sizes, segments = (
        tf.reshape(tf.stack(x, axis=1), [-1]) for x in zip(*parts, strict=True)
    )
    ids = gather_ranges(tf.concat(values, 0), begins, begins + sizes)
    segments = tf.gather(segments, row_ids(ids.row_splits))
    splits = ids.row_splits[:: len(parts)]
    return Windows(
        texts,
        starts,
        lengths,
        1 + before + is_pair,
        ragged(ids.values, splits),
        ragged(tf.cast(segments, tf.int32), splits),
    )


def take(values: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `lengths` int64 [N] values of each row."""
    starts = values.row_starts()
    return gather_ranges(values.values, starts, starts + lengths)


def gather_ranges(
    values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tf.RaggedTensor:
    """Returns values[starts[i] : ends[i]] as row i of N."""
    positions = tf.ragged.range(starts, ends)
    return positions.with_values(tf.gather(values, positions.values))


def _token_logits(
    opened: OpenedModel, found: Windows, width: int
) -> tf.RaggedTensor:
    """Returns the outputs of the tokens, float32 [W, None, width].

    Some at a time: memory does not grow with the number of windows.
    """
    splits = found.ids.row_splits

    def compute(first: tf.Tensor) -> tf.Tensor:
        own = splits[first : first + _WINDOWS_AT_ONCE + 1]
        features = found.features(
            lambda x: ragged(x.values[own[0] : own[-1]], own - own[0])
        )
        outputs = opened.traced_logits(features).values()
        values = tf.concat(
            [x if x.shape.rank > 2 else x[:, :, None] for x in outputs], axis=-1
        )
        return select(values, features["input_mask"] > 0)

    parts = tf.map_fn(
        compute,
        tf.range(0, tf.size(found.texts), _WINDOWS_AT_ONCE),
        parallel_iterations=1,
        fn_output_signature=tf.RaggedTensorSpec([None, width], ragged_rank=0),
    )
    return ragged(parts.values, splits)


def sentences(
    opened: OpenedModel, text: tf.Tensor, text_pair: tf.Tensor | None = None
) -> _Tensors:
    """Maps texts, string [B], to the results of a sentence task.

    Returns:
      classification: label string [B], score float32 [B], labels string [B, C],
        probabilities float32 [B, C].
      regression: score float32 [B].
      multilabel: labels string [B, C], probabilities float32 [B, C].
    """
    setup = opened.setup
    if setup.are_pairs is None:
        logging.warning(
            "%s: it is not known whether the model was trained with pairs of "
            "texts; the graph takes single texts, with --text_pair pairs",
            setup.name,
        )
    encode = setup.tokenizer.graph
    sizes = setup.windows._asdict() if setup.windows else {}
    found = windows(
        setup.tokenizer.vocabulary,
        encode(text),
        None if text_pair is None else encode(text_pair),
        setup.max_seq_length,
        **sizes,
    )
    by_text = functools.partial(
        tf.RaggedTensor.from_value_rowids,
        value_rowids=found.texts,
        nrows=tf.size(text, tf.int64),
        validate=False,
    )
    features = found.features(by_text) if sizes else found.features()
    logits = opened.traced_logits(features)["logits"]
    if setup.labels is None:
        return {"score": logits[:, 0]}
    names = tf.constant(setup.labels)
    labels = tf.broadcast_to(names, tf.shape(logits))
    if setup.task == "multilabel":
        return {"labels": labels, "probabilities": tf.sigmoid(logits)}
    probabilities = tf.nn.softmax(logits)
    return {
        "label": tf.gather(names, tf.argmax(logits, axis=1)),
        "score": tf.reduce_max(probabilities, axis=1),
        "labels": labels,
        "probabilities": probabilities,
    }


def choices(
    opened: OpenedModel, context: tf.Tensor, endings: tf.Tensor
) -> _Tensors:
    """Maps context string [B] and endings string [B, K] to the choice.

    Returns:
      choice int32 [B], counted from 0, and probabilities float32 [B, K].
    """
    encode = opened.setup.tokenizer.graph
    shape = tf.shape(endings)
    found = windows(
        opened.setup.tokenizer.vocabulary,
        encode(tf.repeat(context, shape[1])),
        encode(tf.reshape(endings, [-1])),
        opened.setup.max_seq_length,
    )
    features = {
        name: tf.reshape(x, tf.concat([shape, [-1]], 0))
        for name, x in found.features().items()
    }
    logits = opened.traced_logits(features)["logits"]
    return {
        "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
    }


def words_of_masks(opened: OpenedModel, text: tf.Tensor) -> _Tensors:
    """Maps text string [B] to the best words of its masks.

    fill_mask.py refuses a text that is too long. Here it is cut, and masks
    beyond the cut get no words.

    Returns:
      words string [B, M, k] and probabilities float32 [B, M, k]; M is the
      largest number of masks. Rows without a mask hold "" and 0.
    """
    setup, tokenizer = opened.setup, opened.predictor.tokenizer
    words = tokenizer.vocabulary  # A [MASK] in a text is one token.
    # A left-to-right model predicts a token at the position before it.
    offset = int(setup.left_to_right)
    ids = tokenizer.graph(text)
    found = windows(words, ids, None, setup.max_seq_length)
    positions = tf.ragged.boolean_mask(
        tf.ragged.range(tf.cast(found.ids.row_lengths(), tf.int32)),
        found.ids == words.mask_id,
    )
    is_mask = tf.cast(ids == words.mask_id, tf.int32)
    count = tf.reduce_max(tf.reduce_sum(is_mask, axis=1))
    # The model needs at least one position.
    shape = tf.stack([-1, tf.maximum(count, 1)])
    is_mask = tf.ones_like(positions, tf.bool).to_tensor(shape=shape)
    positions = positions.to_tensor(offset, shape=shape) - offset
    features = found.features() | {"masked_lm_positions": positions}
    # Embeddings may be padded.
    logits = opened.traced_logits(features)["logits"][:, :, : len(words)]
    top_k = min(setup.settings["top_k"], len(words))
    values, best = tf.math.top_k(tf.nn.softmax(logits), top_k)
    is_mask, names = is_mask[:, :, None], tf.constant(words.tokens)
    names = tf.gather(names, best)
    return {
        "words": tf.where(is_mask, names, "")[:, :count],
        "probabilities": tf.where(is_mask, values, 0.0)[:, :count],
    }


def embeddings(opened: OpenedModel, text: tf.Tensor) -> _Tensors:
    """Maps text string [B] to embedding float32 [B, size]."""
    tokenizer = opened.setup.tokenizer
    ids, longest = tokenizer.graph(text), opened.setup.max_seq_length
    found = windows(tokenizer.vocabulary, ids, None, longest)
    (embedding,) = opened.traced_logits(found.features()).values()
    return {"embedding": embedding}


def labels_of_tokens(opened: OpenedModel, text: tf.Tensor) -> _Tensors:
    """Maps text string [B] to the labels of its tokens.

    The scores of a CRF are not used.

    Returns:
      label string [B, T]; score float32 [B, T], its probability; start and end
      int32 [B, T], its characters. Rows are padded with "", 0 and -1.
    """
    setup = opened.setup
    tokens = setup.tokenizer.graph.with_offsets(text)
    found = windows(
        setup.tokenizer.vocabulary,
        ragged(tokens.ids, tokens.row_splits),
        None,
        setup.max_seq_length,
        stride=max(1, (setup.max_seq_length - 2) // 2),
        most=_ANY,
    )
    logits = _token_logits(opened, found, len(setup.labels or ()))
    begin = logits.row_starts() + found.offsets
    logits = gather_ranges(logits.values, begin, begin + found.lengths).values
    # Each token once, from the window where it has most context.
    logits = select(logits, found.has_most_context())
    names = tf.gather(tf.constant(setup.labels), tf.argmax(logits, axis=1))

    def rows(values: tf.Tensor, padding: object) -> tf.Tensor:
        return ragged(values, tokens.row_splits).to_tensor(padding)

    return {
        "label": rows(names, ""),
        "score": rows(tf.reduce_max(tf.nn.softmax(logits), axis=1), 0.0),
        "start": rows(tf.cast(tokens.starts, tf.int32), -1),
        "end": rows(tf.cast(tokens.ends, tf.int32), -1),
    }


def best_answers(
    opened: OpenedModel, question: tf.Tensor, context: tf.Tensor
) -> _Tensors:
    """Maps question and context string [B] to the best answers.

    Returns:
      answer string [B], "" without one; start and end int32 [B], its characters
      in the context, -1 without one; score float32 [B], its probability among
      the n best.
    """
    setup = opened.setup
    rules, encoder = opened.predictor.settings, setup.tokenizer
    tokens = encoder.graph.with_offsets(context)
    query = encoder.graph(question)
    query_lengths = tf.minimum(query.row_lengths(), rules.max_query_length)
    ids = ragged(tokens.ids, tokens.row_splits)
    found = windows(
        encoder.vocabulary,
        take(query, query_lengths),
        ids,
        setup.max_seq_length,
        stride=rules.doc_stride,
        most=_ANY,
        least=rules.max_query_length,
    )
    # Without a context, the window has the question.
    has_context = tf.gather(ids.row_lengths(), found.texts) > 0
    found = found._replace(lengths=tf.where(has_context, found.lengths, 0))
    logits, count = _token_logits(opened, found, 2), tf.size(question)
    window, scores, first, last = _spans(found, logits, rules)
    questions = tf.gather(found.texts, window)
    begin = tf.gather(ids.row_starts(), questions)
    begin += tf.gather(found.starts, window)
    start = tf.gather(tokens.starts, begin + first)
    end = tf.gather(tokens.ends, begin + last)
    begin = tf.gather(tokens.normalized.decoded_splits, questions)
    characters = gather_ranges(
        tokens.normalized.decoded, begin + start, begin + end
    )
    texts = tf.strings.unicode_encode(characters, "UTF-8")
    of_no_answer = tf.fill([count], tf.float64.min)
    if rules.version_2_with_negative:
        first_logits = tf.cast(logits[:, :1].values, tf.float64)  # Of [CLS].
        of_no_answer = tf.math.unsorted_segment_min(
            tf.reduce_sum(first_logits, axis=1), found.texts, count
        )

    def answer(number: tf.Tensor) -> _Tensors:
        """Returns the outputs of a question; see decoding._answer_list."""
        spans = tf.where(tf.equal(questions, number))[:, 0]
        unique, numbers = tf.unique(tf.gather(texts, spans))
        values = tf.math.unsorted_segment_max(
            tf.gather(scores, spans), numbers, tf.size(unique)
        )
        # "No answer" is one of the n if it is better than the last.
        nothing = of_no_answer[number]
        places = tf.range(tf.size(values)) + tf.cast(nothing > values, tf.int32)
        values = select(values, places < rules.n_best_size)
        values = tf.concat([values, [nothing]], 0)
        is_answer = tf.size(values) > 1
        is_answer &= nothing - values[0] <= (rules.threshold or 0.0)
        shares = tf.nn.softmax(values)

        def chosen(found: tf.Tensor, blank: object) -> tf.Tensor:
            padded = tf.concat([tf.gather(found, spans[:1]), [blank]], 0)
            return tf.where(is_answer, padded[0], blank)

        return {
            "answer": chosen(texts, ""),
            "start": chosen(tf.cast(start, tf.int32), -1),
            "end": chosen(tf.cast(end, tf.int32), -1),
            "score": tf.cast(
                tf.where(is_answer, shares[0], shares[-1]), tf.float32
            ),
        }

    dtypes = {"answer": tf.string, "start": tf.int32, "end": tf.int32}
    return tf.map_fn(
        answer,
        tf.range(tf.cast(count, tf.int64)),
        fn_output_signature=dtypes | {"score": tf.float32},
    )


def _spans(
    found: Windows, logits: tf.RaggedTensor, rules: AnswerSettings
) -> tuple[tf.Tensor, ...]:
    """Returns the spans that may be answers, the best first.

    See decoding.best_spans.

    Returns:
      Each [C]: window int64, score float64; first and last token int64, in the
      window's part of the text.
    """
    n = rules.n_best_size
    padded = tf.pad(
        logits.to_tensor(-math.inf),
        [[0, 0], [0, n], [0, 0]],
        constant_values=-math.inf,
    )
    best = tf.math.top_k(tf.transpose(padded, [0, 2, 1]), n)
    places = tf.cast(best.indices, tf.int64) - found.offsets[:, None, None]
    values = tf.cast(best.values, tf.float64)
    start, end = places[:, 0, :, None], places[:, 1, None, :]
    is_span = (start >= 0) & (start <= end)
    is_span &= end < found.lengths[:, None, None]
    is_span &= end - start < rules.max_answer_length
    window = tf.where(is_span)[:, 0]
    scores = values[:, 0, :, None] + values[:, 1, None, :]
    scores, start, end = (
        select(x, is_span) for x in (scores, start + 0 * end, end + 0 * start)
    )
    begin = tf.cumsum(found.lengths, exclusive=True)
    is_best = tf.gather(
        found.has_most_context(windowing.SIZE_WEIGHT),
        tf.gather(begin, window) + start,
    )
    spans = tf.where(is_best)[:, 0]
    order = tf.argsort(-tf.gather(scores, spans), stable=True)
    spans = tf.gather(spans, order)
    return tuple(tf.gather(x, spans) for x in (window, scores, start, end))


# Task -> the function of its SavedModels.
GRAPHS: dict[str, Callable[..., _Tensors]] = {
    **dict.fromkeys(("classification", "regression", "multilabel"), sentences),
    "multiple_choice": choices,
    "question_answering": best_answers,
    "token_classification": labels_of_tokens,
    "fill_mask": words_of_masks,
    "sentence_embedding": embeddings,
}
