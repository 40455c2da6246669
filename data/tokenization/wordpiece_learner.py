"""Learns the tokens of a WordPiece vocabulary from the words of a corpus.

    {"low": 5, "lower": 2, "newest": 6, ...}  ->  ["l", "##o", "low", "##est"]

1. Counting: words are found as the tokenizer finds them. When memory would
   exceed a limit, the rarest words are dropped.
2. The alphabet: every character as the start of a word ("l") and inside one
   ("##o"), so that words of kept characters are never [UNK].
3. Merges: the pair of neighboring tokens with the highest count becomes a
   token, repeatedly, until there are 1.15 times as many as needed.
4. Selection: words are split as the tokenizer does it, longest match first, and
   the tokens that this uses least are dropped.

Tokens per word on held-out English (a tenth of 26 MB of books and Wikipedia):

    tokens    merges alone    with selection    the released vocabulary
      8000           1.211             1.197
     30000           1.068             1.063                      1.071

Scoring pairs by count(ab) / (count(a) count(b)), as WordPiece is often said to
do, needs 2.7 to 3.1 tokens per word where this needs 1.37 (2,000 tokens); the
gain of likelihood, count(ab) log(count(ab) / (count(a) count(b))), needs 1.40.
"""

import collections
import heapq
import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from data import corpus
from data.tokenization import normalization as normalization_lib
from data.tokenization.vocabulary import CONTINUATION
from foundation import errors

MAX_WORDS = 3_000_000  # Different words that are counted at once.
_MEMO_SIZE = 200_000
# str.split ends a word at these control characters; the tokenizer drops them.
_CONTROL_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# Merges leave intermediate tokens ("##ewes") that longest match first never
# uses. So 1.15 times as many tokens as needed are learned, then selected.
_SURPLUS = 1.15
# Learning takes about 600 bytes a word. Rarer words hardly matter.
_MAX_LEARNED_WORDS = 1_000_000
_SHIFT = 32  # A pair of ids is one integer.


class WordCounter:
    """Counts words.

    Attributes:
      counts: word -> count.
      too_long: the count of all words that are too long for the tokenizer,
        which are [UNK] with any vocabulary.
      invalid_bytes: the number of bytes of the text that were not UTF-8.
    """

    def __init__(
        self,
        normalization: normalization_lib.Normalization,
        max_words: int = MAX_WORDS,
    ):
        """Starts with no words."""
        self.counts: collections.Counter[str] = collections.Counter()
        self.too_long = 0
        self.invalid_bytes = 0
        self._normalization = normalization
        self._max_words = max_words
        self._threshold = 0
        self._memo: dict[str, list[str]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of more texts."""
        # Normalizing is slow, so each string between spaces is normalized only
        # once. No rule depends on characters across a space.
        tokens: collections.Counter[str] = collections.Counter()
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
                if len(word) <= normalization_lib.MAX_CHARACTERS_PER_WORD:
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
    text_column: str = "text",
    progress: Callable[[int], object] = lambda file_bytes: None,
) -> WordCounter:
    """Counts the words of files.

    Args:
      paths: files of text, possibly compressed, or Parquet tables.
      normalization: how text becomes words.
      input_format: one of corpus.FORMATS.
      text_column: see corpus.read_blocks.
      progress: is called with numbers of bytes that were read.
    """
    counter = WordCounter(normalization)
    for block in corpus.read_blocks(paths, input_format, text_column):
        # Words do not depend on sentences.
        parsed = corpus.parse(block, "sentences")
        counter.add(parsed.texts)
        counter.invalid_bytes += parsed.counts["invalid_bytes"]
        progress(block.file_bytes)
    return counter


def alphabet(words: Mapping[str, int], coverage: float) -> set[str]:
    """Returns the most frequent characters.

    Args:
      words: word -> count.
      coverage: the fraction of all occurrences that the characters cover.
    """
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for char in word:
            counts[char] += count
    ranked = sorted(counts, key=lambda char: (-counts[char], char))
    enough = coverage * sum(counts.values())
    kept, covered = set(), 0
    for char in ranked:
        if covered >= enough:
            break
        kept.add(char)
        covered += counts[char]
    return kept


def initial_tokens(chars: set[str]) -> list[str]:
    """Returns each character as the start of a word and within one.

    So every word of these characters has tokens, also one that the text of the
    vocabulary does not hold.
    """
    return [x + char for x in ("", CONTINUATION) for char in sorted(chars)]


def learn(
    words: Mapping[str, int],
    vocab_size: int,
    chars: set[str],
    *,
    num_reserved: int = 0,
    min_frequency: int = 2,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[str]:
    """Returns tokens: first the alphabet, then by descending use.

    Args:
      words: word -> count.
      vocab_size: number of lines of the vocabulary.
      chars: the alphabet; words with other characters are ignored.
      num_reserved: number of lines that are not learned.
      min_frequency: the least count of a pair that is merged.
      progress: is called with the numbers of learned tokens and of all.

    Raises:
      InputError: the size is too small for the alphabet, or too large for the
        words.
    """
    alphabet_tokens = initial_tokens(chars)
    frequent = sorted(words, key=lambda word: (-words[word], word))
    words = {
        word: words[word]
        for word in frequent[:_MAX_LEARNED_WORDS]
        if chars.issuperset(word)
    }
    least = num_reserved + len(alphabet_tokens)
    wanted = vocab_size - least
    if wanted < 0:
        raise errors.InputError(
            f"--vocab_size={vocab_size} is too small: {num_reserved} reserved "
            f"tokens and those of {len(chars)} characters are {least}; "
            "raise it or lower --character_coverage"
        )
    surplus = int(wanted * _SURPLUS)
    learned = []
    merges = _merges(words, alphabet_tokens, min_frequency)
    for token in itertools.islice(merges, surplus):
        learned.append(token)
        progress(len(learned), surplus)
    if len(learned) < wanted:
        raise errors.InputError(
            f"--vocab_size={vocab_size} is too large: the text gives "
            f"{least + len(learned)} at most; lower it, or give more text or "
            "a lower --min_frequency"
        )
    # The tokens that longest match first uses most. Words that lost a token are
    # split differently, so the order is that of a second count.
    for _ in range(2):
        tokens = {*alphabet_tokens, *learned}
        used: collections.Counter[str] = collections.Counter()
        for word, count in words.items():
            for token in split_word(word, tokens) or ():
                used[token] += count
        ranked = sorted((-used[token], token) for token in learned)
        learned = [token for _, token in ranked[:wanted]]
    return alphabet_tokens + learned


def _merges(
    words: Mapping[str, int], alphabet_tokens: list[str], min_frequency: int
) -> Iterator[str]:
    """Yields new tokens, the most frequent pair first."""
    tokens = list(alphabet_tokens)
    ids = {token: index for index, token in enumerate(tokens)}
    counts = list(words.values())
    splits = [
        [ids[word[0]], *(ids[CONTINUATION + char] for char in word[1:])]
        for word in words
    ]
    pair_counts: collections.Counter[int] = collections.Counter()
    # The words that hold a pair.
    words_of: dict[int, list[int]] = collections.defaultdict(list)
    for index, split in enumerate(splits):
        for left, right in itertools.pairwise(split):
            pair = left << _SHIFT | right
            pair_counts[pair] += counts[index]
            words_of[pair].append(index)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        actual = pair_counts.get(pair, 0)
        if actual != -count:
            if 0 < actual < -count:
                heapq.heappush(heap, (-actual, pair))
            continue
        if actual < min_frequency:
            return
        left, right = divmod(pair, 1 << _SHIFT)
        token = tokens[left] + tokens[right].removeprefix(CONTINUATION)
        # Two pairs may spell the same token, which then is not a new one.
        merged = ids.setdefault(token, len(tokens))
        if merged == len(tokens):
            tokens.append(token)
            yield token
        grown = set()
        for index in set(words_of.pop(pair)):
            grown |= _merge_in_word(
                splits,
                index,
                (left, right, merged),
                counts[index],
                pair_counts,
                words_of,
            )
        pair_counts.pop(pair, None)
        for pair in grown:
            heapq.heappush(heap, (-pair_counts[pair], pair))


def _merge_in_word(splits, index, merge, count, pair_counts, words_of):
    """Merges a pair in one word; returns the pairs that this creates."""
    left, right, merged = merge
    old = splits[index]
    new, position, last = [], 0, len(old) - 1
    while position <= last:
        symbol = old[position]
        if symbol == left and position < last and old[position + 1] == right:
            symbol = merged
            position += 1
        new.append(symbol)
        position += 1
    if len(new) == len(old):
        return set()
    splits[index] = new
    for first, second in itertools.pairwise(old):
        pair_counts[first << _SHIFT | second] -= count
    grown = set()
    for first, second in itertools.pairwise(new):
        pair = first << _SHIFT | second
        pair_counts[pair] += count
        if first == merged or second == merged:
            words_of[pair].append(index)
            grown.add(pair)
    return grown


def coverage(
    words: Mapping[str, int], tokens: Container[str], too_long: int = 0
) -> tuple[float, float]:
    """Returns how well tokens fit words and `too_long` words that are [UNK].

    The results are the number of tokens of a word and the fraction of words
    that are [UNK], means over all occurrences of words.
    """
    total = used = unknown = too_long
    for word, count in words.items():
        split = split_word(word, tokens)
        total += count
        used += count * len(split or "?")
        unknown += 0 if split else count
    return used / max(total, 1), unknown / max(total, 1)


def split_word(word: str, tokens: Container[str]) -> list[str] | None:
    """Splits a word, longest match first; None if it cannot be."""
    split, start, prefix = [], 0, ""
    while start < len(word):
        end = len(word)
        while end > start and prefix + word[start:end] not in tokens:
            end -= 1
        if end == start:
            return None
        split.append(prefix + word[start:end])
        start, prefix = end, CONTINUATION
    return split
