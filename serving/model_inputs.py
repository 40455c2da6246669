"""Arranges tokens as input of a model, inside a graph.

    ids of texts (and of second texts)    [[a, b], [c]]   [[d], []]
    sequences                             [[CLS, a, b, SEP, d, SEP],
                                           [CLS, c, SEP]]
    features, padded to the longest       input_ids, input_mask, segment_ids

The same as `data.sequences` and `Features.batch`, which do this with NumPy.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from data.tokenization import vocabulary as vocabulary_lib

_ROWS_AT_ONCE = 32  # Windows of a batch.


class Sequences(NamedTuple):
    """N sequences without padding.

    Attributes:
      input_ids: int32 [N, None], ragged.
      segment_ids: int32 [N, None], ragged.
    """

    input_ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor

    def features(self) -> dict[str, tf.Tensor]:
        """Returns the model's features, int32 [N, S], S the longest length."""
        lengths = self.input_ids.row_lengths()
        return {
            "input_ids": self.input_ids.to_tensor(),
            "input_mask": tf.sequence_mask(lengths, dtype=tf.int32),
            "segment_ids": self.segment_ids.to_tensor(),
        }


def join(
    vocabulary: vocabulary_lib.Vocabulary,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int | tf.Tensor,
) -> Sequences:
    """Joins texts, or pairs of texts, to sequences with special tokens.

    Pairs that are too long lose tokens from the end of the longer text, one at
    a time; of the second text if both are equally long. A second text without
    tokens gets no [SEP].

    Args:
      vocabulary: the vocabulary of the model.
      first: int32 [N, None], the ids of the texts.
      second: the ids of the second texts, or None for single texts.
      max_seq_length: the longest sequence, special tokens included.
    """
    longest = tf.cast(max_seq_length, tf.int64)
    rows = first.nrows()
    sep = tf.fill([rows, 1], vocabulary.sep_id)
    cls = tf.fill([rows, 1], vocabulary.cls_id)
    if second is None:
        first = take(first, tf.minimum(first.row_lengths(), longest - 2))
        ids = tf.concat([cls, first, sep], axis=1)
        return Sequences(ids, tf.zeros_like(ids))
    a, b = first.row_lengths(), second.row_lengths()
    room = longest - 2 - tf.cast(b > 0, tf.int64)
    a, b = truncated_lengths(a, b, room)
    first, second = take(first, a), take(second, b)
    has_second = tf.cast(b > 0, tf.int64)
    last = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(has_second)], vocabulary.sep_id), has_second
    )
    before = tf.concat([cls, first, sep], axis=1)
    after = tf.concat([second, last], axis=1)
    return Sequences(
        tf.concat([before, after], axis=1),
        tf.concat([tf.zeros_like(before), tf.ones_like(after)], axis=1),
    )


def truncated_lengths(
    a: tf.Tensor, b: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how many tokens of each text remain, `room` together: int64 [N].

    The result is that of `finetuning.task.sequence`.

    Args:
      a: int64 [N]; the tokens of the first texts.
      b: int64 [N]; the tokens of the second texts.
      room: int64 [N]; the most tokens of both.
    """
    first = tf.minimum(a, tf.maximum(room - b, (room + 1) // 2))
    return first, tf.minimum(b, room - first)


def has_most_context(
    items: tf.Tensor,
    before: tf.Tensor,
    after: tf.Tensor,
    *,
    size_weight: float = 0.0,
) -> tf.Tensor:
    """Returns in which of its windows each item has most context: bool [R].

    See `data.sequences.has_most_context`.

    Args:
      items: int64 [R], from 0; an item in a window, in the order of windows.
      before: int64 [R]; tokens before it in the window.
      after: int64 [R]; tokens after it.
      size_weight: how much more context a window counts for each token of it.
    """
    size = tf.cast(before + after + 1, tf.float64)
    context = tf.cast(tf.minimum(before, after), tf.float64)
    context += size_weight * size
    count = tf.reduce_max(tf.concat([items + 1, [0]], 0))
    best = tf.math.unsorted_segment_max(context, items, count)
    is_best = tf.equal(context, tf.gather(best, items))
    index = tf.range(tf.size(items, tf.int64))
    # Of windows with equal context, the first.
    first = tf.math.unsorted_segment_min(
        tf.boolean_mask(index, is_best), tf.boolean_mask(items, is_best), count
    )
    return tf.equal(tf.gather(first, items), index)


class Parts(NamedTuple):
    """R windows of N texts, int64 [R] each; see finetuning.task.windows."""

    texts: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor


def divide(
    lengths: tf.Tensor, room: tf.Tensor, stride: int, most: int | None = None
) -> Parts:
    """Divides texts into windows, as `finetuning.task.windows` does.

    Args:
      lengths: int64 [N]; the tokens of each text.
      room: int64 [N]; the most tokens of a window of each text.
      stride: tokens from the start of a window to that of the next, at most.
      most: the largest number of windows of a text; None for any.
    """
    strides = tf.minimum(room, stride)
    counts = 1 + tf.maximum(-((room - lengths) // strides), 0)
    if most is not None:
        counts = tf.minimum(counts, most)
    numbers = tf.ragged.range(counts)
    texts = numbers.value_rowids()
    starts = numbers.values * tf.gather(strides, texts)
    rest = tf.gather(lengths, texts) - starts
    return Parts(texts, starts, tf.minimum(rest, tf.gather(room, texts)))


def join_windows(
    vocabulary: vocabulary_lib.Vocabulary,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int,
    *,
    stride: int,
    most: int,
) -> dict[str, tf.Tensor]:
    """Joins the windows of texts, as `finetuning.task.windows` does.

    Args:
      vocabulary: the vocabulary of the model.
      first: int32 [N, None], the ids of the texts.
      second: the ids of the second texts, which are then the divided ones, or
        None for single texts.
      max_seq_length: the longest window, special tokens included.
      stride: tokens from the start of a window to that of the next, at most.
      most: the largest number of windows of a text.

    Returns:
      The model's features, int32 [N, K, S]; the input_mask of a window that a
      text lacks is 0.
    """
    a = first.row_lengths()
    b = tf.zeros_like(a) if second is None else second.row_lengths()
    has_second = tf.cast(b > 0, tf.int64)
    room = max_seq_length - 2 - has_second
    before, _ = truncated_lengths(a, b, room)
    before *= has_second
    divided, room = tf.where(b > 0, b, a), room - before
    texts, starts, lengths = divide(divided, room, stride, most)
    is_pair = tf.gather(has_second, texts)
    begins = tf.gather(first.row_starts(), texts) + starts * (1 - is_pair)
    kept = tf.where(is_pair > 0, tf.gather(before, texts), lengths)
    whole = gather_ranges(first.values, begins, begins + kept)
    part = None
    if second is not None:
        begins = tf.gather(second.row_starts(), texts) + starts
        part = gather_ranges(second.values, begins, begins + lengths * is_pair)
    windows = join(vocabulary, whole, part, max_seq_length)

    def grouped(x: tf.RaggedTensor) -> tf.Tensor:
        rows = tf.RaggedTensor.from_value_rowids(x, texts, first.nrows())
        return rows.to_tensor()

    return {
        "input_ids": grouped(windows.input_ids),
        "input_mask": grouped(tf.ones_like(windows.input_ids)),
        "segment_ids": grouped(windows.segment_ids),
    }


def take(values: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `lengths` int64 [N] values of each row."""
    starts = values.row_starts()
    return gather_ranges(values.values, starts, starts + lengths)


def gather_ranges(
    values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tf.RaggedTensor:
    """Returns values[starts[i] : ends[i]] as row i of N.

    Args:
      values: [T, ...].
      starts: int64 [N].
      ends: int64 [N].
    """
    positions = tf.ragged.range(starts, ends)
    return positions.with_values(tf.gather(values, positions.values))


def token_outputs(
    run: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    sequences: Sequences,
    width: int,
) -> tf.Tensor:
    """Computes the model's outputs for all tokens of N windows of texts.

    They are computed in batches of similar length, so that memory does not grow
    with the text.

    Args:
      run: maps features of [B, S] to float32 [B, S, width].
      sequences: N windows.
      width: number of outputs of a token.

    Returns:
      float32 [T, width], the tokens of all windows; more if N is 0.
    """
    # A loop without a first iteration has no result.
    missing = tf.maximum(1 - sequences.input_ids.nrows(), 0)
    empty = tf.zeros([missing, 1], tf.int32)
    ids, segments = (tf.concat([x, empty], axis=0) for x in sequences)
    lengths = ids.row_lengths()
    order = tf.argsort(lengths)
    count = tf.size(order)

    def step(first, outputs):
        rows = order[first : first + _ROWS_AT_ONCE]
        batch = Sequences(tf.gather(ids, rows), tf.gather(segments, rows))
        values = run(batch.features())
        is_token = tf.sequence_mask(batch.input_ids.row_lengths())
        values = tf.boolean_mask(values, is_token)
        outputs = outputs.write(first // _ROWS_AT_ONCE, values)
        return first + _ROWS_AT_ONCE, outputs

    outputs = tf.TensorArray(
        tf.float32,
        size=0,
        dynamic_size=True,
        infer_shape=False,
        element_shape=[None, width],
    )
    _, outputs = tf.while_loop(
        lambda first, _: first < count,
        step,
        (0, outputs),
        parallel_iterations=1,
    )
    values = tf.RaggedTensor.from_row_lengths(
        outputs.concat(), tf.gather(lengths, order)
    )
    return tf.gather(values, tf.argsort(order)).values
