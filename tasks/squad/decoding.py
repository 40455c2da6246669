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
from typing import NamedTuple

import numpy as np

from data.tokenization import wordpiece
from tasks.squad import windowing
from tasks.squad.dataset import Word
from tasks.squad.settings import AnswerSettings
from tasks.squad.windowing import Document, Window

# AnswerList.null_odds if "no answer" is the only answer; JSON has no infinity.
NO_ANSWER_ODDS = 1e6
NOTHING = "empty"  # The released answer to a 1.1 question without a span.
_NO_TOKEN = -1  # The tokens of "no answer" among spans.
# Returns the text of tokens, from the first to the last, and its characters.
Project = Callable[[Document, int, int], tuple[str, tuple[int, int]]]


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


def answer_lists(
    sequences: Sequence[Sequence[Window]],
    logits: np.ndarray,
    project: Project,
    settings: AnswerSettings,
) -> list[AnswerList]:
    """Returns the best answers to each of some questions.

    Args:
      sequences: the windows of each question; they may be none.
      logits: float32 [2, T]: start and end logits of the tokens of all windows.
      project: returns the text and the characters of tokens of a paragraph.
      settings: the rules for answers.
    """
    firsts = np.cumsum([0, *(len(x.ids) for y in sequences for x in y)])
    nulls = iter(logits[:, firsts[:-1]].T.astype(np.float64).tolist())
    found = []
    for windows, spans in zip(
        sequences, best_spans(sequences, logits, settings), strict=True
    ):
        # Of [CLS] in the window with the lowest sum.
        null = min((next(nulls) for _ in windows), key=sum, default=None)
        found.append(
            _answer_list(
                spans.tolist(),
                null if settings.version_2_with_negative else None,
                lambda *span, x=windows: project(x[0].document, *span),
                settings,
            )
        )
    return found


def best_spans(
    sequences: Sequence[Sequence[Window]],
    logits: np.ndarray,
    settings: AnswerSettings,
) -> list[np.ndarray]:
    """Returns the spans that may be the answer to a question, the best first.

    See `answer_lists` for the arguments.

    Returns:
      For each question, float64 [C, 4]: the first and the last token of the
      paragraph, and their logits.
    """
    rows = [
        (number, x.start, x.length, x.offset, len(x.ids))
        for number, windows in enumerate(sequences)
        for x in windows
    ]
    if not rows:
        return [np.zeros((0, 4)) for _ in sequences]
    questions, begin, length, offset, size = np.array(rows).T[:, :, None]
    is_token = np.arange(size.max()) < size
    padded = np.full((2, *is_token.shape), -np.inf, np.float32)
    padded[:, is_token] = logits
    order = np.argsort(-padded, axis=2, kind="stable")
    order = order[:, :, : settings.n_best_size]
    values = np.take_along_axis(padded, order, axis=2).astype(np.float64)
    # Positions among the tokens of the paragraph that a window has.
    starts, ends = order - offset
    is_start, is_end = (order >= offset) & (order < offset + length)
    best = windowing.max_context(questions[:, 0], begin[:, 0], length[:, 0])
    is_start[is_start] = best[np.nonzero(is_start)[0], starts[is_start]]
    lengths = ends[:, None, :] - starts[:, :, None] + 1
    is_good = is_start[:, :, None] & is_end[:, None, :]
    is_good &= (lengths >= 1) & (lengths <= settings.max_answer_length)
    row, i, j = np.nonzero(is_good)
    spans = np.stack(
        [
            begin[row, 0] + starts[row, i],
            begin[row, 0] + ends[row, j],
            values[0, row, i],
            values[1, row, j],
        ],
        axis=1,
    )
    # A stable sort, as released: spans of equal score stay in the order of
    # their windows, then of their starts' ranks.
    number = questions[row, 0]
    order = np.lexsort((-spans[:, 2] - spans[:, 3], number))
    bounds = np.searchsorted(number, np.arange(1, len(sequences)))
    return np.split(spans[order], bounds)


def _answer_list(
    spans: list[list[float]],
    null: list[float] | None,
    project: Callable[[int, int], tuple[str, tuple[int, int]]],
    settings: AnswerSettings,
) -> AnswerList:
    """Returns the n_best_size best different answers with probabilities.

    In 2.0, adds the answer "" if it is not among them.

    Args:
      spans: the spans of a question; see `best_spans`.
      null: the logits of "no answer"; None if "no answer" is not allowed.
      project: returns the text and the characters of a span.
      settings: the rules for answers.
    """
    if null is not None:
        scores = [-(start + end) for *_, start, end in spans]
        rank = bisect.bisect_right(scores, -sum(null))
        spans.insert(rank, [_NO_TOKEN, _NO_TOKEN, *null])
    answers: dict[str, Answer] = {}
    for first, last, start, end in spans:
        if len(answers) >= settings.n_best_size:
            break
        text, characters = "", None
        if first != _NO_TOKEN:
            text, characters = project(int(first), int(last))
        answers.setdefault(text, Answer(text, 0.0, start, end, characters))
    if settings.version_2_with_negative:
        start, end = null or (0.0, 0.0)
        nothing = Answer("", 0.0, start, end, None)
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


def projector(
    tokenizer: wordpiece.Tokenizer, settings: AnswerSettings
) -> Project:
    """Returns a function that returns the original text of tokens.

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
    split = tokenizer.normalization.words
    normalize = functools.lru_cache(1 << 16)(lambda word: " ".join(split(word)))

    def project(
        document: Document, first: int, last: int
    ) -> tuple[str, tuple[int, int]]:
        if settings.exact_answers:
            span = int(document.starts[first]), int(document.ends[last])
            return document.context[slice(*span)], span
        ids = document.ids[first : last + 1].tolist()
        numbers = document.word_numbers
        words = document.words[numbers[first] : numbers[last] + 1]
        answer = join_tokens([tokens[i] for i in ids])
        return final_answer(answer, words, [normalize(x.text) for x in words])

    return project


def join_tokens(tokens: Sequence[str]) -> str:
    """Joins WordPiece tokens to words."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def final_answer(
    answer: str, words: Sequence[Word], normalized: Sequence[str]
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
    text = " ".join(filter(None, normalized))
    begin = text.find(answer)
    # The letters before each word, and all of them.
    letters = [0, *itertools.accumulate(len(word.text) for word in words)]
    first, after = 0, letters[-1]
    if begin >= 0 and answer and after == len(text) - text.count(" "):
        first = begin - text.count(" ", 0, begin)
        after = first + len(answer) - answer.count(" ")
    i = bisect.bisect_right(letters, first) - 1
    j = bisect.bisect_left(letters, after)
    skipped, cut = first - letters[i], letters[j] - after
    original = " ".join(word.text for word in words[i:j])
    return (
        original[skipped : len(original) - cut],
        (words[i].start + skipped, words[j - 1].end - cut),
    )
