r"""Splits raw text into words, and finds entities by their characters.

    "Jim Henson (U.S.) died." -> Jim | Henson | ( | U.S. | ) | died | .

Words are split as in CoNLL-2003. Punctuation at either end is a word, except
for the period of an abbreviation. The endings 's, 're, n't and the like are
words. A combining mark belongs to the character before it. A Chinese character
is a word. Dashes, brackets and quotation marks separate words without a space.

The entities of a line, as written to entities.jsonl:

    {"text": "Jim Henson died.", "entities": [{"type": "PER", "start": 0,
     "end": 10, "text": "Jim Henson", "probability": 0.98}]}
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import sentences
from data.tokenization import normalization
from tasks.ner import tag_spans, word_files

ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Inc", "Co", "Corp")
_ABBREVIATION = re.compile(rf"(?:\w\.)+|(?:{'|'.join(ABBREVIATIONS)})\.")
APOSTROPHES = "'\u2019"
# Endings of words after an apostrophe, in any case. n't is one more.
CLITICS = ("s", "d", "m", "re", "ve", "ll")
_CLITIC = re.compile(
    f"(?:n[{APOSTROPHES}]t|[{APOSTROPHES}](?:{'|'.join(CLITICS)}))$", re.I
)
CHINESE = "".join(f"{chr(a)}-{chr(b)}" for a, b in normalization.CJK_BLOCKS)
# Punctuation that never joins words; a comma joins digits.
BREAKS = (
    '"()\\[\\]{};\u2014\u2026\u201c\u201d\u201e\u00ab\u00bb'
    "\u3001\u3002\uff0c\uff01\uff1f\uff1b\uff1a\uff08\uff09"
    "\u300a\u300b\u300c\u300d\u300e\u300f"
)
_LETTER = rf"[^\W{CHINESE}]"
_JOINT = rf"(?:[^\w\s{BREAKS},]|(?<=\d),(?=\d))*"
_PARTS = re.compile(
    rf"[{CHINESE}]|{_LETTER}(?:{_JOINT}{_LETTER})*|[^\w\s]", re.DOTALL
)
_NUM_DIGITS = 6  # Decimals of probabilities.


class Text(NamedTuple):
    """Lines of text, split into sentences of W words.

    Attributes:
      sentences: the words; each line is a document.
      texts: the lines.
      numbers: int64 [W], the line of each word.
      starts: int64 [W], the first character of each word.
      ends: int64 [W], the character after the last one of each word.
    """

    sentences: word_files.Sentences
    texts: Sequence[str]
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def split_lines(path: str, texts: Sequence[str]) -> Text:
    """Splits lines into sentences and words; `path` is for messages."""
    words, spans, rows, documents = [], [], [0], [0]
    for number, text in enumerate(texts):
        end = 0
        for sentence in sentences.split(text):
            begin = text.index(sentence, end)
            end = begin + len(sentence)
            for start, stop in _words(text, begin, end):
                words.append(text[start:stop])
                spans.append((number, start, stop))
            if rows[-1] != len(words):
                rows.append(len(words))
        if documents[-1] != len(rows) - 1:
            documents.append(len(rows) - 1)
    numbers, starts, ends = np.array(spans, np.int64).reshape(-1, 3).T
    return Text(
        sentences=word_files.Sentences(
            path=path,
            words=words,
            lines=numbers + 1,
            tags=None,
            row_splits=np.array(rows),
            documents=np.array(documents),
        ),
        texts=texts,
        numbers=numbers,
        starts=starts,
        ends=ends,
    )


def _words(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the characters [start, stop) of each word of a sentence."""
    for match in re.compile(r"\S+").finditer(text, begin, end):
        start, stop = match.span()
        if _CLITIC.fullmatch(match[0]):  # The text is split already.
            yield start, stop
            continue
        for part in _PARTS.finditer(text, start, stop):
            first, last = part.span()
            longer = text[first : last + 1]
            if last < stop and _ABBREVIATION.fullmatch(longer):
                last += 1
            while last < stop and unicodedata.category(text[last])[0] == "M":
                last += 1
            if first < start:  # Part of the word before.
                continue
            start = last
            clitic = _CLITIC.search(text[first:last])
            if clitic and clitic.start():
                yield first, first + clitic.start()
                first += clitic.start()
            yield first, last


def find_entities(
    text: Text,
    tags: Sequence[str],
    probabilities: np.ndarray,
    *,
    is_plain: bool = False,
) -> list[list[dict[str, Any]]]:
    """Returns the entities of each line in order.

    Args:
      text: the lines and their W words.
      tags: W tags.
      probabilities: float [W], probabilities of the tags; the probability of an
        entity is their product.
      is_plain: whether each word is an entity of its own.
    """
    entities: list[list[dict[str, Any]]] = [[] for _ in text.texts]
    first = 0
    for part in text.sentences.split(tags):
        for span in tag_spans.spans(part, is_plain=is_plain):
            begin, end = first + span.start, first + span.end
            number = int(text.numbers[begin])
            start, stop = int(text.starts[begin]), int(text.ends[end - 1])
            probability = float(np.prod(probabilities[begin:end]))
            entities[number].append(
                {
                    "type": span.type,
                    "start": start,
                    "end": stop,
                    "text": text.texts[number][start:stop],
                    "probability": round(probability, _NUM_DIGITS),
                }
            )
        first += len(part)
    return entities


def json_lines(
    text: Text, entities: Sequence[Sequence[dict[str, Any]]]
) -> bytes:
    """Returns one JSON object for each line."""
    records = (
        {"text": line, "entities": entities_of_line}
        for line, entities_of_line in zip(text.texts, entities, strict=True)
    )
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def marked(line: str, entities: Sequence[dict[str, Any]]) -> str:
    """Returns a line with its entities in brackets."""
    for entity in reversed(entities):
        start, end = entity["start"], entity["end"]
        inside = f"[{line[start:end]} {entity['type']}]"
        line = line[:start] + inside + line[end:]
    return line
