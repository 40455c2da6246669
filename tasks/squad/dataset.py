"""Reads SQuAD's JSON, and says in one line what is wrong with it.

    {"version": "1.1", "data": [{"title": ..., "paragraphs": [
        {"context": "...", "qas": [{"id": "...", "question": "...",
            "answers": [{"text": "...", "answer_start": 515}],
            "is_impossible": false}]}]}]}        (the last in 2.0 only)

`train` takes the questions that can be learned from, and names those that
cannot; `predict` takes every question, with as many answers as people gave.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from foundation import errors, file_system

# What separates words, as released: not every space of Unicode does.
WHITESPACE = " \t\r\n\u202f"
_WORD = re.compile(f"[^{WHITESPACE}]+")
_NAMED = 5  # Of what is left out, so many are named.


class Answer(NamedTuple):
    """What a person answered, and where it begins, in characters.

    Files to be scored by need not say where, and then it is None.
    """

    text: str
    start: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """One question about a paragraph.

    Attributes:
      id: names it in files of predictions.
      text: the question.
      paragraph: number of the paragraph among all contexts.
      answers: of people; none where there is no answer, or none is told.
      is_impossible: whether the paragraph does not answer it.
      span: for training, the answer's first character and that after its last.
    """

    id: str
    text: str
    paragraph: int
    answers: Sequence[Answer] = ()
    is_impossible: bool = False
    span: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """N questions about M paragraphs.

    Attributes:
      path: the file, or several joined by commas.
      contexts: M texts.
      questions: N of them, in the order of the file.
      has_impossible: whether the file is of SQuAD 2.0's form.
      left_out: ids of those that cannot be learned from, with the reason.
    """

    path: str
    contexts: Sequence[str]
    questions: Sequence[Question]
    has_impossible: bool = False
    left_out: Sequence[tuple[str, str]] = ()

    def __len__(self) -> int:
        """Returns N."""
        return len(self.questions)

    @property
    def paths(self) -> list[str]:
        """The files, as they are found."""
        return [file_system.find(path) for path in self.path.split(",")]

    @property
    def has_answers(self) -> bool:
        """Whether predictions can be scored."""
        return self.has_impossible or all(q.answers for q in self.questions)


def read(paths: str) -> Questions:
    """Reads one file, or several between commas, as they are.

    Raises:
      InputError: the first thing that is not as it should be.
    """
    named = [path for path in map(str.strip, paths.split(",")) if path]
    if not named:
        raise errors.InputError(f"{paths!r} names no file")
    contexts: list[str] = []
    questions: list[Question] = []
    impossible = False
    seen: dict[str, str] = {}
    for path in map(file_system.find, named):
        values = file_system.read_json(path)
        for where, context, asked in _paragraphs(path, values):
            contexts.append(context)
            for number, given in enumerate(asked, 1):
                place = f"{where}, question {number}"
                question = _question(place, given, len(contexts) - 1)
                impossible |= "is_impossible" in given
                if question.id in seen:
                    raise errors.InputError(
                        f"{place}: id {question.id!r} occurs a second time, "
                        f"first at {seen[question.id]}"
                    )
                seen[question.id] = place
                questions.append(question)
    if not questions:
        raise errors.InputError(f"{paths}: holds no questions")
    return Questions(
        path=",".join(named),
        contexts=contexts,
        questions=questions,
        has_impossible=impossible,
    )


def check_version(
    found: Questions,
    flag: str,
    *,
    with_negative: bool,
    must_say: bool = False,
    is_given: bool = True,
) -> None:
    """Refuses SQuAD 2.0 where 1.1 is meant, and the other way around.

    Args:
      found: as read.
      flag: what named the file.
      with_negative: --version_2_with_negative, or as the model was trained.
      must_say: whether questions must then say if they are impossible, as
        those to learn from must.
      is_given: whether the flag says it, and not what is stored.
    """
    if with_negative and must_say and not found.has_impossible:
        because = "--version_2_with_negative"
        if not is_given:
            because = (
                "the model was trained with --version_2_with_negative, and "
                "=False is not given"
            )
        raise errors.InputError(
            f"{because}: no question of --{flag}={found.path} says "
            "is_impossible, as all of SQuAD 2.0 do"
        )
    first = next((q for q in found.questions if q.is_impossible), None)
    if first is not None and not with_negative:
        raise errors.InputError(
            f"--{flag}={found.path}: question {first.id!r} has no answer, as "
            "in SQuAD 2.0; --version_2_with_negative is needed"
        )


def require_answers(found: Questions, flag: str) -> None:
    """Refuses a file by which runs cannot be compared."""
    if not found.has_answers:
        raise errors.InputError(
            f"--{flag}={found.path}: has no answers to compare runs by"
        )


def for_training(found: Questions, *, name_all: bool = False) -> Questions:
    """Finds the answers in the text, and leaves out those that are not there.

    Args:
      found: as read.
      name_all: whether to name all that are left out, not only some.

    Raises:
      InputError: a question has no answer, yet is not said to be impossible.
    """
    kept, left_out, several = [], [], 0
    for question in found.questions:
        if question.is_impossible:
            kept.append(dataclasses.replace(question, answers=()))
            continue
        if not question.answers:
            raise errors.InputError(
                f"--train_file={found.path}: question {question.id!r} has no "
                "answer"
            )
        several += len(question.answers) > 1
        answer = question.answers[0]
        span = find_answer(found.contexts[question.paragraph], answer)
        if span is None:
            reason = f"{answer.text!r} is not at character {answer.start}"
            if answer.start is None:
                reason = f"{answer.text!r} has no answer_start"
            left_out.append((question.id, reason))
        else:
            kept.append(dataclasses.replace(question, span=span))
    _warn(found.path, several, left_out, name_all)
    if not kept:
        raise errors.InputError(
            f"--train_file={found.path}: no answer is found in the text"
        )
    return dataclasses.replace(found, questions=kept, left_out=left_out)


def _warn(path, several, left_out, name_all) -> None:
    """Says what is not learned, and what only in part."""
    if several:
        logging.warning(
            "%s: %d questions have several answers: the first is learned",
            path,
            several,
        )
    if left_out:
        logging.warning(
            "%s: %d questions are left out, their answers are not in the "
            "text: %s",
            path,
            len(left_out),
            name(left_out, name_all=name_all),
        )


def name(rows: Sequence[tuple[str, str]], *, name_all: bool) -> str:
    """Returns ids and what is said of each, of the first ones or of all."""
    shown = rows if name_all else rows[:_NAMED]
    named = "; ".join(f"{number}: {why}" for number, why in shown)
    return named + ("; ..." if len(rows) > len(shown) else "")


def find_answer(context: str, answer: Answer) -> tuple[int, int] | None:
    """Returns where an answer stands, None if it is not where it should be.

    As released it may also stand elsewhere within the words that it is said
    to touch, and in other spacing.
    """
    if answer.start is None or not answer.text.strip():
        return None
    if not 0 <= answer.start < len(context):
        return None
    end = answer.start + len(answer.text)
    if context[answer.start : end] == answer.text:
        return answer.start, end
    start, end = _whole_words(context, answer.start, min(end, len(context)))
    pattern = r"\s+".join(map(re.escape, answer.text.split()))
    found = re.compile(pattern).search(context, start, end)
    return found.span() if found else None


def words(context: str) -> list[str]:
    """Returns the words that answers are made of."""
    return _WORD.findall(context)


def _whole_words(context: str, start: int, end: int) -> tuple[int, int]:
    while start > 0 and context[start - 1] not in WHITESPACE:
        start -= 1
    while end < len(context) and context[end] not in WHITESPACE:
        end += 1
    return start, end


def _paragraphs(
    path: str, values: Any
) -> Iterator[tuple[str, str, list[dict]]]:
    """Yields where a paragraph is, its text, its questions."""
    for i, article in enumerate(_get(path, values, "data", list), 1):
        place = f"{path}: article {i}"
        for j, paragraph in enumerate(
            _get(place, article, "paragraphs", list), 1
        ):
            where = f"{place}, paragraph {j}"
            yield (
                where,
                _get(where, paragraph, "context", str),
                _get(where, paragraph, "qas", list),
            )


def _question(place: str, given: Any, paragraph: int) -> Question:
    answers = given.get("answers") if isinstance(given, dict) else None
    if answers is None:  # Sets to be predicted have none, or say null.
        answers = []
    if not isinstance(answers, list):
        raise errors.InputError(f"{place}: answers must be a list")
    name = _id(place, given)
    is_impossible = given.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise errors.InputError(
            f"{place} (id {name}): is_impossible must be true or false"
        )
    return Question(
        id=name,
        text=_get(f"{place} (id {name})", given, "question", str),
        paragraph=paragraph,
        answers=[_answer(f"{place} (id {name})", a) for a in answers],
        is_impossible=is_impossible,
    )


def _id(place: str, given: Any) -> str:
    """Returns the id, which some sets have as a number."""
    value = given.get("id") if isinstance(given, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _get(place, given, "id", str)


def _answer(place: str, given: Any) -> Answer:
    text = _get(place, given, "text", str)
    if given.get("answer_start") is None:
        return Answer(text, None)
    return Answer(text, _get(place, given, "answer_start", int))


def _get(place: str, values: Any, name: str, kind: type) -> Any:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind):
        what = {list: "list", str: "text", int: "number"}[kind]
        raise errors.InputError(f"{place}: has no {what} {name!r}")
    if isinstance(value, str):
        _refuse_halves(f"{place}: {name}", value)
    return value


def _refuse_halves(place: str, text: str) -> None:
    """Refuses half of a surrogate pair, which JSON can say and no file hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise errors.InputError(
            f"{place} holds {text[error.start]!r} at character {error.start}, "
            "which is no character"
        ) from None
