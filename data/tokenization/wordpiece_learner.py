"""Learns which pieces a WordPiece vocabulary should hold from word counts.

    {"low": 5, "lower": 2, "newest": 6, ...}  ->  ["l", "##o", "low", "##est"]

1. The alphabet: every character as the start of a word ("l") and inside one
   ("##o"), so that words of kept characters are never [UNK].
2. Merges: the pair of neighboring pieces with the highest count becomes a
   piece, again and again, until there are somewhat more than asked for.
3. Selection: words are split as the tokenizer does it, longest match first,
   and the pieces that this uses least are dropped.

Pieces per word on held-out English (a tenth of 26 MB of books and Wikipedia):

    pieces    merges alone    with selection    the released vocabulary
      8000           1.211             1.197
     30000           1.068             1.063                      1.071

Scoring pairs by count(ab) / (count(a) count(b)), as WordPiece is often said to
do, needs 2.7 to 3.1 pieces per word where this needs 1.37 (2,000 pieces); the
gain of likelihood, count(ab) log of that, needs 1.40.
"""

import collections
import heapq
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from data import corpus
from data.tokenization import graph_tokenization
from data.tokenization import normalization as normalization_lib
from foundation import errors

CONTINUATION = "##"
# Merges leave stepping stones behind ("##ewes") that longest match first
# never uses: learn this many times too many pieces, then drop those.
_SURPLUS = 1.15
_SHIFT = 32
# Learning takes about 600 bytes a word. Rarer words hardly matter.
_MAX_WORDS = 1_000_000


def alphabet(words: Mapping[str, int], limit: int, coverage: float) -> set[str]:
    """Chooses the characters to keep, the most frequent first.

    Args:
      words: word -> count.
      limit: keep at most so many; 0 for as many as `coverage` asks for.
      coverage: without a limit, the share of all characters to be covered.
    """
    counts = collections.Counter()
    for word, count in words.items():
        for char in word:
            counts[char] += count
    ranked = sorted(counts, key=lambda char: (-counts[char], char))
    if limit:
        return set(ranked[:limit])
    enough = coverage * sum(counts.values())
    kept, covered = set(), 0
    for char in ranked:
        if covered >= enough:
            break
        kept.add(char)
        covered += counts[char]
    return kept


def initial_pieces(words: Mapping[str, int], chars: set[str]) -> list[str]:
    """Lists the single-character pieces of words of kept characters."""
    starts, insides = set(), set()
    for word in words:
        if chars.issuperset(word):
            starts.add(word[0])
            insides.update(word[1:])
    return sorted(starts) + [CONTINUATION + char for char in sorted(insides)]


def learn(
    words: Mapping[str, int],
    vocab_size: int,
    chars: set[str],
    *,
    num_reserved: int = 0,
    min_frequency: int = 2,
    progress: Callable[[int], object] = lambda number: None,
) -> list[str]:
    """Learns pieces: first the alphabet, then by descending use.

    Args:
      words: word -> count.
      vocab_size: how many lines the vocabulary will have.
      chars: the alphabet; words with other characters are left out.
      num_reserved: how many of the lines are not pieces.
      min_frequency: a pair must be at least as frequent to be merged.
      progress: is called with the number of new pieces, now and then.
    """
    alphabet_pieces = initial_pieces(words, chars)
    frequent = sorted(words, key=lambda word: (-words[word], word))
    words = {
        word: words[word]
        for word in frequent[:_MAX_WORDS]
        if chars.issuperset(word)
    }
    least = num_reserved + len(alphabet_pieces)
    wanted = vocab_size - least
    if wanted < 0:
        raise errors.InputError(
            f"--vocab_size={vocab_size} is too small: {num_reserved} reserved "
            f"tokens and the pieces of {len(chars)} characters are {least}; "
            "raise it or lower --limit_alphabet"
        )
    surplus = int(wanted * _SURPLUS)
    learned = []
    for piece in _merges(words, alphabet_pieces, min_frequency):
        if len(learned) == surplus:
            break
        learned.append(piece)
        progress(1)
    if len(learned) < wanted:
        raise errors.InputError(
            f"--vocab_size={vocab_size} is too large: the text gives "
            f"{least + len(learned)} at most; lower it, or give more text or "
            "a lower --min_frequency"
        )
    kept = _most_used(words, alphabet_pieces, learned, wanted)
    return alphabet_pieces + kept


def _merges(
    words: Mapping[str, int], alphabet_pieces: list[str], min_frequency: int
) -> Iterator[str]:
    """Yields new pieces, the most frequent pair first."""
    pieces = list(alphabet_pieces)
    ids = {piece: index for index, piece in enumerate(pieces)}
    counts = list(words.values())
    splits = [
        [ids[word[0]], *(ids[CONTINUATION + char] for char in word[1:])]
        for word in words
    ]
    pair_counts, places = collections.Counter(), collections.defaultdict(list)
    for index, split in enumerate(splits):
        for left, right in zip(split, split[1:], strict=False):
            pair = left << _SHIFT | right
            pair_counts[pair] += counts[index]
            places[pair].append(index)
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
        piece = pieces[left] + pieces[right].removeprefix(CONTINUATION)
        # Two pairs may spell the same piece, which then is not a new one.
        merged = ids.setdefault(piece, len(pieces))
        if merged == len(pieces):
            pieces.append(piece)
            yield piece
        grown = set()
        for index in set(places.pop(pair)):
            grown |= _merge_in_word(
                splits,
                index,
                (left, right, merged),
                counts[index],
                pair_counts,
                places,
            )
        pair_counts.pop(pair, None)
        for pair in grown:
            heapq.heappush(heap, (-pair_counts[pair], pair))


def _merge_in_word(splits, index, merge, count, pair_counts, places):
    """Merges a pair in one word and returns the pairs that this creates."""
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
    for first, second in zip(old, old[1:], strict=False):
        pair_counts[first << _SHIFT | second] -= count
    grown = set()
    for first, second in zip(new, new[1:], strict=False):
        pair = first << _SHIFT | second
        pair_counts[pair] += count
        if first == merged or second == merged:
            places[pair].append(index)
            grown.add(pair)
    return grown


def _most_used(words, alphabet_pieces, learned, wanted):
    """Keeps the pieces that longest match first uses most."""
    used = _usage(words, set(alphabet_pieces).union(learned))
    learned = sorted(learned, key=lambda piece: (-used[piece], piece))
    kept = learned[:wanted]
    # Words that lost a piece are split otherwise now.
    used = _usage(words, set(alphabet_pieces).union(kept))
    return sorted(kept, key=lambda piece: (-used[piece], piece))


def _usage(words, pieces):
    used = collections.Counter()
    for word, count in words.items():
        for piece in split_word(word, pieces) or ():
            used[piece] += count
    return used


class Coverage(NamedTuple):
    """How well pieces fit words: means over all occurrences."""

    pieces_per_word: float
    unknown_share: float


def coverage(
    words: Mapping[str, int], pieces: Container[str], too_long: int = 0
) -> Coverage:
    """Measures how well pieces fit words; `too_long` more are [UNK] anyway."""
    total = used = unknown = too_long
    for word, count in words.items():
        split = split_word(word, pieces)
        total += count
        used += count * len(split or "?")
        unknown += 0 if split else count
    return Coverage(used / max(total, 1), unknown / max(total, 1))


def split_word(word: str, pieces: Container[str]) -> list[str] | None:
    """Splits a word, longest match first; None if it cannot be."""
    split, start, prefix = [], 0, ""
    while start < len(word):
        end = len(word)
        while end > start and prefix + word[start:end] not in pieces:
            end -= 1
        if end == start:
            return None
        split.append(prefix + word[start:end])
        start, prefix = end, CONTINUATION
    return split


# ----------------------------------------------------------------------
# Counts the words of a corpus, as the tokenizer sees them.
#
# Memory is bounded: when more than `max_words` different words are held, the
# rarest are forgotten. Blocks are counted in order, so the counts depend on the
# input alone.

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
                if len(word) <= graph_tokenization.MAX_CHARACTERS_PER_WORD:
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
