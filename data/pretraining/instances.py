"""From documents of sentences to pairs of segments, by google-research/bert.

    document   s0 s1 s2 s3 s4 ...            (sentences, as piece ids)
    chunk      s0 s1 s2 s3                   (until the target is reached)
    real next  A = s0 s1    B = s2 s3                        label 0
    random     A = s0 s1    B = sentences of another document,
                                s2 s3 go back to the document  label 1

`plan` walks through a group of documents, all passes side by side, and
returns where A and B of each instance lie in the store of the corpus, already
truncated: a few numbers per instance instead of its pieces. `assemble` turns
such places into padded arrays. A random next sentence comes from any other
document of the whole corpus, each as likely as another.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Where an instance lies: its place in the global shuffle, where A and B start
# in the store, how many pieces each keeps, and its next-sentence label.
PLACE = np.dtype(
    [
        ("key", "<u8"),
        ("a_start", "<i8"),
        ("b_start", "<i8"),
        ("a_length", "<i4"),
        ("b_length", "<i4"),
        ("is_random", "<i4"),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairingRule:
    """How documents are cut into pairs of segments."""

    max_seq_length: int = 128
    short_seq_prob: float = 0.1
    dupe_factor: int = 10

    @property
    def max_num_tokens(self) -> int:
        """Pieces of A and B together, beside [CLS] and two [SEP]."""
        return self.max_seq_length - 3


class Corpus(NamedTuple):
    """A tokenized corpus; the arrays may be mapped from disk.

    Sentences of a document lie side by side, as do the documents.
    """

    pieces: np.ndarray  # uint16 or int32 [T]
    sentence_starts: np.ndarray  # int64 [sentences + 1], into pieces
    document_starts: np.ndarray  # int64 [documents + 1], into sentences


class Plan(NamedTuple):
    """The instances of some documents, and what truncation cost them.

    Pieces of a random next sentence are not counted as lost: in their own
    document they are used all the same.
    """

    places: np.ndarray  # PLACE [N]
    lost_pieces: int


def plan(
    corpus: Corpus,
    documents: range,
    *,
    rule: PairingRule,
    rng: np.random.Generator,
    touched=lambda count: None,
) -> Plan:
    """Cuts documents into instances, dupe_factor times each.

    Every (document, pass) is one walk; one turn of the loop makes the next
    instance of every walk that has not reached its document's end.

    Args:
      corpus: all documents, from which random next sentences are drawn.
      documents: the ones to cut.
      rule: lengths, short sequences, number of passes.
      rng: the source of every draw.
      touched: is told how many places of the corpus were looked up at random.

    Returns:
      The plan, in the order of the turns.
    """
    own = np.repeat(
        np.arange(documents.start, documents.stop), rule.dupe_factor
    )
    start = np.asarray(corpus.document_starts[own])
    last = np.asarray(corpus.document_starts[own + 1])
    target = _targets(len(own), rule, rng)
    turns, lost = [], 0
    while len(own):
        places, following, cut = _turn(
            corpus, own, start, last, target, rule, rng
        )
        touched(len(own))
        turns.append(places)
        lost += cut
        going = np.flatnonzero(following < last)
        start = following[going]
        own, last, target = (x[going] for x in (own, last, target))
    places = np.concatenate(turns)
    places["key"] = rng.integers(0, 1 << 64, len(places), np.uint64)
    return Plan(places, lost)


def _turn(corpus, own, start, last, target, rule, rng):
    """Makes the next instance of each walk.

    Returns:
      PLACE [N], the sentence at which each walk goes on, int64 [N], and the
      number of pieces lost.
    """
    chunk = _next_chunk(corpus, start, last, target)
    a_end, is_random = _split(start, chunk, rng)
    b_start, b_end = a_end.copy(), chunk.copy()
    chosen = np.flatnonzero(is_random)
    a_length = corpus.sentence_starts[a_end] - corpus.sentence_starts[start]
    b_start[chosen], b_end[chosen] = _random_next(
        corpus, own[chosen], (target - a_length)[chosen], rng
    )
    bounds = [corpus.sentence_starts[x] for x in (start, a_end, b_start, b_end)]
    places, a_cut, b_cut = _truncate(*bounds, rule.max_num_tokens, rng)
    places["is_random"] = is_random
    lost = int(a_cut.sum() + b_cut[~is_random].sum())
    # Sentences that a random B took the place of are put back.
    return places, np.where(is_random, a_end, chunk), lost


def _targets(count, rule, rng):
    """Draws the target length of each document and pass: int64 [count]."""
    short = rng.random(count) < rule.short_seq_prob
    lengths = rng.integers(2, rule.max_num_tokens, count, endpoint=True)
    return np.where(short, lengths, rule.max_num_tokens)


def _next_chunk(corpus, start, last, target):
    """Returns the sentence after each chunk: the target or document's end."""
    goal = corpus.sentence_starts[start] + target
    return np.minimum(np.searchsorted(corpus.sentence_starts, goal), last)


def _split(start, chunk, rng):
    """Draws where A ends and whether B is random; one sentence must be."""
    size = chunk - start
    a_end = start + 1 + rng.integers(0, np.maximum(size - 1, 1))
    coin = rng.random(len(start)) < 0.5
    return a_end, coin | (size == 1)


def _random_next(corpus, own, target, rng):
    """Draws sentences [start, end) of another document, at least one."""
    documents = len(corpus.document_starts) - 1
    other = rng.integers(0, max(documents - 1, 1), len(own))
    other += other >= own
    # The released code gives up after ten draws of the own document.
    gave_up = rng.random(len(own)) < float(documents) ** -10
    other = np.where(gave_up, own, other)
    first = np.asarray(corpus.document_starts[other])
    last = np.asarray(corpus.document_starts[other + 1])
    start = rng.integers(first, last)
    goal = corpus.sentence_starts[start] + target
    end = np.searchsorted(corpus.sentence_starts, goal)
    return start, np.minimum(np.maximum(end, start + 1), last)


def _truncate(a_start, a_end, b_start, b_end, limit, rng):
    """Trims pairs to the limit: the longer one first, B when they are equal.

    Which one loses each piece follows from the lengths alone; whether it is
    the first or the last piece is a fair coin each time, so that the number
    of pieces lost in front is binomial.

    Returns:
      PLACE [N] and how many pieces A and B lose, int64 [N] each.
    """
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = np.maximum(a_length + b_length - limit, 0)
    a_leads = a_length > b_length
    lead = np.where(a_leads, a_length - b_length, b_length - a_length + 1)
    # The longer one alone until it no longer is the longer; then both in
    # turn, beginning with B if A had the lead and with A otherwise.
    alone = np.minimum(excess, lead)
    rest = excess - alone
    a_cut = np.where(a_leads, alone + rest // 2, (rest + 1) // 2)
    cuts = {"a": a_cut, "b": excess - a_cut}
    places = np.zeros(len(a_start), PLACE)
    for name, begin, length in (
        ("a", a_start, a_length),
        ("b", b_start, b_length),
    ):
        in_front = rng.binomial(cuts[name], 0.5)
        places[f"{name}_start"] = begin + in_front
        places[f"{name}_length"] = length - cuts[name]
    return places, cuts["a"], cuts["b"]


class Assembled(NamedTuple):
    """Unmasked instances as padded arrays."""

    input_ids: np.ndarray  # int32 [N, S]
    input_mask: np.ndarray  # int32 [N, S]
    segment_ids: np.ndarray  # int32 [N, S]
    is_candidate: np.ndarray  # bool [N, S], neither special nor padding
    lengths: np.ndarray  # int64 [N], with [CLS] and both [SEP]


def assemble(
    take: Callable[[np.ndarray], np.ndarray],
    places: np.ndarray,
    *,
    max_seq_length: int,
    vocabulary,
) -> Assembled:
    """Lays out [CLS] A [SEP] B [SEP] for a batch of instances.

    Args:
      take: gives the pieces at places of the corpus, int64 [N, S]; places
        out of bounds may give anything.
      places: PLACE [N].
      max_seq_length: S.
      vocabulary: gives pad_id, cls_id and sep_id.

    Returns:
      The arrays of a record without its masking.
    """
    column = np.arange(max_seq_length)
    a_length = places["a_length"].astype(np.int64)[:, None]
    lengths = a_length + places["b_length"][:, None] + 3
    in_a = column <= a_length  # [CLS] too, for now
    real = column < lengths
    where = np.where(
        in_a,
        places["a_start"][:, None] - 1 + column,
        places["b_start"][:, None] - 2 - a_length + column,
    )
    is_candidate = real & (column != a_length + 1) & (column != lengths - 1)
    is_candidate[:, 0] = False
    input_ids = take(where)
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
