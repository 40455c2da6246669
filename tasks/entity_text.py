"""Entities of raw text, by their characters.

{"text": "Jim Henson died.", "entities": [{"type": "PER", "start": 0,
 "end": 10, "text": "Jim Henson", "probability": 0.98}]}
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data import conll_tags
from data.tagging_text import Text

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
        spans = conll_tags.spans(part)
        if is_plain:
            spans = [conll_tags.Span(i, i + 1, t) for i, t in enumerate(part)]
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
