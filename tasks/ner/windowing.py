"""Tokenizes labeled words and arranges them in windows.

    words      [CLS]  Jim   Hen    ##son  was  a  puppet ##eer  [SEP]
    label_ids   -1   B-PER  I-PER   -1     O   O    O     -1     -1

The first token of a word has its label. A word without a token becomes [UNK],
so that no word is lost. A word may occur in several windows, but has its label
only in the window where it has the most context: where the smaller of the
numbers of tokens before and after it is largest. Words keep their order over
all windows: the i-th position with a label is word i.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from data import features as features_lib
from data import sequences
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from tasks.ner import word_files
from tasks.ner.settings import WindowSettings

_NUM_SPECIAL = 2  # [CLS] and [SEP].
_WORDS_AT_ONCE = 1 << 20  # Words whose windows are compared at once.


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
      statistics: counters of lost tokens; None logs the losses.
    """
    room = settings.max_seq_length - _NUM_SPECIAL
    counted = statistics or features_lib.TokenizationStatistics()
    ids, splits = _tokens(tokenizer, sentences, room, counted)
    if statistics is None:
        counted.warn(sentences.path)
    if settings.has_context:
        check_documents(sentences.path, sentences.has_documents)
    windows = find_windows(sentences, splits, settings)
    if label_ids is None:
        label_ids = np.zeros(len(sentences.words), np.int64)
    first, last, begin, end = windows.T
    joined = sequences.join(
        tokenizer.vocabulary,
        sequences.Slices(ids, splits[first], splits[last] - splits[first]),
        None,
    )
    labels = np.full(len(joined.input_ids), -1, np.int32)
    shifts = joined.row_splits[:-1] + 1 - splits[first]  # After [CLS].
    labels[splits[:-1] + np.repeat(shifts, end - begin)] = label_ids
    return Features(
        row_splits=joined.row_splits,
        ragged={
            "input_ids": joined.input_ids,
            "segment_ids": joined.segment_ids,
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
    """Tokenizes words; a word keeps at most `most` tokens.

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
    num_kept = np.minimum(counts, most)[inverse]
    splits = np.concatenate([[0], np.cumsum(num_kept)])
    kept_ids = ids[sequences.ranges(begins[inverse], num_kept)]
    statistics.add_tokens(kept_ids, tokenizer.vocabulary)
    return kept_ids, splits


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
      (first, end) of the words whose labels this window predicts.
    """
    room = settings.max_seq_length - _NUM_SPECIAL
    middles = np.array(list(_middles(sentences, splits, room, settings)))
    begin, end, low, high = splits[middles].T
    start = np.maximum(low, begin - (room - (end - begin)) // 2)
    stop = np.minimum(high, start + room)
    start = np.maximum(low, stop - room)
    # Words that are cut at either end of the window are left out.
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

    The words from begin to end are in the middle of the window. Its context is
    within the words from low to high.
    """
    rows = sentences.row_splits
    bounds = np.arange(len(rows))
    if settings.has_context:
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
    """Cuts words into parts of half a window; the other half is context."""
    while begin < end:
        stop = np.searchsorted(splits, splits[begin] + room // 2, "right") - 1
        stop = min(max(stop, begin + 1), end)
        yield begin, stop
        begin = stop


def _assign(extents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Assigns each word to its best window; drops windows without a word."""
    sizes = extents[:, 1] - extents[:, 0]
    # Windows are compared part by part, which bounds memory. A part ends where
    # the windows before share no word with the windows after.
    is_apart = extents[1:, 0] >= np.maximum.accumulate(extents[:-1, 1])
    starts = np.concatenate([[0], np.flatnonzero(is_apart) + 1])
    parts = (np.cumsum(sizes) - sizes)[starts] // _WORDS_AT_ONCE
    _, first_of_part = np.unique(parts, return_index=True)
    bounds = np.append(starts[first_of_part], len(extents))
    chosen = np.concatenate(
        [
            _best_windows(extents[i:j], splits) + i
            for i, j in itertools.pairwise(bounds)
        ]
    )
    used, starts = np.unique(chosen, return_index=True)
    ends = np.append(starts[1:], len(chosen))
    if (np.diff(chosen) < 0).any():
        raise AssertionError("windows are out of order")
    return np.column_stack([extents[used], starts, ends])


def _best_windows(extents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Returns the number of the window in which each word is predicted."""
    first, last = extents.T
    sizes = last - first
    word = sequences.ranges(first, sizes)
    is_best = sequences.has_most_context(
        word - first[0],
        splits[word] - np.repeat(splits[first], sizes),
        np.repeat(splits[last], sizes) - splits[word + 1],
    )
    number = np.repeat(np.arange(len(extents)), sizes)
    return number[is_best][np.argsort(word[is_best], kind="stable")]
