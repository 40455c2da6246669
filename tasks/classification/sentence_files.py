"""Reads the files of sentence tasks into `data.examples.Examples`.

A format knows where a file holds texts and labels. There are three:

    NumberedColumns  GLUE, XNLI: tab-separated, columns found by number
                     index  sentence1  sentence2  label
    NamedColumns     CSV, TSV or JSON lines, columns found by name
                     {"question": "...", "passage": "...", "label": true}
    Endings          SWAG: CSV with four endings per row, which become the four
                     text pairs of one multiple-choice example
"""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import tensorflow as tf
from absl import logging

from data import text_tables
from data.examples import Examples
from data.text_tables import Row
from foundation import errors, file_system

TRAIN, DEV, TEST = "train", "dev", "test"
PARAPHRASE_CORPUS = "msr_paraphrase"  # Microsoft's names of MRPC's files.
_MAX_CELLS_SHOWN, _MAX_CELL_CHARACTERS = 12, 24
_MAX_ROWS_NAMED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a task and what a format must know to read it.

    Attributes:
      path: the file, which exists.
      split: "train", "dev" or "test", or one of these with a suffix, as in
        "dev_mismatched".
      is_labeled: whether labels are required. Test sets are read without.
      has_released_name: whether the file was found under the released name,
        not named by a flag.
      data_dir: --data_dir, "" without it.
      language: the language to read from XNLI's files.
      labels: the task's labels as its files spell them.
    """

    path: str
    split: str
    is_labeled: bool
    has_released_name: bool = False
    data_dir: str = ""
    language: str = "zh"
    labels: Collection[str] = ()

    @property
    def set_name(self) -> str:
        """The split without its suffix."""
        return self.split.partition("_")[0]


class Format(Protocol):
    """Reads one kind of file."""

    def read(self, file: DataFile) -> Examples:
        """Returns the examples of a file.

        Raises:
          InputError: the file does not have this format, or it has no labels
            although they are required.
        """


def find_released(
    names: Sequence[str], data_dir: str, folders: Sequence[str]
) -> str | None:
    """Returns the path of the first file that exists, compressed or not.

    Args:
      names: released names of the file, the preferred one first.
      data_dir: directory to search.
      folders: subdirectories of it to search next.
    """
    for name in names:
        for folder in ("", *folders):
            for suffix in ("", *file_system.COMPRESSED):
                path = os.path.join(data_dir, folder, name + suffix)
                if tf.io.gfile.exists(path):
                    return path
    return None


@dataclasses.dataclass(frozen=True)
class Layout:
    """Column numbers of a tab-separated file; negative ones from the end."""

    names: str  # Of all columns, comma-separated, even without a header.
    _: dataclasses.KW_ONLY
    first: int
    second: int | None = None
    label: int | None = None
    guid: int | None = None  # Without it, examples are numbered.
    has_header: bool = True
    language: int | None = None  # Only rows of one language are read.

    @property
    def used_columns(self) -> list[int]:
        """The numbers of the columns that are read."""
        texts = (self.first, self.second)
        others = (self.label, self.guid, self.language)
        return [x for x in (*texts, *others) if x is not None]

    @property
    def min_width(self) -> int:
        """The smallest number of columns that such a file can have."""
        return 1 + max(self.used_columns)

    def fits(self, cells: Sequence[str], labels: Collection[str]) -> bool:
        """Returns whether a file with this first row has this layout.

        Only the names of used columns are compared, because files differ in
        the others: MNLI's have different numbers of annotators' labels.
        """
        if len(cells) < self.min_width:
            return False
        if not self.has_header:
            return cells[self.label] in labels
        names = self.names.split(",")
        return all(_is_named(cells[i], names[i]) for i in self.used_columns)

    def __str__(self) -> str:
        """Returns the first row of such a file."""
        names = ", ".join(self.names.split(","))
        return names if self.has_header else f"(no header) {names}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberedColumns:
    """The tab-separated files of GLUE and XNLI. Nothing is quoted.

    Columns are found by number. A file of another layout would therefore give
    labels for texts, so the header is compared with the known layouts first.

    Attributes:
      labeled: layout of the labeled sets, None if there are none.
      test: layout of the test set.
      train: layout of the training set, if it differs from `labeled`.
      aliases: other spelling of a label in the files -> label.
      has_cut_rows: the training and development sets were released with
        truncated rows, which are skipped with a warning. Test sets must be
        complete.
    """

    labeled: Layout | None = None
    test: Layout
    train: Layout | None = None
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_cut_rows: bool = False

    def read(self, file: DataFile) -> Examples:
        """Returns the examples of a file; see Format."""
        rows = [row for row in text_tables.read_tsv(file.path) if row.cells]
        if not rows:
            raise errors.InputError(f"{file.path}: is empty")
        layout = self._layout_of(file, rows[0].cells)
        rows = _complete_rows(
            file.path,
            rows,
            layout,
            skip_cut=self.has_cut_rows and file.set_name != TEST,
        )
        if layout.language is not None:
            rows = _rows_of_language(file, rows, layout.language)
        is_corpus = os.path.basename(file.path).startswith(
            f"{PARAPHRASE_CORPUS}_{TRAIN}"
        )
        if is_corpus and file.set_name != TEST:
            rows = _rows_of_corpus(file, rows)
        if not rows:
            raise errors.InputError(f"{file.path}: has no examples")

        def column(number: int | None) -> list[str] | None:
            return None if number is None else [r.cells[number] for r in rows]

        labels = column(layout.label)
        return Examples(
            path=file.path,
            lines=[row.line for row in rows],
            guids=column(layout.guid) or [str(i) for i in range(len(rows))],
            first=[row.cells[layout.first] for row in rows],
            second=column(layout.second),
            labels=labels and [self.aliases.get(x, x) for x in labels],
        )

    def _layout_of(self, file: DataFile, cells: Sequence[str]) -> Layout:
        """Returns the layout of a file by its first row."""
        wanted = self.test
        if file.is_labeled:
            is_train = file.set_name == TRAIN
            wanted = (self.train if is_train else None) or self.labeled
        known = [wanted, self.train, self.labeled, self.test]
        known = [x for x in dict.fromkeys(known) if x is not None]
        labels = {*file.labels, *self.aliases}
        fitting = [layout for layout in known if layout.fits(cells, labels)]
        if not fitting and file.has_released_name:
            # Users rename the columns of released files.
            _check_renamed(file.path, cells, wanted, labels)
            return wanted
        if not fitting:
            shown = " or ".join(dict.fromkeys(map(str, known)))
            raise errors.InputError(
                f"{file.path}: none of the task's files, which begin with: "
                f"{shown}; it begins with: {_shown(cells)} (--task_name=tsv "
                "reads any table)"
            )
        layout = fitting[0]
        if wanted.label is None:  # A labeled file may be predicted.
            return dataclasses.replace(layout, label=None)
        if layout.label is None:
            raise errors.InputError(
                f"{file.path}: a test set, which has no labels; expected: "
                f"{wanted}; it begins with: {_shown(cells)}"
            )
        return layout


def _check_renamed(
    path: str, cells: Sequence[str], wanted: Layout, labels: Collection[str]
) -> None:
    """Refuses a first row that cannot be a renamed header of a layout."""
    if not wanted.has_header or len(cells) < wanted.min_width:
        return  # The labels, or the width of the rows, are checked later.
    names = wanted.names.split(",")
    expected = f"expected: {wanted}; it begins with: {_shown(cells)}"
    has_label = wanted.label is not None and cells[wanted.label] in labels
    has_number = wanted.guid is not None and cells[wanted.guid].isdigit()
    if has_label or has_number:
        raise errors.InputError(
            f"{path}: has no header: its first line is an example; {expected}"
        )
    for i in (wanted.first, wanted.second, wanted.label):
        if i is None or _is_named(cells[i], names[i]):
            continue
        if any(_is_named(cell, names[i]) for cell in cells):
            raise errors.InputError(
                f"{path}: {names[i]!r} is another column; {expected} "
                "(--task_name=tsv finds columns by name)"
            )
    logging.warning(
        "%s: unknown header; columns are read by number; %s", path, expected
    )


def _complete_rows(
    path: str, rows: list[Row], layout: Layout, *, skip_cut: bool
) -> list[Row]:
    """Returns the rows below the header, which must be as wide as it is."""
    width = len(rows[0].cells)
    if width < layout.min_width:
        raise errors.InputError(
            f"{path}:{rows[0].line}: {width} columns, but "
            f"{layout.min_width} are needed"
        )
    cut = [row for row in rows if len(row.cells) != width]
    if cut and not skip_cut:
        model = "the header" if layout.has_header else "the first row"
        raise errors.InputError(
            f"{path}:{cut[0].line}: {len(cut[0].cells)} columns, but {model} "
            f"has {width}"
        )
    if cut:
        shown = ", ".join(f"{path}:{row.line}" for row in cut[:_MAX_ROWS_NAMED])
        logging.warning("%d truncated row(s) skipped: %s", len(cut), shown)
    rows = [row for row in rows if len(row.cells) == width]
    return rows[1:] if layout.has_header else rows


def _rows_of_language(
    file: DataFile, rows: list[Row], column: int
) -> list[Row]:
    found = [row for row in rows if row.cells[column] == file.language]
    if not found:
        languages = sorted({row.cells[column] for row in rows})
        raise errors.InputError(
            f"--language={file.language}: {file.path} has none of it, only: "
            f"{', '.join(languages)}"
        )
    return found


def _rows_of_corpus(file: DataFile, rows: list[Row]) -> list[Row]:
    """Returns the training or development rows of Microsoft's corpus.

    dev_ids.tsv lists the pairs of sentence ids of the development set.
    """
    for folder in filter(None, (os.path.dirname(file.path), file.data_dir)):
        ids = find_released(["dev_ids.tsv"], folder, ["MRPC"])
        if ids is not None:
            break
    else:
        raise errors.InputError(
            f"{file.path}: no dev_ids.tsv beside it, which lists the "
            "development set"
        )
    dev_pairs = {tuple(row.cells[:2]) for row in text_tables.read_tsv(ids)}
    is_dev = file.set_name == DEV
    return [
        row for row in rows if (tuple(row.cells[1:3]) in dev_pairs) == is_dev
    ]


def _is_named(cell: str, name: str) -> bool:
    return cell.strip("\ufeff ").lower() == name.lower()


def _shown(cells: Sequence[str]) -> str:
    shown = [
        cell
        if len(cell) <= _MAX_CELL_CHARACTERS
        else f"{cell[:_MAX_CELL_CHARACTERS]}..."
        for cell in cells[:_MAX_CELLS_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(cells) > len(shown) else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedColumns:
    """A table whose columns are found by name: CSV, TSV or JSON lines.

    Attributes:
      form: one of text_tables.FORMATS.
      text: name of the column of the text, or of the first text of a pair.
      text_pair: name of the column of the second text.
      label: name of the column of the label. Several names are alternatives:
        the first that the file has is read.
      id: name of the column of the id. Without it (or if the file does not
        have an `optional_id`), examples are numbered.
      optional_id: whether files may lack the id.
    """

    form: str = "csv"
    text: str = "text"
    text_pair: str | None = None
    label: str | Sequence[str] = "label"
    id: str | None = None
    optional_id: bool = False

    def read(self, file: DataFile) -> Examples:
        """Returns the examples of a file; see Format."""
        label, guid = self.label, self.id
        if not isinstance(label, str) or self.optional_id:
            first = next(text_tables.read_named(file.path, self.form), None)
            names = first.cells if first is not None else {}
            if not isinstance(label, str):
                known = [name for name in label if name in names]
                if file.is_labeled and names and not known:
                    raise errors.InputError(
                        f"{file.path}: has no labels (no column "
                        f"{' or '.join(map(repr, label))})"
                    )
                label = (known or label)[0]
            if self.optional_id and guid not in names:
                guid = None
        return text_tables.read_examples(
            file.path,
            self.form,
            text_column=self.text,
            text_pair_column=self.text_pair,
            label_column=label if file.is_labeled else None,
            id_column=guid,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Endings:
    """SWAG's CSV files, and others with its columns, such as CODAH's.

    sent1 "A drum line ...", sent2 "Members of it", ending0 ... ending3, label
        -> num_choices pairs: (sent1, sent2 + ending)

    The test file has no label column.
    """

    num_choices: int

    def read(self, file: DataFile) -> Examples:
        """Returns the examples of a file; see Format."""
        path = file.path
        rows = list(text_tables.read_named(path, "csv"))
        if not rows:
            raise errors.InputError(f"{path}: has no examples")
        first, second = [], []
        for row in rows:
            begin = text_tables.require(path, row, "sent2")
            for i in range(self.num_choices):
                ending = text_tables.require(path, row, f"ending{i}")
                first.append(text_tables.require(path, row, "sent1"))
                second.append(f"{begin} {ending}".strip())
        labels = [row.cells.get("label", "") for row in rows]
        return Examples(
            path=path,
            lines=[row.line for row in rows],
            # The column of the row numbers has an empty name.
            guids=[row.cells.get("", str(i)) for i, row in enumerate(rows)],
            first=first,
            second=second,
            labels=labels if any(labels) else None,
            num_choices=self.num_choices,
        )
