"""The Unicode 14.0 data that the released tokenizer's behavior rests on.

Python's own tables change with its version (3.10 has Unicode 13.0, 3.13 has
15.1), and pieces must not: so the data is pinned in unicode_14_0.json, which
tools/make_unicode_table.py wrote. Every array is indexed by code point.
"""

import dataclasses
import functools
import json
import pathlib

import numpy as np

CODE_POINTS = 0x110000
_TABLE = pathlib.Path(__file__).with_name("unicode_14_0.json")

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


@dataclasses.dataclass(frozen=True)
class Properties:
    """What one has to know of each code point to split text into words.

    Attributes:
      removed: bool; control and format characters, U+0000 and U+FFFD.
      space: bool; ends a word and vanishes.
      punctuation: bool; is a word of its own.
      cjk: bool; is a word of its own where Chinese characters are split.
      nonspacing_mark: bool; category Mn, "accents".
      settled: bool; has had its category since Unicode 3.2.
      cased: bool; a sigma before it is not a final one.
      case_ignorable: bool; the search for a final sigma looks past it.
      combining_class: uint8; canonical combining class.
      lower: code point -> what str.lower makes of it, where that differs.
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
def properties() -> Properties:
    """Loads the table, once a process."""
    table = json.loads(_TABLE.read_text(encoding="ascii"))
    combining_class = np.zeros(CODE_POINTS, np.uint8)
    for value, runs in table["combining_class"].items():
        combining_class[_members(runs)] = int(value)
    decomposition = _hangul_decomposition()
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


def _hangul_decomposition() -> dict[int, str]:
    """Decomposes the Hangul syllables, which follow a rule, not a table."""
    decomposition = {}
    for index in range(19 * 21 * 28):
        lead, rest = divmod(index, 21 * 28)
        vowel, trail = divmod(rest, 28)
        jamo = chr(0x1100 + lead) + chr(0x1161 + vowel)
        if trail:
            jamo += chr(0x11A7 + trail)
        decomposition[0xAC00 + index] = jamo
    return decomposition
