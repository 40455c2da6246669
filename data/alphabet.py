r"""A renumbering of characters that TensorFlow Text cannot misread.

TensorFlow Text's FastWordpieceTokenizer splits words by itself, by the
Unicode version and the Chinese blocks compiled into it, which are not the
released tokenizer's. So it never sees the real characters: every character
beyond ASCII that the vocabulary knows gets a stand-in, a Chinese character if
it must be a word by itself, a letter if not, and all characters unknown to the
vocabulary share one stand-in of each kind, which no piece contains. Letters of
two UTF-8 bytes are handed out first.

    piece "##\u0432\u0430"   to the engine "##\u0403\u0401"
    piece "\u3002"           to the engine "\u4e01"

Pieces are renumbered the same way, so ids come out as if nothing had happened.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from data import unicode_14

UNKNOWN_LETTER = 0x100
UNKNOWN_SEPARATOR = 0x4E00
# Blocks that every version of Unicode calls letters (or private use).
_LETTERS = (
    (UNKNOWN_LETTER + 1, 0x17F),
    (0x400, 0x481),
    (0x48A, 0x52F),
    (0xAC00, 0xD7A3),
    (0xF0000, 0xFFFFD),
    (0x100000, 0x10FFFD),
)
# Blocks that every version of TensorFlow Text splits into characters.
SEPARATOR_BLOCKS = ((UNKNOWN_SEPARATOR, 0x9FFF), (0x20000, 0x2A6DF))
_CONTINUATION = "##"


class Alphabet:
    """The stand-in of every character, for one vocabulary.

    Attributes:
      codes: int32 [code points]; the stand-in, itself for ASCII.
    """

    def __init__(self, tokens: Iterable[str], separator: np.ndarray):
        """Hands out stand-ins.

        Args:
          tokens: the vocabulary's pieces.
          separator: bool [code points]; is a word by itself.
        """
        self._separator = separator
        self.codes = np.where(
            separator, UNKNOWN_SEPARATOR, UNKNOWN_LETTER
        ).astype(np.int32)
        self.codes[:0x80] = np.arange(0x80)
        letters = _numbers(_LETTERS)
        separators = _numbers(SEPARATOR_BLOCKS)
        next(separators)  # UNKNOWN_SEPARATOR itself.
        for code_point in sorted(set(map(ord, set().union(*tokens)))):
            if code_point >= 0x80:
                is_separator = separator[code_point]
                stand_ins = separators if is_separator else letters
                self.codes[code_point] = next(stand_ins)

    def rewrite(self, token: str) -> str | None:
        """Gives a piece in stand-ins, or None if no word can contain it."""
        prefix = ""
        if token.startswith(_CONTINUATION) and len(token) > 2:
            prefix, token = _CONTINUATION, token[2:]
        points = list(map(ord, token))
        alone = len(points) == 1 and not prefix
        if not points or (self._separator[points].any() and not alone):
            return None
        if unicode_14.properties().space[points].any():
            return None
        return prefix + "".join(map(chr, self.codes[points].tolist()))


def _numbers(blocks: Sequence[tuple[int, int]]):
    return itertools.chain.from_iterable(
        range(first, last + 1) for first, last in blocks
    )
