"""Tokenizes words with a label each and arranges them in windows.

    words      [CLS]  Jim   Hen    ##son  was  a  puppet ##eer  [SEP]
    label_ids   -1   B-PER  I-PER   -1     O   O    O     -1     -1

The first token of a word has its label. A word without a token becomes [UNK],
so that no word is lost. A word may occur in several windows but has its label
only where it has the most context, i.e. where the smaller of the numbers
of tokens before and after it is largest. Words keep their order over all
windows: the i-th position with a label is word i.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from data import features as features_lib
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from tasks.ner import word_files

_NUM_SPECIAL = 2  # [CLS] and [SEP].


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """How words are arranged in windows.

    Attributes:
      max_seq_length: the most tokens of a window, [CLS] and [SEP] included.
      document_context: whether windows are filled with the sentences around.
      doc_stride: with document_context, sentences of about so many tokens have
        a window in common; with 0, each sentence has its own.
    """

    max_seq_length: int
    document_context: bool = False
    doc_stride: int = 0


def encode(
    tokenizer: wordpiece.Tokenizer,
    sentences: word_files.Sentences,
    label_ids: np.ndarray | None,
    settings: WindowSettings,
    statistics: features_lib.TokenizationStatistics | None = None,
) -> Features:
    """Returns ragged input_ids, segment_ids and label_ids.

    Args:
      tokenizer: the model's tokenizer.
      sentences: W words.
      label_ids: int [W], or None for zeros.
      settings: how words are arranged in windows.
      statistics: count what is lost of the words; None logs it.
    """
    room = settings.max_seq_length - _NUM_SPECIAL
    counted = statistics or features_lib.TokenizationStatistics()
    ids, splits = _tokens(tokenizer, sentences, room, counted)
    if statistics is None:
        counted.warn(sentences.path)
    if settings.document_context:
        check_documents(sentences.path, sentences.has_documents)
    windows = find_windows(sentences, splits, settings)
    if label_ids is None:
        label_ids = np.zeros(len(sentences.words), np.int64)
    # Copies the tokens of each window between [CLS] and [SEP].
    first, last, begin, end = windows.T
    lengths = splits[last] - splits[first]
    rows = np.concatenate([[0], np.cumsum(lengths + _NUM_SPECIAL)])
    input_ids = np.full(rows[-1], tokenizer.vocabulary.sep_id, np.int32)
    input_ids[rows[:-1]] = tokenizer.vocabulary.cls_id
    target = features_lib.ranges(rows[:-1] + 1, lengths)
    input_ids[target] = ids[features_lib.ranges(splits[first], lengths)]
    labels = np.full(rows[-1], -1, np.int32)
    shifts = rows[:-1] + 1 - splits[first]
    labels[splits[:-1] + np.repeat(shifts, end - begin)] = label_ids
    return Features(
        row_splits=rows,
        ragged={
            "input_ids": input_ids,
            "segment_ids": np.zeros(rows[-1], np.int32),
            "label_ids": labels,
        },
    )


def check_documents(path: str, has_documents: bool) -> None:
    """Raises InputError if a file has no -DOCSTART- lines."""
    if not has_documents:
        raise errors.InputError(
            f"{path}: --document_context needs {word_files.DOCUMENT} lines "
            "where documents begin"
        )


def word_positions(features: Features) -> np.ndarray:
    """Returns int64 [W], the index of the first token of each word."""
    return np.flatnonzero(features.ragged["label_ids"] >= 0)


def _tokens(
    tokenizer: wordpiece.Tokenizer,
    sentences: word_files.Sentences,
    most: int,
    statistics: features_lib.TokenizationStatistics,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokenizes words, each of which keeps at most `most` tokens.

    Returns:
      int32 [T]; the ids of the tokens.
      int64 [W + 1]; the number of tokens before each word.
    """
    numbers = {word: i for i, word in enumerate(dict.fromkeys(sentences.words))}
    inverse = np.array([numbers[word] for word in sentences.words])
    encoded = tokenizer.encode(list(numbers))
    counts = np.diff(encoded.row_splits)
    is_empty = counts == 0
    ids = np.append(encoded.ids, tokenizer.vocabulary.unk_id)
    begins = np.where(is_empty, len(encoded.ids), encoded.row_splits[:-1])
    counts = np.maximum(counts, 1)
    message = "%d words without any token become [UNK]"
    statistics.add(message, is_empty[inverse])
    message = f"of %d words only the first {most} tokens fit"
    statistics.add(message, (counts > most)[inverse])
    kept = np.minimum(counts, most)[inverse]
    splits = np.concatenate([[0], np.cumsum(kept)])
    found = ids[features_lib.ranges(begins[inverse], kept)]
    statistics.add_tokens(found, tokenizer.vocabulary)
    return found, splits


def find_windows(
    sentences: word_files.Sentences,
    splits: np.ndarray,
    settings: WindowSettings,
) -> np.ndarray:
    """Returns the words of each window.

    Args:
      sentences: W words.
      splits: int64 [W + 1], the number of tokens before each word.
      settings: how words are arranged in windows.

    Returns:
      int64 [windows, 4]: the numbers (first, end) of the window's words, and
      (first, end) of those whose labels are predicted there.
    """
    room = settings.max_seq_length - _NUM_SPECIAL
    middles = np.array(list(_middles(sentences, splits, room, settings)))
    begin, end, low, high = splits[middles].T
    start = np.maximum(low, begin - (room - (end - begin)) // 2)
    stop = np.minimum(high, start + room)
    start = np.maximum(low, stop - room)
    # A word that is cut at either end is left out.
    first = np.searchsorted(splits, start, "left")
    last = np.searchsorted(splits, stop, "right") - 1
    extents = np.stack([first, last], axis=1)
    is_new = np.ones(len(extents), bool)
    is_new[1:] = (extents[1:] != extents[:-1]).any(axis=1)
    return _assign(extents[is_new], splits)


def _middles(
    sentences: word_files.Sentences,
    splits: np.ndarray,
    room: int,
    settings: WindowSettings,
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (begin, end, low, high) for each window.

    The words from begin to end are in its middle; its context is within the
    words from low to high.
    """
    rows = sentences.row_splits
    bounds = np.arange(len(rows))
    if settings.document_context:
        bounds = sentences.documents
    for first, last in zip(bounds[:-1], bounds[1:], strict=True):
        low, high = rows[first], rows[last]
        begin = low
        for end in rows[first + 1 : last + 1]:
            length = splits[end] - splits[begin]
            if end < high and length < settings.doc_stride:
                continue
            if length <= room:
                yield begin, end, low, high
            else:
                for part in _parts(splits, begin, end, room):
                    yield *part, low, high
            begin = end


def _parts(splits, begin, end, room) -> Iterator[tuple[int, int]]:
    """Cuts words into parts of half a window, the rest of which is context."""
    while begin < end:
        stop = np.searchsorted(splits, splits[begin] + room // 2, "right") - 1
        stop = min(max(stop, begin + 1), end)
        yield begin, stop
        begin = stop


def _assign(extents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Assigns each word to its best window; drops windows without a word."""
    count = int(extents[-1, 1])
    best = np.full(count, -1)
    chosen = np.zeros(count, np.int64)
    for number, (first, last) in enumerate(extents.tolist()):
        before = splits[first:last] - splits[first]
        after = splits[last] - splits[first + 1 : last + 1]
        context = np.minimum(before, after)
        is_better = context > best[first:last]
        best[first:last][is_better] = context[is_better]
        chosen[first:last][is_better] = number
    used, starts = np.unique(chosen, return_index=True)
    ends = np.append(starts[1:], count)
    if (np.diff(chosen) < 0).any():
        raise AssertionError("windows are out of order")
    return np.column_stack([extents[used], starts, ends])
