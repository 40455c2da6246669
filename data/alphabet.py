r"""A renumbering of characters that TensorFlow Text cannot misread.

TensorFlow Text's FastWordpieceTokenizer splits words by itself, by the
Unicode version and the Chinese blocks compiled into it, which are not the
released tokenizer's. On most characters they agree for good; the others it
never sees. They get a stand-in: a rare Chinese character if they must be words
by themselves, a private-use one if not. Those that no piece contains share one
stand-in of each kind.

    "\u20ac" (a symbol, which is no word by itself)  ->  "\U000f0001"

Pieces are renumbered the same way, so ids come out as if nothing had happened.
"""

import itertools
from collections.abc import Iterable

import numpy as np

from data import normalization as normalization_lib
from data import unicode_14

_PRIVATE_USE = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))
# Blocks that TensorFlow Text splits into characters; whether a character of
# the last two stands for itself or for another is up to the vocabulary.
SEPARATOR_BLOCKS = ((0x2F800, 0x2FA1F), (0x2B820, 0x2CEAF))
UNKNOWN_LETTER = _PRIVATE_USE[0][0]
UNKNOWN_SEPARATOR = SEPARATOR_BLOCKS[0][0]
_CONTINUATION = "##"


class Alphabet:
    """The stand-in of every character, for one vocabulary.

    Attributes:
      codes: int32 [code points]; the stand-in of each normalized character.
      direct: bool [code points]; text of these alone needs no rewriting: they
        are unchanged by normalization and stand for themselves. (Capital
        letters of ASCII only have to be lower-cased, and are included.)
      separator: bool [code points]; stand-ins that are words by themselves.
    """

    def __init__(
        self,
        tokens: Iterable[str],
        normalization: normalization_lib.Normalization,
    ):
        """Hands out stand-ins to the characters of a vocabulary's pieces."""
        properties = unicode_14.properties()
        separator = normalization.separator
        self._real_separator = separator
        reserved = np.zeros_like(separator)
        for first, last in SEPARATOR_BLOCKS:
            reserved[first : last + 1] = True
        agreed = properties.settled & ~properties.cjk
        if normalization.tokenize_chinese_chars:
            agreed |= properties.cjk & ~reserved
        self.direct = agreed & normalization.unchanged
        self.direct[:0x80] = ~properties.removed[:0x80]
        codes = np.where(separator, UNKNOWN_SEPARATOR, UNKNOWN_LETTER)
        points = np.arange(unicode_14.CODE_POINTS)
        self.codes = np.where(self.direct, points, codes).astype(np.int32)
        letters, separators = _numbers(_PRIVATE_USE), _numbers(SEPARATOR_BLOCKS)
        next(letters), next(separators)  # Those for the unknown.
        for code_point in sorted(map(ord, set().union(*tokens))):
            if not self.direct[code_point]:
                is_separator = separator[code_point]
                stand_ins = separators if is_separator else letters
                self.codes[code_point] = next(stand_ins)
        self.separator = (separator & self.direct) | reserved
        self.separator[normalization_lib.SPACE] = True

    def rewrite(self, token: str) -> str | None:
        """Gives a piece in stand-ins, or None if no word can contain it."""
        prefix = ""
        if token.startswith(_CONTINUATION) and len(token) > 2:
            prefix, token = _CONTINUATION, token[2:]
        if token.isalnum() and token.isascii():
            return prefix + token
        points = list(map(ord, token))
        alone = len(points) == 1 and not prefix
        if not points or (self._real_separator[points].any() and not alone):
            return None
        if unicode_14.properties().space[points].any():
            return None
        return prefix + "".join(map(chr, self.codes[points].tolist()))

    def direct_pattern(self) -> str:
        """Gives a regular expression for texts of direct characters alone."""
        edges = np.flatnonzero(
            np.diff(self.direct, prepend=False, append=False)
        )
        ranges = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        members = "".join(
            rf"\x{{{first:x}}}-\x{{{end - 1:x}}}" for first, end in ranges
        )
        return f"[{members}]*"


def _numbers(blocks):
    return itertools.chain.from_iterable(
        range(first, last + 1) for first, last in blocks
    )
