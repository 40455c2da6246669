"""Turns logits into one list of answers per question, as released.

    logits of each window
        -> spans: the 20 best starts x the 20 best ends of each window, without
           those that are outside of the paragraph, start at a token with more
           context in another window, end before they start or are too long
        -> the 20 best different texts of a question's spans, and their
           probabilities

The score of a span is the sum of its start logit and its end logit. In SQuAD
2.0 the score of "no answer" is the sum of both logits of [CLS], the lowest of
all windows of the question.

Differences from google-research/bert: padding is never among the best 20 starts
or ends, so that answers do not depend on the batches. A question without any
span, which crashes the released program, gets "no answer" with NO_ANSWER_ODDS.
"""

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import sequences as sequences_lib
from data.tokenization import normalization, wordpiece
from tasks.squad import dataset, windowing
from tasks.squad.settings import AnswerSettings
from tasks.squad.windowing import Window

# AnswerList.null_odds if "no answer" is the only answer; JSON has no infinity.
NO_ANSWER_ODDS = 1e6
NOTHING = "empty"  # The released answer to a 1.1 question without a span.
_CHUNK = 128  # Number of questions that are decoded together.
_NO_WINDOW = -1  # The window of "no answer" among spans.


class SpanLogits(NamedTuple):
    """Logits of all tokens of all windows: float32 [T] each."""

    start: np.ndarray
    end: np.ndarray


class Answer(NamedTuple):
    """One of the answers to a question.

    Attributes:
      text: the text in the paragraph; "" means no answer.
      probability: softmax over the list.
      start_logit: start logit of the answer's first token.
      end_logit: end logit of the answer's last token.
      span: its characters in the paragraph: the first, and the one after the
        last; None if there is no answer. They are the text up to white space.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None


class AnswerList(NamedTuple):
    """The best answers to one question.

    Attributes:
      entries: the best first; in 2.0 the text of one of them is "".
      null_odds: score of "no answer" minus the score of the best text.
    """

    entries: Sequence[Answer]
    null_odds: float

    @property
    def best(self) -> str:
        """The best text that is not ""; "" if there is none."""
        return next((e.text for e in self.entries if e.text), "")

    @property
    def candidates(self) -> list[Answer]:
        """The entries that may be predicted: the best text and no answer."""
        first = {bool(entry.text): entry for entry in reversed(self.entries)}
        return [entry for entry in self.entries if entry in first.values()]

    def text(self, threshold: float | None) -> str:
        """Returns the text to predict, "" for no answer.

        Args:
          threshold: null odds above which there is no answer; None in 1.1.
        """
        if threshold is None:
            return self.entries[0].text
        return "" if self.null_odds > threshold else self.best


class Windows(NamedTuple):
    """W windows of N questions, in the order of the questions.

    Attributes:
      questions: int64 [W]; index of the window's question.
      starts: int64 [W]; first token in the paragraph.
      lengths: int64 [W]; number of the paragraph's tokens.
      offsets: int64 [W]; position of the first of them in the window.
      row_splits: int64 [W + 1]; where the tokens of each window begin, and T.
    """

    questions: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    row_splits: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[Window]]) -> "Windows":
        """Takes the windows of each question."""
        rows = [
            (number, x.start, x.length, x.offset, len(x.ids))
            for number, windows in enumerate(sequences)
            for x in windows
        ]
        questions, starts, lengths, offsets, sizes = (
            np.array(rows, np.int64).reshape(-1, 5).T
        )
        splits = np.concatenate([[0], np.cumsum(sizes)])
        return cls(questions, starts, lengths, offsets, splits)


class Spans(NamedTuple):
    """C spans in the order of their questions, the best of a question first.

    `starts` and `ends` are the positions of the first and the last token in the
    window. Indices are int64 [C], logits float64 [C].
    """

    questions: np.ndarray
    windows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray


# (window, start, end) -> text and characters of the span.
_Project = Callable[[int, int, int], tuple[str, tuple[int, int]]]


def decode(
    contexts: Sequence[str],
    sequences: Sequence[Sequence[Window]],
    logits: SpanLogits,
    *,
    tokenizer: wordpiece.Tokenizer,
    settings: AnswerSettings,
) -> list[AnswerList]:
    """Returns the best answers to each of N questions.

    Args:
      contexts: the paragraphs of N questions.
      sequences: the windows of each question.
      logits: the logits of all windows.
      tokenizer: tokenizer of the model.
      settings: the rules for answers.
    """
    windows, count = Windows.of(sequences), len(contexts)
    nulls = _null_logits(count, windows, logits)
    is_start = _may_start(windows)
    project = _projector(contexts, sequences, tokenizer, settings)
    result: list[AnswerList] = []
    for first in range(0, count, _CHUNK):
        numbers = np.arange(first, min(first + _CHUNK, count) + 1)
        rows = np.searchsorted(windows.questions, numbers[[0, -1]])
        spans = best_spans(windows, logits, is_start, slice(*rows), settings)
        bounds = np.searchsorted(spans.questions, numbers)
        for null, bound in zip(
            nulls[first:], itertools.pairwise(bounds), strict=False
        ):
            columns = [column[slice(*bound)].tolist() for column in spans[1:]]
            may_be_null = settings.version_2_with_negative and np.isfinite(
                null[0]
            )
            result.append(
                _answer_list(
                    list(zip(*columns, strict=True)),
                    tuple(null.tolist()) if may_be_null else None,
                    project,
                    settings,
                )
            )
    return result


def _may_start(windows: Windows) -> np.ndarray:
    """Returns bool [T]: whether an answer may start at a token.

    An answer may start at a token of the paragraph, in the window where this
    token has most context.
    """
    splits = windows.row_splits
    result = np.zeros(splits[-1], bool)
    positions = sequences_lib.ranges(
        splits[:-1] + windows.offsets, windows.lengths
    )
    result[positions] = windowing.max_context(
        windows.questions, windows.starts, windows.lengths
    )
    return result


def best_spans(
    windows: Windows,
    logits: SpanLogits,
    is_start: np.ndarray,
    rows: slice,
    settings: AnswerSettings,
) -> Spans:
    """Returns the spans that may be answers.

    Args:
      windows: the windows of all questions.
      logits: the logits of the windows.
      is_start: see `_may_start`.
      rows: the windows to decode; all windows of some questions.
      settings: the rules for answers.
    """
    if rows.start == rows.stop:
        return Spans(*np.zeros((4, 0), np.int64), *np.zeros((2, 0)))
    numbers = np.arange(rows.start, rows.stop)
    splits = windows.row_splits
    begin = splits[numbers][:, None]
    positions = begin + np.arange(int(np.diff(splits)[rows].max()))
    is_token = positions < splits[numbers + 1][:, None]
    positions[~is_token] = 0
    first = windows.offsets[rows][:, None]
    after = first + windows.lengths[rows][:, None]

    def best(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.where(is_token, values[positions], -np.inf)
        order = np.argsort(-values, axis=1, kind="stable")
        order = order[:, : settings.n_best_size]
        logits = np.take_along_axis(values, order, axis=1)
        return order, logits.astype(np.float64)

    starts, start_logits = best(logits.start)
    ends, end_logits = best(logits.end)
    is_good_start = is_start[np.minimum(begin + starts, len(is_start) - 1)]
    is_good_start &= (starts >= first) & (starts < after)
    is_good_end = (ends >= first) & (ends < after)
    lengths = ends[:, None, :] - starts[:, :, None] + 1
    is_good = is_good_start[:, :, None] & is_good_end[:, None, :]
    is_good &= (lengths >= 1) & (lengths <= settings.max_answer_length)
    row, i, j = np.nonzero(is_good)
    spans = Spans(
        windows.questions[numbers[row]],
        numbers[row],
        starts[row, i],
        ends[row, j],
        start_logits[row, i],
        end_logits[row, j],
    )
    # A stable sort, as released: spans of equal score stay in the order of
    # their windows, then of their starts' ranks.
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
    first = windows.row_splits[:-1]
    pairs = np.stack([x[first] for x in logits], axis=1).astype(np.float64)
    order = np.lexsort((pairs.sum(axis=1), windows.questions))
    questions, rows = np.unique(windows.questions[order], return_index=True)
    result = np.full((count, 2), math.inf)
    result[questions] = pairs[order[rows]]
    return result


def _answer_list(
    spans: list[tuple[int, int, int, float, float]],
    null: tuple[float, float] | None,
    project: _Project,
    settings: AnswerSettings,
) -> AnswerList:
    """Returns the n_best_size best different texts with probabilities.

    In 2.0, adds the answer "" if it is not among them.

    Args:
      spans: rows of Spans without the question, the best first.
      null: the logits of "no answer"; None if "no answer" is not allowed.
      project: function that returns the text and the characters of a span.
      settings: the rules for answers.
    """
    if null is not None:
        scores = [-(start + end) for *_, start, end in spans]
        rank = bisect.bisect_right(scores, -(null[0] + null[1]))
        spans.insert(rank, (_NO_WINDOW, 0, 0, *null))
    answers: dict[str, Answer] = {}
    for window, start, end, start_logit, end_logit in spans:
        if len(answers) >= settings.n_best_size:
            break
        text, characters = "", None
        if window != _NO_WINDOW:
            text, characters = project(window, start, end)
        answer = Answer(text, 0.0, start_logit, end_logit, characters)
        answers.setdefault(text, answer)
    if settings.version_2_with_negative:
        nothing = Answer("", 0.0, *(null or (0.0, 0.0)), None)
        answers.setdefault("", nothing)
    if not answers:
        answers[NOTHING] = Answer(NOTHING, 0.0, 0.0, 0.0, None)
    scores = [row.start_logit + row.end_logit for row in answers.values()]
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    # Not sum(), which rounds differently since Python 3.12.
    total = functools.reduce(operator.add, exponentials, 0.0)
    entries = [
        row._replace(probability=exponential / total)
        for row, exponential in zip(answers.values(), exponentials, strict=True)
    ]
    best = next((row for row in entries if row.text), None)
    odds = NO_ANSWER_ODDS
    if best is not None and null is not None:
        odds = null[0] + null[1] - best.start_logit - best.end_logit
    return AnswerList(entries, odds)


def _projector(
    contexts: Sequence[str],
    sequences: Sequence[Sequence[Window]],
    tokenizer: wordpiece.Tokenizer,
    settings: AnswerSettings,
) -> _Project:
    """Returns a function that returns the original text of a span.

        tokens                                   steve smith
        their words                              Steve Smith's,
        the words, split and lower-cased         steve smith ' s ,
            -> "steve smith" is found in the latter; its letters are counted in
               the original words -> "Steve Smith"

    If that fails, e.g. for [UNK] or a stripped accent, the answer is the
    complete words, as in google-research/bert and in the paper's scores. In
    languages without spaces, such as Chinese, these may be complete sentences:
    settings.exact_answers returns the characters of the tokens instead.
    """
    tokens = tokenizer.vocabulary.tokens
    normalize = _word_normalizer(**tokenizer.settings)
    words_of = functools.lru_cache(4)(dataset.words)
    windows = [
        (context, window)
        for context, found in zip(contexts, sequences, strict=True)
        for window in found
    ]

    def project(
        number: int, start: int, end: int
    ) -> tuple[str, tuple[int, int]]:
        context, window = windows[number]
        document = window.document
        first, last = start + window.shift, end + window.shift
        span = int(document.starts[first]), int(document.ends[last])
        if settings.exact_answers:
            return context[slice(*span)], span
        ids = document.ids[first : last + 1].tolist()
        numbers = slice(document.words[first], document.words[last] + 1)
        words = words_of(context)[numbers]
        answer = join_tokens([tokens[i] for i in ids])
        normalized = [normalize(word.text) for word in words]
        return final_answer(answer, words, normalized)

    return project


@functools.cache
def _word_normalizer(**settings: Any) -> Callable[[str], str]:
    """Returns a function that splits and lower-cases a word.

    It is made once, because its table of all code points takes 28 ms.
    """
    split = normalization.Normalization(**settings).words
    return functools.lru_cache(1 << 16)(lambda word: " ".join(split(word)))


def join_tokens(tokens: Sequence[str]) -> str:
    """Joins WordPiece tokens to words."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def final_answer(
    answer: str, words: Sequence[dataset.Word], normalized: Sequence[str]
) -> tuple[str, tuple[int, int]]:
    """Returns the part of the words that an answer's tokens cover.

    It is all words, joined by spaces, if the answer is not found in them.

    Args:
      answer: the tokens, joined to words.
      words: the words of the paragraph.
      normalized: each word, split and lower-cased as by the tokenizer.

    Returns:
      The text, and its characters in the paragraph.
    """
    original = " ".join(word.text for word in words)
    text = " ".join(filter(None, normalized))
    begin = text.find(answer)
    letters = [i for i, char in enumerate(original) if char != " "]
    is_alike = len(letters) == len(text) - text.count(" ")
    first, last = 0, len(letters) - 1
    if begin >= 0 and answer and is_alike:
        first = begin - text.count(" ", 0, begin)
        last = first + len(answer) - answer.count(" ") - 1
    # Words contain no space, so that their characters are the letters.
    places = [i for word in words for i in range(word.start, word.end)]
    return (
        original[letters[first] : letters[last] + 1],
        (places[first], places[last] + 1),
    )
