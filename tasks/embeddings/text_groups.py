"""Texts that are compared: pairs, triples and pairs with a score, from tables.

    columns                               examples
    anchor, positive[, negative]          (anchor, positive[, negative])
    sentence1, sentence2, score           (sentence1, sentence2) and the score
    sentence1, sentence2, gold_label      triples (premise, entailed,
                                          contradicted), as of MNLI and SNLI

The columns of a file determine its kind.
"""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data import text_files
from data.text_files import Row
from finetuning import task as tasks
from foundation import errors

PAIRS, SCORES, NLI = "pairs", "scores", "nli"
_NEGATIVE = "negative"
_COLUMNS = {
    PAIRS: ("anchor", "positive"),
    SCORES: ("sentence1", "sentence2", "score"),
    NLI: ("sentence1", "sentence2", "gold_label"),
}
_ENDINGS = (*text_files.FORMATS, "json", "txt")
_ENTAILED, _CONTRADICTED = "entailment", "contradiction"
# SNLI and MNLI mark pairs without a majority of annotators with "-".
_UNUSED = ("neutral", "-")
_LARGEST = float(np.finfo(np.float32).max)


class Group(NamedTuple):
    """Texts that are compared.

    where: file and line.
    texts: the anchor, its positive and perhaps a negative; or two texts; or
      the one text of a line to predict.
    label: the score of two texts; None without one.
    """

    where: str
    texts: Sequence[str]
    label: float | None = None


class Columns(NamedTuple):
    """The columns of a table that are read."""

    kind: str  # PAIRS, SCORES or NLI.
    names: Sequence[str]

    @property
    def num_texts(self) -> int:
        """The number of texts of a group: 2, or 3 with a hard negative."""
        return 2 if self.kind == SCORES else max(len(self.names), 2)


def open_groups(
    path: str, flag: str, *, max_score: float | None
) -> tuple[tasks.Examples, Columns]:
    """Opens a set; the columns of its first row determine its kind.

    Args:
      path: a file, a folder, or a pattern.
      flag: the flag that names the file, for messages.
      max_score: the score of the cosine 1; None for unchanged scores.

    Raises:
      InputError: there is no such file, or its columns are unknown.
    """
    paths = text_files.find_all(path, _ENDINGS)
    head = next(text_files.read_named(paths), None)
    if head is None:
        raise errors.InputError(f"{paths[0]}: has no examples")
    kind = next((k for k, x in _COLUMNS.items() if {*x} <= {*head.cells}), None)
    if kind is None:
        wanted = "; ".join(", ".join(names) for names in _COLUMNS.values())
        raise errors.InputError(
            f"{flag}={head.path}: columns {', '.join(head.cells)}; wanted: "
            f"{wanted}"
        )
    names = _COLUMNS[kind]
    if kind == PAIRS and _NEGATIVE in head.cells:
        names = (*names, _NEGATIVE)
    columns = Columns(kind, names)
    read = functools.partial(_groups, paths, columns, max_score)
    unread = [name for name in head.cells if name not in names]
    return tasks.Examples(path, read, unread), columns


def read_lines(path: str) -> Iterator[Group]:
    """Yields the lines of a file, each a group of one text."""
    for line, text in text_files.lines(path):
        yield Group(f"{path}:{line}", (text.strip(),))


def _groups(
    paths: Sequence[str], columns: Columns, max_score: float | None
) -> Iterator[Group]:
    if columns.kind == NLI:
        yield from _triples(text_files.read_named(paths))
        return
    is_scored = columns.kind == SCORES
    names = columns.names[:2] if is_scored else columns.names
    for row in text_files.read_named(paths):
        label = _score(row, max_score) if is_scored else None
        yield Group(row.where, tuple(map(row.text, names)), label)


def _score(row: Row, max_score: float | None) -> float:
    """Returns the target cosine of a row, or its unchanged score."""
    text = row.text("score")
    try:
        value = np.float32(float(text))
    except ValueError:
        value = np.float32("nan")
    if not abs(value) <= _LARGEST:
        raise errors.InputError(f"{row.where}: score {text!r} is not a number")
    if max_score is None:
        return float(value)
    if abs(value) > max_score:
        raise errors.InputError(
            f"{row.where}: score {text}, but --max_score={max_score:g} (5 for "
            "STS-B)"
        )
    return float(value / np.float32(max_score))


def _triples(rows: Iterable[Row]) -> Iterator[Group]:
    """Yields a triple for each entailed text whose premise has a contradiction.

    The contradictions of a premise are used in turn.
    """
    premises: dict[str, Mapping[str, list[tuple[Row, str]]]] = {}
    for row in rows:
        premise, text, label = map(row.text, _COLUMNS[NLI])
        if label in _UNUSED:
            continue
        if label not in (_ENTAILED, _CONTRADICTED):
            raise errors.InputError(
                f"{row.where}: gold_label {label!r} is none of: {_ENTAILED}, "
                f"{_CONTRADICTED}, {', '.join(_UNUSED)}"
            )
        texts_by_label = premises.setdefault(
            premise, collections.defaultdict(list)
        )
        texts_by_label[label].append((row, text))
    for premise, texts_by_label in premises.items():
        negatives = itertools.cycle(
            [text for _, text in texts_by_label[_CONTRADICTED]]
        )
        for (row, text), negative in zip(
            texts_by_label[_ENTAILED], negatives, strict=False
        ):
            yield Group(row.where, (premise, text, negative))
