"""The tokenizer of `wordpiece` in plain Python, for single texts.

    text -> chunks between spaces -> normalized words -> the longest tokens

TensorFlow's operations are faster for thousands of texts. For a few short ones
their calls alone take longer than this takes, and a server without TensorFlow
starts sooner in less memory. Tokens and offsets are the same, which
tests/data/tokenization/plain_wordpiece_test.py proves.

The tokens of a chunk depend on nothing beside it, and few different chunks make
up most of any text, so those of short chunks are kept.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from data.tokenization import normalization as normalization_lib
from data.tokenization import vocabulary as vocabulary_lib
from data.tokenization import wordpiece
from foundation import errors

_MAX_KEPT = 1 << 16  # Chunks; about 20 MB.
_LONGEST_KEPT = 32  # Characters of a chunk.


class _Tokens(NamedTuple):
    """The ids of a chunk's tokens, and the characters from start to end."""

    ids: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class PlainTokenizer(wordpiece.Tokenizer):
    """A Tokenizer that encodes in plain Python outside of graphs."""

    @functools.cached_property
    def _chunk_ids(self) -> "_Kept":
        return _Kept(self._encode_chunk)

    @functools.cached_property
    def _chunk_tokens(self) -> "_Kept":
        return _Kept(self._encode_chunk_with_offsets)

    @functools.cached_property
    def _longest_token(self) -> int:
        return max(map(len, self.vocabulary.ids))

    @functools.cached_property
    def _cut(self) -> tuple[Callable[[str], list[str]], int]:
        """Cuts text into chunks; the number of characters between two."""
        lowers = self.normalization.do_lower_case
        if pattern := self.vocabulary.added_pattern(lowers=lowers):
            return re.compile(f"({pattern}| )").split, 0
        return lambda text: text.split(" "), 1

    def _added_id(self, chunk: str) -> int | None:
        """Returns the id of a chunk that is an added token."""
        added, ids = self.vocabulary.added, self.vocabulary.ids
        if chunk not in added and self.normalization.do_lower_case:
            chunk = chunk.lower()
        return ids[chunk] if chunk in added else None

    def encode(self, texts: Sequence[str | bytes]) -> wordpiece.Encoding:
        """See `wordpiece.Tokenizer`."""
        ids: list[int] = []
        splits = [0]
        chunk_ids = self._chunk_ids
        cut, _ = self._cut
        for text in texts:
            for chunk in cut(wordpiece.valid_text(text)):
                ids += chunk_ids[chunk]
            splits.append(len(ids))
        return wordpiece.Encoding(
            np.array(ids, np.int32), np.array(splits, np.int64)
        )

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> wordpiece.EncodingWithOffsets:
        """See `wordpiece.Tokenizer`."""
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        splits = [0]
        chunk_tokens = self._chunk_tokens
        cut, between = self._cut
        for text in texts:
            first = 0
            for chunk in cut(wordpiece.valid_text(text)):
                tokens = chunk_tokens[chunk]
                ids += tokens.ids
                starts += [first + start for start in tokens.starts]
                ends += [first + end for end in tokens.ends]
                first += len(chunk) + between
            splits.append(len(ids))
        return wordpiece.EncodingWithOffsets(
            np.array(ids, np.int32),
            np.array(splits, np.int64),
            np.array(starts, np.int64),
            np.array(ends, np.int64),
        )

    def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
        if (added := self._added_id(chunk)) is not None:
            return (added,)
        return tuple(
            token_id
            for word in self.normalization.words(chunk)
            for token_id, _, _ in self._split(word)
        )

    def _encode_chunk_with_offsets(self, chunk: str) -> _Tokens:
        if (added := self._added_id(chunk)) is not None:
            return _Tokens((added,), (0,), (len(chunk),))
        ids, starts, ends = [], [], []
        for word, source in self.normalization.words_with_sources(chunk):
            for token_id, first, after in self._split(word):
                covered = source[first:after]
                ids.append(token_id)
                starts.append(min(covered))
                ends.append(self.normalization.end_of(chunk, max(covered)))
        return _Tokens(tuple(ids), tuple(starts), tuple(ends))

    def _split(self, word: str) -> list[tuple[int, int, int]]:
        """Returns the id, first character and end of each token of a word."""
        tokens, length = self.vocabulary.ids, len(word)
        unknown = [(self.vocabulary.unk_id, 0, length)]
        if length > normalization_lib.MAX_CHARACTERS_PER_WORD:
            return unknown
        found, start, prefix = [], 0, ""
        while start < length:
            end = min(length, start + self._longest_token)
            while end > start and prefix + word[start:end] not in tokens:
                end -= 1
            if end == start:
                return unknown
            found.append((tokens[prefix + word[start:end]], start, end))
            start, prefix = end, vocabulary_lib.CONTINUATION
        return found


class _Kept(dict):
    """The values of a function, of short chunks kept for the next calls."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def __missing__(self, chunk: str):
        value = self._function(chunk)
        if len(chunk) <= _LONGEST_KEPT:
            if len(self) >= _MAX_KEPT:
                self.clear()
            self[chunk] = value
        return value


def for_corpus(
    vocabulary: vocabulary_lib.Vocabulary, **switches: Any
) -> wordpiece.Tokenizer:
    """Returns the fastest tokenizer; warns where that is the plain one.

    Args:
      vocabulary: vocabulary of the model.
      **switches: see wordpiece.Tokenizer.
    """
    try:
        from data.tokenization import graph_tokenization  # noqa: F401
    except errors.InputError as error:
        logging.warning("the same tokens, made more slowly: %s", error)
        return PlainTokenizer(vocabulary, **switches)
    return wordpiece.Tokenizer(vocabulary, **switches)
