"""Spans of windows that may be answers, as google-research/bert chooses them.

    20 best starts x 20 best ends of every window, all at once; out go those
    outside of the paragraph, those whose start has more context in another
    window, those that end before they start or are too long
        -> by question, the best sum of both logits first

What differs: padding cannot take the place of a piece among the 20 best, so
that answers do not depend on how windows were batched.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from data import squad_windows
from data.squad_windows import Windows
from tasks.question_answering import SpanLogits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be an answer, by the flags' names."""

    exact_answers: bool = False
    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False


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


def _spans(
    windows: Windows,
    logits: SpanLogits,
    is_start: np.ndarray,
    part: slice,
    limits: Limits,
) -> tuple[np.ndarray, ...]:
    """Returns window, start, end and both logits of some windows' spans."""
    numbers = np.arange(len(windows))[part]
    splits = windows.features.row_splits
    begin = splits[numbers][:, None]
    longest = int(np.diff(splits)[part].max())
    place = begin + np.arange(longest)
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
    lengths = ends[:, None, :] - starts[:, :, None] + 1
    is_good = good_start[:, :, None] & good_end[:, None, :]
    is_good &= (lengths >= 1) & (lengths <= limits.max_answer_length)
    row, i, j = np.nonzero(is_good)
    return (
        numbers[row],
        starts[row, i],
        ends[row, j],
        start_logits[row, i],
        end_logits[row, j],
    )
