"""Reads SQuAD's JSON files.

    {"version": "1.1", "data": [{"title": ..., "paragraphs": [
        {"context": "...", "qas": [{"id": "...", "question": "...",
            "answers": [{"text": "...", "answer_start": 515}],
            "is_impossible": false}]}]}]}      (the last key in 2.0 only)

Hugging Face's datasets have a row for each question, in "data", in a list or in
JSON lines:

    {"id": "...", "context": "...", "question": "...",
     "answers": {"text": ["..."], "answer_start": [515]}}

Where other rows of the file have answers, one without is a question that its
paragraph does not answer.

`read` returns all questions with the answers of all annotators. `for_training`
returns the questions whose answer is found in the paragraph.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from absl import logging

from data import text_files
from finetuning import task as tasks
from foundation import errors, file_system, metadata

# The characters that separate words in the released code, which are fewer than
# Unicode's spaces.
WHITESPACE = " \t\r\n\u202f"
_WORD = re.compile(f"[^{WHITESPACE}]+")
_MAX_LISTED = 5  # The most questions that a message lists.


class Answer(NamedTuple):
    """An annotator's answer and its first character in the paragraph.

    `start` is None in files for evaluation that do not give it.
    """

    text: str
    start: int | None


class Question(NamedTuple):
    """A question about a paragraph.

    Attributes:
      where: the file and the question, for messages.
      id: the key in prediction files.
      text: the question.
      context: the paragraph.
      answers: the annotators' answers; empty if there are none.
      is_impossible: whether the paragraph does not answer the question; None
        of SQuAD 1.1, whose files do not say it.
      span: the answer's first character and the one after its last; for
        training only.
    """

    where: str
    id: str
    text: str
    context: str
    answers: Sequence[Answer] = ()
    is_impossible: bool | None = None
    span: tuple[int, int] | None = None

    @property
    def label(self) -> str | None:
        """What a set is counted by; None if the file does not say it."""
        if self.answers:
            return "answer"
        return "no answer" if self.is_impossible else None


@dataclasses.dataclass(frozen=True)
class QuestionSet(tasks.Examples):
    """N questions in the order of the file.

    Attributes:
      path: the file, or several separated by commas.
      questions: N questions.
    """

    questions: Sequence[Question] = ()

    @classmethod
    def of(cls, path: str, questions: Sequence[Question]) -> "QuestionSet":
        """Returns the set of some questions."""
        return cls(path, questions.__iter__, questions=questions)

    def __len__(self) -> int:
        """Returns N."""
        return len(self.questions)

    @functools.cached_property
    def has_impossible(self) -> bool:
        """Whether the file has SQuAD 2.0's key is_impossible."""
        return any(q.is_impossible is not None for q in self.questions)

    @property
    def has_answers(self) -> bool:
        """Whether predictions can be scored."""
        return self.has_impossible or all(q.answers for q in self.questions)

    @property
    def has_both_kinds(self) -> bool:
        """Whether there are questions with an answer and without one."""
        kinds = {bool(question.answers) for question in self.questions}
        return self.has_impossible and len(kinds) == 2


# The files' objects.


class _Text(msgspec.Struct):
    text: metadata.Text
    answer_start: int | float | None = None


class _Columns(msgspec.Struct):
    text: list[metadata.Text]
    answer_start: list[int | float | None] | None = None


class _Row(msgspec.Struct):
    id: metadata.Text | int  # Some sets number their questions.
    question: metadata.Text
    # Sets to predict may lack the answers or have null.
    answers: list[_Text] | _Columns | None = None
    is_impossible: bool | None = None


class _RowWithContext(_Row, kw_only=True):
    context: metadata.Text


class _Paragraph(msgspec.Struct):
    context: metadata.Text
    qas: list[_Row]


class _Article(msgspec.Struct):
    paragraphs: list[_Paragraph]


def read(paths: str) -> QuestionSet:
    """Reads one file, or several separated by commas.

    Raises:
      InputError: names the first error and where it is.
    """
    names = file_system.split_names(paths)
    if not names:
        raise errors.InputError(f"{paths!r} names no file")
    questions: dict[str, Question] = {}
    for question in itertools.chain.from_iterable(
        map(_read, map(file_system.find, names))
    ):
        if question.id in questions:
            raise errors.InputError(
                f"{question.where}: the id occurs a second time, first in "
                f"{questions[question.id].where}"
            )
        questions[question.id] = question
    if not questions:
        raise errors.InputError(f"{paths}: contains no questions")
    return QuestionSet.of(",".join(names), list(questions.values()))


def _read(path: str) -> list[Question]:
    """Returns the questions of a file."""
    found: list[Question] = []
    unanswered = []  # Of Hugging Face's rows.
    for number, row in enumerate(text_files.read_named([path], "jsonl"), 1):
        where = f"{path}: object {number} of its data"
        pairs: list[tuple[str, _Row]]
        if is_row := "context" in row.cells:
            one = metadata.convert(row.cells, _RowWithContext, where)
            pairs = [(one.context, one)]
        else:
            article = metadata.convert(row.cells, _Article, where)
            pairs = [(x.context, y) for x in article.paragraphs for y in x.qas]
        for context, qa in pairs:
            answers = _answers(where, qa.answers)
            if is_row and not answers:
                unanswered.append(len(found))
            name = str(qa.id)
            where_asked = f"{path}: question {name!r}"
            parts = name, qa.question, context, answers, qa.is_impossible
            found.append(Question(where_asked, *parts))
    if len(unanswered) < len(found):
        for i in unanswered:
            found[i] = found[i]._replace(is_impossible=True)
    return found


def _answers(
    where: str, found: list[_Text] | _Columns | None
) -> Sequence[Answer]:
    if isinstance(found, _Columns):
        starts = found.answer_start or [None] * len(found.text)
        if len(starts) != len(found.text):
            raise errors.InputError(
                f"{where}: {len(found.text)} text(s) of answers, but "
                f"{len(starts)} of answer_start"
            )
        found = [*map(_Text, found.text, starts)]
    return [
        Answer(x.text, None if x.answer_start is None else int(x.answer_start))
        for x in found or ()
    ]


def check_version(
    question_set: QuestionSet,
    flag: str,
    *,
    with_negative: bool,
    is_training: bool = False,
) -> None:
    """Raises InputError if a file of SQuAD 2.0 is used as 1.1 or vice versa.

    Args:
      question_set: the questions.
      flag: the flag that named the file.
      with_negative: whether questions may have no answer (SQuAD 2.0).
      is_training: whether the set is trained on; a training set of 2.0 must
        have the key is_impossible.
    """
    path = question_set.path
    if with_negative and is_training and not question_set.has_impossible:
        raise errors.InputError(
            f"--version_2_with_negative: no question of --{flag}={path} has "
            "the key is_impossible, which all questions of SQuAD 2.0 have"
        )
    impossible = [q.id for q in question_set.questions if q.is_impossible]
    if impossible and not with_negative:
        raise errors.InputError(
            f"--{flag}={path}: question {impossible[0]!r} has no answer, as in "
            "SQuAD 2.0; --version_2_with_negative is needed"
        )


def for_training(
    question_set: QuestionSet, *, list_all: bool = False
) -> QuestionSet:
    """Finds the answers in the paragraphs; leaves out questions without one.

    Logs the questions that are left out: all of them, or the first ones.

    Raises:
      InputError: a question has no answer but is not marked as impossible, or
        no answer is found.
    """
    path = question_set.path
    questions, left_out = [], []
    for question in question_set:
        if question.is_impossible:
            questions.append(question._replace(answers=()))
            continue
        if not question.answers:
            raise errors.InputError(f"{question.where} has no answer")
        answer = question.answers[0]
        span = find_answer(question.context, answer)
        if span is not None:
            questions.append(question._replace(span=span))
            continue
        reason = f"{answer.text!r} has no answer_start"
        if answer.start is not None:
            end = answer.start + len(answer.text)
            there = question.context[max(answer.start, 0) : end]
            reason = (
                f"{answer.text!r} is not at character {answer.start}, where "
                f"there is {there!r}"
            )
        left_out.append(f"{question.id}: {reason}")
    if num_several := sum(len(q.answers) > 1 for q in question_set):
        logging.warning(
            "%s: %d questions have several answers; the first is trained on",
            path,
            num_several,
        )
    if left_out:
        listed = left_out if list_all else left_out[:_MAX_LISTED]
        logging.warning(
            "%s: %d questions are left out because their answer is not in the "
            "text: %s%s",
            path,
            len(left_out),
            "; ".join(listed),
            "; ..." if len(left_out) > len(listed) else "",
        )
    if not questions:
        raise errors.InputError(
            f"--train_file={path}: no answer is found in the text"
        )
    return QuestionSet.of(path, questions)


def find_answer(context: str, answer: Answer) -> tuple[int, int] | None:
    """Returns the characters [start, end) of an answer; None if not found.

    As in the released code, the answer may also begin elsewhere within the
    words that its characters touch, and its white space may differ.
    """
    if answer.start is None or not answer.text.strip():
        return None
    if not 0 <= answer.start < len(context):
        return None
    start, end = answer.start, answer.start + len(answer.text)
    if context[start:end] == answer.text:
        return start, end
    end = min(end, len(context))
    while start > 0 and context[start - 1] not in WHITESPACE:
        start -= 1
    while end < len(context) and context[end] not in WHITESPACE:
        end += 1
    pattern = r"\s+".join(map(re.escape, answer.text.split()))
    match = re.compile(pattern).search(context, start, end)
    return match.span() if match else None


class Word(NamedTuple):
    """A word and its characters [start, end) in the paragraph."""

    text: str
    start: int
    end: int


def words(context: str) -> list[Word]:
    """Returns the words of a paragraph as the released code splits them."""
    return [Word(x[0], *x.span()) for x in _WORD.finditer(context)]
