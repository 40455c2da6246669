"""Reads the files of sentence tasks as streams of `data.examples.Example`.

A format knows where a file holds texts and labels, the `endings` of such files
in a folder, and `num_texts`: 1, 2 for pairs, or more for multiple choice. Its
`read` yields the examples of a DataFiles; it raises InputError for a file of
another format, or without labels although they are required.

    NumberedColumns  GLUE, XNLI: tab-separated, columns found by number
                     index  sentence1  sentence2  label
    NamedColumns     CSV, TSV, JSON lines or Parquet, columns found by name
                     {"question": "...", "passage": "...", "label": true}
    Alternatives     COPA: JSON lines with two choices, which become two pairs
    Endings          SWAG: CSV with four endings per row, which become the four
                     text pairs of one multiple-choice example
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from data import text_files
from data.examples import Example
from data.text_files import Row
from foundation import errors, file_system
from tasks.classification import settings

TRAIN, DEV, TEST = "train", "dev", "test"
PARAPHRASE_CORPUS = "msr_paraphrase"  # Microsoft's names of MRPC's files.
_MAX_CELLS_SHOWN, _MAX_CELL_CHARACTERS = 12, 24
_MAX_ROWS_NAMED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFiles:
    """The files of one set and what a format must know to read them.

    Attributes:
      paths: the files, which exist.
      split: "train", "dev" or "test", or one of these with a suffix, as in
        "dev_mismatched".
      is_labeled: whether labels are required; False for test sets.
      have_released_names: whether the files were found under released names,
        not named by a flag.
      data_dir: --data_dir, "" without it.
      language: the language to read from XNLI's files.
      labels: the task's labels as its files spell them.
    """

    paths: Sequence[str]
    split: str
    is_labeled: bool
    have_released_names: bool = False
    data_dir: str = ""
    language: str = ""
    labels: Collection[str] = ()

    @property
    def set_name(self) -> str:
        """The split without its suffix."""
        return self.split.partition("_")[0]


def required(split: str) -> str:
    """Returns the message of a command that lacks one of a user's tables."""
    message = f"--{split}_file is required"
    if split == DEV:
        message += ", or --dev_fraction=0.1: this part of --train_file"
    return message


def read_lines(num_texts: int, *, of_jsonl: bool) -> Iterator[Example]:
    """Yields the examples of standard input: a text, or a pair with a tab.

    Args:
      num_texts: 1 or 2.
      of_jsonl: whether the user's tables are JSON lines; a JSON object is then
        refused.
    """
    has_tab = False
    for number, line in text_files.lines(text_files.STANDARD_INPUT):
        if of_jsonl and number == 1 and re.match(r'\s*\{\s*"', line):
            raise errors.InputError(
                "standard input:1: a JSON object, but --test_file=- reads "
                "lines of text; write the rows to a file"
            )
        texts = line.split("\t") if num_texts > 1 else [line]
        if num_texts == 1 and "\t" in line and not has_tab:
            has_tab = True
            errors.warn_once(
                f"standard input:{number}: a tab; the whole line is the text, "
                "not its first column"
            )
        if len(texts) != num_texts:
            raise errors.InputError(
                f"standard input:{number}: {len(texts) - 1} tabs, but one "
                "separates the texts of a pair"
            )
        guid = str(number - 1)
        yield Example("standard input", number, guid, texts[0], texts[1:])


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
                if file_system.exists(path):
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
        other_columns = (self.label, self.guid, self.language)
        return [x for x in (*texts, *other_columns) if x is not None]

    @property
    def min_width(self) -> int:
        """The smallest number of columns that such a file can have."""
        return 1 + max(self.used_columns)

    def fits(self, cells: Sequence[str], labels: Collection[str]) -> bool:
        """Returns whether a file with this first row has this layout.

        Only the names of used columns are compared, because files differ in
        the other columns: MNLI's have different numbers of annotators' labels.
        """
        if len(cells) < self.min_width:
            return False
        if not self.has_header:
            return self.label is not None and cells[self.label] in labels
        names = self.names.split(",")
        return all(_is_named(cells[i], names[i]) for i in self.used_columns)

    def __str__(self) -> str:
        """Returns the first row of such a file."""
        names = ", ".join(self.names.split(","))
        return names if self.has_header else f"(no header) {names}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberedColumns:
    """The tab-separated files of GLUE and XNLI. Nothing is quoted.

    Columns are found by number. In a file of another layout, a label could be
    read as a text, so the header is first compared with the known layouts.

    Attributes:
      labeled: layout of the labeled sets, None if there are none.
      test: layout of the test set.
      train: layout of the training set, if it differs from `labeled`.
      aliases: spelling of a label in the files -> label.
      has_cut_rows: the training and development sets were released with
        truncated rows, which are skipped with a warning. Test sets must be
        complete.
    """

    labeled: Layout | None = None
    test: Layout
    train: Layout | None = None
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_cut_rows: bool = False

    endings = ("tsv", "txt")

    @property
    def num_texts(self) -> int:
        """1, or 2 for pairs."""
        return 1 if self.test.second is None else 2

    def read(self, files: DataFiles) -> Iterator[Example]:
        """Yields the examples of some files."""
        number = 0
        languages: set[str] = set()
        for path in files.paths:
            filled = (row for row in text_files.read_tsv(path) if row.cells)
            head = next(filled, None)
            if head is None:
                raise errors.InputError(f"{path}: is empty")
            layout = self._layout_of(files, head)
            skip_cut = self.has_cut_rows and files.set_name != TEST
            rows = _complete_rows(head, filled, layout, skip_cut=skip_cut)
            if layout.language is not None:
                rows = _rows_of_language(
                    files.language, rows, layout.language, languages
                )
            is_corpus = os.path.basename(path).startswith(
                f"{PARAPHRASE_CORPUS}_{TRAIN}"
            )
            if is_corpus and files.set_name != TEST:
                rows = _rows_of_corpus(files, path, rows)
            for row in rows:
                guid, second, label = (
                    None if column is None else row.cells[column]
                    for column in (layout.guid, layout.second, layout.label)
                )
                yield Example(
                    path,
                    row.line,
                    str(number) if guid is None else guid,
                    row.cells[layout.first],
                    () if second is None else (second,),
                    None if label is None else self.aliases.get(label, label),
                )
                number += 1
        if languages and files.language not in languages:
            raise errors.InputError(
                f"--language={files.language}: {', '.join(files.paths)} has "
                f"none of it, only: {', '.join(sorted(languages))}"
            )

    def _layout_of(self, files: DataFiles, head: Row) -> Layout:
        """Returns the layout of a file by its first row."""
        path, cells = head.path, head.cells
        expected_layout = self.test
        if files.is_labeled:
            is_train = files.set_name == TRAIN
            labeled = (self.train if is_train else None) or self.labeled
            if labeled is None:
                raise errors.InputError(f"{path}: a test set without labels")
            expected_layout = labeled
        layouts = (expected_layout, self.train, self.labeled, self.test)
        candidates = [x for x in dict.fromkeys(layouts) if x is not None]
        labels = {*files.labels, *self.aliases}
        fitting = [
            layout for layout in candidates if layout.fits(cells, labels)
        ]
        begins = f"it begins with: {_shown(cells)}"
        if not fitting and files.have_released_names:
            # Users rename the columns of released files.
            _check_renamed(head, expected_layout, labels, begins)
            return expected_layout
        if not fitting:
            expected_rows = " or ".join(dict.fromkeys(map(str, candidates)))
            raise errors.InputError(
                f"{path}: none of the task's files, which begin with: "
                f"{expected_rows}; {begins} (--task_name=tsv reads any table)"
            )
        layout = fitting[0]
        if expected_layout.label is None:  # A labeled file may be predicted.
            return dataclasses.replace(layout, label=None)
        if layout.label is None:
            raise errors.InputError(
                f"{path}: a test set, which has no labels; expected: "
                f"{expected_layout}; {begins}"
            )
        return layout


def _check_renamed(
    head: Row, layout: Layout, labels: Collection[str], begins: str
) -> None:
    """Refuses a first row that cannot be a renamed header of a layout."""
    path, cells = head.path, head.cells
    if not layout.has_header or len(cells) < layout.min_width:
        return  # The labels, or the width of the rows, are checked later.
    names = layout.names.split(",")
    expected = f"expected: {layout}; {begins}"
    has_label = layout.label is not None and cells[layout.label] in labels
    has_number = layout.guid is not None and cells[layout.guid].isdigit()
    if has_label or has_number:
        raise errors.InputError(
            f"{path}: has no header: its first line is an example; {expected}"
        )
    for i in (layout.first, layout.second, layout.label):
        if i is None or _is_named(cells[i], names[i]):
            continue
        if any(_is_named(cell, names[i]) for cell in cells):
            raise errors.InputError(
                f"{path}: {names[i]!r} is another column; {expected} "
                "(--task_name=tsv finds columns by name)"
            )
    errors.warn_once(
        f"{path}: unknown header; columns are read by number; {expected}"
    )


def _complete_rows(
    head: Row, rows: Iterator[Row], layout: Layout, *, skip_cut: bool
) -> Iterator[Row]:
    """Yields the rows below the header; each must have as many columns."""
    width = len(head.cells)
    if width < layout.min_width:
        raise errors.InputError(
            f"{head.where}: {width} columns, but {layout.min_width} are "
            "needed: is it a file of another --task_name?"
        )
    cut = []
    for row in rows if layout.has_header else itertools.chain([head], rows):
        if layout.has_header and text_files.is_header_again(
            row.cells, head.cells
        ):
            raise errors.InputError(f"{row.where}: {text_files.HEADER_AGAIN}")
        if len(row.cells) == width:
            yield row
        elif skip_cut:
            cut.append(row.where)
        else:
            model = "the header" if layout.has_header else "the first row"
            raise errors.InputError(
                f"{row.where}: {len(row.cells)} columns, but {model} has "
                f"{width}"
            )
    if cut:
        places = ", ".join(cut[:_MAX_ROWS_NAMED])
        errors.warn_once(f"{len(cut)} truncated row(s) skipped: {places}")


def _rows_of_language(
    language: str, rows: Iterator[Row], column: int, languages: set[str]
) -> Iterator[Row]:
    """Yields the rows of a language; adds those of all rows to `languages`."""
    for row in rows:
        languages.add(row.cells[column])
        if row.cells[column] == language:
            yield row


def _rows_of_corpus(
    files: DataFiles, path: str, rows: Iterator[Row]
) -> Iterator[Row]:
    """Yields the training or development rows of Microsoft's corpus.

    dev_ids.tsv lists the pairs of sentence ids of the development set.
    """
    folders = filter(None, (os.path.dirname(path), files.data_dir))
    paths = [find_released(["dev_ids.tsv"], x, ["MRPC"]) for x in folders]
    ids = next(filter(None, paths), None)
    if ids is None:
        raise errors.InputError(
            f"{path}: no dev_ids.tsv beside it, which lists the development set"
        )
    dev_pairs = set()
    for row in text_files.read_tsv(ids):
        if len(row.cells) == 1:
            raise errors.InputError(
                f"{row.where}: one column, but a tab separates the two ids"
            )
        dev_pairs.add(tuple(row.cells[:2]))
    has_dev = False
    for row in rows:
        is_dev = tuple(row.cells[1:3]) in dev_pairs
        has_dev |= is_dev
        if is_dev == (files.set_name == DEV):
            yield row
    if not has_dev:
        raise errors.InputError(f"{ids}: none of its pairs is in {path}")


def _is_named(cell: str, name: str) -> bool:
    return cell.strip("\ufeff ").lower() == name.lower()


def _shown(cells: Sequence[str]) -> str:
    texts = [
        cell
        if len(cell) <= _MAX_CELL_CHARACTERS
        else f"{cell[:_MAX_CELL_CHARACTERS]}..."
        for cell in cells[:_MAX_CELLS_SHOWN]
    ]
    return ", ".join(texts) + (", ..." if len(cells) > len(texts) else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedColumns:
    """A table whose columns are found by name; see data.text_files.

    Attributes:
      form: one of text_files.FORMATS.
      text: name of the column of the text, or of the first text of a pair.
      text_pair: name of the column of the second text.
      label: name of the column of the label. Several names are alternatives:
        the first that the file has is read.
      label_columns: names of columns of 0 or 1, one for each label; they
        replace `label`.
      id: name of the column of the id. Without it (or if the file does not
        have an `optional_id`), examples are numbered.
      optional_id: whether files may lack the id.
      prefix: name of the column of a text before the (first) text.
      kept: names of the columns that predictions repeat.
    """

    form: str = "csv"
    text: str = "text"
    text_pair: str | None = None
    label: str | Sequence[str] = "label"
    label_columns: Sequence[str] = ()
    id: str | None = None
    optional_id: bool = False
    prefix: str | None = None
    kept: Sequence[str] = ()

    @property
    def endings(self) -> Sequence[str]:
        """The form of the table."""
        return (self.form,)

    @property
    def num_texts(self) -> int:
        """1, or 2 for pairs."""
        return 1 if self.text_pair is None else 2

    def read(self, files: DataFiles) -> Iterator[Example]:
        """Yields the examples of some files."""
        label, guid = self.label, self.id
        if not isinstance(label, str) or self.optional_id:
            first = next(text_files.read_named(files.paths, self.form), None)
            names = first.cells if first is not None else {}
            if not isinstance(label, str):
                columns = [name for name in label if name in names]
                if files.is_labeled and first and first.cells and not columns:
                    raise errors.InputError(
                        f"{first.path}: has no labels (no column "
                        f"{' or '.join(map(repr, label))})"
                    )
                label = (columns or label)[0]
            if self.optional_id and guid not in names:
                guid = None
        is_one_column = files.is_labeled and not self.label_columns
        examples = text_files.read_examples(
            files.paths,
            self.form,
            text_column=self.text,
            text_pair_column=self.text_pair,
            label_column=label if is_one_column else None,
            label_columns=self.label_columns if files.is_labeled else (),
            id_column=guid,
            kept_columns=self.kept,
            have_kept=files.set_name == TEST,
        )
        if self.prefix is None:
            return examples
        return self._prefixed(files, examples, self.prefix)

    def _prefixed(
        self, files: DataFiles, examples: Iterator[Example], column: str
    ) -> Iterator[Example]:
        """Puts the text of a column before the first text: "word: text"."""
        rows = text_files.read_named(files.paths, self.form)
        for row, example in zip(rows, examples, strict=True):
            prefix = text_files.require(row, column)
            yield example._replace(first=f"{prefix}: {example.first}")


def own_table(form: str, columns: settings.Columns) -> NamedColumns:
    """Returns the format of a user's own table, whose columns flags name.

    Raises:
      InputError: a column is read as two of text, second text and label.
    """
    text, label = columns.text_column or "text", columns.label_column or "label"
    pair = columns.text_pair_column
    labels = columns.of_labels or [label]
    if twice := errors.repeated(filter(None, [text, pair, *labels])):
        raise errors.InputError(
            f"the column {twice!r} is named twice among --text_column={text}, "
            f"--text_pair_column={pair} and the labels {errors.listed(labels)}"
        )
    return NamedColumns(
        form=form,
        text=text,
        text_pair=pair,
        label=label,
        label_columns=columns.of_labels,
        id=columns.id_column,
        kept=columns.kept,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Endings:
    """SWAG's CSV files, and others with its columns, such as CODAH's.

    sent1 "A drum line ...", sent2 "Members of it", ending0 ... ending3, label
        -> num_texts pairs: (sent1, sent2 + ending)

    The test file has no label column.
    """

    num_texts: int
    endings = ("csv",)

    def read(self, files: DataFiles) -> Iterator[Example]:
        """Yields the examples of some files."""
        rows = text_files.read_named(files.paths, "csv")
        for number, row in enumerate(rows):
            if (surplus := f"ending{self.num_texts}") in row.cells:
                raise errors.InputError(
                    f"{row.where}: a column {surplus!r}, but there are "
                    f"{self.num_texts} endings, from 0 on"
                )
            begin = text_files.require(row, "sent2")
            seconds = [
                text_files.require(row, f"ending{i}")
                for i in range(self.num_texts)
            ]
            yield Example(
                row.path,
                row.line,
                # The column of the row numbers has an empty name.
                row.cells.get("", str(number)),
                text_files.require(row, "sent1"),
                tuple(f"{begin} {second}".strip() for second in seconds),
                row.cells.get("label"),
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternatives:
    """COPA's JSON lines.

    premise "It rained.", question "effect", choice1, choice2, label
        -> two pairs: (premise, "so " + choice); "because " for a cause
    """

    num_texts: int = 2
    endings = ("jsonl",)

    def read(self, files: DataFiles) -> Iterator[Example]:
        """Yields the examples of some files."""
        words = {"cause": "because", "effect": "so"}
        for number, row in enumerate(
            text_files.read_named(files.paths, "jsonl")
        ):
            names = ["premise", "question"]
            names += [f"choice{i}" for i in range(1, self.num_texts + 1)]
            premise, question, *choices = (
                text_files.require(row, name, "jsonl") for name in names
            )
            if question not in words:
                raise errors.InputError(
                    f"{row.where}: the question is {question!r}, not cause or "
                    "effect"
                )
            label = row.cells.get("label")
            yield Example(
                row.path,
                row.line,
                str(row.cells.get("idx", number)),
                premise,
                tuple(f"{words[question]} {choice}" for choice in choices),
                None if label is None else str(label),
            )


Format = NumberedColumns | NamedColumns | Endings | Alternatives
