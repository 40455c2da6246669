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
import functools
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from foundation import atomic, config_flags, errors, file_system, progress
from tasks.squad import dataset

_WORD = re.compile(r"\S+")
# Letters that match s and i with re.IGNORECASE, but not after lower().
_ALIKE = str.maketrans("ſıİ", "sii")
_FIELDS = {
    "QuestionId": str,
    "Question": str,
    "EntityPages": list,
    "Answer": dict,
}


class Counts(NamedTuple):
    """Numbers of questions and pages."""

    questions: int
    pages: int
    missing: int
    without_answer: int
    kept: int


def convert(
    path: str, evidence_dir: str, *, max_words: int = 400
) -> tuple[dict[str, Any], Counts]:
    """Converts TriviaQA's questions to SQuAD's JSON.

    A question has an id for each of its pages, as "tc_33--Sunset_Blvd.txt".

    Args:
      path: the file of questions.
      evidence_dir: the directory of pages, as "evidence/wikipedia".
      max_words: the number of words of a page to use.

    Raises:
      InputError: a file is not TriviaQA's, or there is no page with an answer.
    """
    values = file_system.read_json(file_system.find(path))
    questions = _get(path, values, "Data", list)
    evidence = _Evidence(evidence_dir)
    articles: dict[str, dict[str, Any]] = {}
    missing: list[tuple[str, str]] = []
    ids: set[str] = set()
    pages = without = 0
    bar = progress.bar(iterable=questions, desc="converting questions")
    for i, question in enumerate(bar, 1):
        where = f"{path}: question {i}"
        for page in _pages(where, question):
            pages += 1
            text = evidence.read(page) if page else None
            if page is None or text is None:
                missing.append((where, page or "a page without a name"))
                continue
            context = first_words(text, max_words)
            answer = find_answer(context, question["Answer"])
            if answer is None:
                without += 1
                continue
            number = f"{question['QuestionId']}--{page}"
            if number in ids:
                raise errors.InputError(f"{where}: {number} occurs twice")
            ids.add(number)
            title = page.removesuffix(".txt").replace("_", " ")
            paragraph = {"context": context, "qas": []}
            article: dict[str, Any] = {
                "title": title,
                "paragraphs": [paragraph],
            }
            article = articles.setdefault(page, article)
            article["paragraphs"][0]["qas"].append(
                {
                    "id": number,
                    "question": question["Question"],
                    "answers": [
                        {"text": answer.text, "answer_start": answer.start}
                    ],
                }
            )
    if pages and len(missing) == pages:
        raise errors.InputError(
            f"--evidence_dir={evidence_dir}: none of the {pages} pages that "
            f"{path} names exists"
        )
    if not ids:
        raise errors.InputError(
            f"{path}: none of {len(questions)} questions has its answer in the "
            f"beginning of one of their {pages} pages"
        )
    if missing:
        logging.warning(
            "missing pages: %s", dataset.listing(missing, list_all=False)
        )
    if evidence.dropped:
        logging.warning(
            "%d page(s) have bytes that are not UTF-8, which are dropped: %s",
            len(evidence.dropped),
            dataset.listing([*evidence.dropped.items()], list_all=False),
        )
    counts = Counts(len(questions), pages, len(missing), without, len(ids))
    squad = {"version": "TriviaQA", "data": list(articles.values())}
    return squad, counts


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


def find_answer(context: str, answer: dict[str, Any]) -> dataset.Answer | None:
    """Returns the first occurrence of one of TriviaQA's aliases, if any.

    Normalized aliases lack articles ("who" for "The Who"). They are searched
    only if no original alias is found.
    """
    for prefix in ("", "Normalized"):
        texts = [answer.get(f"{prefix}Value")]
        listed = answer.get(f"{prefix}Aliases")
        texts += listed if isinstance(listed, list) else []
        occurrence = find_alias(
            context, [x for x in texts if isinstance(x, str)]
        )
        if occurrence is not None:
            return occurrence
    return None


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


def _pages(where: str, question: Any) -> Iterator[str | None]:
    """Yields the names of a question's pages, each once; None if unnamed."""
    for name, kind in _FIELDS.items():
        _get(where, question, name, kind)
    names = set()
    for page in question["EntityPages"]:
        file = page.get("Filename") if isinstance(page, dict) else None
        if not isinstance(file, str) or not file:
            yield None
            continue
        if os.path.isabs(file) or ".." in file.split("/"):
            raise errors.InputError(
                f"{where}: the page {file!r} is outside of the evidence"
            )
        if file not in names:
            names.add(file)
            yield file


def _get(where: str, values: Any, name: str, kind: type) -> Any:
    """Returns a value of a JSON object after checking its type."""
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind):
        names: dict[Any, str] = {list: "list", str: "text", dict: "object"}
        raise errors.InputError(f"{where}: has no {names[kind]} {name!r}")
    return value


class _Evidence:
    """A directory of pages; names may differ in case and Unicode form."""

    def __init__(self, folder: str):
        self._folder = folder
        self.dropped: dict[str, str] = {}  # Page -> "3 bytes".

    def read(self, page: str) -> str | None:
        """Returns a page's text in NFC, None if there is no such file."""
        path = os.path.join(self._folder, page)
        if not file_system.is_file(path):
            other = self._names.get(_folded(page), page)
            path = os.path.join(self._folder, other)
        if not file_system.is_file(path):
            return None
        data = file_system.read(path)
        text = data.decode("utf-8", "ignore")
        if dropped := len(data) - len(text.encode()):
            self.dropped[page] = f"{dropped} bytes"
        return unicodedata.normalize("NFC", text)

    @functools.cached_property
    def _names(self) -> dict[str, str]:
        if not file_system.is_folder(self._folder):
            return {}
        names = sorted(file_system.entries(self._folder))
        return {_folded(name): name for name in names}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFD", name).lower()


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
        f"{config.output_file}: {counts.kept} pages with an answer, of "
        f"{counts.pages} that {counts.questions} questions name; "
        f"{counts.missing} do not exist, {counts.without_answer} have no "
        f"answer in their first {config.max_words} words"
    )


if __name__ == "__main__":
    config_flags.run(TriviaqaConfig, main)
