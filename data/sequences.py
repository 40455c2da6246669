"""Sequences of a model from the tokens of texts, without padding.

    first    my dog    cats
    second   is hairy  -
    joined   [CLS] my dog [SEP] is hairy [SEP]   [CLS] cats [SEP]
    segments   0   0   0    0   1    1     1       0    0     0

A text that is longer than a sequence is cut into windows that overlap. What a
token stands for is then read in one of them, see `has_most_context`.

`serving.model_inputs` does the same inside a graph. Pre-training, whose tokens
are mapped from disk, joins its segments in `data.pretraining.instances`.
"""

from typing import NamedTuple

import numpy as np

from data.tokenization import vocabulary as vocabularies


class Slices(NamedTuple):
    """N texts, each a slice of an array of tokens.

    Attributes:
      ids: int32 [T].
      starts: int64 [N]; the first token of each text.
      lengths: int64 [N]; how many tokens it has.
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


class Sequences(NamedTuple):
    """N sequences of T tokens.

    Attributes:
      row_splits: int64 [N + 1].
      input_ids: int32 [T].
      segment_ids: int32 [T].
    """

    row_splits: np.ndarray
    input_ids: np.ndarray
    segment_ids: np.ndarray


def join(
    vocabulary: vocabularies.Vocabulary, first: Slices, second: Slices | None
) -> Sequences:
    """Joins texts, or pairs of texts, with [CLS] and [SEP].

    A second text without tokens gets no [SEP], as released.

    Args:
      vocabulary: vocabulary of the model.
      first: N texts.
      second: N texts, or None for single texts.
    """
    a, totals = first.lengths, first.lengths + 2
    if second is not None:
        b = second.lengths
        with_sep = b + (b > 0)
        totals = totals + with_sep
    row_splits = np.concatenate([[0], np.cumsum(totals)]).astype(np.int64)
    begins = row_splits[:-1]
    ids = np.full(row_splits[-1], vocabulary.sep_id, np.int32)
    segments = np.zeros(len(ids), np.int32)
    ids[begins] = vocabulary.cls_id
    ids[ranges(begins + 1, a)] = first.ids[ranges(first.starts, a)]
    if second is not None:
        begins = begins + a + 2
        ids[ranges(begins, b)] = second.ids[ranges(second.starts, b)]
        segments[ranges(begins, with_sep)] = 1
    return Sequences(row_splits, ids, segments)


def truncated_lengths(
    a: np.ndarray, b: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many tokens of each text remain, `room` together."""
    # Half of the room, the odd token included, or what the second text leaves.
    first = np.minimum(a, np.maximum(room - b, (room + 1) // 2))
    return first, np.minimum(b, room - first)


class Parts(NamedTuple):
    """R windows of N texts, in the order of the texts.

    Attributes:
      texts: int64 [R]; the text of each window.
      starts: int64 [R]; its first token in the text.
      lengths: int64 [R]; how many tokens of the text it has.
    """

    texts: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def divide(
    lengths: np.ndarray, room: np.ndarray, stride: int, most: int | None = None
) -> Parts:
    """Divides texts into windows that overlap; an empty text has one.

    Args:
      lengths: int [N]; the tokens of each text.
      room: int [N]; the most tokens of a window of each text.
      stride: tokens from the start of a window to that of the next, at most;
        fewer where a window has fewer.
      most: the largest number of windows of a text; None for any.
    """
    strides = np.minimum(stride, room)
    counts = 1 + np.maximum(-(-(lengths - room) // strides), 0)
    if most is not None:
        counts = np.minimum(counts, most)
    texts = np.repeat(np.arange(len(lengths)), counts)
    starts = ranges(np.zeros_like(counts), counts) * strides[texts]
    return Parts(
        texts, starts, np.minimum(room[texts], lengths[texts] - starts)
    )


def has_most_context(
    items: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    *,
    size_weight: float = 0.0,
) -> np.ndarray:
    """Returns in which of its windows each item has most context: bool [R].

    The context of an item is the smaller number of tokens before and after it
    in the window. Of windows with equal context, it is the first.

    Args:
      items: int [R], from 0; an item in a window, in the order of the windows.
      before: int [R]; tokens before it in the window.
      after: int [R]; tokens after it.
      size_weight: how much more context a window counts for each token of it,
        if an item is a token.
    """
    context = np.minimum(before, after) + size_weight * (before + after + 1)
    best = np.full(int(items.max(initial=-1)) + 1, -1.0)
    np.maximum.at(best, items, context)
    rows = np.flatnonzero(context == best[items])
    _, first = np.unique(items[rows], return_index=True)
    result = np.zeros(len(items), bool)
    result[rows[first]] = True
    return result


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the concatenation of all range(start, start + length)."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
