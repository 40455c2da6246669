"""TriviaQA's Wikipedia files in SQuAD's form, as the paper trained on them.

    wikipedia-train.json                  questions, aliases, pages' file names
    evidence/wikipedia/Andrew_Lloyd_Webber.txt           a page
        -> one paragraph for each page: its first 400 words, if one of the
           aliases stands there; the first that does is the answer

The paper (section 4.2) forms documents of the first 400 tokens and keeps those
with at least one of the provided answers.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import errors
from data import input_files, squad

_SPACE = re.compile(r"\S+")
_FIELDS = {
    "QuestionId": str,
    "Question": str,
    "EntityPages": list,
    "Answer": dict,
}
_KINDS = {str: "text", list: "list", dict: "object"}


class Counts(NamedTuple):
    """What became of the questions' pages."""

    questions: int
    pages: int
    missing: int
    without_answer: int
    kept: int


def convert(
    path: str, evidence_dir: str, *, max_words: int = 400
) -> tuple[dict[str, Any], Counts]:
    """Returns SQuAD's JSON, and what became of the pages.

    Every question has an id for each of its pages, "tc_33--Sunset_Blvd.txt".

    Args:
      path: a file of questions.
      evidence_dir: where pages lie, as in "evidence/wikipedia".
      max_words: of a page, from its beginning.

    Raises:
      InputError: a file is not TriviaQA's, or no page with an answer is there.
    """
    values = input_files.read_json(input_files.find(path))
    questions = values.get("Data") if isinstance(values, dict) else None
    if not isinstance(questions, list):
        raise errors.InputError(f"{path}: has no list 'Data', as TriviaQA has")
    articles: dict[str, dict[str, Any]] = {}
    pages = missing = without = kept = 0
    for number, question in enumerate(questions, 1):
        where = f"{path}: question {number}"
        for page in _pages(where, question):
            pages += 1
            text = _read(os.path.join(evidence_dir, page))
            if text is None:
                missing += 1
                continue
            context = first_words(text, max_words)
            answer = find_alias(context, _aliases(question))
            if answer is None:
                without += 1
                continue
            kept += 1
            qa = {
                "id": f"{question['QuestionId']}--{page}",
                "question": question["Question"],
                "answers": [
                    {"text": answer.text, "answer_start": answer.start}
                ],
            }
            made = articles.setdefault(page, _article(page, context))
            made["paragraphs"][0]["qas"].append(qa)
    counts = Counts(len(questions), pages, missing, without, kept)
    _check(path, evidence_dir, counts)
    return {"version": "TriviaQA", "data": list(articles.values())}, counts


def to_json(made: dict[str, Any]) -> str:
    """Returns a text with one article a line, that people can look into."""
    lines = ",\n".join(json.dumps(article) for article in made["data"])
    return (
        f'{{"version": {json.dumps(made["version"])}, "data": [\n{lines}\n]}}\n'
    )


def first_words(text: str, count: int) -> str:
    """Returns the text up to the end of its count-th word."""
    end = 0
    for number, match in enumerate(_SPACE.finditer(text), 1):
        end = match.end()
        if number == count:
            break
    return text[:end]


def find_alias(context: str, aliases: Sequence[str]) -> squad.Answer | None:
    """Returns the first alias in a text, of those at one place the longest.

    Case does not count, and words must be whole.
    """
    best: tuple[int, int] | None = None
    for alias in aliases:
        words = alias.split()
        if not words:
            continue
        pattern = r"\s+".join(map(re.escape, words))
        pattern = rf"(?<!\w){pattern}(?!\w)"
        match = re.search(pattern, context, re.IGNORECASE)
        if match is not None:
            place = (match.start(), -match.end())
            best = place if best is None else min(best, place)
    if best is None:
        return None
    return squad.Answer(context[best[0] : -best[1]], best[0])


def _article(page: str, context: str) -> dict[str, Any]:
    title = page.removesuffix(".txt").replace("_", " ")
    return {"title": title, "paragraphs": [{"context": context, "qas": []}]}


def _pages(where: str, question: Any) -> Iterator[str]:
    """Yields the names of a question's pages, each once."""
    for name, kind in _FIELDS.items():
        value = question.get(name) if isinstance(question, dict) else None
        if not isinstance(value, kind):
            raise errors.InputError(
                f"{where}: has no {_KINDS[kind]} {name!r}, as TriviaQA's"
            )
    seen = set()
    for page in question["EntityPages"]:
        file = page.get("Filename") if isinstance(page, dict) else None
        if not isinstance(file, str) or not file:
            raise errors.InputError(
                f"{where}: an entity page has no 'Filename'"
            )
        if os.path.isabs(file) or ".." in file.split("/"):
            raise errors.InputError(
                f"{where}: the page {file!r} is outside of the evidence"
            )
        if file not in seen:
            seen.add(file)
            yield file


def _aliases(question: dict[str, Any]) -> list[str]:
    answer = question["Answer"]
    texts = [answer.get("Value"), answer.get("NormalizedValue")]
    for name in ("Aliases", "NormalizedAliases"):
        found = answer.get(name)
        texts += found if isinstance(found, list) else []
    return [text for text in texts if isinstance(text, str)]


def _read(path: str) -> str | None:
    """Returns a page's text, None if there is no such file."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8", "ignore")


def _check(path: str, evidence_dir: str, counts: Counts) -> None:
    """Refuses a result that nothing can be learned from."""
    if counts.pages and counts.missing == counts.pages:
        raise errors.InputError(
            f"--evidence_dir={evidence_dir}: none of the {counts.pages} pages "
            f"that {path} names is there"
        )
    if not counts.kept:
        raise errors.InputError(
            f"{path}: none of {counts.questions} questions has its answer in "
            f"the beginning of one of their {counts.pages} pages"
        )
