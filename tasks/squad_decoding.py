"""Logits to lists of the best answers, as google-research/bert decodes them.

    spans that may be answers (see squad_candidates), the best sum of both
    logits first
        -> their texts, as written in the paragraph; the same text only once
        -> 20 texts, probabilities among them

In SQuAD 2.0 both logits of [CLS] say that there is no answer: of a question's
windows the one where that is least likely counts.

What differs: a list without any answer, which ends the released program, says
"no answer" with NO_ANSWER_ODDS.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data import squad
from data.squad_windows import Windows
from tasks import squad_candidates, squad_projection
from tasks.question_answering import SpanLogits

# Where nothing but "no answer" can be said; JSON has no infinity.
NO_ANSWER_ODDS = 1e6
NOTHING = "empty"  # As released, where a 1.1 question has no candidate.
_CHUNK = 128  # Questions that are decoded together.


class Entry(NamedTuple):
    """One text of a list.

    Attributes:
      text: as written in the paragraph; "" is no answer.
      probability: among the list.
      start_logit: of its first piece.
      end_logit: of its last piece.
      span: its first character in the paragraph and that after its last; None
        if it is nowhere.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None


class Answers(NamedTuple):
    """What is said to one question.

    Attributes:
      entries: the best first; in 2.0 one of them is "".
      null_odds: score of no answer minus that of the best answer.
    """

    entries: Sequence[Entry]
    null_odds: float

    @property
    def best(self) -> str:
        """The best text; in 2.0 the best that is an answer, if any is."""
        return next((e.text for e in self.entries if e.text), "")

    def text(self, threshold: float | None) -> str:
        """Returns what is answered; `threshold` is None in 1.1."""
        if threshold is None:
            return self.entries[0].text
        return "" if self.null_odds > threshold else self.best


class _Span(NamedTuple):
    """One of the Candidates."""

    question: int
    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float


class _Row(NamedTuple):
    """An Entry that has no probability yet."""

    text: str
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None


_Null = tuple[float, float]  # Both logits of [CLS].


def decode(
    found: squad.Questions,
    windows: Windows,
    logits: SpanLogits,
    *,
    normalize: squad_projection.Normalize,
    pieces: Sequence[str],
    limits: squad_candidates.Limits,
) -> list[Answers]:
    """Returns the answers to all questions, in their order.

    Args:
      found: the questions.
      windows: of them.
      logits: of the windows.
      normalize: splits a text into words as the model's tokenizer does.
      pieces: the vocabulary.
      limits: of what may be an answer.
    """
    nulls = squad_candidates.null_logits(len(found), windows, logits)
    is_start = squad_candidates.may_start(windows)
    project = squad_projection.Projection(
        found,
        windows,
        normalize=normalize,
        pieces=pieces,
        exact=limits.exact_answers,
    )
    result: list[Answers] = []
    for first in range(0, len(found), _CHUNK):
        numbers = range(first, min(first + _CHUNK, len(found)))
        rows = np.searchsorted(windows.questions, [numbers.start, numbers.stop])
        ranked = squad_candidates.candidates(
            windows, logits, is_start, slice(*rows), limits
        )
        bounds = np.searchsorted(
            ranked.questions, range(numbers.start, numbers.stop + 1)
        )
        for number, part in zip(
            numbers, itertools.pairwise(bounds), strict=True
        ):
            columns = [column[slice(*part)].tolist() for column in ranked]
            spans = map(_Span._make, zip(*columns, strict=True))
            null = _null(nulls[number], limits)
            result.append(_answers(number, spans, null, project, limits))
    return result


def _null(logits: np.ndarray, limits: squad_candidates.Limits) -> _Null | None:
    """Returns both logits of no answer; None in 1.1 and without a window."""
    if not limits.version_2_with_negative or not np.isfinite(logits).all():
        return None
    return float(logits[0]), float(logits[1])


def _answers(
    number: int,
    spans: Iterable[_Span],
    null: _Null | None,
    project: squad_projection.Projection,
    limits: squad_candidates.Limits,
) -> Answers:
    """Makes the list of one question of its spans, the best first."""
    found: list[_Row] = []
    seen: set[str] = set()
    for row in _in_order(number, spans, null, project):
        if len(found) >= limits.n_best_size:
            break
        if row.text not in seen or not row.text:
            seen.add(row.text)
            found.append(row)
    if limits.version_2_with_negative and "" not in seen:
        found.append(_Row("", *(null or (0.0, 0.0)), None))
    if not found:
        found.append(_Row(NOTHING, 0.0, 0.0, None))
    shares = softmax([row.start_logit + row.end_logit for row in found])
    entries = [
        Entry(row.text, share, row.start_logit, row.end_logit, row.span)
        for row, share in zip(found, shares, strict=True)
    ]
    best = next((e for e in entries if e.text), None)
    odds = NO_ANSWER_ODDS
    if best is not None and null is not None:
        odds = null[0] + null[1] - best.start_logit - best.end_logit
    return Answers(entries, odds)


def _in_order(
    number: int,
    spans: Iterable[_Span],
    null: _Null | None,
    project: squad_projection.Projection,
) -> Iterator[_Row]:
    """Yields answers, and "" after all that are as good as no answer."""
    for span in spans:
        score = span.start_logit + span.end_logit
        if null is not None and score < null[0] + null[1]:
            yield _Row("", *null, None)
            null = None
        text, place = project(number, span.window, span.start, span.end)
        yield _Row(text, span.start_logit, span.end_logit, place)
    if null is not None:
        yield _Row("", *null, None)


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns shares that add up to 1."""
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = 0.0
    for power in powers:  # One after the other: sum() is not so in Python 3.12.
        total += power
    return [power / total for power in powers]
