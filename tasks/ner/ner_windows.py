"""Words to pieces with a tag each, in windows of their sentence or document.

    words      [CLS]  Jim   Hen    ##son  was  a  puppet ##eer  [SEP]
    label_ids   -1   B-PER  I-PER   -1     O   O    O     -1     -1

The first piece of every word bears its label. No word is lost: one without any
piece becomes [UNK], and each is predicted in exactly one window, the one where
it has the most context, that is, where the smaller of the numbers of pieces
before and behind it is largest. As words keep their order over all windows, the
places with a label are the words.
"""

from collections.abc import Iterator

import numpy as np
from absl import logging

from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from tasks.ner import conll

_SPECIAL = 2  # [CLS] and [SEP].


def encode(
    tokenizer: wordpiece.Tokenizer,
    sentences: conll.Sentences,
    label_ids: np.ndarray | None,
    *,
    max_seq_length: int,
    document_context: bool = False,
    doc_stride: int = 0,
) -> Features:
    """Returns ragged input_ids, segment_ids and label_ids.

    Args:
      tokenizer: of the model.
      sentences: the words.
      label_ids: int [W], or None for zeros.
      max_seq_length: the longest window, both special tokens included.
      document_context: fill windows up with what the document has around.
      doc_stride: with it, sentences of about so many pieces share a window;
        0 gives each sentence one.
    """
    room = max_seq_length - _SPECIAL
    ids, splits = _pieces(tokenizer, sentences, room)
    if document_context:
        check_documents(sentences)
    windows = find_windows(
        sentences,
        splits,
        room=room,
        document_context=document_context,
        doc_stride=doc_stride,
    )
    if label_ids is None:
        label_ids = np.zeros(len(sentences.words), np.int64)
    return _cut(tokenizer.vocabulary, ids, splits, label_ids, windows)


def check_documents(sentences: conll.Sentences) -> None:
    """Refuses a file that does not say where documents begin."""
    if not sentences.has_documents:
        raise errors.InputError(
            f"{sentences.path}: --document_context needs lines of "
            f"{conll.DOCUMENT} that say where documents begin"
        )


def word_places(features: Features) -> np.ndarray:
    """Returns int64 [W], where among all pieces each word begins."""
    return np.flatnonzero(features.ragged["label_ids"] >= 0)


def find_windows(
    sentences: conll.Sentences,
    splits: np.ndarray,
    *,
    room: int,
    document_context: bool,
    doc_stride: int = 0,
) -> np.ndarray:
    """Returns int64 [windows, 4]: words [0, 1), of which [2, 3) are predicted.

    Args:
      sentences: the words.
      splits: int64 [W + 1], the pieces before each word.
      room: for so many pieces.
      document_context: see `encode`.
      doc_stride: see `encode`.
    """
    middles = np.array(
        list(_middles(sentences, splits, room, document_context, doc_stride))
    )
    begin, end, low, high = splits[middles].T
    start = np.maximum(low, begin - (room - (end - begin)) // 2)
    stop = np.minimum(high, start + room)
    start = np.maximum(low, stop - room)
    # Whole words only: what is cut at either end is left out.
    first = np.searchsorted(splits, start, "left")
    last = np.searchsorted(splits, stop, "right") - 1
    extents = np.stack([first, last], axis=1)
    is_new = np.ones(len(extents), bool)
    is_new[1:] = (extents[1:] != extents[:-1]).any(axis=1)
    return _assign(extents[is_new], splits)


def _middles(
    sentences, splits, room, document_context, doc_stride
) -> Iterator[tuple[int, int, int, int]]:
    """Yields words [0, 1) around which to lay a window inside of [2, 3)."""
    rows = sentences.row_splits
    bounds = np.arange(len(rows))
    if document_context:
        bounds = sentences.documents
    for first, last in zip(bounds[:-1], bounds[1:], strict=True):
        low, high = rows[first], rows[last]
        begin = low
        for end in rows[first + 1 : last + 1]:
            length = splits[end] - splits[begin]
            if end < high and length < doc_stride:
                continue
            if length <= room:
                yield begin, end, low, high
            else:
                yield from (
                    (*part, low, high)
                    for part in _parts(splits, begin, end, room)
                )
            begin = end


def _parts(splits, begin, end, room) -> Iterator[tuple[int, int]]:
    """Cuts words into parts that leave half a window for their context."""
    while begin < end:
        stop = np.searchsorted(splits, splits[begin] + room // 2, "right") - 1
        stop = min(max(stop, begin + 1), end)
        yield begin, stop
        begin = stop


def _assign(extents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Adds to each window the words that it predicts, leaving out the idle."""
    count = int(extents[-1, 1])
    best = np.full(count, -1)
    chosen = np.zeros(count, np.int64)
    for number, (first, last) in enumerate(extents.tolist()):
        before = splits[first:last] - splits[first]
        behind = splits[last] - splits[first + 1 : last + 1]
        context = np.minimum(before, behind)
        is_better = context > best[first:last]
        best[first:last][is_better] = context[is_better]
        chosen[first:last][is_better] = number
    used, starts = np.unique(chosen, return_index=True)
    ends = np.append(starts[1:], count)
    if (np.diff(chosen) < 0).any():
        raise AssertionError("windows are out of order")
    return np.column_stack([extents[used], starts, ends])


def _pieces(tokenizer, sentences, most) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pieces of all words, int32 [T], and int64 [W + 1] splits."""
    numbers = {word: i for i, word in enumerate(dict.fromkeys(sentences.words))}
    inverse = np.array([numbers[word] for word in sentences.words])
    encoded = tokenizer.encode(list(numbers))
    counts = np.diff(encoded.row_splits)
    is_empty = counts == 0
    ids = np.append(encoded.ids, tokenizer.vocabulary.unk_id)
    begins = np.where(is_empty, len(encoded.ids), encoded.row_splits[:-1])
    counts = np.maximum(counts, 1)
    kept = np.minimum(counts, most)[inverse]
    for text, chosen in (
        ("%s: %d words without any piece are read as [UNK]", is_empty),
        (f"%s: of %d words only the first {most} pieces fit", counts > most),
    ):
        number = int(chosen[inverse].sum())
        if number:
            logging.warning(text, sentences.path, number)
    splits = np.concatenate([[0], np.cumsum(kept)])
    places = np.repeat(begins[inverse] - splits[:-1], kept)
    return ids[places + np.arange(splits[-1])], splits


def _cut(vocabulary, ids, splits, label_ids, windows) -> Features:
    """Copies every window's pieces between [CLS] and [SEP]."""
    first, last, begin, end = windows.T
    lengths = splits[last] - splits[first] + _SPECIAL
    rows = np.concatenate([[0], np.cumsum(lengths)])
    input_ids = np.full(rows[-1], vocabulary.sep_id, np.int32)
    input_ids[rows[:-1]] = vocabulary.cls_id
    # How far a window's pieces move.
    shifts = rows[:-1] + 1 - splits[first]
    pieces = _ranges(splits[first], lengths - _SPECIAL)
    input_ids[pieces + np.repeat(shifts, lengths - _SPECIAL)] = ids[pieces]
    labels = np.full(rows[-1], -1, np.int32)
    labels[splits[:-1] + np.repeat(shifts, end - begin)] = label_ids
    return Features(
        row_splits=rows,
        ragged={
            "input_ids": input_ids,
            "segment_ids": np.zeros(rows[-1], np.int32),
            "label_ids": labels,
        },
    )


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns starts[0], starts[0] + 1, ... for all ranges in a row."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
