"""Texts that are compared: pairs, triples and pairs with a score, from tables.

    columns                               examples
    anchor, positive[, negative]          (anchor, positive[, negative])
    sentence1, sentence2, score           (sentence1, sentence2) and the score
    sentence1, sentence2, gold_label      triples (premise, entailed,
                                          contradicted), as of MNLI and SNLI

The columns of a file determine its kind. In a .tsv or .txt with a column
sentence1, quotation marks are characters of the text, because the released
files of STS-B, MNLI and SNLI have single quotation marks.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data import examples, text_files
from data.examples import Example, Examples
from data.text_files import Row
from foundation import errors, file_system

PAIRS, SCORES, NLI = "pairs", "scores", "nli"
_NEGATIVE = "negative"
_COLUMNS = {
    PAIRS: ("anchor", "positive"),
    SCORES: ("sentence1", "sentence2", "score"),
    NLI: ("sentence1", "sentence2", "gold_label"),
}
_FORMS = {".txt": "tsv", **{f".{form}": form for form in text_files.FORMATS}}
_ENTAILED, _CONTRADICTED = "entailment", "contradiction"
# SNLI and MNLI mark pairs without a majority of annotators with "-".
_UNUSED = ("neutral", "-")
# A cell in quotation marks with doubled ones in it, as CSV writers write it.
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextGroups:
    """A set of groups of texts.

    Attributes:
      kind: PAIRS, SCORES or NLI.
      texts: the groups; each has `num_texts` texts and, for SCORES, a label.
      num_texts: 2, or 3 with a hard negative.
    """

    kind: str
    texts: Examples
    num_texts: int

    @property
    def have_scores(self) -> bool:
        """Whether each pair has a score."""
        return self.kind == SCORES

    def scores(self, max_score: float | None) -> np.ndarray:
        """Returns the target cosines of the pairs: float32 [N, 1].

        Args:
          max_score: the score of the cosine 1; None for unchanged scores.

        Raises:
          InputError: a score is not a number, or larger than max_score; names
            the file and the line.
        """
        values = examples.values(self.texts)
        if max_score is None:
            return values
        largest = float(np.abs(values).max())
        if largest <= max_score / 2 and max_score > 1:
            errors.warn_once(
                f"{self.texts.path}: --max_score={max_score:g}, but the "
                f"largest score is {largest:g}, so no cosine is to be above "
                f"{largest / max_score:.2g}"
            )
        too_large = np.abs(values[:, 0]) > max_score
        if too_large.any():
            first = int(np.argmax(too_large))
            example = next(itertools.islice(self.texts, first, None))
            raise errors.InputError(
                f"{example.where}: score {example.label}, but "
                f"--max_score={max_score:g} (5 for STS-B)"
            )
        return values / np.float32(max_score)

    def describe(self) -> str:
        """Describes the set for the model card."""
        what = {
            PAIRS: "pairs" if self.num_texts == 2 else "triples",
            NLI: "triples of premise, entailed and contradicted text",
            SCORES: "pairs with scores",
        }[self.kind]
        return f"{self.texts.path}: {self.texts.count} {what}"


def open_groups(path: str, flag: str) -> TextGroups:
    """Opens a set; the columns of its first row determine its kind.

    Args:
      path: a file, a folder, or a pattern.
      flag: the flag that names the file, for messages.

    Raises:
      InputError: there is no such file, or its columns are unknown.
    """
    paths = text_files.find_all(path, [x.removeprefix(".") for x in _FORMS])
    ending = file_system.ending(file_system.uncompressed(paths[0]))
    form = _FORMS.get(ending)
    if form is None:
        raise errors.InputError(
            f"{flag}={path}: the ending of a table must be one of "
            f"{', '.join(_FORMS)}"
        )
    head = next(_rows(paths, form), None)
    if head is None:
        raise errors.InputError(f"{paths[0]}: has no examples")
    kind = next((k for k, c in _COLUMNS.items() if {*c} <= {*head.cells}), None)
    if kind is None:
        known_columns = "; ".join(
            ", ".join(names) for names in _COLUMNS.values()
        )
        raise errors.InputError(
            f"{flag}={head.path}: columns {', '.join(head.cells)}; "
            f"wanted: {known_columns}"
        )
    names = _COLUMNS[kind]
    if kind == PAIRS and _NEGATIVE in head.cells:
        names = (*names, _NEGATIVE)

    def read() -> Iterator[Example]:
        rows = _with_warnings(_rows(paths, form), names)
        if kind == NLI:
            return _triples(rows, form)
        text_names = [name for name in names if name != "score"]
        return _groups(rows, text_names, form, kind)

    num_texts = 3 if kind == NLI or _NEGATIVE in names else 2
    texts = Examples(read, path)
    return TextGroups(kind=kind, texts=texts, num_texts=num_texts)


def _rows(paths: Sequence[str], form: str) -> Iterator[Row]:
    """Yields the rows of files as mappings of column names."""
    for path in paths:
        rows = (x for x in text_files.read_tsv(path) if x.cells)
        head = next(rows, None) if form == "tsv" else None
        if head is None or "sentence1" not in head.cells:
            yield from text_files.read_named([path], form)
            continue
        text_files.check_header(path, head.cells)
        is_warned = False
        for row in rows:
            quoted = next(filter(_QUOTED.fullmatch, row.cells), None)
            if quoted is not None and not is_warned:
                is_warned = True
                errors.warn_once(
                    f"{row.where}: the quotation marks of {quoted[:40]!r} are "
                    "text, as in the released files; a .csv has quoted cells"
                )
            if len(row.cells) != len(head.cells):
                raise errors.InputError(
                    f"{row.where}: {len(row.cells)} columns, but the header "
                    f"has {len(head.cells)}"
                )
            named = dict(zip(head.cells, row.cells, strict=True))
            yield row._replace(cells=named)


def _with_warnings(rows: Iterable[Row], names: Sequence[str]) -> Iterator[Row]:
    """Yields rows; warns of columns that are not read but of other kinds."""
    known = {name for columns in _COLUMNS.values() for name in columns}
    if _COLUMNS[PAIRS][1] in names:  # The label may be 0, of no positive.
        known.add("label")
    path = ""
    for row in rows:
        if row.path != path:
            path = row.path
            unused = [
                name
                for name in row.cells
                if name not in names
                and (name in known or name.startswith(_NEGATIVE))
            ]
            if unused:
                errors.warn_once(
                    f"{path}: read are the columns {', '.join(names)}, but "
                    f"not {errors.listed(unused)}"
                )
        yield row


def _groups(
    rows: Iterable[Row], names: Sequence[str], form: str, kind: str
) -> Iterator[Example]:
    """Yields one group per row, from the columns of its texts."""
    for number, row in enumerate(rows):
        first, *other_texts = (_cell(row, name, form) for name in names)
        label = str(_cell(row, "score", form)) if kind == SCORES else None
        yield Example(
            row.path, row.line, str(number), first, tuple(other_texts), label
        )


def _triples(rows: Iterable[Row], form: str) -> Iterator[Example]:
    """Yields a triple for each entailed text whose premise has a contradiction.

    The contradictions of a premise are used in turn.
    """
    premises: dict[str, Mapping[str, list[tuple[Row, str]]]] = {}
    for row in rows:
        premise, text, label = (_cell(row, x, form) for x in _COLUMNS[NLI])
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
    num_lost = num_entailed = 0
    first_lost = None
    number = itertools.count()
    for premise, texts_by_label in premises.items():
        num_entailed += len(texts_by_label[_ENTAILED])
        if not texts_by_label[_CONTRADICTED]:
            num_lost += len(texts_by_label[_ENTAILED])
            first_lost = first_lost or next(
                iter(texts_by_label[_ENTAILED]), None
            )
        negatives = itertools.cycle(
            [text for _, text in texts_by_label[_CONTRADICTED]]
        )
        for (row, text), negative in zip(
            texts_by_label[_ENTAILED], negatives, strict=False
        ):
            guid = str(next(number))
            yield Example(row.path, row.line, guid, premise, (text, negative))
    if first_lost is not None and 2 * num_lost > num_entailed:
        errors.warn_once(
            f"{first_lost[0].where}: no contradicted text for this premise; "
            f"{num_lost} of {num_entailed} entailed texts are left out for "
            "this reason; a table of anchor and positive needs no such texts"
        )


def _cell(row: Row, name: str, form: str) -> Any:
    """Returns a text, or a score in any form."""
    value = text_files.require(row, name, form)
    if name != "score" and not isinstance(value, str):
        raise errors.InputError(f"{row.where}: {name} is not a text")
    return value
