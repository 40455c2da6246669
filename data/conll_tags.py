"""Tags of words and the spans that they mean, in every common scheme.

    words   John  Smith  Paris  Rome   sees
    iob1    I-PER I-PER  I-LOC  B-LOC  O      B- only between neighbors
    bio2    B-PER I-PER  B-LOC  B-LOC  O      B- at every beginning
    iobes   B-PER E-PER  S-LOC  S-LOC  O      ends and single words as well
    plain   NNP   NNP    NNP    NNP    VBZ    no spans: every tag for itself

BILOU's L- and U- are read as E- and S-, BMES's M- as I-. What a scheme does not
allow, such as an I- behind nothing, begins a span, as conlleval reads it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import errors

IOB1, BIO2, IOBES, PLAIN = "iob1", "bio2", "iobes", "plain"
SCHEMES = (IOB1, BIO2, IOBES, PLAIN)
OUTSIDE = "O"
_ALIASES = {"L": "E", "U": "S", "M": "I"}
_PREFIXES = frozenset("BIESLUM")


class Span(NamedTuple):
    """Words [start, end) of one type."""

    start: int
    end: int
    type: str


def split(tag: str) -> tuple[str, str]:
    """Returns prefix and type: ("B", "PER"), ("O", ""); others ("", tag)."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, hyphen, kind = tag.partition("-")
    if hyphen and kind and prefix in _PREFIXES:
        return _ALIASES.get(prefix, prefix), kind
    return "", tag


def spans(tags: Sequence[str]) -> list[Span]:
    """Returns the spans of one sentence's tags, in order."""
    found: list[Span] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split(tag)
        goes_on = (
            kind == kind_before and prefix in "IE" and before not in ("E", "S")
        )
        if before != OUTSIDE and not goes_on:
            found.append(Span(begin, i, kind_before))
        if before == OUTSIDE or not goes_on:
            begin = i
        before, kind_before = prefix, kind
    return found


def encode(found: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Returns a sentence's tags of its spans; they are in order."""
    tags = [OUTSIDE] * length
    before = None
    for span in found:
        inside = range(span.start, span.end)
        for i in inside:
            tags[i] = f"I-{span.type}"
        is_neighbor = before is not None and (
            before.end == span.start and before.type == span.type
        )
        if scheme != IOB1 or is_neighbor:
            tags[span.start] = f"B-{span.type}"
        if scheme == IOBES:
            prefix = "E" if len(inside) > 1 else "S"
            tags[span.end - 1] = f"{prefix}-{span.type}"
        before = span
    return tags


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns a sentence's tags in another scheme."""
    if scheme == PLAIN:
        return list(tags)
    return encode(spans(tags), len(tags), scheme)


def recognize(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme that tags are in; spans are read alike in any case.

    Between IOB1 and BIO2 decides which of them fewer tags are at odds with: a
    stray I- does not make a BIO2 file IOB1.
    """
    prefixes: set[str] = set()
    not_iob1 = not_bio2 = 0
    for tags in sentences:
        kind_before = ""
        for tag in tags:
            prefix, kind = split(tag)
            prefixes.add(prefix)
            not_bio2 += prefix == "I" and kind != kind_before
            not_iob1 += prefix == "B" and kind != kind_before
            kind_before = kind
    if not prefixes & {"B", "I", "E", "S"}:
        return PLAIN if "" in prefixes else BIO2
    if prefixes & {"E", "S"}:
        return IOBES
    return IOB1 if not_iob1 < not_bio2 else BIO2


def labels(types: Iterable[str], scheme: str) -> list[str]:
    """Returns all tags of a scheme, in the order of a model's outputs."""
    if scheme == PLAIN:
        return sorted(set(types))
    prefixes = "BIES" if scheme == IOBES else "BI"
    rest = [f"{p}-{kind}" for kind in sorted(set(types)) for p in prefixes]
    return [OUTSIDE, *rest]


def scheme_of(names: Sequence[str]) -> str:
    """Returns the scheme of a model's labels.

    One that was trained on IOB1 can be told by what it has not: a B- of every
    type, as no two spans of some are ever neighbors.
    """
    parts = [split(name) for name in names]
    prefixes = {prefix for prefix, _ in parts}
    if "" in prefixes:
        return PLAIN
    if prefixes & {"E", "S"}:
        return IOBES
    begins, inside = (
        {kind for prefix, kind in parts if prefix == p} for p in "BI"
    )
    return BIO2 if inside <= begins else IOB1


def type_of(tag: str, scheme: str) -> str | None:
    """Returns the type of a tag, None outside; of plain tags, the tag.

    Raises:
      InputError: the tag belongs to no such scheme.
    """
    if scheme == PLAIN:
        return tag
    prefix, kind = split(tag)
    if prefix == "":
        raise errors.InputError(
            f"tag {tag!r} is neither O nor a type behind B-, I-, E- or S-"
        )
    return kind or None
