"""Text to [CLS] A [SEP] B [SEP], many examples at once.

    tokens       [CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]
    segment_ids    0    0   0    0    0     0     0   0   1  1  1  1   1   1

Pairs that are too long lose pieces from the end of the longer text, one at a
time; where both are equally long, from the second.
"""

from collections.abc import Sequence

import numpy as np
from absl import logging

from data.features import Features
from data.tokenization import wordpiece

_CHUNK = 1 << 16


def encode(
    tokenizer: wordpiece.Tokenizer,
    first: Sequence[str],
    second: Sequence[str] | None,
    *,
    max_seq_length: int,
    num_choices: int = 0,
    name: str | None = None,
) -> Features:
    """Returns the input_ids and segment_ids of N sequences.

    A second text without any piece is none, and gets no [SEP], as released.

    Args:
      tokenizer: of the model.
      first: N texts.
      second: N texts, or None for single sentences.
      max_seq_length: the longest sequence, all three special tokens included.
      num_choices: how many sequences make an example; see Features.
      name: of the set; with it, the log tells how many sequences are cut.
    """
    ids, segments, totals = [], [], []
    num_cut = 0
    for start in range(0, len(first), _CHUNK):
        end = start + _CHUNK
        a = tokenizer.encode(first[start:end])
        if second is None:
            empty = np.zeros(len(a.row_splits), np.int64)
            b = wordpiece.Encoding(np.zeros(0, np.int32), empty)
        else:
            b = tokenizer.encode(second[start:end])
        *joined, is_cut = _join(tokenizer.vocabulary, a, b, max_seq_length)
        num_cut += np.count_nonzero(is_cut)
        for parts, part in zip((ids, segments, totals), joined, strict=True):
            parts.append(part)
    if name and num_cut:
        text = "%s: %d of %d texts have more than %d pieces and are cut"
        logging.warning(text, name, num_cut, len(first), max_seq_length)
    return Features(
        row_splits=np.concatenate([[0], np.cumsum(np.concatenate(totals))]),
        ragged={
            "input_ids": np.concatenate(ids),
            "segment_ids": np.concatenate(segments),
        },
        num_choices=num_choices,
    )


def truncated_lengths(
    a: np.ndarray, b: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many pieces of each text fit into their room together."""
    excess = np.maximum(a + b - room, 0)
    # First the longer one alone, down to the other's length, ...
    from_a = np.minimum(np.maximum(a - b, 0), excess)
    from_b = np.minimum(np.maximum(b - a, 0), excess)
    # ... then both in turn, the second text first.
    rest = excess - from_a - from_b
    return a - from_a - rest // 2, b - from_b - (rest + 1) // 2


def _join(vocabulary, first, second, max_seq_length):
    """Returns ids [T], segments [T], each one's length and is_cut [N]."""
    a, b = np.diff(first.row_splits), np.diff(second.row_splits)
    has_second = (b > 0).astype(np.int64)
    room = max_seq_length - 2 - has_second
    is_cut = a + b > room
    a, b = truncated_lengths(a, b, room)
    has_second = (b > 0).astype(np.int64)
    totals = a + b + 2 + has_second
    starts = np.cumsum(totals) - totals
    ids = np.full(totals.sum(), vocabulary.sep_id, np.int32)
    segments = np.zeros(len(ids), np.int32)
    ids[starts] = vocabulary.cls_id
    ids[ranges(starts + 1, a)] = first.ids[ranges(first.row_splits[:-1], a)]
    begins = starts + a + 2
    pieces = ranges(second.row_splits[:-1], b)
    ids[ranges(begins, b)] = second.ids[pieces]
    segments[ranges(begins, b + has_second)] = 1
    return ids, segments, totals, is_cut


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns starts[0], starts[0] + 1, ... for all ranges in a row."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
