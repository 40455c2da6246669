"""Labeled text before it is tokenized, and the encoding of its labels.

A sentence task is one of four kinds:

    classification   one of C classes
    regression       one value
    multi_label      any of C labels, given as a list or "a,b"
    multiple_choice  one of K sequences

Every example has the number of its line, for error messages.
"""

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from foundation import errors

CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, MULTIPLE_CHOICE = "multi_label", "multiple_choice"
_SEPARATOR = ","  # Between the labels of one example.
_ARE_FLAGS = frozenset(("0", "1", "0.0", "1.0", "true", "false"))
_MANY_CLASSES = 1000
_SHOWN = 8
_INTEGER = re.compile(r"^(-?[0-9]+)\.0+$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """N examples of K sequences each; K is 1 except for multiple choice.

    Attributes:
      path: the file.
      lines: N line numbers in it, counted from 1.
      guids: N names.
      first: N * K texts, K of the first example first.
      second: as many, or None if sequences are single sentences.
      labels: N labels as written, or lists of them, or None.
      num_choices: K.
    """

    path: str
    lines: Sequence[int]
    guids: Sequence[str]
    first: Sequence[str]
    second: Sequence[str] | None = None
    labels: Sequence[str | list[str]] | None = None
    num_choices: int = 1

    def __len__(self) -> int:
        """Returns N."""
        return len(self.guids)

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of texts and labels, whatever file they are from."""
        columns = [self.first, self.second, self.labels]
        text = json.dumps(columns, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def where(self, number: int) -> str:
        """Returns "path:line" of an example, for a message."""
        return f"{self.path}:{self.lines[number]}"


def find_labels(examples: Examples, kind: str) -> list[str]:
    """Returns the labels that occur, sorted: numbers by value, others as text.

    Raises:
      InputError: there are too few or too many labels, or an example that
        needs one label has none or a list; names file and line.
    """
    if kind == REGRESSION:
        return []
    spelled: dict[str, str] = {}  # "1" and "1.0" are one label: "1".
    counts = set()
    for labels in _labels_of_each(examples, kind):
        counts.add(len(labels))
        for label in labels:
            key = _key(label)
            spelled[key] = min(spelled.get(key, label), label, key=len)
    found = set(spelled.values())
    # More than two flags repeat a value, which `_labels_of_each` refuses.
    if kind == MULTI_LABEL and _ARE_FLAGS >= found and counts == {2}:
        labels = next(_labels_of_each(examples, kind))
        raise _flags_error(examples, 0, labels)
    if len(found) < 2 and kind == CLASSIFICATION:
        raise errors.InputError(
            f"{examples.path}: {len(found)} different label(s), "
            "but a classifier needs at least two"
        )
    if not found:
        raise errors.InputError(f"{examples.path}: has no labels")
    if len(found) > max(_MANY_CLASSES, len(examples) / 2):
        raise errors.InputError(
            f"{examples.path}: {len(found)} different labels in "
            f"{len(examples)} examples: is it a regression, or another column?"
        )
    return _sorted(found)


def unnamed(count: int) -> list[str]:
    """Returns the names that transformers gives to unnamed classes."""
    return [f"LABEL_{i}" for i in range(count)]


def encode_labels(
    examples: Examples, kind: str, labels: Sequence[str]
) -> np.ndarray:
    """Returns int64 [N, 1], float32 [N, 1], or int64 [N, C] if MULTI_LABEL.

    Raises:
      InputError: a label is missing or unknown; names file and line.
    """
    if examples.labels is None:
        raise errors.InputError(f"{examples.path}: has no labels")
    if kind == REGRESSION:
        return _encode_values(examples)
    # Stored labels may have spaces around them.
    numbers = {_key(label.strip()): i for i, label in enumerate(labels)}
    if list(labels) == unnamed(len(labels)):
        numbers |= {_key(str(i)): i for i in range(len(labels))}
    if kind == MULTI_LABEL:
        rows = np.zeros((len(examples), len(labels)), np.int64)
    else:
        rows = np.zeros((len(examples), 1), np.int64)
    for i, found in enumerate(_labels_of_each(examples, kind)):
        for label in found:
            number = numbers.get(_key(label))
            if number is None:
                raise errors.InputError(
                    f"{examples.where(i)}: label {label!r} is none of: "
                    f"{', '.join(labels[:_SHOWN])}"
                    + (", ..." if len(labels) > _SHOWN else "")
                )
            if kind == MULTI_LABEL:
                rows[i, number] = 1
            else:
                rows[i, 0] = number
    return rows


def _encode_values(examples: Examples) -> np.ndarray:
    values = np.zeros((len(examples), 1), np.float32)
    for i, given in enumerate(examples.labels):
        try:
            values[i, 0] = float(given)
        except (TypeError, ValueError):
            values[i, 0] = np.nan
        if not np.isfinite(values[i, 0]):
            raise errors.InputError(
                f"{examples.where(i)}: {given!r} is not a number"
            )
    return values


def _flags_error(
    examples: Examples, i: int, found: Sequence[str]
) -> errors.InputError:
    return errors.InputError(
        f"{examples.where(i)}: {','.join(found)} is a flag for each label; "
        "wanted: the names of the example's labels"
    )


def _labels_of_each(examples: Examples, kind: str) -> Iterator[list[str]]:
    """Yields each example's labels: one, or any number if MULTI_LABEL."""
    for i, given in enumerate(examples.labels or ()):
        if kind == MULTI_LABEL:
            if isinstance(given, str):
                given = given.split(_SEPARATOR)
            bad = next((x for x in given if _SEPARATOR in x), None)
            if bad is not None:  # Predictions could not be written.
                raise errors.InputError(
                    f"{examples.where(i)}: label {bad!r} has a comma, "
                    "which separates labels"
                )
            found = [label for label in map(str.strip, given) if label]
            if len(set(found)) < len(found) and _ARE_FLAGS.issuperset(found):
                raise _flags_error(examples, i, found)
            yield found
        elif isinstance(given, list):
            raise errors.InputError(
                f"{examples.where(i)}: {len(given)} labels in a list; "
                f"--problem_type={MULTI_LABEL} takes several"
            )
        elif not given.strip():
            raise errors.InputError(f"{examples.where(i)}: the label is empty")
        else:
            yield [given.strip()]


def _key(label: str) -> str:
    """Returns a label's key: that of 1.0 is that of 1."""
    return _INTEGER.sub(r"\1", label)


def _sorted(labels: Iterable[str]) -> list[str]:
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if not all(map(math.isfinite, values.values())):
        return sorted(labels)  # "nan" has no order.
    return sorted(labels, key=lambda label: (values[label], label))
