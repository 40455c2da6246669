"""Logits to lists of the best answers, as google-research/bert decodes them.

    20 best starts x 20 best ends of every window, all at once; out go those
    outside of the paragraph, those whose start has more context in another
    window, those that end before they start or are too long
        -> by question, the best sum of both logits first
        -> the same text only once, 20 texts, probabilities among them

In SQuAD 2.0 both logits of [CLS] say that there is no answer: of a question's
windows the one where that is least likely counts.

What differs: padding cannot take the place of a piece among the 20 best, so
that answers do not depend on how windows were batched; and a list without any
answer, which ends the released program, says "no answer" with NO_ANSWER_ODDS.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data import squad, squad_windows
from data.squad_windows import Windows
from tasks import squad_projection
from tasks.question_answering import SpanLogits

# Where nothing but "no answer" can be said; JSON has no infinity.
NO_ANSWER_ODDS = 1e6
NOTHING = "empty"  # As released, where a 1.1 question has no candidate.
_CHUNK = 128  # Questions that are decoded together.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be an answer, by the flags' names."""

    exact_answers: bool = False
    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False


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


class Candidates(NamedTuple):
    """C spans, those of a question together, the best first.

    Attributes:
      questions: int64 [C].
      windows: int64 [C].
      starts: int64 [C]; places in the window.
      ends: int64 [C].
      start_logits: float64 [C].
      end_logits: float64 [C].
    """

    questions: np.ndarray
    windows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray


def decode(
    found: squad.Questions,
    windows: Windows,
    logits: SpanLogits,
    *,
    normalize: squad_projection.Normalize,
    pieces: Sequence[str],
    limits: Limits,
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
    nulls = null_logits(len(found), windows, logits)
    is_start = may_start(windows)
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
        ranked = candidates(windows, logits, is_start, slice(*rows), limits)
        bounds = np.searchsorted(
            ranked.questions, range(numbers.start, numbers.stop + 1)
        )
        for number, start, end in zip(
            numbers, bounds, bounds[1:], strict=False
        ):
            columns = [column[start:end].tolist() for column in ranked]
            spans = list(zip(*columns, strict=True))
            null = nulls[number] if limits.version_2_with_negative else None
            result.append(_answers(number, spans, null, project, limits))
    return result


def candidates(
    windows: Windows,
    logits: SpanLogits,
    is_start: np.ndarray,
    rows: slice,
    limits: Limits,
) -> Candidates:
    """Returns all spans of some questions' windows that may be answers.

    Args:
      windows: of all questions.
      logits: of the windows.
      is_start: bool [T]; pieces where an answer may start.
      rows: which windows.
      limits: of what may be an answer.
    """
    if rows.start == rows.stop:
        return Candidates(*np.zeros((4, 0), np.int64), *np.zeros((2, 0)))
    found = _spans(windows, logits, is_start, rows, limits)
    questions = windows.questions[found[0]]
    # Stable, as released: of equal ones first the earlier window, then the
    # better start.
    order = np.lexsort((-(found[3] + found[4]), questions))
    return Candidates(questions[order], *(x[order] for x in found))


def null_logits(count: int, windows: Windows, logits: SpanLogits) -> np.ndarray:
    """Returns both logits of [CLS] where no answer is least likely.

    Args:
      count: N questions.
      windows: of them.
      logits: of the windows.

    Returns:
      float64 [N, 2]; infinite for a question without a window.
    """
    first = windows.features.row_splits[:-1]
    start = logits.start[first].astype(np.float64)
    end = logits.end[first].astype(np.float64)
    order = np.lexsort((start + end, windows.questions))
    questions, rows = np.unique(windows.questions[order], return_index=True)
    result = np.full((count, 2), math.inf)
    result[questions, 0] = start[order[rows]]
    result[questions, 1] = end[order[rows]]
    return result


def may_start(windows: Windows) -> np.ndarray:
    """Returns bool [T]: the pieces of paragraphs in their best window."""
    result = np.zeros(windows.features.row_splits[-1], bool)
    result[_paragraph_places(windows)] = squad_windows.max_context(
        windows.questions, windows.starts, windows.lengths
    )
    return result


def _paragraph_places(windows: Windows) -> np.ndarray:
    first = windows.features.row_splits[:-1] + windows.offsets
    ends = np.cumsum(windows.lengths)
    within = np.arange(int(windows.lengths.sum()))
    return within + np.repeat(first - ends + windows.lengths, windows.lengths)


def _spans(windows, logits, is_start, part, limits) -> tuple[np.ndarray, ...]:
    """Returns window, start, end and both logits of some windows' spans."""
    numbers = np.arange(len(windows))[part]
    splits = windows.features.row_splits
    begin = splits[numbers][:, None]
    length = int(np.diff(splits)[part].max())
    place = begin + np.arange(length)
    is_piece = place < splits[numbers + 1][:, None]
    place[~is_piece] = 0
    first = windows.offsets[part][:, None]
    after = first + windows.lengths[part][:, None]

    def best(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.where(is_piece, values[place], -np.inf)
        order = np.argsort(-values, axis=1, kind="stable")
        order = order[:, : limits.n_best_size]
        found = np.take_along_axis(values, order, axis=1)
        return order, found.astype(np.float64)

    starts, start_logits = best(logits.start)
    ends, end_logits = best(logits.end)
    good_start = is_start[np.minimum(begin + starts, len(is_start) - 1)]
    good_start &= (starts >= first) & (starts < after)
    good_end = (ends >= first) & (ends < after)
    length = ends[:, None, :] - starts[:, :, None] + 1
    is_good = good_start[:, :, None] & good_end[:, None, :]
    is_good &= (length >= 1) & (length <= limits.max_answer_length)
    row, i, j = np.nonzero(is_good)
    return (
        numbers[row],
        starts[row, i],
        ends[row, j],
        start_logits[row, i],
        end_logits[row, j],
    )


def _answers(number, spans, null, project, limits) -> Answers:
    """Makes the list of one question; `null` is None in 1.1."""
    found: list[tuple[str, float, float, tuple[int, int] | None]] = []
    seen: set[str] = set()
    null_score = math.inf if null is None else float(null[0] + null[1])
    nothing = null is None or not math.isfinite(null_score)
    for text, start_logit, end_logit, span in _in_order(
        number, spans, None if nothing else null, project
    ):
        if len(found) >= limits.n_best_size:
            break
        if text not in seen or not text:
            seen.add(text)
            found.append((text, start_logit, end_logit, span))
    if null is not None and "" not in seen:
        logits = (0.0, 0.0) if nothing else map(float, null)
        found.append(("", *logits, None))
    if not found:
        found.append((NOTHING, 0.0, 0.0, None))
    shares = softmax([start + end for _, start, end, _ in found])
    entries = [
        Entry(text, share, start, end, span)
        for (text, start, end, span), share in zip(found, shares, strict=True)
    ]
    best = next((e for e in entries if e.text), None)
    odds = NO_ANSWER_ODDS
    if best is not None and not nothing:
        odds = null_score - best.start_logit - best.end_logit
    return Answers(entries, odds)


def _in_order(number, spans, null, project) -> Iterator[tuple]:
    """Yields text, both logits and span; "" after all that are as good."""
    for _, window, start, end, start_logit, end_logit in spans:
        if null is not None and start_logit + end_logit < null[0] + null[1]:
            yield "", float(null[0]), float(null[1]), None
            null = None
        text, span = project(number, window, start, end)
        yield text, start_logit, end_logit, span
    if null is not None:
        yield "", float(null[0]), float(null[1]), None


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns shares that add up to 1."""
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = 0.0
    for power in powers:  # One after the other: sum() is not so in Python 3.12.
        total += power
    return [power / total for power in powers]
