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

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tasks.squad import dataset, squad_windows
from tasks.squad.span_task import SpanLogits
from tasks.squad.squad_windows import Windows

# ----------------------------------------------------------------------
# Spans of windows that may be answers, as google-research/bert chooses them.
#
#     20 best starts x 20 best ends of every window, all at once; out go those
#     outside of the paragraph, those whose start has more context in another
#     window, those that end before they start or are too long
#         -> by question, the best sum of both logits first
#
# What differs: padding cannot take the place of a piece among the 20 best, so
# that answers do not depend on how windows were batched.


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


# ----------------------------------------------------------------------
# Pieces that were chosen as an answer, as they are written in the paragraph.
#
#     pieces     steve smith          the words they are of   Steve Smith's,
#     the words, split and lower-cased as the tokenizer does   steve smith ' s ,
#         -> "steve smith" is found there, and its letters counted off in the
#            words as written -> "Steve Smith"
#
# Where that fails, e.g. for [UNK] or a stripped accent, the answer is the whole
# words. google-research/bert answers so, and so do the scores in its paper.
# In English it hardly matters; where words are not separated by spaces, as in
# Chinese, whole words may be whole sentences. `exact` takes the characters of
# the
# pieces themselves, wherever they come from.

Normalize = Callable[[str], list[str]]


class Projection:
    """Turns spans of windows into texts."""

    def __init__(
        self,
        found: dataset.Questions,
        windows: Windows,
        *,
        normalize: Normalize,
        pieces: Sequence[str],
        exact: bool = False,
    ):
        """Takes what `squad_decoding.decode` takes."""
        self._found = found
        self._exact = exact
        self._windows = windows
        self._pieces = pieces
        self._normalized = functools.lru_cache(1 << 16)(
            lambda word: " ".join(normalize(word))
        )
        self._words = functools.lru_cache(4)(
            lambda paragraph: dataset.words(found.contexts[paragraph])
        )

    def __call__(
        self, question: int, window: int, start: int, end: int
    ) -> tuple[str, tuple[int, int]]:
        """Returns the text and its characters in the paragraph.

        The characters are those of the pieces, which the text may exceed.

        Args:
          question: number of the question.
          window: number of the window.
          start: place of the first piece in the window.
          end: place of the last piece.
        """
        windows, documents = self._windows, self._windows.documents
        paragraph = self._found.questions[question].paragraph
        shift = documents.row_splits[paragraph] + windows.starts[window]
        shift -= windows.offsets[window]
        first, last = int(shift + start), int(shift + end)
        span = int(documents.starts[first]), int(documents.ends[last])
        if self._exact:
            return self._found.contexts[paragraph][slice(*span)], span
        ids = documents.ids[first : last + 1].tolist()
        words = self._words(paragraph)[
            documents.words[first] : documents.words[last] + 1
        ]
        text = final_text(
            join_pieces([self._pieces[i] for i in ids]),
            words,
            [self._normalized(word) for word in words],
        )
        return text, span


def join_pieces(pieces: Sequence[str]) -> str:
    """Joins continuations to the piece before them."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def final_text(
    answer: str, words: Sequence[str], normalized: Sequence[str]
) -> str:
    """Finds pieces in the words that they are of.

    Args:
      answer: the joined pieces.
      words: as written.
      normalized: the same, each split and lower-cased as by the tokenizer.
    """
    original = " ".join(words)
    text = " ".join(filter(None, normalized))
    start = text.find(answer)
    if start < 0 or not answer:
        return original
    letters = _letters(original)
    if len(letters) != len(text) - text.count(" "):
        return original
    first = start - text.count(" ", 0, start)
    last = first + len(answer) - answer.count(" ") - 1
    return original[letters[first] : letters[last] + 1]


def _letters(text: str) -> list[int]:
    """Returns where the characters are that are no spaces."""
    return [i for i, char in enumerate(text) if char != " "]


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
    found: dataset.Questions,
    windows: Windows,
    logits: SpanLogits,
    *,
    normalize: Normalize,
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
    project = Projection(
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
        for number, part in zip(
            numbers, itertools.pairwise(bounds), strict=True
        ):
            columns = [column[slice(*part)].tolist() for column in ranked]
            spans = map(_Span._make, zip(*columns, strict=True))
            null = _null(nulls[number], limits)
            result.append(_answers(number, spans, null, project, limits))
    return result


def _null(logits: np.ndarray, limits: Limits) -> _Null | None:
    """Returns both logits of no answer; None in 1.1 and without a window."""
    if not limits.version_2_with_negative or not np.isfinite(logits).all():
        return None
    return float(logits[0]), float(logits[1])


def _answers(
    number: int,
    spans: Iterable[_Span],
    null: _Null | None,
    project: Projection,
    limits: Limits,
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
    project: Projection,
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
