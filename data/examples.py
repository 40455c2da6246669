"""Labeled text before it is tokenized, and the encoding of its labels.

A sentence task is one of four kinds:

    classification   one of C classes
    regression       one value
    multi_label      any of C labels, given as a list or "a,b"
    multiple_choice  one of K sequences

Every example has the number of its line, for error messages.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from foundation import errors

CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, MULTIPLE_CHOICE = "multi_label", "multiple_choice"
_SEPARATOR = ","  # Between the labels of one example.
_ARE_FLAGS = frozenset(("0", "1", "0.0", "1.0", "true", "false"))
_MANY_CLASSES, _FEW_CLASSES = 1000, 10
# What other tools write where a value is missing, in lower case: pandas,
# databases, spreadsheets, and the authors of SNLI.
_MISSING = ("nan", "na", "n/a", "#n/a", "<na>", "null", r"\n", "-", "?")
_MISSING_TEXTS = frozenset(("nan", "NaN", "<NA>", "None", "NULL", r"\N"))
_LARGEST_VALUE = float(np.finfo(np.float32).max)
_MAX_IDS = 100_000  # Are compared with each other.
_INTEGER = re.compile(r"^(-?[0-9]+)\.0+$")
_FLAGS = re.compile(r"[01](?:[\s;|]+[01])+")  # For each label: "0 1 0".
# A list or set of labels as text: "['a', 'b']", "{a, b}", "[]".
_LIST = re.compile(r"""[\[({]\s*(['"].*|[^\])}]*,[^\])}]*)?[\])}]""", re.DOTALL)


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
        return self._summary.count

    @property
    def digest(self) -> str:
        """The SHA-256 of texts and labels, whatever files they are from."""
        return self._summary.digest

    @property
    def num_choices(self) -> int:
        """K, the number of sequences of an example."""
        return self._summary.num_choices

    def count_shared(self, other: "Examples") -> int:
        """Returns how many of the examples have texts of one in another set.

        As in `divide`, case and white space make no difference.
        """
        return int(np.isin(self._texts, other._texts).sum())

    @functools.cached_property
    def _texts(self) -> np.ndarray:
        """A number for each example, equal for equal texts, int64 [N]."""
        return np.fromiter((hash(_words(x)) for x in self), np.int64)

    @functools.cached_property
    def _summary(self) -> "_Summary":
        digest, count, num_choices = hashlib.sha256(), 0, 1
        guids: set[str] = set()
        empty, missing, repeated = _Rows(), _Rows(), _Rows()
        for example in self:
            count += 1
            row = example.first, example.second, example.label
            digest.update(json.dumps(row).encode("ascii"))
            num_choices = max(num_choices, len(example.second))
            if not all(map(str.strip, (example.first, *example.second))):
                empty.add(example)
            if not _MISSING_TEXTS.isdisjoint((example.first, *example.second)):
                missing.add(example)
            if example.guid in guids:
                repeated.add(example)
            elif count <= _MAX_IDS:
                guids.add(example.guid)
        if not count:
            raise errors.InputError(f"{self.path}: has no examples")
        empty.warn("no text")
        missing.warn("a text that marks a missing one, as nan and NULL do")
        repeated.warn("the same id as an earlier row")
        return _Summary(count, digest.hexdigest(), num_choices)


def divide(
    examples: Examples, fraction: float, seed: int
) -> tuple[Examples, Examples]:
    """Divides a set in two at random; equal texts are in the same part.

    Texts that differ only in case and white space are equal, so that a model is
    not evaluated on texts that it was trained on.

    Args:
      examples: the set.
      fraction: the fraction of the examples that the second part gets, at
        least.
      seed: seed of the division.

    Returns:
      The two parts, in the order of the set.

    Raises:
      InputError: one of them would be empty.
    """
    counts: dict[bytes, int] = collections.Counter(
        _group(example, seed) for example in examples
    )
    missing, last = fraction * sum(counts.values()), b""
    for group in sorted(counts):
        if missing <= 0:
            break
        missing, last = missing - counts[group], group
    if not counts or last == max(counts):
        raise errors.InputError(
            f"{examples.path}: {len(counts)} different text(s) are too few to "
            f"hold out {fraction:g} of them"
        )

    def part(is_held_out: bool) -> Examples:
        return Examples(
            lambda: (
                example
                for example in examples
                if (_group(example, seed) <= last) == is_held_out
            ),
            examples.path,
        )

    return part(False), part(True)


def _group(example: Example, seed: int) -> bytes:
    """Returns a random number of a text, the same for equal texts."""
    text = json.dumps([seed, _words(example)])
    return hashlib.sha256(text.encode("ascii")).digest()


def _words(example: Example) -> tuple[str, ...]:
    """Returns the texts, equal if they differ in case and white space only."""
    texts = (example.first, *example.second)
    return tuple(" ".join(text.split()).casefold() for text in texts)


class _Rows:
    """Counts rows of one kind, for a warning."""

    def __init__(self):
        self._count, self._first = 0, ""

    def add(self, example: Example) -> None:
        self._count += 1
        self._first = self._first or example.where

    def warn(self, what: str) -> None:
        if self._count:
            text = "%s: %s, one of %d such row(s)"
            logging.warning(text, self._first, what, self._count)


@dataclasses.dataclass(frozen=True)
class _Summary:
    count: int
    digest: str
    num_choices: int


def find_labels(examples: Examples, kind: str) -> list[str]:
    """Returns the labels that occur, sorted: numbers by value, others as text.

    Raises:
      InputError: there are too few or too many labels, or an example that
        needs one label has none or a list; names file and line.
    """
    if kind == REGRESSION:
        return []
    spelled: dict[str, str] = {}  # "1" and "1.0" are one label: "1".
    counts: set[int] = set()
    first: tuple[Example, list[str]] | None = None
    for example in examples:
        labels = _labels_of(example, kind)
        first = first or (example, labels)
        counts.add(len(labels))
        for label in labels:
            key = _key(label)
            spelled[key] = min(spelled.get(key, label), label, key=len)
    distinct = set(spelled.values())
    # More than two flags repeat a value, which `_labels_of` refuses.
    are_flags = kind == MULTI_LABEL and _ARE_FLAGS >= distinct and counts == {2}
    if first is not None and are_flags:
        raise _flags_error(*first)
    if len(distinct) < 2 and kind == CLASSIFICATION:
        raise errors.InputError(
            f"{examples.path}: {len(distinct)} different label(s)"
            f"{''.join(f', {x!r}' for x in distinct)}; a classifier needs at "
            "least two"
        )
    if not distinct:
        raise errors.InputError(f"{examples.path}: has no labels")
    if len(distinct) > examples.count / 2:
        problem = (
            f"{examples.path}: {len(distinct)} different labels in "
            f"{examples.count} examples: is it a regression, or another column?"
        )
        if len(distinct) > _MANY_CLASSES:
            raise errors.InputError(problem)
        if len(distinct) > _FEW_CLASSES:
            logging.warning("%s", problem)
    _warn_of_odd_labels(examples, distinct)
    if kind == CLASSIFICATION:
        _warn_of_values(examples, distinct)
        _warn_of_several(examples, distinct)
    if kind == MULTI_LABEL and max(counts) == 1:
        _warn_of_other_separators(examples, distinct)
    return _sorted(distinct)


def _warn_of_odd_labels(examples: Examples, labels: Collection[str]) -> None:
    """Logs what is probably a mistake, in one line each."""
    missing = [label for label in labels if label.lower() in _MISSING]
    # Hugging Face's datasets number the classes from 0. Where there are two,
    # -1 may be a third one: negative, neutral and positive.
    numbers = {str(i) for i in range(len(labels) - 1)}
    if len(numbers) > 2 and {*labels} == {"-1", *numbers}:
        missing.append("-1")
    if missing:
        text = "%s: %r is taken for a label like others, not for a missing one"
        logging.warning(text, examples.path, missing[0])
    warn_of_alike(examples.path, labels)


def warn_of_alike(path: str, labels: Iterable[str]) -> None:
    """Logs each label of a file that looks or means the same as another."""
    spelled: dict[str, str] = {}
    for label in sorted(labels):
        other = spelled.setdefault(_look(label), label)
        if other != label:
            composed = {unicodedata.normalize("NFC", x) for x in (other, label)}
            show = repr if len(composed) == 2 else ascii  # \u00e9, e\u0301
            text = "%s: %s and %s are taken for different labels"
            logging.warning(text, path, show(other), show(label))


def _warn_of_values(examples: Examples, labels: Collection[str]) -> None:
    """Logs a label that is a value, such as 3.8, if all labels are numbers."""
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return
    if not all(map(math.isfinite, values.values())):
        return
    fractions = [x for x in _sorted(labels) if values[x] % 1]
    if fractions and len(labels) > 2:
        text = "%s: %s is taken for the name of a class, one of %d; "
        text += "--problem_type=regression takes labels for values"
        logging.warning(text, examples.path, fractions[0], len(labels))


def _warn_of_several(examples: Examples, labels: Collection[str]) -> None:
    """Logs a class that seems to be several labels: "['a', 'b']" or "a,b".

    The parts of the latter are classes, too.
    """
    for label in sorted(labels):
        is_several = _LIST.fullmatch(label) is not None
        for separator in (_SEPARATOR, ";", "|"):
            names = {*map(str.strip, label.split(separator))}
            is_several |= len(names) > 1 and names <= {*labels}
        if is_several:
            text = "%s: %r is taken for the name of one class; "
            text += "--problem_type=%s takes several labels"
            logging.warning(text, examples.path, label, MULTI_LABEL)
            return


def _look(label: str) -> str:
    """Returns the same text for labels that look or mean the same."""
    text = "".join(x for x in label if unicodedata.category(x) != "Cf")
    text = unicodedata.normalize("NFKC", text).casefold().strip()
    text = {"true": "1", "false": "0"}.get(text, text)
    try:
        return repr(float(text))
    except ValueError:
        return text


def _warn_of_other_separators(
    examples: Examples, labels: Collection[str]
) -> None:
    """Logs the first label that seems to be several, if no example has two.

    One of its parts is a label or a part of another one; all are labels if
    spaces separate them, as they do the words of "very good".
    """
    text = "%s: %r is taken for one label; commas separate labels"
    for separator in (";", "|", None):
        parts = {x: {*map(str.strip, x.split(separator))} for x in labels}
        counts = collections.Counter(itertools.chain(*parts.values()))
        for label in sorted(labels):
            names = parts[label]
            is_several = any(counts[name] > 1 for name in names)
            if separator is None:
                is_several = names <= {*labels}
            if len(names) > 1 and is_several:
                return logging.warning(text, examples.path, label)


def unnamed(count: int) -> list[str]:
    """Returns the names that transformers gives to unnamed classes."""
    return [f"LABEL_{i}" for i in range(count)]


def encode_labels(
    examples: Iterable[Example], kind: str, labels: Sequence[str]
) -> np.ndarray:
    """Returns int64 [N, 1], float32 [N, 1], or int64 [N, C] if MULTI_LABEL.

    Raises:
      InputError: a label is missing or unknown; names file and line.
    """
    if kind == REGRESSION:
        values = np.array([_value(x) for x in examples], np.float32)
        return values[:, None]
    # Stored labels may have spaces around them.
    numbers = {_key(label.strip()): i for i, label in enumerate(labels)}
    if list(labels) == unnamed(len(labels)):
        numbers |= {_key(str(i)): i for i in range(len(labels))}
    label_ids: list[list[int]] = []
    for example in examples:
        names = _labels_of(example, kind)
        for name in names:
            if _key(name) not in numbers:
                raise errors.InputError(
                    f"{example.where}: label {name!r} is none of: "
                    + errors.listed(labels)
                )
        label_ids.append([numbers[_key(name)] for name in names])
    if kind != MULTI_LABEL:
        return np.array(label_ids, np.int64)
    rows = np.zeros((len(label_ids), len(labels)), np.int64)
    for row, ids in zip(rows, label_ids, strict=True):
        row[ids] = 1
    return rows


def _value(example: Example) -> float:
    """Returns the label of a regression."""
    label = _given(example)
    try:
        value = math.nan if isinstance(label, list) else float(label)
    except ValueError:
        value = math.nan
    # Python reads 1_000 as a number.
    if not abs(value) <= _LARGEST_VALUE or "_" in label:
        raise errors.InputError(
            f"{example.where}: {example.label!r} is not a number"
        )
    return value


def _given(example: Example) -> str | list[str]:
    if example.label is None:
        raise errors.InputError(f"{example.path}: has no labels")
    return example.label


def _labels_of(example: Example, kind: str) -> list[str]:
    """Returns the labels of an example: one, or any number if MULTI_LABEL."""
    written = _given(example)
    if kind == MULTI_LABEL:
        if isinstance(written, str):
            if _LIST.fullmatch(written.strip()):
                raise errors.InputError(
                    f"{example.where}: {written!r:.40}: lists are for jsonl "
                    "and parquet; in text, commas separate labels: a,b"
                )
            written = written.split(_SEPARATOR)
        bad = next((x for x in written if _SEPARATOR in x), None)
        if bad is not None:  # Predictions could not be written.
            raise errors.InputError(
                f"{example.where}: label {bad!r} has a comma, "
                "which separates labels"
            )
        labels = [label for label in map(str.strip, written) if label]
        if any(map(_FLAGS.fullmatch, labels)):
            raise _flags_error(example, labels)
        if len(set(labels)) < len(labels) and _ARE_FLAGS.issuperset(labels):
            raise _flags_error(example, labels)
        return labels
    if isinstance(written, list):
        raise errors.InputError(
            f"{example.where}: {len(written)} labels in a list; "
            f"--problem_type={MULTI_LABEL} takes several"
        )
    if not written.strip():
        raise errors.InputError(f"{example.where}: the label is empty")
    return [written.strip()]


def _flags_error(example: Example, labels: Sequence[str]) -> errors.InputError:
    return errors.InputError(
        f"{example.where}: {','.join(labels)} is a flag for each label; "
        "wanted: the names of the example's labels, or a column for each label "
        "(--label_columns)"
    )


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
