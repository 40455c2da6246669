"""Tags of words, the spans that they mark, and conlleval's scores of spans.

The four schemes of tags:

    words   John  Smith  Paris  Rome   sees
    iob1    I-PER I-PER  I-LOC  B-LOC  O      B- only after the same type
    bio2    B-PER I-PER  B-LOC  B-LOC  O      B- at every first word
    iobes   B-PER E-PER  S-LOC  S-LOC  O      E- at the last, S- for one word
    plain   NNP   NNP    NNP    NNP    VBZ    no spans: a tag for each word

BILOU's L- and U- are read as E- and S-, BMES's M- as I-. A tag that the scheme
does not allow, such as an I- after O, begins a span, as in conlleval, the
script of the CoNLL shared tasks. Where there is one type only, all tags may be
prefixes alone, such as B, I and O: the type is called _, as in seqeval.

A predicted span is correct if its first word, its last word and its type are
correct. The scores are printed as by conlleval, which calls spans phrases:

    processed 51578 tokens with 5942 phrases; found: 6755 phrases; correct: ...
    accuracy:  98.21%; precision:  85.63%; recall:  97.34%; FB1:  91.11
                  LOC: precision:  88.23%; recall:  97.93%; FB1:  92.83  2039
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foundation import errors

IOB1, BIO2, IOBES, PLAIN = "iob1", "bio2", "iobes", "plain"
OUTSIDE = "O"
UNTYPED = "_"
_ALIASES = {"L": "E", "U": "S", "M": "I"}
_PREFIXES = frozenset("BIESLUM")


class Span(NamedTuple):
    """Words [start, end) of one type."""

    start: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Returns prefix and type: ("B", "PER"), ("O", ""), or ("", tag).

    The type of a prefix alone is UNTYPED.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if tag in _PREFIXES:
        return _ALIASES.get(tag, tag), UNTYPED
    prefix, hyphen, kind = tag.partition("-")
    if hyphen and kind and prefix in _PREFIXES:
        return _ALIASES.get(prefix, prefix), kind
    return "", tag


def _tag(prefix: str, kind: str) -> str:
    return prefix if kind == UNTYPED else f"{prefix}-{kind}"


def spans(tags: Sequence[str], *, is_plain: bool = False) -> list[Span]:
    """Returns the spans of a sentence in order.

    If tags are plain, each word is a span whose type is its tag.
    """
    if is_plain:
        return [Span(i, i + 1, tag) for i, tag in enumerate(tags)]
    result: list[Span] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        continues = (
            kind == kind_before and prefix in "IE" and before not in ("E", "S")
        )
        if before != OUTSIDE and not continues:
            result.append(Span(begin, i, kind_before))
        if before == OUTSIDE or not continues:
            begin = i
        before, kind_before = prefix, kind
    return result


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns the tags of a sentence in another scheme."""
    if scheme == PLAIN:
        return list(tags)
    converted = [OUTSIDE] * len(tags)
    before = Span(0, 0, "")
    for span in spans(tags):
        size = span.end - span.start
        converted[span.start : span.end] = [_tag("I", span.type)] * size
        is_neighbor = (before.end, before.type) == (span.start, span.type)
        if scheme != IOB1 or is_neighbor:
            converted[span.start] = _tag("B", span.type)
        if scheme == IOBES:
            prefix = "E" if size > 1 else "S"
            converted[span.end - 1] = _tag(prefix, span.type)
        before = span
    return converted


def recognize(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of the tags of sentences; BIO2 if all are O.

    Tags that may be IOB1 or BIO2 have the scheme that fewer of them violate, so
    that a stray I- does not make a BIO2 file IOB1. The spans do not depend on
    this choice.
    """
    seen: set[str] = set()
    not_iob1 = not_bio2 = 0
    for tags in sentences:
        seen.update(tags)
        kind_before = ""
        for prefix, kind in map(split_tag, tags):
            not_bio2 += prefix == "I" and kind != kind_before
            not_iob1 += prefix == "B" and kind != kind_before
            kind_before = kind
    if seen and _are_plain(seen):
        return PLAIN
    if {split_tag(tag)[0] for tag in seen} & {"E", "S"}:
        return IOBES
    return IOB1 if not_iob1 < not_bio2 else BIO2


def _are_plain(tags: Collection[str]) -> bool:
    """Returns whether no tag marks a span.

    Prefixes alone do if all tags are such, and one of them is B or I.
    """
    parts = [split_tag(tag) for tag in tags]
    if any(prefix and kind not in ("", UNTYPED) for prefix, kind in parts):
        return False
    are_prefixes = all(prefix for prefix, _ in parts)
    return not are_prefixes or (
        {*tags} != {OUTSIDE} and {*tags}.isdisjoint(("B", "I"))
    )


def labels(types: Iterable[str], scheme: str) -> list[str]:
    """Returns all tags of a scheme in the order of a model's outputs."""
    if scheme == PLAIN:
        return sorted(set(types))
    prefixes = "BIES" if scheme == IOBES else "BI"
    rest = [_tag(p, kind) for kind in sorted(set(types)) for p in prefixes]
    return [OUTSIDE, *rest]


def scheme_of(names: Sequence[str]) -> str:
    """Returns the scheme of a model's labels.

    Labels of IOB1 lack B- for some types, because spans of these types are
    never neighbors in the training set.
    """
    parts = [split_tag(name) for name in names]
    prefixes = {prefix for prefix, _ in parts}
    if "" in prefixes or _are_plain(names):
        return PLAIN
    if prefixes & {"E", "S"}:
        return IOBES
    begins, inside = (
        {kind for prefix, kind in parts if prefix == p} for p in "BI"
    )
    return BIO2 if inside <= begins else IOB1


def type_of(tag: str, scheme: str) -> str | None:
    """Returns the type of a tag; None for O; a plain tag is its own type.

    Raises:
      InputError: the tag is not of the scheme.
    """
    if scheme == PLAIN:
        return tag
    prefix, kind = split_tag(tag)
    if prefix == "":
        raise errors.InputError(
            f"tag {tag!r} is neither O, as of words outside of entities, nor a "
            "type after B-, I-, E- or S-"
        )
    return kind or None


class Score(NamedTuple):
    """Numbers of true, predicted and correct spans, and their ratios."""

    true: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        """The fraction of predicted spans that are correct; 0 without any."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The fraction of true spans that are predicted; 0 without any."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if both are 0."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


class Scores(NamedTuple):
    """The counts of conlleval.

    Attributes:
      tokens: number of words.
      right: number of words with the correct tag.
      true: number of true spans of each type.
      found: number of predicted spans of each type.
      correct: number of correct spans of each type.
    """

    tokens: int = 0
    right: int = 0
    true: Mapping[str, int] = Counter()
    found: Mapping[str, int] = Counter()
    correct: Mapping[str, int] = Counter()

    def plus(self, other: Sequence[Any]) -> "Scores":
        """Adds the counts of other sentences, Scores or a list of JSON."""
        words = (a + b for a, b in zip(self[:2], other[:2], strict=True))
        spans = (
            Counter(a) + Counter(b)
            for a, b in zip(self[2:], other[2:], strict=True)
        )
        return Scores(*words, *spans)

    @property
    def by_type(self) -> dict[str, Score]:
        """Scores of each type that is true or predicted, sorted by name."""
        return {
            kind: Score(*(counts.get(kind, 0) for counts in self[2:]))
            for kind in sorted({*self.true, *self.found})
        }

    @property
    def total(self) -> Score:
        """The score of all types."""
        return Score(*(sum(counts.values()) for counts in self[2:]))

    @property
    def accuracy(self) -> float:
        """The fraction of words with the correct tag."""
        return self.right / self.tokens if self.tokens else 0.0

    def values(self, types: Iterable[str] = ()) -> dict[str, float]:
        """Returns the metrics of eval_results.txt.

        Args:
          types: types to report even if they are neither true nor predicted.
        """
        values = {"accuracy": self.accuracy}
        none, by_type = Score(0, 0, 0), self.by_type
        scores = {"": self.total} | {
            f"_{kind}": by_type.get(kind, none)
            for kind in sorted({*by_type, *types})
        }
        names = ("precision", "recall", "f1")
        return values | {
            name + suffix: getattr(score, name)
            for suffix, score in scores.items()
            for name in names
        }

    def plain_values(self) -> dict[str, float]:
        """Returns the metrics of plain tags, such as NNP."""
        f1 = [2 * s.correct / (s.true + s.found) for s in self.by_type.values()]
        return {"accuracy": self.accuracy, "f1_macro": float(np.mean(f1))}

    def text(self) -> str:
        """Returns the output of conlleval."""
        total = self.total
        lines = [
            f"processed {self.tokens} tokens with {total.true} phrases; "
            f"found: {total.found} phrases; correct: {total.correct}.",
            f"accuracy: {100 * self.accuracy:6.2f}%; {_line(total)}",
        ]
        lines += [
            f"{kind:>17s}: {_line(score)}  {score.found}"
            for kind, score in self.by_type.items()
        ]
        return "\n".join(lines) + "\n"


def score(
    true: Iterable[Sequence[str]],
    predicted: Iterable[Sequence[str]],
    *,
    boundaries: int = 0,
    is_plain: bool = False,
) -> Scores:
    """Returns the scores of predicted tags against the true ones.

    Args:
      true: the tags of each sentence.
      predicted: the predicted tags of each sentence.
      boundaries: number of -DOCSTART- lines, which conlleval counts as words
        with the correct tag.
      is_plain: whether each word is a span whose type is its tag.
    """
    tokens = num_correct = boundaries
    counts: list[Counter] = [Counter(), Counter(), Counter()]
    for gold, guess in zip(true, predicted, strict=True):
        tokens += len(gold)
        num_correct += sum(a == b for a, b in zip(gold, guess, strict=True))
        theirs, ours = (
            set(spans(tags, is_plain=is_plain)) for tags in (gold, guess)
        )
        parts = theirs, ours, theirs & ours
        for count, part in zip(counts, parts, strict=True):
            count.update(span.type for span in part)
    return Scores(tokens, num_correct, *counts)


def _line(score: Score) -> str:
    return (
        f"precision: {100 * score.precision:6.2f}%; "
        f"recall: {100 * score.recall:6.2f}%; FB1: {100 * score.f1:6.2f}"
    )
