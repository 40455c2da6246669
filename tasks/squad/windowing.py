"""Cuts paragraphs into windows, the model's input for one question.

    paragraph  the man went to the store and bought a gallon of milk
    window 0   [CLS] question [SEP] the man went to the [SEP]
    window 1   [CLS] question [SEP] to the store and bought [SEP]
    window 2   [CLS] question [SEP] and bought a gallon of [SEP]

A token may occur in several windows. An answer may start at a token only in the
window where the token has most context on its shorter side. Tokens carry their
characters in the paragraph, so that answers are found in any script and with
any white space.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data import sequences
from data.tokenization import plain_wordpiece, wordpiece
from finetuning import task as tasks
from tasks.squad import dataset
from tasks.squad.dataset import Word
from tasks.squad.settings import NUM_SPECIAL, AnswerSettings

FIRST_UNIQUE_ID = 1000000000
# Added to a window's context for each of its tokens, as released.
SIZE_WEIGHT = 0.01


class Document(NamedTuple):
    """A paragraph with its words and its T tokens.

    Attributes:
      context: the text.
      words: the words.
      ids: int32 [T].
      starts: int64 [T]; the first character of each token.
      ends: int64 [T]; the one after its last.
      word_numbers: int64 [T]; the index of the word of each token.
    """

    context: str
    words: Sequence[Word]
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    word_numbers: np.ndarray


class Window(NamedTuple):
    """[CLS] question [SEP] some tokens of a paragraph [SEP].

    Attributes:
      ids: all tokens.
      segment_ids: 0 of the question, 1 of the paragraph.
      document: the paragraph.
      start: the first of its tokens that the window has.
      length: how many of its tokens the window has.
      offset: position of the first of them in the window.
    """

    ids: Sequence[int]
    segment_ids: Sequence[int]
    document: Document
    start: int
    length: int
    offset: int

    @property
    def shift(self) -> int:
        """The token of the paragraph at a position is position + shift."""
        return self.start - self.offset


def read_document(tokenizer: wordpiece.Tokenizer, context: str) -> Document:
    """Tokenizes a paragraph, and finds the characters and words of tokens."""
    encoded = tokenizer.encode_with_offsets([context])
    words = dataset.words(context)
    starts = [word.start for word in words]
    numbers = np.searchsorted(starts, encoded.starts, "right") - 1
    return Document(
        context, words, encoded.ids, encoded.starts, encoded.ends, numbers
    )


def cut(
    tokenizer: plain_wordpiece.PlainTokenizer,
    question: str,
    document: Document,
    settings: AnswerSettings,
) -> list[Window]:
    """Returns the windows of a question; none if the paragraph has no token."""
    query = tasks.token_ids(tokenizer, question)[: settings.max_query_length]
    room = settings.max_seq_length - len(query) - NUM_SPECIAL
    stride = min(settings.doc_stride, room)
    tokens = document.ids.tolist()
    count = max(len(tokens) - room, 0) + stride if tokens else 0
    windows = []
    for start in range(0, count, stride):
        part = tokens[start : start + room]
        joined = tasks.sequence(tokenizer, query, part, settings.max_seq_length)
        offset = len(query) + 2
        windows.append(Window(*joined, document, start, len(part), offset))
    return windows


def answer_positions(
    window: Window, span: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Returns the first and the last position of an answer in a window.

    The tokens of an answer are all tokens with a character of the answer.

    Args:
      window: the window.
      span: characters [start, end) of the answer; None if there is none.

    Returns:
      None if the window does not have all of the answer.
    """
    if span is None:
        return None
    document = window.document
    first = int(np.searchsorted(document.ends, span[0], "right"))
    last = int(np.searchsorted(document.starts, span[1], "left")) - 1
    if not window.start <= first <= last < window.start + window.length:
        return None
    return first - window.shift, last - window.shift


def max_context(
    numbers: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Returns which tokens of each window have most context in it.

    Args:
      numbers: int [W]; the text of each window.
      starts: int [W]; its first token.
      lengths: int [W]; the number of its tokens.

    Returns:
      bool [W, L], of the L tokens of the longest window.
    """
    before = np.arange(lengths.max())
    after = lengths[:, None] - 1 - before
    result = after >= 0
    row, column = np.nonzero(result)
    # A token has the same number in all of its windows.
    longest = (starts + lengths).max()
    result[row, column] = sequences.has_most_context(
        numbers[row] * longest + starts[row] + column,
        column,
        after[row, column],
        size_weight=SIZE_WEIGHT,
    )
    return result
