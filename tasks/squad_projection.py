"""Pieces that were chosen as an answer, as they are written in the paragraph.

    pieces     steve smith          the words they are of   Steve Smith's,
    the words, split and lower-cased as the tokenizer does   steve smith ' s ,
        -> "steve smith" is found there, and its letters counted off in the
           words as written -> "Steve Smith"

Where that fails, e.g. for [UNK] or a stripped accent, the answer is the whole
words. google-research/bert answers so, and so do the scores in its paper.
In English it hardly matters; where words are not separated by spaces, as in
Chinese, whole words may be whole sentences. `exact` takes the characters of the
pieces themselves, wherever they come from.
"""

import functools
from collections.abc import Callable, Sequence

from data import squad
from data.squad_windows import Windows

Normalize = Callable[[str], list[str]]


class Projection:
    """Turns spans of windows into texts."""

    def __init__(
        self,
        found: squad.Questions,
        windows: Windows,
        *,
        normalize: Normalize,
        pieces: Sequence[str],
        exact: bool = False,
    ):
        """Takes what `squad_decoding.decode` takes."""
        self._found = found
        self._exact = exact
        self._windows = windows
        self._pieces = pieces
        self._normalized = functools.lru_cache(1 << 16)(
            lambda word: " ".join(normalize(word))
        )
        self._words = functools.lru_cache(4)(
            lambda paragraph: squad.words(found.contexts[paragraph])
        )

    def __call__(
        self, question: int, window: int, start: int, end: int
    ) -> tuple[str, tuple[int, int]]:
        """Returns the text and its characters in the paragraph.

        The characters are those of the pieces, which the text may exceed.

        Args:
          question: number of the question.
          window: number of the window.
          start: place of the first piece in the window.
          end: place of the last piece.
        """
        windows, documents = self._windows, self._windows.documents
        paragraph = self._found.questions[question].paragraph
        shift = documents.row_splits[paragraph] + windows.starts[window]
        shift -= windows.offsets[window]
        first, last = int(shift + start), int(shift + end)
        span = int(documents.starts[first]), int(documents.ends[last])
        if self._exact:
            return self._found.contexts[paragraph][slice(*span)], span
        ids = documents.ids[first : last + 1].tolist()
        words = self._words(paragraph)[
            documents.words[first] : documents.words[last] + 1
        ]
        text = final_text(
            join_pieces([self._pieces[i] for i in ids]),
            words,
            [self._normalized(word) for word in words],
        )
        return text, span


def join_pieces(pieces: Sequence[str]) -> str:
    """Joins continuations to the piece before them."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def final_text(
    answer: str, words: Sequence[str], normalized: Sequence[str]
) -> str:
    """Finds pieces in the words that they are of.

    Args:
      answer: the joined pieces.
      words: as written.
      normalized: the same, each split and lower-cased as by the tokenizer.
    """
    original = " ".join(words)
    text = " ".join(filter(None, normalized))
    start = text.find(answer)
    if start < 0 or not answer:
        return original
    letters = _letters(original)
    if len(letters) != len(text) - text.count(" "):
        return original
    first = start - text.count(" ", 0, start)
    last = first + len(answer) - answer.count(" ") - 1
    return original[letters[first] : letters[last] + 1]


def _letters(text: str) -> list[int]:
    """Returns where the characters are that are no spaces."""
    return [i for i, char in enumerate(text) if char != " "]
