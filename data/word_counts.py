"""Counts the words of a corpus, as the tokenizer sees them.

Memory is bounded: when more than `max_words` different words are held, the
rarest are forgotten. Blocks are counted in order, so the counts depend on the
input alone.
"""

import collections
import re
from collections.abc import Callable, Iterable

from data import corpus, graph_normalization
from data import normalization as normalization_lib

MAX_WORDS = 3_000_000
_MEMO_SIZE = 200_000
# str.split ends a word at these control characters, the tokenizer drops them.
_CONTROL_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class WordCounter:
    """Adds up words; its `counts` are a word -> count dictionary.

    Those that are too long for the tokenizer, which no piece helps, are only
    counted together, as `too_long`.
    """

    def __init__(
        self,
        normalization: normalization_lib.Normalization,
        max_words: int = MAX_WORDS,
    ):
        """Starts at nothing."""
        self.counts = collections.Counter()
        self.too_long = 0
        self._normalization = normalization
        self._max_words = max_words
        self._threshold = 0
        self._memo: dict[str, list[str]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of some texts."""
        # Normalizing is slow and a corpus repeats itself, so each stretch
        # between spaces is normalized once; no rule looks across a space.
        tokens = collections.Counter()
        for text in texts:
            tokens.update(_CONTROL_SPACES.sub("", text).split())
        counts, memo = self.counts, self._memo
        for token, count in tokens.items():
            words = memo.get(token)
            if words is None:
                words = self._normalization.words(token)
                if len(memo) < _MEMO_SIZE:
                    memo[token] = words
            for word in words:
                if len(word) <= graph_normalization.MAX_CHARACTERS_PER_WORD:
                    counts[word] += count
                else:
                    self.too_long += count
        while len(counts) > self._max_words:
            self._threshold += 1
            self.counts = counts = collections.Counter(
                {
                    word: count
                    for word, count in counts.items()
                    if count > self._threshold
                }
            )


def count_words(
    paths: list[str],
    normalization: normalization_lib.Normalization,
    *,
    input_format: str = "sentences",
    progress: Callable[[int], object] = lambda file_bytes: None,
) -> WordCounter:
    """Counts the words of files.

    Args:
      paths: files of text, possibly .gz or .bz2.
      normalization: how text becomes words.
      input_format: one of corpus.FORMATS.
      progress: is called with the number of bytes that were read.
    """
    # Words do not need prose to be cut into sentences.
    if input_format == "paragraphs":
        input_format = "sentences"
    counter = WordCounter(normalization)
    for block in corpus.read_blocks(paths):
        counter.add(corpus.parse(block, input_format).texts)
        progress(block.file_bytes)
    return counter
