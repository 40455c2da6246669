"""Text files as streams: the lines of text, or the rows of a table.

    lines = text_files.open_lines("news/*.txt.zst")
    lines.total, lines.digest            known after a first reading
    for line in lines.read(): ...        reads again

    for row in text_files.read_named(["train.csv"], "csv"): ...

`open_lines` takes the name of a file, a glob, a folder, or "-", standard input,
which is read once. `find_all` gives the files of such a name; the readers of
rows take these. Files may be compressed, and begin with a byte-order mark. They
are read several times, so a pipe is refused. Tables are .csv, .tsv, .jsonl and
.parquet files. Every row has the number of its first line (in Parquet, of the
row). Blank lines of a table are skipped, except in a table of one column, where
each is an empty text. Anything else that does not fit is an InputError that
names the file and the line.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from data import corpus
from data.examples import Example
from foundation import errors, file_system

FORMATS = ("csv", "tsv", "jsonl", "parquet")
STANDARD_INPUT = "-"
HEADER_AGAIN = "the header again, as in files that were joined"
_TRUTHS = {
    **dict.fromkeys(("1", "1.0", "true"), True),
    **dict.fromkeys(("0", "0.0", "false"), False),
}
_TABLES = (".csv", ".tsv", ".jsonl", ".json")  # Have no lines of text.
# Usual names of the columns of a pair; others are text1, text2, text_a, text_b.
_PARTNERS = {"text": "text_pair", "premise": "hypothesis"}
_SPACE_AND_QUOTES = re.compile(r'\s+"[^"]*"\s*$')
_LONGEST_FIELD = 1 << 28
# Separators that a header of one cell may have been meant to have.
_SEPARATORS = {"csv": ";\t|", "tsv": ";,|"}


class Line(NamedTuple):
    """One line, without its end."""

    path: str
    number: int  # In its file, counted from 1.
    text: str

    @property
    def where(self) -> str:
        """Names file and line, for a message."""
        return f"{self.path}:{self.number}"


class Lines(NamedTuple):
    """The lines of some files.

    name: name of a file, a glob or a folder, as the user gave it.
    paths: paths of the files, or of standard input.
    total: number of lines; None for standard input.
    digest: SHA-256 of all lines; "" for standard input.
    """

    name: str
    paths: Sequence[str]
    total: int | None
    digest: str

    def read(self) -> Iterator[Line]:
        """Yields the lines, including empty ones.

        Raises:
          InputError: a line is not UTF-8.
        """
        for path in self.paths:
            for number, text in lines(path):
                # Files that were converted twice have "\r\r\n". In a table,
                # the first of these may be the end of a text.
                yield Line(path, number, text.rstrip("\r"))


class Row(NamedTuple):
    """One row and the number of its first line."""

    path: str
    line: int
    cells: Any  # A list (empty for a blank line), or a mapping of names.

    @property
    def where(self) -> str:
        """Names file and line, for a message."""
        return f"{self.path}:{self.line}"


def find_all(name: str, endings: Sequence[str]) -> list[str]:
    """Returns the files of a name, a glob or a folder, sorted.

    Args:
      name: name of a file (its compressed form is found too), a pattern, or a
        folder of such files; STANDARD_INPUT returns itself.
      endings: endings of the files in a folder, e.g. ["csv"].

    Raises:
      InputError: there is none, or it is a pipe.
    """
    if name == STANDARD_INPUT:
        return [name]
    is_folder = file_system.is_folder(name)
    is_pattern = any(x in name for x in "*?[") and not file_system.exists(name)
    if not is_folder and not is_pattern:
        return [find(name)]
    if is_folder:
        kind = f" .{' or .'.join(endings)}"
        dotted = [f".{ending}" for ending in endings]
        # No glob: the folder's name may have brackets.
        files = [
            os.path.join(name, file)
            for file in sorted(file_system.entries(name))
            if file_system.ending(file_system.uncompressed(file)) in dotted
            and not file.startswith(".")
        ]
    else:
        kind, files = "", corpus.matches(name)
    paths = [path for path in files if not file_system.is_folder(path)]
    if not paths:
        raise errors.InputError(f"{name}: no{kind} file there")
    stem = file_system.uncompressed
    for path, next_path in itertools.pairwise(sorted(paths, key=stem)):
        if stem(path) == stem(next_path):
            raise errors.InputError(
                f"{path}: the same as {next_path}, compressed? Keep one of them"
            )
    return paths


def find(name: str) -> str:
    """Returns the path of a file that can be read again; see file_system.find.

    Raises:
      InputError: there is none, or it is a pipe.
    """
    path = file_system.find(name)
    if not file_system.is_regular(path):
        raise errors.InputError(
            f"{path}: not a regular file; a pipe can be read only once, so "
            "give a file"
        )
    return path


def open_lines(name: str) -> Lines:
    """Finds the files of a name, and reads them once to check them.

    Args:
      name: name of a file, which may be compressed, a glob, a folder of .txt
        files, or STANDARD_INPUT.

    Raises:
      InputError: there are no lines, or one is not UTF-8.
    """
    paths = find_all(name, ["txt"])
    opened = Lines(name, paths, None, "")
    if paths == [STANDARD_INPUT]:
        return opened
    digest, total = hashlib.sha256(), 0
    broken: Line | None = None
    for line in opened.read():
        digest.update(b"\n" * bool(total) + line.text.encode("utf-8"))
        total += 1
        if broken is None and "\r" in line.text:
            broken = line
    if not total:
        raise errors.InputError(f"{name}: has no lines")
    if broken is not None:
        errors.warn_once(
            f"{broken.where}: a carriage return within the line, which is one "
            "text; only a line feed ends a line"
        )
    for path in paths:
        ending = file_system.ending(file_system.uncompressed(path))
        if ending in _TABLES:
            errors.warn_once(
                f"{path}: a table by its name, but each line is read as a "
                "text, with its header and all of its columns"
            )
    return opened._replace(total=total, digest=digest.hexdigest())


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file with their numbers.

    Only a newline ends a line: text may contain U+2028 and similar characters.
    """
    for first, text in _blocks(path):
        block = text.removesuffix("\n").split("\n")
        for number, line in enumerate(block, first):
            yield number, line.removesuffix("\r")


def _blocks(path: str) -> Iterator[tuple[int, str]]:
    """Yields complete lines of a file, and the number of the first."""
    if path == STANDARD_INPUT:
        for number, data in enumerate(sys.stdin.buffer, 1):
            text = file_system.decode(data, "standard input", number)
            yield number, text.removeprefix("\ufeff") if number == 1 else text
        return
    for block in corpus.read_blocks([path]):
        text = file_system.decode(block.data, path, block.first_line)
        if "\0" in text:
            line = block.first_line + text.count("\n", 0, text.index("\0"))
            raise errors.InputError(
                f"{path}:{line}: a zero byte: UTF-16 or a binary file?"
            )
        yield block.first_line, text


def read_tsv(path: str) -> Iterator[Row]:
    """Yields tab-separated rows; quotation marks are text, as in GLUE."""
    for number, line in lines(path):
        yield Row(path, number, line.split("\t") if line else [])


def _read_csv(path: str, separator: str = ",") -> Iterator[Row]:
    """Yields rows in which quoted cells may contain separators and newlines."""
    first_line = line = ""
    row_lines: list[str] = []  # Those that the reader has taken of a row.

    def text() -> Iterator[str]:
        nonlocal first_line, line
        for _, block in _blocks(path):
            first_line = first_line or block.lstrip().partition("\n")[0]
            for next_line in io.StringIO(block, newline=""):
                line = next_line
                row_lines.append(line)
                yield line

    csv.field_size_limit(_LONGEST_FIELD)
    end = width = 0
    line_ends: set[str] = set()  # Of the rows: quoted cells may have others.
    try:
        reader = csv.reader(text(), delimiter=separator, strict=True)
        for cells in reader:
            begin, end = end + 1, reader.line_num
            width = width or len(cells)
            line_ends.add(line[-1])
            if width == 1 and line_ends >= {"\r", "\n"}:
                raise errors.InputError(
                    f"{path}:{begin}: some lines end in \\r, others in \\n; "
                    "within a text, both need quotation marks"
                )
            row_lines.clear()
            yield Row(path, begin, cells)
    except csv.Error as error:
        header = first_line.split(separator)
        hint = _other_separator(header, "csv")
        opened = _opening_line(row_lines, separator)
        if opened is None:
            raise errors.InputError(
                f"{path}:{end + 1}: {error}{hint}"
            ) from None
        raise errors.InputError(
            f"{path}:{end + 1 + opened}: the cell that a quotation mark begins "
            f"here does not end with one ({error}); within it, a quotation "
            f"mark is written twice{hint}"
        ) from None


def _opening_line(row_lines: Sequence[str], separator: str) -> int | None:
    """Returns which line of a malformed row opens its last quoted cell.

    Args:
      row_lines: the lines of a row in which a quoted cell does not end before
        a separator or the end of a line.
      separator: separator of the cells.

    Returns:
      The index of the line; None if no cell of the row is quoted.
    """
    opened, is_open, before = None, False, separator
    for index, line in enumerate(row_lines):
        for character in line:
            if character == '"' and is_open:
                is_open = False
            elif character == '"' and before in (separator, "\n", "\r"):
                opened, is_open = index, True
            elif character == '"' and before == '"':
                is_open = True  # Two marks within a quoted cell.
            before = character
    return opened


def _read_jsonl(path: str) -> Iterator[Row]:
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_json_object)
        except errors.InputError as error:
            raise errors.InputError(f"{path}:{number}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise errors.InputError(
                f"{path}:{number}: not JSON: {error}"
            ) from None
        if not isinstance(value, dict):
            raise errors.InputError(f"{path}:{number}: not a JSON object")
        yield Row(path, number, value)


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object; refuses two values of one name."""
    values = dict(pairs)
    if len(values) < len(pairs):
        key = errors.repeated(key for key, _ in pairs)
        raise errors.InputError(f"the key {key!r} occurs twice in an object")
    return values


def _read_parquet(path: str) -> Iterator[Row]:
    number = 0
    for batch, _ in corpus.read_parquet(path):
        try:
            rows = batch.to_pylist()
        except UnicodeDecodeError:  # Of a text, in any of the rows.
            first = number + 1
            rows = (
                _decoded(path, first + i, batch.slice(i, 1))
                for i in range(len(batch))
            )
        for cells in rows:
            number += 1
            yield Row(path, number, cells)


def _decoded(path: str, number: int, row: Any) -> dict[str, Any]:
    """Returns the cells of a pyarrow.RecordBatch of one row."""
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError as error:
        raise errors.InputError(
            f"{path}:{number}: not UTF-8: {errors.reason(error)}"
        ) from None


def read_named(paths: Iterable[str], form: str) -> Iterator[Row]:
    """Yields every row of some files as a mapping of column names.

    The header of each file names its columns. Quotation marks in a .tsv are
    text, except around a cell that is quoted as in a .csv. Tabs and newlines
    in quoted cells of a .tsv are accepted if only then every row has the
    header's number of columns.
    """
    read = {"jsonl": _read_jsonl, "parquet": _read_parquet}.get(form)
    for path in paths:
        yield from read(path) if read else _read_below_header(path, form)


def _read_below_header(path: str, form: str) -> Iterator[Row]:
    rows = (_read_csv if form == "csv" else read_tsv)(path)
    header = next(filter(None, (row.cells for row in rows)), None)
    if header is None:
        raise errors.InputError(f"{path}: is empty")
    if form == "tsv":
        header = list(map(_unquoted, header))
    check_header(path, header)
    is_warned = False
    rows = _filled(rows, header)
    for row in _without_quotes(path, rows, header) if form == "tsv" else rows:
        cells = row.cells
        if len(cells) != len(header):
            raise errors.InputError(
                f"{row.where}: {len(cells)} columns, but the header has "
                f"{len(header)}{_other_separator(header, form)}"
                f"{_open_quote(cells, form)}"
            )
        if is_header_again(cells, header):
            raise errors.InputError(f"{row.where}: {HEADER_AGAIN}")
        quoted = next((x for x in cells if _SPACE_AND_QUOTES.match(x)), None)
        if form == "csv" and quoted is not None and not is_warned:
            is_warned = True
            errors.warn_once(
                f"{row.where}: the quotation marks of {quoted[:40]!r} are "
                "text, as a space is before the first one"
            )
        yield Row(path, row.line, dict(zip(header, cells, strict=True)))


def check_header(path: str, header: Sequence[str]) -> None:
    """Refuses columns of the same name, one of which would be lost."""
    name = errors.repeated(filter(None, header))
    if name is not None:
        raise errors.InputError(
            f"{path}: the header names the column {name!r} twice"
        )


def _without_quotes(
    path: str, rows: Iterator[Row], header: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a .tsv without quotation marks around cells.

    The first cell with an open quotation decides how the rows from there on are
    read. In those before it, a tab or newline always separates.

    Raises:
      InputError: the lines of a table of one column may be texts, or parts of
        quoted texts.
    """
    is_decided = False
    for row in rows:
        if not is_decided and any(map(_is_open, row.cells)):
            is_decided = True
            if _is_table(_read_csv(path, "\t"), header):
                if not _is_table(read_tsv(path), header):
                    for quoted in _filled(_read_csv(path, "\t"), header):
                        if quoted.line >= row.line:
                            yield quoted
                    return
                if len(header) == 1:
                    raise errors.InputError(
                        f"{row.where}: is it a text of several lines, or a "
                        "text that begins with a quotation mark? In .csv and "
                        ".jsonl, this is certain (--task_name=csv|jsonl)"
                    )
        yield row._replace(cells=list(map(_unquoted, row.cells)))


def is_header_again(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Returns whether a row repeats the header, with a byte-order mark or not.

    In a table of one column, it may be a text.
    """
    has_same_end = len(cells) > 1 and cells[-1] == header[-1]
    return has_same_end and [cells[0].removeprefix("\ufeff"), *cells[1:]] == [
        header[0].removeprefix("\ufeff"),
        *header[1:],
    ]


def _filled(rows: Iterator[Row], header: Sequence[str]) -> Iterator[Row]:
    """Skips blank lines, except in a table of one column."""
    for row in rows:
        if len(header) == 1:
            yield row if row.cells else row._replace(cells=[""])
        elif len(row.cells) > 1 or (row.cells and row.cells[0].strip()):
            yield row


def _is_table(rows: Iterator[Row], header: Sequence[str]) -> bool:
    """Returns whether all rows have the header's number of columns."""
    try:
        return all(len(x.cells) == len(header) for x in _filled(rows, header))
    except errors.InputError:
        return False


def read_examples(
    paths: Sequence[str],
    form: str,
    *,
    text_column: str,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    label_columns: Sequence[str] = (),
    id_column: str | None = None,
    kept_columns: Sequence[str] = (),
    have_kept: bool = True,
) -> Iterator[Example]:
    """Yields the examples of a user's own task.

    Args:
      paths: the files.
      form: one of FORMATS.
      text_column: name of the column of the text, or of the first text of a
        pair.
      text_pair_column: name of the column of the second text.
      label_column: None for examples without labels.
      label_columns: names of columns of 0 or 1, one for each label; they
        replace label_column.
      id_column: None numbers the examples.
      kept_columns: further columns, which predictions repeat.
      have_kept: whether every file must have these.
    """
    second: tuple[str, ...] = ()
    label: str | list[str] | None = None
    for number, row in enumerate(read_named(paths, form)):
        if number == 0 and not text_pair_column:
            _warn_of_pair(row, text_column)
        cell = require(row, text_column, form, "--text_column")
        first = _text(row, text_column, cell)
        if text_pair_column:
            cell = require(row, text_pair_column, form, "--text_pair_column")
            second = (_text(row, text_pair_column, cell),)
        if label_column:
            cell = require(row, label_column, form, "--label_column")
            label = _label(row, label_column, cell)
        if label_columns:
            label = [
                name for name in label_columns if _is_true(row, name, form)
            ]
        guid = str(number)
        if id_column:
            cell = require(row, id_column, form, "--id_column")
            guid = _as_text(row, id_column, cell)
        if have_kept:
            for name in kept_columns:
                require(row, name, form, "--keep_columns")
        kept = tuple(_shown(row.cells.get(name)) for name in kept_columns)
        yield Example(row.path, row.line, guid, first, second, label, kept)


def _warn_of_pair(row: Row, name: str) -> None:
    """Warns if a column of a text has a usual partner, which is not read."""
    partner = _PARTNERS.get(name)
    for a, b in (("1", "2"), ("a", "b"), ("A", "B")):
        if name.endswith(a):
            partner = name.removesuffix(a) + b
    if partner in row.cells:
        errors.warn_once(
            f"{row.path}: column {partner!r} is not read; "
            f"--text_pair_column={partner} makes pairs of it and {name!r}"
        )


def require(
    row: Row, name: str, form: str = "csv", flag: str | None = None
) -> Any:
    """Returns the cell of a named column.

    Args:
      row: a row from read_named.
      name: the column.
      form: one of FORMATS.
      flag: the flag that chooses the column, if there is one.

    Raises:
      InputError: there is no such column.
    """
    if name not in row.cells:
        names = list(row.cells)
        shown = errors.listed(f"{x!r:.50}" for x in names)
        chosen = f" ({flag} chooses it)" if flag else ""
        if form not in ("csv", "tsv"):
            raise errors.InputError(
                f"{row.where}: no column {name!r}, only: {shown}{chosen}"
            )
        raise errors.InputError(
            f"{row.path}:1: no column {name!r}{chosen} in the first line, "
            f"which must be the header; read as the header: {shown}"
            f"{_other_separator(names, form)}"
        )
    return row.cells[name]


def _other_separator(header: Sequence[str], form: str) -> str:
    """Returns a hint for a message if the header is not of this form."""
    if form in _SEPARATORS and header[0].lstrip().startswith(("{", "[")):
        return f"; the file seems to be JSON, but is read as {form}"
    separators = [s for s in _SEPARATORS.get(form, "") if s in header[0]]
    if len(header) > 1 or not separators:
        return ""
    return (
        f"; the header seems to be separated by {separators[0]!r}, but csv "
        "wants commas and tsv tabs (--task_name=csv|tsv)"
    )


def _unquoted(cell: str) -> str:
    inner = cell[1:-1].replace('""', "")
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inner:
        return cell
    return cell[1:-1].replace('""', '"')


def _is_open(cell: str) -> bool:
    """Returns whether a cell begins with a quotation that does not end."""
    return cell.startswith('"') and cell.count('"') % 2 == 1


def _open_quote(cells: Sequence[str], form: str) -> str:
    """Returns a hint for a message if a quoted cell is not closed."""
    if form != "tsv" or not cells or cells[-1].count('"') % 2 == 0:
        return ""
    return "; text of several lines needs quotes and commas (--task_name=csv)"


def _text(row: Row, name: str, value: Any) -> str:
    """Returns a text; JSON's null is an empty one, like an empty cell."""
    return "" if value is None else _as_text(row, name, value)


def _label(row: Row, name: str, value: Any) -> str | list[str]:
    def word(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return _as_text(row, name, value)

    if value is None:
        return ""
    return list(map(word, value)) if isinstance(value, list) else word(value)


def _shown(value: Any) -> str:
    """Returns a cell of any type as text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_true(row: Row, name: str, form: str) -> bool:
    """Returns whether a row has the label of a column of 0 or 1."""
    value = require(row, name, form, "--label_columns")
    truth = _TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise errors.InputError(
            f"{row.where}: {name!r} is {value!r:.40}, but must be 0 or 1, as a "
            "column of --label_columns"
        )
    return truth


def _as_text(row: Row, name: str, value: Any) -> str:
    is_text = isinstance(value, (str, int, float))
    is_text = is_text and not isinstance(value, bool)
    # JSON's NaN and Infinity denote missing values.
    if not is_text or (isinstance(value, float) and not math.isfinite(value)):
        raise errors.InputError(
            f"{row.where}: {name!r} is no text but {value!r:.40}"
        )
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # JSON can contain "\ud800", half of a pair, which UTF-8 cannot.
        raise errors.InputError(
            f"{row.where}: {name!r} holds {text[error.start]!r}, "
            "which is no character"
        ) from None
    return text
