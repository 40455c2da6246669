"""Finds the words that a tagger reads in raw text, inside a graph.

    texts -> sentences and words (`WordSplitter`)

It follows `data.sentences.split` and `tasks.ner.raw_text`,
which read one text at a time. Here all texts are one array of characters, with
a mark before and after each text, and each rule is a formula on arrays:

    texts         Hi.  No!
    characters    END H i . END N o ! END
    word_start     0  1 0 1  0  1 0 1  0

The tables are those of Python's classes of characters.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import sentences
from data.tokenization import graph_tokenization
from serving import model_inputs
from tasks.ner import raw_text as raw_text_lib

_END = 0xD800  # A surrogate, which UTF-8 cannot contain.
_LONGEST = 16  # Listed words are shorter.
# Classes of characters, as members of a character class of `re`.
_CLASSES = {
    "space": r"\s",
    "word": r"\w",
    "digit": r"\d",
    "chinese": raw_text_lib.CHINESE,
    "break": f"{raw_text_lib.BREAKS},",
    "wide": sentences.WIDE,
    "narrow": sentences.NARROW,
    "closing": sentences.CLOSING,
    # What may precede the first word of a sentence.
    "opening": f"{sentences.OPENING}\\s\u2013\u2014-",
    # What ends the word before a period, to the left.
    "word_break": "\\s\"'(\\[\u201c\u2018\u00ab\u201e\u2014",
}
_PREDICATES: dict[str, Callable[[str], bool]] = {
    "mark": lambda char: unicodedata.category(char)[0] == "M",
    "lower": str.islower,
    "upper": str.isupper,
    "alpha": str.isalpha,
    "number": str.isdigit,
}
_NAMES = (*_CLASSES, *_PREDICATES)
_APOSTROPHE = ord("'")


class Words(NamedTuple):
    """W words in S sentences of N texts.

    Attributes:
      starts: int64 [W]; the first character of each word in its text.
      ends: int64 [W]; the character after its last.
      texts: int64 [W]; the text of each word.
      sentence_splits: int64 [S + 1]; where each sentence begins.
      strings: string [W].
    """

    starts: tf.Tensor
    ends: tf.Tensor
    texts: tf.Tensor
    sentence_splits: tf.Tensor
    strings: tf.Tensor


class WordSplitter:
    """Splits texts; the tables are made once."""

    def __init__(self):
        """Makes the tables, in about three seconds."""
        characters = "".join(map(chr, range(sys.maxunicode + 1)))
        flags = np.zeros(len(characters), np.int32)
        for bit, name in enumerate(_NAMES):
            if name in _CLASSES:
                pattern = re.compile(f"[{_CLASSES[name]}]")
                members = [m.start() for m in pattern.finditer(characters)]
            else:
                is_member = _PREDICATES[name]
                members = [i for i, x in enumerate(characters) if is_member(x)]
            flags[members] |= 1 << bit
        flags[_END] = 0
        # What a character becomes in lower case; 0 if several.
        lower = [
            ord(x) if len(x) == 1 else 0 for x in map(str.lower, characters)
        ]
        # The letters of clitics, in any case, and the apostrophes.
        clitic = np.zeros(len(characters), np.int32)
        for letter in "nt" + "".join(raw_text_lib.CLITICS):
            pattern = re.compile(letter, re.IGNORECASE)
            members = [m.start() for m in pattern.finditer(characters)]
            clitic[members] = ord(letter)
        clitic[[ord(char) for char in raw_text_lib.APOSTROPHES]] = _APOSTROPHE
        with tf.init_scope(), tf.device("CPU:0"):
            self._flags = graph_tokenization.PagedTable(flags)
            self._lower = graph_tokenization.PagedTable(np.array(lower))
            self._clitic = graph_tokenization.PagedTable(clitic)

    def __call__(self, texts: tf.Tensor) -> Words:
        """Splits texts string [N], N > 0, UTF-8."""
        with tf.device("CPU:0"):
            ragged = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
            rows = ragged.nrows(tf.int64)
            end = tf.fill([rows, 1], _END)
            ragged = tf.concat([ragged, end], axis=1)
            return _Splitting(self, ragged).words()


class _Splitting:
    """One batch of texts. All arrays have an element for each character."""

    def __init__(self, splitter: WordSplitter, ragged: tf.RaggedTensor):
        codes = tf.concat([[_END], ragged.values], 0)
        self._codes = codes
        self._flags = splitter._flags(codes)
        self._lower = splitter._lower(codes)
        self._clitic = splitter._clitic(codes)
        self._count = tf.size(codes, tf.int64)
        self._index = tf.range(self._count)
        splits = tf.cast(ragged.row_splits, tf.int64)
        self._text = graph_tokenization.row_ids(splits)
        # The END before the first text belongs to it as well.
        self._text = tf.concat([[0], self._text], 0)
        self._first = splits[:-1] + 1  # The first character of each text.
        self._last = splits[1:] - 1  # The last character, before END.
        self._is_end = tf.equal(codes, _END)
        self._is_gap = self._is_end | self._is("space")

    def _is(self, name: str) -> tf.Tensor:
        bit = 1 << _NAMES.index(name)
        return tf.not_equal(tf.bitwise.bitwise_and(self._flags, bit), 0)

    def _is_char(self, char: str) -> tf.Tensor:
        return tf.equal(self._codes, ord(char))

    def _next(self, is_stop: tf.Tensor) -> tf.Tensor:
        """Returns the first index >= i where `is_stop`; the last may be one."""
        is_stop = tf.concat([is_stop[:-1], [True]], 0)
        counts = tf.cumsum(tf.cast(is_stop, tf.int64), exclusive=True)
        return tf.gather(tf.where(is_stop)[:, 0], counts)

    def _previous(self, is_stop: tf.Tensor) -> tf.Tensor:
        """Returns the last index <= i where `is_stop`; 0 if there is none."""
        is_stop = tf.concat([[True], is_stop[1:]], 0)
        counts = tf.cumsum(tf.cast(is_stop, tf.int64)) - 1
        return tf.gather(tf.where(is_stop)[:, 0], counts)

    def _is_at(self, positions: tf.Tensor) -> tf.Tensor:
        """Returns bool: whether a character is at one of the positions."""
        counts = tf.scatter_nd(
            positions[:, None], tf.ones_like(positions), [self._count]
        )
        return counts > 0

    def _are_in(
        self,
        listed: Collection[str],
        codes: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
    ) -> tf.Tensor:
        """Returns whether each range of `codes` is one of the listed words."""
        ends = tf.where(ends - starts > _LONGEST, starts, ends)
        strings = _strings(codes, starts, ends)
        listed = tf.constant(sorted(listed))
        return tf.reduce_any(tf.equal(strings[:, None], listed), axis=1)

    def _sentence_starts(self) -> tf.Tensor:
        """Returns bool: whether a sentence may begin at a character."""
        wide, narrow = self._is("wide"), self._is("narrow")
        is_mark = wide | narrow
        before = tf.concat([[False], is_mark[:-1]], 0)
        runs = tf.where(is_mark & ~before)[:, 0]  # Of sentence marks.
        run_ends = tf.gather(self._next(~is_mark), runs)
        first_wide = tf.gather(self._next(wide), runs)
        is_wide = first_wide < run_ends
        after = tf.gather(self._next(~self._is("closing")), run_ends)
        references = self._after_references(after)
        after = tf.where(is_wide, after, references)
        is_match = is_wide | tf.gather(self._is("space"), after)
        match_ends = tf.gather(self._next(~self._is("space")), after)
        is_match &= ~tf.gather(self._is_end, match_ends)
        ends = is_wide | self._ends(runs, run_ends, match_ends, is_wide)
        starts = tf.boolean_mask(match_ends, is_match & ends)
        # A text may be empty, and begin where another text ends.
        return self._is_at(tf.concat([self._first, starts], 0))

    def _after_references(self, after: tf.Tensor) -> tf.Tensor:
        """Skips footnotes, as in "so.[3][note] He": int64 [runs]."""
        is_opening, is_closing = self._is_char("["), self._is_char("]")
        next_other = self._next(~self._is("word"))
        # Where a footnote that begins at a character ends.
        inside = tf.minimum(self._index + 1, self._count - 1)
        end = tf.gather(next_other, inside)
        is_footnote = is_opening & (end > inside) & tf.gather(is_closing, end)
        skipped = tf.where(is_footnote, end + 1, self._index)

        def skip(positions):
            return (tf.gather(skipped, positions),)

        (after,) = tf.while_loop(
            lambda x: tf.reduce_any(tf.gather(is_footnote, x)), skip, [after]
        )
        return after

    def _ends(
        self,
        runs: tf.Tensor,
        run_ends: tf.Tensor,
        match_ends: tf.Tensor,
        is_wide: tf.Tensor,
    ) -> tf.Tensor:
        """Returns whether each run of marks before a space ends a sentence.

        Args:
          runs: int64 [R]; the first mark of each run.
          run_ends: the character after its last.
          match_ends: the next character that is no space.
          is_wide: bool [R]; runs that need no space, and always end one.
        """
        # The word after the run.
        first = tf.gather(self._next(~self._is("opening")), match_ends)
        first_end = tf.gather(self._next(~self._is("word")), first)
        is_period = (run_ends - runs == 1) & tf.gather(self._is_char("."), runs)
        length = first_end - first
        is_lower = (length > 0) & tf.gather(self._is("lower"), first)
        is_initial = (length == 1) & tf.gather(self._is_char("."), first_end)
        is_first = ~is_initial & self._are_in(
            sentences.FIRST_WORDS, self._lower, first, first_end
        )
        # The word before the run, at most to the last wide mark.
        begin = tf.gather(self._first, tf.gather(self._text, runs))
        order = tf.cumsum(tf.cast(is_wide, tf.int64), exclusive=True)
        wide_ends = tf.concat([[0], tf.boolean_mask(match_ends, is_wide)], 0)
        begin = tf.maximum(begin, tf.gather(wide_ends, order))
        begin = tf.maximum(begin, runs - sentences.LONGEST_WORD)
        # "$" of a regular expression is also true before a last line feed.
        is_line_feed = tf.gather(self._is_char("\n"), runs - 1)
        end = runs - tf.cast(is_line_feed & (runs > begin), tf.int64)
        breaks = self._previous(self._is("word_break") | self._is_end)
        begin = tf.maximum(begin, tf.gather(breaks, end - 1) + 1)
        size = end - begin
        listed = (self._lower, begin, end)
        is_prefix = self._are_in(sentences.PREFIXES, *listed)
        is_suffix = self._are_in(sentences.SUFFIXES, *listed)
        one, two = end - 1, tf.maximum(end - 2, 0)
        is_letter = (size == 1) & tf.gather(self._is("alpha"), one)
        is_capital = tf.gather(self._is("upper"), one)
        is_dot = self._is_char(".")
        is_acronym = (
            (size > 1) & tf.gather(is_dot, two) & ~tf.gather(is_dot, one)
        )
        is_number = self._is("number")
        is_ordinal = (size > 0) & (size <= 2) & tf.gather(is_number, one)
        is_ordinal &= (size == 1) | tf.gather(is_number, two)
        # Before a text, Python finds its last character.
        text = tf.gather(self._text, runs)
        last = tf.gather(self._last, text)
        at_start = tf.equal(runs, tf.gather(self._first, text))
        is_spaced = tf.gather(
            self._is("space"), tf.where(at_start, last, runs - 1)
        )
        ends = tf.where(is_acronym | is_ordinal, is_first, ~is_spaced)
        ends = tf.where(is_letter, is_first & is_capital, ends)
        ends = tf.where(is_suffix, is_first, ends)
        return ~is_lower & (~is_period | (~is_prefix & ends))

    def _chunks(self, sentence_starts: tf.Tensor) -> tf.Tensor:
        """Returns bool: whether a chunk, a sequence without space, begins."""
        before = tf.concat([[True], self._is_gap[:-1]], 0)
        return ~self._is_gap & (before | sentence_starts)

    def words(self) -> Words:
        """Returns the words of all texts."""
        sentence_starts = self._sentence_starts()
        chunk_starts = self._chunks(sentence_starts)
        chunk = tf.cumsum(tf.cast(chunk_starts, tf.int64))
        is_start = self._part_starts(chunk)
        is_start &= ~self._continues(is_start, chunk_starts, chunk)
        is_start |= chunk_starts
        starts, ends = self._ranges(is_start)
        is_start |= self._clitic_starts(starts, ends)
        starts, ends = self._ranges(is_start)
        sentence = tf.cumsum(tf.cast(sentence_starts, tf.int64))
        sentence = tf.gather(sentence, starts)
        is_new = tf.concat([[True], sentence[1:] != sentence[:-1]], 0)
        is_new = is_new[: tf.size(starts)]
        splits = tf.concat(
            [tf.where(is_new)[:, 0], [tf.size(starts, tf.int64)]], 0
        )
        texts = tf.gather(self._text, starts)
        first = tf.gather(self._first, texts)
        return Words(
            starts - first,
            ends - first,
            texts,
            splits,
            _strings(self._codes, starts, ends),
        )

    def _ranges(self, is_start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the first character of each word, and that after its last."""
        starts = tf.where(is_start)[:, 0]
        stops = self._next(is_start | self._is_gap)
        return starts, tf.gather(stops, starts + 1)

    def _part_starts(self, chunk: tf.Tensor) -> tf.Tensor:
        """Returns bool: where a match of tasks.ner.raw_text's pattern begins.

        A part is a Chinese character, a punctuation mark, or letters with the
        marks that join them.
        """
        is_letter = self._is("word") & ~self._is("chinese")
        is_digit = self._is("digit")
        before = tf.concat([[False], is_digit[:-1]], 0)
        after = tf.concat([is_digit[1:], [False]], 0)
        joins = ~self._is("word") & ~self._is_gap & ~self._is("break")
        joins |= self._is_char(",") & before & after
        # The nearest characters that do not join.
        left = tf.concat([[0], self._previous(~joins)[:-1]], 0)
        right = self._next(~joins)
        is_inside = tf.gather(is_letter, left)
        is_inside &= tf.equal(tf.gather(chunk, left), chunk)
        is_joint = joins & tf.gather(is_letter, right)
        is_joint &= tf.equal(tf.gather(chunk, right), chunk)
        return ~self._is_gap & ~(is_inside & (is_letter | is_joint))

    def _continues(
        self, is_start: tf.Tensor, chunk_starts: tf.Tensor, chunk: tf.Tensor
    ) -> tf.Tensor:
        """Returns bool: whether a part continues the word before it.

        So does the period of an abbreviation, a combining mark, and all of a
        chunk that is a clitic.
        """
        dots = tf.where(is_start & self._is_char(".") & ~chunk_starts)[:, 0]
        starts = tf.gather(self._previous(is_start), dots - 1)
        is_period = self._are_in(
            raw_text_lib.ABBREVIATIONS, self._codes, starts, dots
        )
        # A letter, or letters with periods between them.
        is_word, is_dot = self._is("word"), self._is_char(".")
        is_even = tf.equal(self._index % 2, 0)
        for parity in (0, 1):
            is_letter = is_even if parity == 0 else ~is_even
            is_wrong = ~tf.where(is_letter, is_word, is_dot)
            wrong = tf.cumsum(tf.cast(is_wrong, tf.int64), exclusive=True)
            is_good = tf.equal(tf.gather(wrong, starts), tf.gather(wrong, dots))
            is_good &= tf.equal(starts % 2, parity)
            is_period |= is_good & tf.equal((dots - starts) % 2, 1)
        is_period = self._is_at(tf.boolean_mask(dots, is_period))
        starts, ends = self._ranges(chunk_starts)
        is_clitic = tf.equal(self._clitic_sizes(starts, ends), ends - starts)
        is_clitic = tf.concat([[False], is_clitic], 0)
        return is_period | self._is("mark") | tf.gather(is_clitic, chunk)

    def _clitic_starts(self, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns bool: where a clitic at the end of a longer word begins."""
        sizes = self._clitic_sizes(starts, ends)
        is_end = (sizes > 0) & (sizes < ends - starts)
        return self._is_at(tf.boolean_mask(ends - sizes, is_end))

    def _clitic_sizes(self, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns the length of the clitic at the end of each word, or 0."""
        length = ends - starts
        one, two, three = (
            tf.gather(self._clitic, tf.maximum(ends - i, 0)) for i in (1, 2, 3)
        )
        size = tf.zeros_like(ends)
        for clitic in raw_text_lib.CLITICS:
            last = tf.equal(one, ord(clitic[-1]))
            if len(clitic) == 1:
                is_found = last & tf.equal(two, _APOSTROPHE) & (length >= 2)
            else:
                is_found = last & tf.equal(two, ord(clitic[0]))
                is_found &= tf.equal(three, _APOSTROPHE) & (length >= 3)
            its_size = tf.constant(len(clitic) + 1, tf.int64)
            size = tf.where(is_found, its_size, size)
        negation = tf.equal(one, ord("t")) & tf.equal(two, _APOSTROPHE)
        negation &= tf.equal(three, ord("n")) & (length >= 3)
        return tf.where(negation, tf.constant(3, tf.int64), size)


def _strings(codes: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Returns the characters [start, end) as strings."""
    ranges = model_inputs.gather_ranges(codes, starts, ends)
    return tf.strings.unicode_encode(ranges, "UTF-8")
