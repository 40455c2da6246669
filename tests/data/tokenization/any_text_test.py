"""Proves that any text has the tokens of google-research/bert's tokenizer.

`Reference` says in words what BasicTokenizer and WordpieceTokenizer do, by
Python's unicodedata. The plain tokenizer agrees with it, and by
plain_wordpiece_test.py with the graph.

python -m pytest tests/data/tokenization/any_text_test.py
"""

import re
import unicodedata

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from data.tokenization import plain_wordpiece, vocabulary

ASCII_MARKS = re.compile(r"[!-/:-@[-`{-~]")
CHINESE = re.compile(
    "([\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U0002f800-\U0002fa1f"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002ceaf])"
)
# Code points that are the same in all versions of Unicode since 3.2.
SETTLED = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.ucd_3_2_0.category(chr(code))
    == unicodedata.category(chr(code))
    not in ("Cn", "Cs")
]
# Characters of one kind beside each other make tokenizing hard.
KINDS = [
    *("aeoz", "AEOZ", "\u00e9\u00c9\u00fc\u0130\u0131\u00df", ".,-!'$`~^"),
    *(" \t\n\r\u00a0\u3000\u2009", "\x00\x0b\x1c\x85\u200b\ufeff\u00ad\ufffd"),
    *("\u0301\u0327\u0345\u0323\u05b8\u093f", "\u03a3\u03c3\u03c2\u0391"),
    *(
        "\u4e2d\u3400\U0002a6d6\uf900",
        "\u3042\u30ac\uac00\ud55c",
        "\u2028\u2029",
    ),
    *("\u2026\u3002\u00bf\u05be", "\U0001f600\U0001d400", "\u0e01\u0e33\u0939"),
]
CHARACTERS = strategies.one_of(
    *(strategies.sampled_from(kind) for kind in KINDS),
    strategies.sampled_from(SETTLED),
)
TEXTS = strategies.lists(CHARACTERS, max_size=20).map("".join)
LONG = strategies.builds(
    lambda char, count, text: char * count + text,
    strategies.sampled_from("a\u00e9\u4e2d\uac00"),
    strategies.sampled_from([67, 199, 200, 201]),
    TEXTS,
)
BATCHES = strategies.lists(TEXTS | LONG, min_size=1, max_size=12)
KEPT = sorted({*"".join(KINDS).lower(), *"".join(KINDS), *SETTLED[::97]})
WORDS = ["ae", "oz", "a\u0301", "zo.", "\u03c3\u03b1", *KEPT[::2], *KEPT[1::3]]
SWITCHES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
]


class Reference:
    """The released tokenizer, in the order of its steps."""

    def __init__(
        self,
        words,
        do_lower_case=True,
        strip_accents=None,
        tokenize_chinese_chars=True,
    ):
        """Takes a vocabulary and the switches."""
        self.ids = words.ids
        self.lower = do_lower_case
        self.strip = do_lower_case if strip_accents is None else strip_accents
        self.chinese = tokenize_chinese_chars

    def words(self, text):
        """Returns the words and marks of a text."""
        text = "".join(map(self._clean, text))
        if self.chinese:
            text = CHINESE.sub(r" \1 ", text)
        for word in text.split():
            word = word.lower() if self.lower else word
            if self.strip:
                word = "".join(
                    x
                    for x in unicodedata.normalize("NFD", word)
                    if unicodedata.category(x) != "Mn"
                )
            yield from "".join(map(self._apart, word)).split()

    @staticmethod
    def _clean(char):
        category = unicodedata.category(char)
        if char in " \t\n\r" or category == "Zs":
            return " "
        return "" if category in ("Cc", "Cf") or char == "\ufffd" else char

    @staticmethod
    def _apart(char):
        category = unicodedata.category(char)
        is_mark = ASCII_MARKS.match(char) or category.startswith("P")
        return f" {char} " if is_mark else char

    def tokens(self, text):
        """Returns the ids of a text: greedy, the longest part first."""
        return [i for word in self.words(text) for i in self._split(word)]

    def _split(self, word):
        found, start = [], 0
        while start < len(word) <= 200:
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            parts = (prefix + word[start:end] for end in ends)
            token = next((x for x in parts if x in self.ids), None)
            if token is None:
                break
            found.append(self.ids[token])
            start += len(token) - len(prefix)
        return found if start == len(word) else [self.ids["[UNK]"]]


def tokenizers(**switches):
    """Returns ours and the reference for one vocabulary."""
    tokens = [*vocabulary.SPECIAL_TOKENS, *WORDS, *(f"##{x}" for x in WORDS)]
    tokens = [x for x in dict.fromkeys(tokens) if x.strip() == x != ""]
    words = vocabulary.Vocabulary.from_tokens(tokens)
    ours = plain_wordpiece.PlainTokenizer(words, **switches)
    return ours, Reference(words, **switches)


def examples(count):
    """Returns the settings of a test with so many examples."""
    return hypothesis.settings(
        max_examples=count, derandomize=True, deadline=None, database=None
    )


def one_sigma(text):
    """Replaces forms of sigma, which depend on the neighbors."""
    return re.sub("[\u03a3\u03c2]", "\u03c3", text)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_any_text_has_the_tokens_of_the_reference(switches):
    ours, reference = tokenizers(**switches)

    @examples(60)
    @hypothesis.given(BATCHES)
    def check(texts):
        encoded = ours.encode_with_offsets(texts)
        rows = np.split(encoded.ids, encoded.row_splits[1:-1])
        assert [x.tolist() for x in rows] == list(map(reference.tokens, texts))
        counts = np.diff(encoded.row_splits)
        for row, i, start, end in zip(
            np.repeat(np.arange(len(texts)), counts),
            encoded.ids,
            encoded.starts,
            encoded.ends,
            strict=True,
        ):
            span = "".join(reference.words(texts[row][start:end]))
            token = ours.vocabulary.tokens[i].removeprefix("##")
            assert start < end
            assert token == "[UNK]" or one_sigma(token) in one_sigma(span)

    check()


def test_invalid_bytes_are_ignored_and_surrogates_unknown():
    ours, reference = tokenizers()

    @examples(60)
    @hypothesis.given(TEXTS, strategies.binary(max_size=4), TEXTS)
    def check(first, wrong, last):
        text = first.encode() + wrong + last.encode()
        ids = ours.encode([text]).ids.tolist()
        assert ids == reference.tokens(text.decode("utf-8", "ignore"))

    check()
    texts = ["a\ud800 ae", "\udfff", "", " ", "\u200b"]
    tokens = [["[UNK]", "ae"], ["[UNK]"], [], [], []]
    assert ours.tokenize(texts) == tokens
