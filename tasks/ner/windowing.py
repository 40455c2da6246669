"""Arranges tokenized words in windows.

    words      [CLS]  Jim   Hen    ##son  was  a  puppet ##eer  [SEP]
    label_ids   -1   B-PER  I-PER   -1     O   O    O     -1     -1

The first token of a word has its label. A word without a token becomes [UNK],
so that no word is lost. A word may occur in several windows, but has its label
only in the window where it has the most context: where the smaller of the
numbers of tokens before and after it is largest. Words keep their order over
all windows: the i-th position with a label is word i.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data import sequences
from data.tokenization import wordpiece
from finetuning import task as tasks

# Values of Window.words: a word, which may begin or end its sentence. The last
# two are those of modeling.crf.
WORD, BEGINS, ENDS = 4, 1, 2
_NUM_SPECIAL = 2  # [CLS] and [SEP].


@dataclasses.dataclass(frozen=True)
class Windows:
    """How words are arranged in windows.

    Attributes:
      max_seq_length: the longest window, in tokens.
      document_context: "maximal" to fill windows with the sentences around.
      doc_stride: sentences of about this many tokens share a window.
    """

    max_seq_length: int
    document_context: str = "none"
    doc_stride: int = 0

    @property
    def has_context(self) -> bool:
        """Whether windows are filled with the sentences around."""
        return self.document_context == "maximal"

    @property
    def room(self) -> int:
        """The number of tokens besides [CLS] and [SEP]."""
        return self.max_seq_length - _NUM_SPECIAL


class Window(NamedTuple):
    """A sequence, and the words that it predicts.

    ids: ids of the tokens.
    segment_ids: zeros.
    words: for each token, WORD plus BEGINS or ENDS if it is the first of a
      word that is predicted here, else 0.
    first: number of the first of these words.
    """

    ids: Sequence[int]
    segment_ids: Sequence[int]
    words: np.ndarray
    first: int

    @property
    def positions(self) -> np.ndarray:
        """The first token of each word that is predicted here."""
        return np.flatnonzero(self.words)


def encode(
    tokenizer: wordpiece.Tokenizer,
    sentences: Sequence[Sequence[str]],
    windows: Windows,
) -> list[Window]:
    """Returns the windows of the sentences of a document."""
    words = list(itertools.chain.from_iterable(sentences))
    if not words:
        return []
    encoded = tokenizer.encode(words)
    unknown = [tokenizer.vocabulary.unk_id]
    bounds = itertools.pairwise(encoded.row_splits.tolist())
    ids = encoded.ids.tolist()
    tokens = [ids[i:j][: windows.room] or unknown for i, j in bounds]
    splits = np.cumsum([0, *map(len, tokens)])
    rows = np.cumsum([0, *map(len, sentences)])
    marks = np.full(len(words), WORD)
    marks[rows[:-1]] |= BEGINS
    marks[rows[1:] - 1] |= ENDS
    extents = [(0, len(words), 0, len(words))]
    if len(sentences) > 1 or splits[-1] > windows.room:
        extents = find_windows(splits, rows, windows).tolist()
    found = []
    for first, last, begin, end in extents:
        sequence = tasks.sequence(
            tokenizer,
            list(itertools.chain.from_iterable(tokens[first:last])),
            (),
            windows.max_seq_length,
        )
        of_tokens = np.zeros(len(sequence.ids), int)
        of_tokens[splits[begin:end] - splits[first] + 1] = marks[begin:end]
        found.append(Window(*sequence, of_tokens, begin))
    return found


def find_windows(
    splits: np.ndarray, rows: np.ndarray, windows: Windows
) -> np.ndarray:
    """Returns the words of each window of a document.

    Args:
      splits: int64 [W + 1], the number of tokens before each word.
      rows: int64 [N + 1]; sentence i has the words [rows[i], rows[i + 1]).
      windows: how words are arranged in windows.

    Returns:
      int64 [windows, 4]: the numbers (first, end) of the window's words, and
      (first, end) of the words whose labels this window predicts.
    """
    room = windows.room
    middles = np.array(list(_middles(splits, rows, windows)))
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
    extents = extents[is_new]
    chosen = _best_windows(extents, splits)
    used, starts = np.unique(chosen, return_index=True)
    ends = np.append(starts[1:], len(chosen))
    assert (np.diff(chosen) >= 0).all()  # Words keep their order.
    return np.column_stack([extents[used], starts, ends])


def _middles(
    splits: np.ndarray, rows: np.ndarray, windows: Windows
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (begin, end, low, high) for each window.

    The words from begin to end are in the middle of the window. Its context is
    within the words from low to high.
    """
    bounds = [rows[0], rows[-1]] if windows.has_context else rows
    for low, high in itertools.pairwise(bounds):
        begin = low
        for end in rows[(rows > low) & (rows <= high)]:
            length = splits[end] - splits[begin]
            if end < high and length < windows.doc_stride:
                continue
            if length <= windows.room:
                yield begin, end, low, high
            else:
                for part in _parts(splits, begin, end, windows.room):
                    yield *part, low, high
            begin = end


def _parts(splits, begin, end, room) -> Iterator[tuple[int, int]]:
    """Cuts words into parts of half a window; the other half is context."""
    while begin < end:
        stop = np.searchsorted(splits, splits[begin] + room // 2, "right") - 1
        stop = min(max(stop, begin + 1), end)
        yield begin, stop
        begin = stop


def _best_windows(extents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Returns the number of the window in which each word is predicted."""
    first, last = extents.T
    sizes = last - first
    word = sequences.ranges(first, sizes)
    is_best = sequences.has_most_context(
        word,
        splits[word] - np.repeat(splits[first], sizes),
        np.repeat(splits[last], sizes) - splits[word + 1],
    )
    number = np.repeat(np.arange(len(extents)), sizes)
    return number[is_best][np.argsort(word[is_best], kind="stable")]
