r"""TriviaQA's Wikipedia files in SQuAD's form, as the paper trained on them.

    wikipedia-train.json                  questions, aliases, pages' file names
    evidence/wikipedia/Andrew_Lloyd_Webber.txt           a page
        -> one paragraph for each page: its first 400 words, if they contain
           one of the aliases; the first occurrence is the answer

The paper (section 4.2) forms documents of the first 400 tokens and keeps those
with at least one of the provided answers. In the checkout:

    python -m tasks.squad.triviaqa \
        --input_file=triviaqa-rc/qa/wikipedia-train.json \
        --evidence_dir=triviaqa-rc/evidence/wikipedia \
        --output_file=triviaqa-train.json

The paper trains on TriviaQA before SQuAD 1.1:

    python run_squad.py --do_train --train_file=triviaqa-train.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=triviaqa ...
    python run_squad.py --do_train --train_file=train-v1.1.json \
        --init_checkpoint=triviaqa --output_dir=squad ...

One run on both, with all questions shuffled together:

    python run_squad.py --train_file=triviaqa-train.json,train-v1.1.json ...
"""

import dataclasses
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec
from absl import logging

from foundation import (
    atomic,
    config_flags,
    errors,
    file_system,
    metadata,
    progress,
)
from tasks.squad import dataset

_WORD = re.compile(r"\S+")
# Letters that match s and i with re.IGNORECASE, but not after lower().
_ALIKE = str.maketrans("ſıİ", "sii")


# The file's objects.


class _Page(msgspec.Struct):
    Filename: str | None = None


class Aliases(msgspec.Struct):
    """The texts of an answer; the normalized ones lack articles."""

    Value: str = ""
    Aliases: list[str] | None = None
    NormalizedValue: str = ""
    NormalizedAliases: list[str] | None = None


class _Question(msgspec.Struct):
    QuestionId: str
    Question: str
    EntityPages: list[_Page]
    Answer: Aliases


class _File(msgspec.Struct):
    Data: list[_Question]


def convert(
    path: str, evidence_dir: str, *, max_words: int = 400
) -> tuple[dict[str, Any], dict[str, int]]:
    """Converts TriviaQA's questions to SQuAD's JSON.

    A question has an id for each of its pages, as "tc_33--Sunset_Blvd.txt". The
    second result is numbers of questions and pages.

    Args:
      path: the file of questions.
      evidence_dir: the directory of pages, as "evidence/wikipedia".
      max_words: the number of words of a page to use.

    Raises:
      InputError: a file is not TriviaQA's, or there is no page with an answer.
    """
    questions = metadata.read(file_system.find(path), _File).Data
    pages = [
        (number, question, page)
        for number, question in enumerate(questions, 1)
        for page in dict.fromkeys(
            x.Filename or "" for x in question.EntityPages
        )
    ]
    names: dict[str, str] = {}
    if file_system.is_folder(evidence_dir):
        entries = sorted(file_system.entries(evidence_dir))
        names = {_folded(name): name for name in entries}
    paragraphs: dict[str, dict[str, Any]] = {}
    missing, dropped = [], set()
    ids: set[str] = set()
    without = 0
    for number, question, page in progress.bar(
        iterable=pages, desc="converting questions"
    ):
        where = f"{path}: question {number}"
        if os.path.isabs(page) or ".." in page.split("/"):
            raise errors.InputError(
                f"{where}: the page {page!r} is outside of the evidence"
            )
        file = os.path.join(evidence_dir, page)
        if not file_system.is_file(file):
            file = os.path.join(evidence_dir, names.get(_folded(page), ""))
        if not file_system.is_file(file):
            missing.append(f"{where}: {page or 'a page without a name'}")
            continue
        data = file_system.read(file)
        text = data.decode("utf-8", "ignore")
        if lost := len(data) - len(text.encode()):
            dropped.add(f"{page}: {lost} bytes")
        context = first_words(unicodedata.normalize("NFC", text), max_words)
        answer = find_answer(context, question.Answer)
        if answer is None:
            without += 1
            continue
        name = f"{question.QuestionId}--{page}"
        if name in ids:
            raise errors.InputError(f"{where}: {name} occurs twice")
        ids.add(name)
        paragraphs.setdefault(page, {"context": context, "qas": []})
        paragraphs[page]["qas"].append(
            {
                "id": name,
                "question": question.Question,
                "answers": [
                    {"text": answer.text, "answer_start": answer.start}
                ],
            }
        )
    if pages and len(missing) == len(pages):
        raise errors.InputError(
            f"--evidence_dir={evidence_dir}: none of the {len(pages)} pages "
            f"that {path} names exists"
        )
    if not ids:
        raise errors.InputError(
            f"{path}: none of {len(questions)} questions has its answer in the "
            f"beginning of one of their {len(pages)} pages"
        )
    if missing:
        logging.warning("missing pages: %s", errors.listed(missing))
    if dropped:
        logging.warning(
            "%d page(s) have bytes that are not UTF-8, which are dropped: %s",
            len(dropped),
            errors.listed(sorted(dropped)),
        )
    counts = {
        "questions": len(questions),
        "pages": len(pages),
        "missing": len(missing),
        "without_answer": without,
        "kept": len(ids),
    }
    articles = [
        {
            "title": page.removesuffix(".txt").replace("_", " "),
            "paragraphs": [paragraph],
        }
        for page, paragraph in paragraphs.items()
    ]
    return {"version": "TriviaQA", "data": articles}, counts


def _folded(name: str) -> str:
    """Returns a page's name for comparison in any case and Unicode form."""
    return unicodedata.normalize("NFD", name).lower()


def to_json(squad: dict[str, Any]) -> str:
    """Returns the JSON text with one article per line."""
    lines = ",\n".join(json.dumps(article) for article in squad["data"])
    version = json.dumps(squad["version"])
    return f'{{"version": {version}, "data": [\n{lines}\n]}}\n'


def first_words(text: str, count: int) -> str:
    """Returns the text up to the end of its count-th word."""
    end = 0
    for match in itertools.islice(_WORD.finditer(text), count):
        end = match.end()
    return text[:end]


def find_answer(context: str, answer: Aliases) -> dataset.Answer | None:
    """Returns the first occurrence of one of TriviaQA's aliases, if any.

    Normalized aliases lack articles ("who" for "The Who"). They are searched
    only if no original alias is found.
    """
    normalized = [answer.NormalizedValue, *(answer.NormalizedAliases or ())]
    return find_alias(
        context, [answer.Value, *(answer.Aliases or ())]
    ) or find_alias(context, normalized)


def find_alias(context: str, aliases: Sequence[str]) -> dataset.Answer | None:
    """Returns the first alias in a text, the longest of those that begin there.

    The search ignores case, matches complete words, and allows any punctuation
    and white space between two words: "Jay Z" is found in "Jay-Z".
    """
    spans: list[tuple[int, int]] = []
    folded = context.translate(_ALIKE).lower()
    for alias in aliases:
        alias = unicodedata.normalize("NFC", alias).strip()
        # Skips most aliases: compiling a pattern takes a millisecond.
        ascii_words = re.findall(r"[a-z0-9]+", alias.translate(_ALIKE).lower())
        words = re.findall(r"\w+", alias)
        if not words or not all(word in folded for word in ascii_words):
            continue
        begin = alias[: alias.index(words[0])]
        end = alias[alias.rindex(words[-1]) + len(words[-1]) :]
        inner = r"(?:\s+|\W{1,3})".join(words)
        match = re.search(
            rf"(?<!\w){re.escape(begin)}{inner}{re.escape(end)}(?!\w)",
            context,
            re.IGNORECASE,
        )
        if match is not None:
            spans.append(match.span())
    if not spans:
        return None
    # The first one, and of several there the longest.
    first, last = min(spans, key=lambda span: (span[0], -span[1]))
    return dataset.Answer(context[first:last], first)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaqaConfig:
    """The flags of python -m tasks.squad.triviaqa."""

    input_file: str = config_flags.field(
        "TriviaQA's questions, wikipedia-train.json."
    )
    evidence_dir: str = config_flags.field(
        "Directory of the pages, evidence/wikipedia."
    )
    output_file: str = config_flags.field("The file of SQuAD's JSON to write.")
    max_words: int = config_flags.field(
        "The number of words of a page to use.", 400, at_least=1
    )

    def __post_init__(self):
        """Checks the flags."""
        if self.output_file.endswith(file_system.COMPRESSED):
            raise ValueError(
                f"--output_file={self.output_file}: the output cannot be "
                "compressed"
            )


def main(config: TriviaqaConfig) -> None:
    """Converts the questions and prints their numbers."""
    file_system.check_output(config.output_file, "output_file")
    squad, counts = convert(
        config.input_file, config.evidence_dir, max_words=config.max_words
    )
    atomic.write_text(config.output_file, to_json(squad))
    print(
        "{}: {kept} pages with an answer, of {pages} that {questions} "
        "questions name; {missing} do not exist, {without_answer} have no "
        "answer in their first {} words".format(
            config.output_file, config.max_words, **counts
        )
    )


if __name__ == "__main__":
    config_flags.run(TriviaqaConfig, main)
