"""Instances of two segments: paired, shuffled and assembled.

Documents become instances as google-research/bert makes them:

    document   s0 s1 s2 s3 s4 ...            (sentences, as token ids)
    chunk      s0 s1 s2 s3                   (until the target length)
    real next  A = s0 s1    B = s2 s3                        label 0
    random     A = s0 s1    B = sentences of another document,
                                s2 s3 go back to the document  label 1

`pair_segments` walks through a group of documents, all passes side by side. It
returns the positions of each instance's A and B in the token store, already
truncated: a few numbers instead of the tokens. A random next sentence comes
from any other document of the corpus with equal probability.

The order of all instances of the corpus is that of their random keys.
`table_bytes` sorts the instances of some documents, and `read_ranks` reads a
range of the global order from all tables:

    table 0   index | instances of some documents, sorted by key
    table 1   index | instances of other documents, sorted by key
    ...
    global index    the sum of all indexes

An index counts the keys below each of 65,536 marks. The global index tells
which marks enclose a range of ranks; each table's index tells which slice of
the table lies between these marks. So a shard is a range of one uniform shuffle
of everything, and a process reads only a small slice of each table. `assemble`
turns instances into padded arrays.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from data.pretraining.settings import Settings
from foundation import atomic

# An index counts the values that the first bits of the keys have.
_INDEX_BITS = 16
_INDEX_BYTES = 8 * ((1 << _INDEX_BITS) + 1)

# An instance, unmasked: its key in the global shuffle, the positions of A and B
# in the token store, their numbers of tokens, and the next-sentence label.
INSTANCE = np.dtype(
    [
        ("key", "<u8"),
        ("a_start", "<i8"),
        ("b_start", "<i8"),
        ("a_length", "<i4"),
        ("b_length", "<i4"),
        ("is_random", "<i4"),
    ]
)


class Corpus(NamedTuple):
    """A tokenized corpus; the arrays may be mapped from disk."""

    tokens: np.ndarray  # uint16 or int32 [T]
    sentence_starts: np.ndarray  # int64 [sentences + 1], into tokens
    document_starts: np.ndarray  # int64 [documents + 1], into sentences


def pair_segments(
    corpus: Corpus,
    documents: range,
    *,
    rule: Settings,
    rng: np.random.Generator,
    release: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, int]:
    """Divides documents into instances, dupe_factor times each.

    Every (document, pass) is one walk. One turn of the loop makes the next
    instance of every walk that has not reached its document's end.

    Args:
      corpus: all documents, from which random next sentences are drawn.
      documents: the ones to divide.
      rule: lengths, short sequences, number of passes.
      rng: makes all random choices.
      release: is called after random accesses to the corpus.

    Returns:
      The instances, INSTANCE [N], in the order of the turns; and how many
      tokens were truncated, but for those of random next sentences, which are
      also used in their own document.
    """
    document = np.repeat(
        np.arange(documents.start, documents.stop), rule.dupe_factor
    )
    start = np.asarray(corpus.document_starts[document])
    last = np.asarray(corpus.document_starts[document + 1])
    # Target lengths of A and B together: a few are short.
    is_short = rng.random(len(document)) < rule.short_seq_prob
    target = rng.integers(2, rule.max_num_tokens, len(document), endpoint=True)
    target[~is_short] = rule.max_num_tokens
    turns, lost = [], 0
    while len(document):
        instances, following, cut = _turn(
            corpus, document, start, last, target, rule, rng
        )
        release()
        turns.append(instances)
        lost += cut
        unfinished = np.flatnonzero(following < last)
        start = following[unfinished]
        document, last, target = (
            x[unfinished] for x in (document, last, target)
        )
    result = np.concatenate(turns)
    result["key"] = rng.integers(0, 1 << 64, len(result), np.uint64)
    return result, lost


def _turn(corpus, document, start, last, target, rule, rng):
    """Makes the next instance of each walk.

    Returns:
      INSTANCE [N]; the sentence at which each walk continues, int64 [N]; and
      the number of tokens lost.
    """
    starts = corpus.sentence_starts
    goal = starts[start] + target
    chunk = np.minimum(np.searchsorted(starts, goal), last)
    # A has at least one sentence; B is random if the chunk has no other.
    size = chunk - start
    a_end = start + 1 + rng.integers(0, np.maximum(size - 1, 1))
    is_random = (rng.random(len(start)) < 0.5) | (size == 1)
    b_start, b_end = a_end.copy(), chunk.copy()
    chosen = np.flatnonzero(is_random)
    a_length = starts[a_end] - starts[start]
    b_start[chosen], b_end[chosen] = _random_next(
        corpus, document[chosen], (target - a_length)[chosen], rng
    )
    result, a_cut, b_cut = _truncate(
        starts[start],
        starts[a_end],
        starts[b_start],
        starts[b_end],
        rule.max_num_tokens,
        rng,
    )
    result["is_random"] = is_random
    lost = int(a_cut.sum() + b_cut[~is_random].sum())
    # Sentences that a random B replaces go back to the document.
    return result, np.where(is_random, a_end, chunk), lost


def _random_next(corpus, document, target, rng):
    """Draws sentences [start, end) of another document, at least one."""
    documents = len(corpus.document_starts) - 1
    other = rng.integers(0, max(documents - 1, 1), len(document))
    other += other >= document
    # The released code gives up after ten draws of the own document.
    gave_up = rng.random(len(document)) < float(documents) ** -10
    other = np.where(gave_up, document, other)
    first = np.asarray(corpus.document_starts[other])
    last = np.asarray(corpus.document_starts[other + 1])
    start = rng.integers(first, last)
    goal = corpus.sentence_starts[start] + target
    end = np.searchsorted(corpus.sentence_starts, goal)
    return start, np.minimum(np.maximum(end, start + 1), last)


def _truncate(a_start, a_end, b_start, b_end, limit, rng):
    """Truncates pairs to the limit, token by token.

    The longer segment loses a token, or B when both are equally long. Whether
    it is the first or the last token is a fair coin each time, so the number
    of tokens lost in front is binomial.

    Returns:
      INSTANCE [N] and how many tokens A and B lose, int64 [N] each.
    """
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = np.maximum(a_length + b_length - limit, 0)
    a_leads = a_length > b_length
    lead = np.where(a_leads, a_length - b_length, b_length - a_length + 1)
    # First the longer segment alone, until it is no longer the longer one. Then
    # both in turn, beginning with B if A was longer and with A otherwise.
    alone = np.minimum(excess, lead)
    rest = excess - alone
    a_cut = np.where(a_leads, alone + rest // 2, (rest + 1) // 2)
    cuts = {"a": a_cut, "b": excess - a_cut}
    result = np.zeros(len(a_start), INSTANCE)
    for name, begin, length in (
        ("a", a_start, a_length),
        ("b", b_start, b_length),
    ):
        in_front = rng.binomial(cuts[name], 0.5)
        result[f"{name}_start"] = begin + in_front
        result[f"{name}_length"] = length - cuts[name]
    return result, cuts["a"], cuts["b"]


def table_bytes(unsorted: np.ndarray) -> bytes:
    """Returns the contents of a table file, of instances INSTANCE [N]."""
    order = np.argsort(unsorted["key"], kind="stable")
    instances = unsorted[order]
    marks = np.arange(1, 1 << _INDEX_BITS, dtype=np.uint64) << np.uint64(
        64 - _INDEX_BITS
    )
    below = np.searchsorted(instances["key"], marks)
    index = np.concatenate([[0], below, [len(instances)]]).astype("<i8")
    return index.tobytes() + instances.tobytes()


def merge_indexes(path: str, tables: Sequence[str]) -> None:
    """Writes the global index of all tables."""
    total = np.zeros((1 << _INDEX_BITS) + 1, np.int64)
    for name in tables:
        total += np.fromfile(name, "<i8", count=len(total))
    atomic.write_bytes(path, total.tobytes())


def read_ranks(path: str, tables: Sequence[str], ranks: range) -> np.ndarray:
    """Returns the instances of a range of ranks, in order: INSTANCE [N].

    Args:
      path: path of the global index.
      tables: the files of all tables.
      ranks: range of positions in the global order of instances.
    """
    below = np.fromfile(path, "<i8")
    first = int(np.searchsorted(below, ranks.start, "right")) - 1
    last = int(np.searchsorted(below, ranks.stop, "left"))
    instances = np.concatenate(
        [_read_slice(name, first, last) for name in tables]
    )
    instances = instances[np.argsort(instances["key"], kind="stable")]
    begin = ranks.start - int(below[first])
    return instances[begin : begin + len(ranks)]


def _read_slice(name: str, first: int, last: int) -> np.ndarray:
    """Returns a table's instances between two marks."""
    with open(name, "rb") as file:
        file.seek(8 * first)
        index = np.frombuffer(file.read(8 * (last - first + 1)), "<i8")
        size = INSTANCE.itemsize
        file.seek(_INDEX_BYTES + size * int(index[0]))
        data = file.read(size * int(index[-1] - index[0]))
    return np.frombuffer(data, INSTANCE)


class Assembled(NamedTuple):
    """Unmasked instances as padded arrays."""

    input_ids: np.ndarray  # int32 [N, S]
    input_mask: np.ndarray  # int32 [N, S]
    segment_ids: np.ndarray  # int32 [N, S]
    is_candidate: np.ndarray  # bool [N, S], neither special nor padding
    lengths: np.ndarray  # int64 [N], with [CLS] and both [SEP]


def assemble(
    take: Callable[[np.ndarray], np.ndarray],
    batch: np.ndarray,
    *,
    max_seq_length: int,
    vocabulary,
) -> Assembled:
    """Builds [CLS] A [SEP] B [SEP] for a batch of instances.

    Args:
      take: returns the tokens at positions of the corpus, int64 [N, S]; any
        token for positions outside of it.
      batch: the instances, INSTANCE [N].
      max_seq_length: S.
      vocabulary: has pad_id, cls_id and sep_id.
    """
    column = np.arange(max_seq_length)
    a_length = batch["a_length"].astype(np.int64)[:, None]
    lengths = a_length + batch["b_length"][:, None] + 3
    in_a = column <= a_length  # And [CLS], which is replaced below.
    real = column < lengths
    positions = np.where(
        in_a,
        batch["a_start"][:, None] - 1 + column,
        batch["b_start"][:, None] - 2 - a_length + column,
    )
    is_candidate = real & (column != a_length + 1) & (column != lengths - 1)
    is_candidate[:, 0] = False
    input_ids = take(positions)
    special = np.where(real, vocabulary.sep_id, vocabulary.pad_id)
    input_ids = np.where(is_candidate, input_ids, special).astype(np.int32)
    input_ids[:, 0] = vocabulary.cls_id
    return Assembled(
        input_ids,
        real.astype(np.int32),
        (real & (column > a_length + 1)).astype(np.int32),
        is_candidate,
        lengths[:, 0],
    )
