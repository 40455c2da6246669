"""Turns logits into lists of answers, as google-research/bert does.

    logits of each window
        -> spans: the 20 best starts x the 20 best ends of each window, without
           those that are outside of the paragraph, start at a token with more
           context in another window, end before they start or are too long
        -> texts of a question's spans, highest sum of logits first, each once
        -> 20 texts with probabilities

In SQuAD 2.0, the logits of [CLS] are the score of "no answer". A question has
the lowest of its windows' scores.

Differences: padding is never among the best 20 starts or ends, so that answers
do not depend on the batches. A list without any answer, which crashes the
released program, means "no answer" with the odds NO_ANSWER_ODDS.
"""

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data.tokenization import normalization, wordpiece
from tasks.squad import dataset, windowing
from tasks.squad.windowing import Windows

# The odds where "no answer" is the only answer; JSON has no infinity.
NO_ANSWER_ODDS = 1e6
NOTHING = "empty"  # The released answer to a 1.1 question without a span.
_CHUNK = 128  # Questions that are decoded together.


class SpanLogits(NamedTuple):
    """Logits of all tokens of all windows: float32 [T] each."""

    start: np.ndarray
    end: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Which spans may be answers; the names are those of the flags."""

    exact_answers: bool = False
    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False


class Entry(NamedTuple):
    """One answer in the list of a question.

    Attributes:
      text: the text in the paragraph; "" means no answer.
      probability: softmax over the list.
      start_logit: of its first token.
      end_logit: of its last token.
      span: its first character in the paragraph and the one after its last;
        None if unknown.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None


class Answers(NamedTuple):
    """The list of answers to a question.

    Attributes:
      entries: the best first; in 2.0 one of them is "".
      null_odds: score of "no answer" minus the score of the best answer.
    """

    entries: Sequence[Entry]
    null_odds: float

    @property
    def best(self) -> str:
        """The best text that is not "", if there is one."""
        return next((e.text for e in self.entries if e.text), "")

    def text(self, threshold: float | None) -> str:
        """Returns the predicted text.

        Args:
          threshold: null odds above which it is ""; None in 1.1.
        """
        if threshold is None:
            return self.entries[0].text
        return "" if self.null_odds > threshold else self.best


class Spans(NamedTuple):
    """C spans, those of a question together, the best first.

    Attributes:
      questions: int64 [C].
      windows: int64 [C].
      starts: int64 [C]; positions in the window.
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


_NullLogits = tuple[float, float]  # Start and end logit of [CLS].
_Project = Callable[..., tuple[str, tuple[int, int]]]


def collect_logits(
    batches: Iterable[Mapping[str, np.ndarray]], row_splits: np.ndarray
) -> SpanLogits:
    """Puts logits of batches of any order and length in the windows' order.

    Args:
      batches: start_logits and end_logits [B, S], example_index [B].
      row_splits: int [W + 1]; where the tokens of each window begin.
    """
    start, end = np.zeros((2, row_splits[-1]), np.float32)
    for values in batches:
        rows = values["example_index"]
        length = values["start_logits"].shape[1]
        positions = row_splits[rows][:, None] + np.arange(length)
        is_token = positions < row_splits[rows + 1][:, None]
        start[positions[is_token]] = values["start_logits"][is_token]
        end[positions[is_token]] = values["end_logits"][is_token]
    return SpanLogits(start, end)


def decode(
    question_set: dataset.QuestionSet,
    windows: Windows,
    logits: SpanLogits,
    *,
    tokenizer: wordpiece.Tokenizer,
    limits: Limits,
) -> list[Answers]:
    """Returns the answers to all questions, in their order.

    Args:
      question_set: N questions.
      windows: the windows of the questions.
      logits: the logits of the windows.
      tokenizer: the model's tokenizer.
      limits: which spans may be answers.
    """
    nulls = _null_logits(len(question_set), windows, logits)
    is_start = may_start(windows)
    project = _projector(question_set, windows, tokenizer, limits)
    result: list[Answers] = []
    for first in range(0, len(question_set), _CHUNK):
        numbers = range(first, min(first + _CHUNK, len(question_set)))
        rows = np.searchsorted(windows.questions, [numbers.start, numbers.stop])
        spans = best_spans(windows, logits, is_start, slice(*rows), limits)
        bounds = np.searchsorted(
            spans.questions, range(numbers.start, numbers.stop + 1)
        )
        for number, bound in zip(
            numbers, itertools.pairwise(bounds), strict=True
        ):
            columns = [column[slice(*bound)].tolist() for column in spans]
            null = None  # In 1.1, and without a window.
            is_finite = np.isfinite(nulls[number]).all()
            if limits.version_2_with_negative and is_finite:
                null = tuple(nulls[number].tolist())
            texts = _texts(zip(*columns, strict=True), null, project)
            result.append(_answers(texts, null, limits))
    return result


def may_start(windows: Windows) -> np.ndarray:
    """Returns bool [T]: where a paragraph's token has its best window."""
    first = windows.features.row_splits[:-1] + windows.offsets
    ends = np.cumsum(windows.lengths)
    positions = np.arange(int(windows.lengths.sum()))
    positions += np.repeat(first - ends + windows.lengths, windows.lengths)
    result = np.zeros(windows.features.row_splits[-1], bool)
    result[positions] = windowing.max_context(
        windows.questions, windows.starts, windows.lengths
    )
    return result


def best_spans(
    windows: Windows,
    logits: SpanLogits,
    is_start: np.ndarray,
    rows: slice,
    limits: Limits,
) -> Spans:
    """Returns the spans of some questions' windows that may be answers.

    Args:
      windows: the windows of all questions.
      logits: the logits of the windows.
      is_start: bool [T]; tokens where an answer may start.
      rows: the windows to decode.
      limits: which spans may be answers.
    """
    if rows.start == rows.stop:
        return Spans(*np.zeros((4, 0), np.int64), *np.zeros((2, 0)))
    numbers = np.arange(len(windows))[rows]
    splits = windows.features.row_splits
    begin = splits[numbers][:, None]
    positions = begin + np.arange(int(np.diff(splits)[rows].max()))
    is_token = positions < splits[numbers + 1][:, None]
    positions[~is_token] = 0
    first = windows.offsets[rows][:, None]
    after = first + windows.lengths[rows][:, None]

    def best(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.where(is_token, values[positions], -np.inf)
        order = np.argsort(-values, axis=1, kind="stable")
        order = order[:, : limits.n_best_size]
        found = np.take_along_axis(values, order, axis=1)
        return order, found.astype(np.float64)

    starts, start_logits = best(logits.start)
    ends, end_logits = best(logits.end)
    is_good_start = is_start[np.minimum(begin + starts, len(is_start) - 1)]
    is_good_start &= (starts >= first) & (starts < after)
    is_good_end = (ends >= first) & (ends < after)
    lengths = ends[:, None, :] - starts[:, :, None] + 1
    is_good = is_good_start[:, :, None] & is_good_end[:, None, :]
    is_good &= (lengths >= 1) & (lengths <= limits.max_answer_length)
    row, i, j = np.nonzero(is_good)
    spans = Spans(
        windows.questions[numbers[row]],
        numbers[row],
        starts[row, i],
        ends[row, j],
        start_logits[row, i],
        end_logits[row, j],
    )
    # Stable, as released: of equal scores first the earlier window, then the
    # better start.
    scores = spans.start_logits + spans.end_logits
    order = np.lexsort((-scores, spans.questions))
    return Spans(*(column[order] for column in spans))


def _null_logits(
    count: int, windows: Windows, logits: SpanLogits
) -> np.ndarray:
    """Returns both logits of [CLS] in the window with the lowest sum.

    Returns:
      float64 [count, 2]; infinite for a question without a window.
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


def _texts(
    spans: Iterable[tuple], null: _NullLogits | None, project: _Project
) -> Iterator[Entry]:
    """Yields a question's answers, without their probabilities.

    "" comes after all answers with a higher score.

    Args:
      spans: rows of Spans, the best first.
      null: the logits of "no answer", if that may be an answer.
      project: returns the text of a span.
    """
    for question, window, start, end, start_logit, end_logit in spans:
        if null is not None and start_logit + end_logit < null[0] + null[1]:
            yield Entry("", 0.0, *null, None)
            null = None
        text, characters = project(question, window, start, end)
        yield Entry(text, 0.0, start_logit, end_logit, characters)
    if null is not None:
        yield Entry("", 0.0, *null, None)


def _answers(
    texts: Iterable[Entry], null: _NullLogits | None, limits: Limits
) -> Answers:
    """Returns the n_best_size best different texts with probabilities."""
    rows: list[Entry] = []
    seen: set[str] = set()
    for row in texts:
        if len(rows) >= limits.n_best_size:
            break
        if row.text not in seen or not row.text:
            seen.add(row.text)
            rows.append(row)
    if limits.version_2_with_negative and "" not in seen:
        rows.append(Entry("", 0.0, *(null or (0.0, 0.0)), None))
    if not rows:
        rows.append(Entry(NOTHING, 0.0, 0.0, 0.0, None))
    probabilities = _softmax([row.start_logit + row.end_logit for row in rows])
    entries = [
        row._replace(probability=probability)
        for row, probability in zip(rows, probabilities, strict=True)
    ]
    best = next((row for row in rows if row.text), None)
    odds = NO_ANSWER_ODDS
    if best is not None and null is not None:
        odds = null[0] + null[1] - best.start_logit - best.end_logit
    return Answers(entries, odds)


def _softmax(scores: Sequence[float]) -> list[float]:
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    # Not sum(), which rounds otherwise since Python 3.12.
    total = functools.reduce(operator.add, exponentials, 0.0)
    return [x / total for x in exponentials]


def _projector(
    question_set: dataset.QuestionSet,
    windows: Windows,
    tokenizer: wordpiece.Tokenizer,
    limits: Limits,
) -> _Project:
    """Returns a function that maps the tokens of a span to its text.

        tokens                                   steve smith
        their words                              Steve Smith's,
        the words, split and lower-cased         steve smith ' s ,
            -> "steve smith" is found there, and its letters are counted in the
               original words -> "Steve Smith"

    If that fails, e.g. for [UNK] or a stripped accent, the answer is the
    complete words, as in google-research/bert and in the paper's scores. In
    languages without spaces, such as Chinese, these may be complete sentences:
    limits.exact_answers returns the characters of the tokens instead.

    The function also returns the characters of the tokens in the paragraph,
    which the text may exceed.
    """
    documents, contexts = windows.documents, question_set.contexts
    tokens = tokenizer.vocabulary.tokens
    split = normalization.Normalization(**tokenizer.settings).words
    normalize = functools.lru_cache(1 << 16)(lambda word: " ".join(split(word)))
    words_of = functools.lru_cache(4)(lambda i: dataset.words(contexts[i]))

    def project(
        question: int, window: int, start: int, end: int
    ) -> tuple[str, tuple[int, int]]:
        paragraph = question_set.questions[question].paragraph
        shift = documents.row_splits[paragraph] + windows.starts[window]
        shift -= windows.offsets[window]
        first, last = int(shift + start), int(shift + end)
        span = int(documents.starts[first]), int(documents.ends[last])
        if limits.exact_answers:
            return contexts[paragraph][slice(*span)], span
        ids = documents.ids[first : last + 1].tolist()
        words = words_of(paragraph)[
            documents.words[first] : documents.words[last] + 1
        ]
        answer = join_tokens([tokens[i] for i in ids])
        return final_text(answer, words, list(map(normalize, words))), span

    return project


def join_tokens(tokens: Sequence[str]) -> str:
    """Joins WordPiece tokens to words."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def final_text(
    answer: str, words: Sequence[str], normalized: Sequence[str]
) -> str:
    """Returns the part of the original words that an answer's tokens cover.

    Args:
      answer: the joined tokens.
      words: the original words.
      normalized: each word, split and lower-cased as by the tokenizer.
    """
    original = " ".join(words)
    text = " ".join(filter(None, normalized))
    start = text.find(answer)
    if start < 0 or not answer:
        return original
    letters = [i for i, char in enumerate(original) if char != " "]
    if len(letters) != len(text) - text.count(" "):
        return original
    first = start - text.count(" ", 0, start)
    last = first + len(answer) - answer.count(" ") - 1
    return original[letters[first] : letters[last] + 1]
