"""Raw text as words that can be tagged, and where each stands in its line.

    "Jim Henson (U.S.) died." -> Jim | Henson | ( | U.S. | ) | died | .

Words are split as in CoNLL-2003: marks at either end are words of their own,
but for the period of an abbreviation, as are 's, 're, n't and their like behind
a word. A combining mark belongs to what it stands upon, a Chinese character is
a word, and dashes, brackets and quotation marks divide words without a space.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import corpus
from data.tokenization import normalization
from foundation import errors, file_system
from tasks.ner import conll

_ABBREVIATION = re.compile(r"(?:\w\.)+|(?:Mr|Mrs|Ms|Dr|St|Prof|Inc|Co|Corp)\.")
_CLITIC = re.compile("(?:n['\u2019]t|['\u2019](?:s|d|m|re|ve|ll))$", re.I)
_CHINESE = "".join(f"{chr(a)}-{chr(b)}" for a, b in normalization.CJK_BLOCKS)
# Marks that join no words, wherever they stand; of commas those of numbers do.
_BREAKS = (
    '"()\\[\\]{};\u2014\u2026\u201c\u201d\u201e\u00ab\u00bb'
    "\u3001\u3002\uff0c\uff01\uff1f\uff1b\uff1a\uff08\uff09"
    "\u300a\u300b\u300c\u300d\u300e\u300f"
)
_LETTER = rf"[^\W{_CHINESE}]"
_JOINT = rf"(?:[^\w\s{_BREAKS},]|(?<=\d),(?=\d))*"
_PARTS = re.compile(
    rf"[{_CHINESE}]|{_LETTER}(?:{_JOINT}{_LETTER})*|[^\w\s]", re.DOTALL
)


class Text(NamedTuple):
    """Lines of text as sentences of words.

    sentences: of all lines; every line is a document.
    texts: the lines.
    numbers: int64 [W], in which of them each word stands.
    starts: int64 [W], its first character.
    ends: int64 [W], the character after its last.
    """

    sentences: conll.Sentences
    texts: Sequence[str]
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def read_lines(path: str) -> list[str]:
    """Returns the lines of a file, empty ones among them.

    Raises:
      InputError: it has none, or one is not UTF-8.
    """
    found: list[str] = []
    for block in corpus.read_blocks([path]):
        for line in block.data.removesuffix(b"\n").split(b"\n"):
            text = file_system.decode(line, path, len(found) + 1)
            found.append(text.rstrip("\r\n"))
    if not found:
        raise errors.InputError(f"{path}: has no lines")
    return found


def split(path: str, texts: Sequence[str]) -> Text:
    """Splits lines into sentences and words; `path` is for messages."""
    words, places, rows, documents = [], [], [0], [0]
    for number, text in enumerate(texts):
        for begin, end in _sentences(text):
            for start, stop in _words(text, begin, end):
                words.append(text[start:stop])
                places.append((number, start, stop))
            if rows[-1] != len(words):
                rows.append(len(words))
        if documents[-1] != len(rows) - 1:
            documents.append(len(rows) - 1)
    numbers, starts, ends = np.array(places, np.int64).reshape(-1, 3).T
    sentences = conll.Sentences(
        path=path,
        words=words,
        lines=numbers + 1,
        tags=None,
        row_splits=np.array(rows),
        documents=np.array(documents),
    )
    return Text(sentences, texts, numbers, starts, ends)


def _sentences(text: str):
    """Yields the characters of each sentence."""
    begin = 0
    for sentence in corpus.split_sentences(text):
        begin = text.index(sentence, begin)
        yield begin, begin + len(sentence)
        begin += len(sentence)


def _words(text: str, begin: int, end: int):
    """Yields the characters of each word of a sentence."""
    for match in re.compile(r"\S+").finditer(text, begin, end):
        start, stop = match.span()
        if _CLITIC.fullmatch(match[0]):  # Of text that is split already.
            yield start, stop
            continue
        # Marks in front, the word with what stands inside of it, marks behind.
        for part in _PARTS.finditer(text, start, stop):
            first, last = part.span()
            longer = text[first : last + 1]
            if last < stop and _ABBREVIATION.fullmatch(longer):
                last += 1
            while last < stop and unicodedata.category(text[last])[0] == "M":
                last += 1
            if first < start:  # What belonged to the word before.
                continue
            start = last
            clitic = _CLITIC.search(text[first:last])
            if clitic and clitic.start():
                yield first, first + clitic.start()
                first += clitic.start()
            yield first, last


# ----------------------------------------------------------------------
# Entities of raw text, by their characters.
#
# {"text": "Jim Henson died.", "entities": [{"type": "PER", "start": 0,
#  "end": 10, "text": "Jim Henson", "probability": 0.98}]}

_DIGITS = 6


def lines(
    text: Text,
    tags: Sequence[str],
    probabilities: np.ndarray,
    *,
    is_plain: bool = False,
) -> list[list[dict[str, Any]]]:
    """Returns the entities of every line, in order.

    Args:
      text: the lines and their words.
      tags: W of them.
      probabilities: float [W], of each word's tag; an entity has the product.
      is_plain: whether tags mean no spans, and every word is an entity.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in text.texts]
    rows = text.sentences.row_splits.tolist()
    for first, last in zip(rows, rows[1:], strict=False):
        part = tags[first:last]
        spans = conll.spans(part)
        if is_plain:
            spans = [conll.Span(i, i + 1, t) for i, t in enumerate(part)]
        for span in spans:
            begin, end = first + span.start, first + span.end
            number = int(text.numbers[begin])
            start, stop = int(text.starts[begin]), int(text.ends[end - 1])
            share = float(np.prod(probabilities[begin:end]))
            found[number].append(
                {
                    "type": span.type,
                    "start": start,
                    "end": stop,
                    "text": text.texts[number][start:stop],
                    "probability": round(share, _DIGITS),
                }
            )
    return found


def json_lines(
    text: Text, found: Sequence[Sequence[dict[str, Any]]]
) -> Iterator[str]:
    """Yields one JSON object for every line."""
    for line, inside in zip(text.texts, found, strict=True):
        record = {"text": line, "entities": list(inside)}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def marked(line: str, found: Sequence[dict[str, Any]]) -> str:
    """Returns a line with its entities in brackets, for the terminal."""
    for entity in reversed(found):
        start, end = entity["start"], entity["end"]
        inside = f"[{line[start:end]} {entity['type']}]"
        line = line[:start] + inside + line[end:]
    return line
