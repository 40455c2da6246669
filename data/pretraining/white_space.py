"""Words between white space, of text that a segmenter has divided.

Chinese characters are tokens by themselves, so white space between them changes
no id, but tells which characters are a word. In the token store, a token that
continues its word is marked:

    text      AB CD BERT         (A to D stand for Chinese characters)
    tokens    A  B  C  D  be ##rt
    marked       x     x     x
"""

import functools
import re

import numpy as np

from data.tokenization import normalization

_MARK = 1 << 30  # Beyond the ids of every vocabulary.


def words_of(text: str) -> list[str]:
    """Returns what is between the white space that ends words."""
    return _not_space().findall(text)


def marked(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Marks each token but the first of its word: int32 [T].

    Args:
      ids: int [T], the tokens of all words.
      lengths: int [N], the number of tokens of each word.
    """
    continues = np.ones(len(ids), bool)
    continues[(np.cumsum(lengths) - lengths)[lengths > 0]] = False
    return np.where(continues, ids | _MARK, ids).astype(np.int32)


def unmarked(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids without their marks, and whether each had one."""
    if ids.dtype.itemsize < np.dtype(np.int32).itemsize:  # Has no marks.
        return ids, np.zeros(ids.shape, bool)
    return ids & ~_MARK, (ids & _MARK) > 0


@functools.cache
def _not_space() -> re.Pattern[str]:
    spaces = np.flatnonzero(normalization.unicode_properties().space)
    return re.compile(f"[^{re.escape(''.join(map(chr, spaces.tolist())))}]+")
