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

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data import sentences
from data.tokenization import normalization
from tasks.ner import tag_spans
from tasks.ner.word_files import Places

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


def split(text: str) -> Places:
    """Splits a text into sentences of words."""
    found, end = [], 0
    for sentence in sentences.split(text):
        begin = text.index(sentence, end)
        end = begin + len(sentence)
        found.append(list(_words(text, begin, end)))
    return list(filter(None, found))


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


def words(text: str, places: Places) -> tuple[tuple[str, ...], ...]:
    """Returns the words of each sentence."""
    return tuple(
        tuple(text[start:stop] for start, stop in sentence)
        for sentence in places
    )


def find_entities(
    texts: Sequence[str],
    places: Sequence[Places],
    tags: Iterable[Sequence[str]],
    probabilities: Iterable[float],
    *,
    is_plain: bool = False,
) -> list[list[dict[str, Any]]]:
    """Returns the entities of each text in order.

    Args:
      texts: the texts.
      places: those of the words of each text; see split.
      tags: the tags of each sentence of all texts.
      probabilities: the probabilities of all tags; that of an entity is their
        product.
      is_plain: whether each word is an entity of its own.
    """
    found, tags, likely = [], iter(tags), iter(probabilities)
    for text, sentences_of_text in zip(texts, places, strict=True):
        entities = []
        for sentence in sentences_of_text:
            chosen = list(itertools.islice(likely, len(sentence)))
            for span in tag_spans.spans(next(tags), is_plain=is_plain):
                start, stop = sentence[span.start][0], sentence[span.end - 1][1]
                probability = float(np.prod(chosen[span.start : span.end]))
                entities.append(
                    {
                        "type": span.type,
                        "start": start,
                        "end": stop,
                        "text": text[start:stop],
                        "probability": round(probability, _NUM_DIGITS),
                    }
                )
        found.append(entities)
    return found


def marked(line: str, entities: Sequence[dict[str, Any]]) -> str:
    """Returns a line with its entities in brackets."""
    for entity in reversed(entities):
        start, end = entity["start"], entity["end"]
        inside = f"[{line[start:end]} {entity['type']}]"
        line = line[:start] + inside + line[end:]
    return line
