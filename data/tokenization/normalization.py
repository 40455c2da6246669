r"""The released tokenizer's normalization: text to words.

    " \u00c7a\u0000 s'ouvre"  ->  "ca s ' ouvre"  ->  ["ca", "s", "'", "ouvre"]

Each character is removed, becomes a space, stays, or becomes a few others; a
punctuation mark or a Chinese character is a word by itself. All of that is a
table look-up. Two rules depend on neighboring characters, in lower-cased text
only: the lower case of a capital sigma, and the canonical order of marks that
survive accent stripping.

The tables are Unicode 14.0's, which the released tokenizer's behavior rests on.
Python's own tables change with its version (3.10 has Unicode 13.0, 3.13 has
15.1), and tokens must not, so unicode_14_0.json holds them, as written by
tests/testdata/make_unicode_table.py. `Normalization` builds the tables of a
tokenizer, which graph_tokenization.py turns into TensorFlow operations, and
finds words in plain Python.
"""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Sequence

import numpy as np

CODE_POINTS = 0x110000
REMOVED = -1
SPACE = 0x20
CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
# Longer words are [UNK], as released.
MAX_CHARACTERS_PER_WORD = 200
# What the released tokenizer calls a Chinese character: the blocks of the CJK
# ideographs that Unicode had in 2018, but no Hangul, hiragana or katakana.
CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_WORD = re.compile(r"\S+")
_TABLE = pathlib.Path(__file__).with_name("unicode_14_0.json")


@dataclasses.dataclass(frozen=True)
class Properties:
    """The properties of all code points, each an array [CODE_POINTS] or a dict.

    Attributes:
      removed: bool; control and format characters, U+0000 and U+FFFD.
      space: bool; ends a word and is removed.
      punctuation: bool; is a word of its own.
      cjk: bool; is a word of its own where Chinese characters are split.
      nonspacing_mark: bool; category Mn, "accents".
      settled: bool; has had its category since Unicode 3.2.
      cased: bool; a sigma before it is not a final one.
      case_ignorable: bool; the search for a final sigma looks past it.
      combining_class: uint8; canonical combining class.
      lower: code point -> its lower case, where that differs.
      decomposition: code point -> its NFD, where that differs.
    """

    removed: np.ndarray
    space: np.ndarray
    punctuation: np.ndarray
    cjk: np.ndarray
    nonspacing_mark: np.ndarray
    settled: np.ndarray
    cased: np.ndarray
    case_ignorable: np.ndarray
    combining_class: np.ndarray
    lower: dict[int, str]
    decomposition: dict[int, str]


@functools.cache
def unicode_properties() -> Properties:
    """Loads the properties, once in each process."""
    table = json.loads(_TABLE.read_text(encoding="ascii"))
    combining_class = np.zeros(CODE_POINTS, np.uint8)
    for value, runs in table["combining_class"].items():
        combining_class[_members(runs)] = int(value)
    decomposition = {  # Hangul syllables decompose by rule.
        0xAC00 + index: chr(0x1100 + index // (21 * 28))
        + chr(0x1161 + index // 28 % 21)
        + (chr(0x11A7 + index % 28) if index % 28 else "")
        for index in range(19 * 21 * 28)
    }
    decomposition.update(_by_code_point(table["decomposition"]))
    return Properties(
        removed=_members(table["removed"]),
        space=_members(table["space"]),
        punctuation=_members(table["punctuation"]),
        cjk=_members(CJK_BLOCKS),
        nonspacing_mark=_members(table["nonspacing_mark"]),
        settled=_members(table["settled"]),
        cased=_members(table["cased"]),
        case_ignorable=_members(table["case_ignorable"]),
        combining_class=combining_class,
        lower=_by_code_point(table["lower"]),
        decomposition=decomposition,
    )


def _members(runs) -> np.ndarray:
    is_member = np.zeros(CODE_POINTS, bool)
    for first, last in runs:
        is_member[first : last + 1] = True
    return is_member


def _by_code_point(mapping: dict[str, str]) -> dict[int, str]:
    return {ord(char): text for char, text in mapping.items()}


class Normalization:
    """The released normalization with one setting of its three switches.

    Attributes:
      do_lower_case: lower-cases as Python's str.lower does.
      strip_accents: decomposes (NFD) and drops nonspacing marks.
      tokenize_chinese_chars: makes every Chinese character a word.
      single: int32 [code points]; what a code point becomes: REMOVED, a code
        point, or, for the keys of `several`, the code point itself.
      several: code point -> the two or three code points that it becomes.
      separator: bool [code points]; is a word by itself, once normalized.
    """

    def __init__(
        self,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        """Builds the tables; strip_accents=None follows do_lower_case."""
        self.do_lower_case = do_lower_case
        self.strip_accents = (
            do_lower_case if strip_accents is None else strip_accents
        )
        self.tokenize_chinese_chars = tokenize_chinese_chars
        properties = unicode_properties()
        self._properties = properties
        self.separator = properties.punctuation.copy()
        if tokenize_chinese_chars:
            self.separator |= properties.cjk
        self.single = np.arange(CODE_POINTS, dtype=np.int32)
        self.several: dict[int, tuple[int, ...]] = {}
        changed = {}
        if do_lower_case:
            changed.update(properties.lower)
        if self.strip_accents:
            self.single[properties.nonspacing_mark] = REMOVED
            changed.update(properties.decomposition)
        for code_point in changed:
            codes = self._expand(code_point)
            if self.strip_accents:
                is_mark = properties.nonspacing_mark
                codes = tuple(code for code in codes if not is_mark[code])
            self.single[code_point] = codes[0] if codes else REMOVED
            if len(codes) > 1:
                self.single[code_point] = code_point
                self.several[code_point] = codes
        self.single[properties.space] = SPACE
        self.single[properties.removed] = REMOVED
        self._spaced = _SpacedCharacters(self)

    def _expand(self, code_point: int) -> tuple[int, ...]:
        """Lower-cases and decomposes one character, keeping its marks."""
        properties = self._properties
        text = chr(code_point)
        if self.do_lower_case:
            text = properties.lower.get(code_point, text)
        if self.strip_accents:
            text = "".join(
                properties.decomposition.get(ord(char), char) for char in text
            )
        return tuple(map(ord, text))

    @functools.cached_property
    def reordering(self) -> frozenset[int]:
        """The code points that become a surviving mark of non-zero class.

        Only text with at least two of them can need canonical reordering.
        """
        if not self.strip_accents:
            return frozenset()
        properties = self._properties
        survives = (properties.combining_class > 0) & (
            ~properties.nonspacing_mark
        )
        codes = set(np.flatnonzero(survives).tolist())
        codes.update(
            code_point
            for code_point, expansion in self.several.items()
            if survives[list(expansion)].any()
        )
        return frozenset(codes)

    @functools.cached_property
    def _reordering_pattern(self) -> re.Pattern:
        chars = "".join(map(chr, sorted(self.reordering)))
        return re.compile(f"[{chars}]" if chars else "(?!)")

    @functools.cached_property
    def unchanged(self) -> np.ndarray:
        """Whether a code point is unchanged in any context: bool [CODE_POINTS].

        True for spaces, False for marks that may have to be reordered.
        """
        points = np.arange(CODE_POINTS)
        unchanged = (self.single == points) | self._properties.space
        unchanged[list(self.several)] = False
        unchanged[list(self.reordering)] = False
        return unchanged

    def words(self, text: str) -> list[str]:
        """Splits text into normalized words."""
        text, _ = self._in_order(text)
        return text.translate(self._spaced).split()

    def words_with_sources(self, text: str) -> list[tuple[str, list[int]]]:
        """Splits text into normalized words.

        Returns:
          Each word, and the position in `text` that each of its characters is
          from.
        """
        text, source = self._in_order(text)
        parts = [self._spaced[ord(char)] for char in text]
        sources = [
            position
            for position, part in zip(source, parts, strict=True)
            for _ in part
        ]
        return [
            (found[0], sources[found.start() : found.end()])
            for found in _WORD.finditer("".join(parts))
        ]

    def end_of(self, text: str, position: int) -> int:
        """Returns the position after a character and its stripped accents."""
        end = position + 1
        if self.strip_accents and not text.isascii():
            is_mark = self._properties.nonspacing_mark
            while end < len(text) and is_mark[ord(text[end])]:
                end += 1
        return end

    def _in_order(self, text: str) -> tuple[str, Sequence[int]]:
        """Applies the two rules that depend on neighboring characters.

        Returns:
          The text, and the position that each of its characters is from.
        """
        if self.do_lower_case and chr(CAPITAL_SIGMA) in text:
            text = self._with_final_sigmas(text)
        if self.strip_accents and not text.isascii():
            if len(self._reordering_pattern.findall(text)) > 1:
                return self._in_canonical_order(text)
        return text, range(len(text))

    def _with_final_sigmas(self, text: str) -> str:
        properties = self._properties
        skipped = properties.case_ignorable | properties.removed
        chars = list(text)
        kept = [i for i, char in enumerate(chars) if not skipped[ord(char)]]
        cased = [bool(properties.cased[ord(chars[i])]) for i in kept]
        cased = [False, *cased, False]
        for i, index in enumerate(kept):
            if ord(chars[index]) == CAPITAL_SIGMA:
                if cased[i] and not cased[i + 2]:
                    chars[index] = chr(FINAL_SIGMA)
        return "".join(chars)

    def _in_canonical_order(self, text: str) -> tuple[str, list[int]]:
        properties = self._properties
        expanded = [
            (code, position)
            for position, char in enumerate(text)
            if not properties.removed[ord(char)]
            for code in self._expand(ord(char))
        ]
        codes = [code for code, _ in expanded]
        classes = properties.combining_class[codes]
        # Only the order within each run of marks changes.
        runs = np.cumsum(classes == 0)
        order = np.lexsort((classes, runs)).tolist()
        text = "".join(chr(codes[i]) for i in order)
        return text, [expanded[i][1] for i in order]


class _SpacedCharacters(dict):
    """A table for str.translate that is filled on demand by __missing__.

    Most of the 1.1 million code points never occur.
    """

    def __init__(self, normalization: Normalization):
        super().__init__()
        self._normalization = normalization

    def __missing__(self, code_point: int) -> str:
        normalization = self._normalization
        single = int(normalization.single[code_point])
        codes = normalization.several.get(code_point, (single,))
        text = "".join(
            f" {chr(code)} " if normalization.separator[code] else chr(code)
            for code in codes
            if code != REMOVED
        )
        self[code_point] = text
        return text
