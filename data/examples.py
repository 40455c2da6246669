"""Labeled text before it is tokenized, and the kinds of sentence tasks.

classification   one of C classes
regression       one value
multi_label      any of C labels
multiple_choice  one of K sequences
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from foundation import errors

CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, MULTIPLE_CHOICE = "multi_label", "multiple_choice"
_LARGEST_VALUE = float(np.finfo(np.float32).max)


class Example(NamedTuple):
    """One example and where it is.

    path: the file.
    line: its first line in the file, counted from 1.
    guid: its name.
    first: its text, or the first of a pair; of multiple choice, the beginning.
    second: nothing, the second text of a pair, or the K endings.
    label: the label as written; a list of labels; None in sets without labels.
    kept: cells of further columns, which predictions repeat.
    """

    path: str
    line: int
    guid: str
    first: str
    second: Sequence[str] = ()
    label: str | list[str] | None = None
    kept: Sequence[str] = ()

    @property
    def key(self) -> tuple:
        """What is predicted, wherever it is; without kept cells if none."""
        return self[2:] if self.kept else self[2:-1]

    @property
    def where(self) -> str:
        """Names file and line, for a message."""
        return f"{self.path}:{self.line}"


class Examples:
    """A set of examples, which every iteration reads from the files again.

    Attributes:
      path: the files as the user named them.
    """

    def __init__(self, read: Callable[[], Iterable[Example]], path: str):
        """Reads nothing yet; `read` returns all examples in order."""
        self._read = read
        self.path = path

    def __iter__(self) -> Iterator[Example]:
        """Reads the examples."""
        return iter(self._read())

    def check(self) -> None:
        """Reads the files once, to refuse what cannot be read.

        Raises:
          InputError: see the reader, or there are no examples.
        """
        _ = self._summary

    @property
    def count(self) -> int:
        """N."""
        return self._summary[0]

    @property
    def digest(self) -> str:
        """The SHA-256 of texts and labels, whatever files they are from."""
        return self._summary[1]

    @functools.cached_property
    def _summary(self) -> tuple[int, str]:
        digest, count = hashlib.sha256(), 0
        for example in self:
            count += 1
            row = example.first, example.second, example.label
            digest.update(json.dumps(row).encode("ascii"))
        if not count:
            raise errors.InputError(f"{self.path}: has no examples")
        return count, digest.hexdigest()


def unnamed(count: int) -> list[str]:
    """Returns the names that transformers gives to unnamed classes."""
    return [f"LABEL_{i}" for i in range(count)]


def values(examples: Iterable[Example]) -> np.ndarray:
    """Returns the labels of a regression: float32 [N, 1].

    Raises:
      InputError: a label is not a number; names file and line.
    """
    return np.array([[_value(x)] for x in examples], np.float32)


def _value(example: Example) -> float:
    label = example.label
    try:
        value = float(label) if isinstance(label, str) else math.nan
    except ValueError:
        value = math.nan
    # Python reads 1_000 as a number.
    if not abs(value) <= _LARGEST_VALUE or "_" in str(label):
        raise errors.InputError(f"{example.where}: {label!r} is not a number")
    return value
