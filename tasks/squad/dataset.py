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
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from data import text_files
from foundation import errors, file_system

# The characters that separate words in the released code, which are fewer than
# Unicode's spaces.
WHITESPACE = " \t\r\n\u202f"
_WORD = re.compile(f"[^{WHITESPACE}]+")
_ROW = {"id", "context", "question"}  # Keys of Hugging Face's form.
_MAX_LISTED = 5  # The most questions that a message lists.


class Answer(NamedTuple):
    """An annotator's answer and its first character in the paragraph.

    `start` is None in files for evaluation that do not give it.
    """

    text: str
    start: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question about a paragraph.

    Attributes:
      id: the key in prediction files.
      text: the question.
      paragraph: index into QuestionSet.contexts.
      answers: the annotators' answers; empty if there are none.
      is_impossible: whether the paragraph does not answer the question.
      span: the answer's first character and the one after its last; for
        training only.
    """

    id: str
    text: str
    paragraph: int
    answers: Sequence[Answer] = ()
    is_impossible: bool = False
    span: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionSet:
    """N questions about M paragraphs.

    Attributes:
      path: the file, or several separated by commas.
      contexts: M texts.
      questions: N questions in the order of the file.
      has_impossible: whether the file has SQuAD 2.0's key is_impossible.
    """

    path: str
    contexts: Sequence[str]
    questions: Sequence[Question]
    has_impossible: bool = False

    def __len__(self) -> int:
        """Returns N."""
        return len(self.questions)

    def part(self, questions: Sequence[Question]) -> "QuestionSet":
        """Returns some successive questions with their paragraphs."""
        first, last = questions[0].paragraph, questions[-1].paragraph
        return dataclasses.replace(
            self,
            contexts=self.contexts[first : last + 1],
            questions=[
                dataclasses.replace(q, paragraph=q.paragraph - first)
                for q in questions
            ],
        )

    @property
    def paths(self) -> list[str]:
        """The files that were read, with the ending of a compressed one."""
        return list(map(file_system.find, _names(self.path)))

    @functools.cached_property
    def digests(self) -> list[str]:
        """The SHA-256 of each file."""
        return [file_system.sha256(path) for path in self.paths]

    @property
    def description(self) -> str:
        """The size and the files of the set, for a model card."""
        names = [path.rpartition("/")[2] for path in self.paths]
        files = ", ".join(
            f"{name}, SHA-256 {digest}"
            for name, digest in zip(names, self.digests, strict=True)
        )
        return f"{len(self)} questions of {files}"

    @property
    def has_answers(self) -> bool:
        """Whether predictions can be scored."""
        return self.has_impossible or all(q.answers for q in self.questions)


def _names(paths: str) -> list[str]:
    """Returns names of files; they may lack the ending of compression."""
    endings = ("", *file_system.COMPRESSED)

    def is_there(path: str) -> bool:
        return any(file_system.is_file(path + ending) for ending in endings)

    return file_system.split_names(paths, is_there)


def read(paths: str) -> QuestionSet:
    """Reads one file, or several separated by commas.

    Raises:
      InputError: names the first error and where it is.
    """
    names = _names(paths)
    if not names:
        raise errors.InputError(f"{paths!r} names no file")
    contexts: list[str] = []
    questions: list[Question] = []
    has_impossible = False
    places_of_ids: dict[str, str] = {}
    for path in map(file_system.find, names):
        unanswered: list[int] = []  # Of rows.
        first = len(questions)
        for location, context, rows in _paragraphs(path):
            contexts.append(context)
            for number, row in enumerate(rows, 1):
                where = f"{location}, question {number}"
                question = _question(where, row, len(contexts) - 1)
                has_impossible |= "is_impossible" in row
                if question.id in places_of_ids:
                    raise errors.InputError(
                        f"{where}: id {question.id!r} occurs a second time, "
                        f"first at {places_of_ids[question.id]}"
                    )
                places_of_ids[question.id] = where
                if "context" in row and not question.answers:
                    unanswered.append(len(questions))
                questions.append(question)
        if len(unanswered) < len(questions) - first:
            has_impossible |= bool(unanswered)
            for i in unanswered:
                questions[i] = dataclasses.replace(
                    questions[i], is_impossible=True
                )
    if not questions:
        raise errors.InputError(f"{paths}: contains no questions")
    question_set = QuestionSet(
        path=",".join(names),
        contexts=contexts,
        questions=questions,
        has_impossible=has_impossible,
    )
    _warn_of_contents(question_set)
    return question_set


def _warn_of_contents(question_set: QuestionSet) -> None:
    """Warns of questions that are certainly mistakes."""
    blank = [not text.strip() for text in question_set.contexts]
    for message, is_wrong in (
        ("are empty", lambda q: not q.text.strip()),
        ("are about an empty paragraph", lambda q: blank[q.paragraph]),
        (
            "have answers, but is_impossible is true",
            lambda q: q.is_impossible and q.answers,
        ),
        (
            "have no answers, although is_impossible is not true; they are "
            "scored as questions without an answer",
            lambda q: (
                question_set.has_impossible
                and not (q.is_impossible or _texts(q))
            ),
        ),
    ):
        questions = filter(is_wrong, question_set.questions)
        rows = [(q.id, repr(q.text)) for q in questions]
        warn(question_set, f"%d questions {message}", rows)


def check_version(
    question_set: QuestionSet,
    flag: str,
    *,
    with_negative: bool,
    is_training: bool = False,
    is_given: bool = True,
) -> None:
    """Raises InputError if a file of SQuAD 2.0 is used as 1.1 or vice versa.

    Args:
      question_set: the questions.
      flag: the flag that named the file.
      with_negative: whether questions may have no answer (SQuAD 2.0).
      is_training: whether the set is trained on; a training set of 2.0 must
        have the key is_impossible.
      is_given: whether --version_2_with_negative was given; otherwise the value
        is the one stored with the model.
    """
    path = question_set.path
    if with_negative and is_training and not question_set.has_impossible:
        reason = "--version_2_with_negative"
        if not is_given:
            reason = (
                f"the model was trained with {reason}, and {reason}=False is "
                "not given"
            )
        raise errors.InputError(
            f"{reason}: no question of --{flag}={path} has the key "
            "is_impossible, which all questions of SQuAD 2.0 have"
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
    questions, left_out, num_several = [], [], 0
    for question in question_set.questions:
        if question.is_impossible:
            questions.append(dataclasses.replace(question, answers=()))
            continue
        if not question.answers:
            raise errors.InputError(
                f"--train_file={path}: question {question.id!r} has no answer"
            )
        num_several += len(question.answers) > 1
        answer = question.answers[0]
        span = find_answer(question_set.contexts[question.paragraph], answer)
        if span is not None:
            questions.append(dataclasses.replace(question, span=span))
            continue
        context = question_set.contexts[question.paragraph]
        reason = f"{answer.text!r} {_why_not_found(context, answer)}"
        left_out.append((question.id, reason))
    if num_several:
        logging.warning(
            "%s: %d questions have several answers; the first is trained on",
            path,
            num_several,
        )
    warn(
        question_set,
        "%d questions are left out because their answer is not in the text",
        left_out,
        list_all=list_all,
    )
    if not questions:
        raise errors.InputError(
            f"--train_file={path}: no answer is found in the text"
        )
    return dataclasses.replace(question_set, questions=questions)


def warn(
    question_set: QuestionSet,
    message: str,
    rows: Sequence[tuple[str, str]],
    *,
    list_all: bool = False,
) -> None:
    """Logs a message with rows (id, reason); nothing if there are no rows.

    The message has %d for the number of rows. Without `list_all`, only the
    first rows are listed.
    """
    if rows:
        listed = listing(rows, list_all=list_all)
        logging.warning(
            f"%s: {message}: %s", question_set.path, len(rows), listed
        )


def listing(rows: Sequence[tuple[str, str]], *, list_all: bool) -> str:
    """Returns "id: reason; ..." of all rows or of the first ones."""
    listed = rows if list_all else rows[:_MAX_LISTED]
    text = "; ".join(f"{number}: {reason}" for number, reason in listed)
    return text + ("; ..." if len(rows) > len(listed) else "")


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


def _why_not_found(context: str, answer: Answer) -> str:
    """Returns the reason why an answer is not found, for a message."""
    if answer.start is None:
        return "has no answer_start"
    reason = f"is not at character {answer.start}"
    for unit, codec, size in (
        ("UTF-16 code units", "utf-16-le", 2),
        ("UTF-8 bytes", "utf-8", 1),
    ):
        before = context.encode(codec)[: size * max(0, answer.start)]
        start = len(before.decode(codec, "ignore"))
        is_there = answer.start > 0 and context.startswith(answer.text, start)
        if answer.text.strip() and is_there:
            return f"{reason}: answer_start seems to count {unit}"
    return reason + _other_form(context, answer)


def _other_form(context: str, answer: Answer) -> str:
    """Returns the end of a message if only the Unicode form differs."""
    normal = functools.partial(unicodedata.normalize, "NFC")
    if answer.text in context or normal(answer.text) not in normal(context):
        return ""
    return ": text and answer differ in Unicode normalization"


def warn_of_other_answers(question_set: QuestionSet) -> None:
    """Warns of questions none of whose answers occurs in the paragraph."""
    rows = []
    for question in question_set.questions:
        context = question_set.contexts[question.paragraph]
        answers = question.answers
        if answers and not any(text in context for text in _texts(question)):
            reason = repr(answers[0].text) + _other_form(context, answers[0])
            rows.append((question.id, reason))
    warn(
        question_set,
        "%d questions have no answer that occurs in their paragraph",
        rows,
    )


def _texts(question: Question) -> list[str]:
    """Returns the answers that have a text."""
    return [x.text for x in question.answers if x.text.strip()]


class Word(NamedTuple):
    """A word and its characters [start, end) in the paragraph."""

    text: str
    start: int
    end: int


def words(context: str) -> list[Word]:
    """Returns the words of a paragraph as the released code splits them."""
    return [Word(x[0], *x.span()) for x in _WORD.finditer(context)]


def _articles(path: str) -> Sequence[Any]:
    """Returns the articles of a file, or the rows of Hugging Face's form."""
    if file_system.ending(file_system.uncompressed(path)) == ".jsonl":
        return [row.cells for row in text_files.read_named([path], "jsonl")]
    values = file_system.read_json(path)
    if isinstance(values, list):
        return values
    return get(path, values, "data", list)


def _paragraphs(path: str) -> Iterator[tuple[str, str, list[dict]]]:
    """Yields location, text and questions of each paragraph."""
    for i, article in enumerate(_articles(path), 1):
        if isinstance(article, dict) and _ROW <= article.keys():
            where = f"{path}: row {i}"
            yield where, get(where, article, "context", str), [article]
            continue
        where = f"{path}: article {i}"
        rows = get(where, article, "paragraphs", list)
        for j, paragraph in enumerate(rows, 1):
            location = f"{where}, paragraph {j}"
            yield (
                location,
                get(location, paragraph, "context", str),
                get(location, paragraph, "qas", list),
            )


def _question(where: str, row: Any, paragraph: int) -> Question:
    number = row.get("id") if isinstance(row, dict) else None
    if isinstance(number, int) and not isinstance(number, bool):
        number = str(number)  # Some sets number their questions.
    else:
        number = get(where, row, "id", str)
    where = f"{where} (id {number})"
    is_impossible = row.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise errors.InputError(f"{where}: is_impossible must be true or false")
    answers = []
    # Sets to predict may lack the answers or have null.
    if row.get("answers") is not None:
        if isinstance(row["answers"], dict):
            row = row | {"answers": _listed(where, row["answers"])}
        for answer in get(where, row, "answers", list):
            text, start = get(where, answer, "text", str), None
            if answer.get("answer_start") is not None:
                start = get(where, answer, "answer_start", int)
            answers.append(Answer(text, start))
    return Question(
        id=number,
        text=get(where, row, "question", str),
        paragraph=paragraph,
        answers=answers,
        is_impossible=is_impossible,
    )


def _listed(where: str, columns: dict) -> list[dict]:
    """Returns the answers of Hugging Face's form, which has lists of each."""
    texts = get(where, columns, "text", list)
    starts = columns.get("answer_start")
    starts = [None] * len(texts) if starts is None else starts
    if not isinstance(starts, list) or len(starts) != len(texts):
        raise errors.InputError(
            f"{where}: {len(texts)} text(s) of answers, but answer_start is "
            f"{starts!r:.40}"
        )
    return [
        {"text": text, "answer_start": start}
        for text, start in zip(texts, starts, strict=True)
    ]


def get(where: str, values: Any, name: str, kind: type) -> Any:
    """Returns a value of a JSON object after checking its type."""
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {list: "list", str: "text", int: "number", dict: "object"}
        raise errors.InputError(f"{where}: has no {names[kind]} {name!r}")
    if isinstance(value, str):
        # JSON can have half of a surrogate pair, which UTF-8 cannot encode.
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise errors.InputError(
                f"{where}: {name} contains {value[error.start]!r} at character "
                f"{error.start}, which is not a valid character"
            ) from None
    return value
