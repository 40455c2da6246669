"""Tables of text as people have them: rows of .tsv, .csv and .jsonl files.

Files are read as streams. They may end in .gz or .bz2, and begin with a
byte-order mark. Every row has the number of its first line. Blank lines are
skipped, except in a table of one column, where each is an empty text. Anything
else that does not fit is an InputError that names the file and the line.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from data import corpus
from data.examples import Examples
from foundation import errors, file_system

FORMATS = ("csv", "tsv", "jsonl")
_LONGEST_FIELD = 1 << 28
# Separators that a header of one cell may have been meant to have.
_SEPARATORS = {"csv": ";\t|", "tsv": ";,|"}


class Row(NamedTuple):
    """One row and the number of its first line."""

    line: int
    cells: Any  # A list (empty for a blank line), or a JSON line's object.


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines with their numbers.

    Only a newline ends a line: text may contain U+2028 and similar characters.
    """
    for block in corpus.read_blocks([path]):
        data = block.data.removesuffix(b"\n")
        for number, line in enumerate(data.split(b"\n"), block.first_line):
            text = file_system.decode(line, path, number)
            yield number, text.removesuffix("\r")


def read_tsv(path: str) -> Iterator[Row]:
    """Yields tab-separated rows; quotation marks are text, as in GLUE."""
    for number, line in lines(path):
        yield Row(number, line.split("\t") if line else [])


def read_csv(path: str, separator: str = ",") -> Iterator[Row]:
    """Yields rows in which quoted cells may contain separators and newlines."""
    first_line = ""

    def text() -> Iterator[str]:
        nonlocal first_line
        for block in corpus.read_blocks([path]):
            decoded = file_system.decode(block.data, path, block.first_line)
            first_line = first_line or decoded.lstrip().partition("\n")[0]
            yield from io.StringIO(decoded, newline="")

    csv.field_size_limit(_LONGEST_FIELD)
    end = 0
    try:
        reader = csv.reader(text(), delimiter=separator, strict=True)
        for cells in reader:
            begin, end = end + 1, reader.line_num
            yield Row(begin, cells)
    except csv.Error as error:
        header = first_line.split(separator)
        raise errors.InputError(
            f"{path}:{end + 1}: {error}{_other_separator(header, 'csv')}"
        ) from None


def read_jsonl(path: str) -> Iterator[Row]:
    """Yields the object of each line."""
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise errors.InputError(
                f"{path}:{number}: not JSON: {error}"
            ) from None
        if not isinstance(value, dict):
            raise errors.InputError(f"{path}:{number}: not a JSON object")
        yield Row(number, value)


def read_named(path: str, form: str) -> Iterator[Row]:
    """Yields every row as a mapping of column names, which a header gives.

    Quotation marks in a .tsv are text, except around a cell that is quoted as
    in a .csv. A .tsv with tabs or newlines in quoted cells is accepted if every
    row then has the header's number of columns.
    """
    if form == "jsonl":
        yield from read_jsonl(path)
        return
    rows = (read_csv if form == "csv" else read_tsv)(path)
    header = next(filter(None, (row.cells for row in rows)), None)
    if header is None:
        raise errors.InputError(f"{path}: is empty")
    if form == "tsv":
        header = list(map(_unquoted, header))
    for name in filter(None, header):
        if header.count(name) > 1:
            raise errors.InputError(
                f"{path}: the header names the column {name!r} twice"
            )
    for line, cells in _filled(rows, header):
        if len(cells) != len(header):
            if form == "tsv" and _is_quoted_tsv(path, header):
                for row in _filled(read_csv(path, "\t"), header):
                    if row.line >= line:
                        cells = dict(zip(header, row.cells, strict=True))
                        yield Row(row.line, cells)
                return
            raise errors.InputError(
                f"{path}:{line}: {len(cells)} columns, but the header "
                f"has {len(header)}{_other_separator(header, form)}"
                f"{_open_quote(cells, form)}"
            )
        if form == "tsv":
            cells = map(_unquoted, cells)
        yield Row(line, dict(zip(header, cells, strict=True)))


def _filled(rows: Iterator[Row], header: Sequence[str]) -> Iterator[Row]:
    """Skips blank lines, except in a table of one column."""
    for line, cells in rows:
        if len(header) == 1:
            yield Row(line, cells or [""])
        elif cells and (len(cells) > 1 or cells[0].strip()):
            yield Row(line, cells)


def _is_quoted_tsv(path: str, header: Sequence[str]) -> bool:
    """Returns whether a .tsv follows the rules of .csv without exception."""
    try:
        rows = _filled(read_csv(path, "\t"), header)
        return all(len(row.cells) == len(header) for row in rows)
    except errors.InputError:
        return False


def read_examples(
    path: str,
    form: str,
    *,
    text_column: str,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
) -> Examples:
    """Reads the examples of a user's own task.

    Args:
      path: the file.
      form: one of FORMATS.
      text_column: of the text, or of the first text of a pair.
      text_pair_column: of the second text.
      label_column: None for examples without labels.
      id_column: None numbers the examples.
    """
    path = file_system.find(path)
    columns = {
        flag: (name, convert, [])
        for flag, name, convert in (
            ("--text_column", text_column, _text),
            ("--text_pair_column", text_pair_column, _text),
            ("--label_column", label_column, _label),
            ("--id_column", id_column, _as_text),
        )
        if name
    }
    numbers = []
    for row in read_named(path, form):
        numbers.append(row.line)
        for flag, (name, convert, values) in columns.items():
            cell = require(path, row, name, form, flag)
            values.append(convert(path, row, name, cell))
    if not numbers:
        raise errors.InputError(f"{path}: has no examples")
    found = {flag: values for flag, (_, _, values) in columns.items()}
    texts = found["--text_column"]
    empty = [n for n, text in zip(numbers, texts, strict=True) if not text]
    if empty:
        logging.warning(
            "%s:%d: no text, one of %d such row(s)", path, empty[0], len(empty)
        )
    return Examples(
        path=path,
        lines=numbers,
        guids=found.get("--id_column") or list(map(str, range(len(numbers)))),
        first=texts,
        second=found.get("--text_pair_column"),
        labels=found.get("--label_column"),
    )


def require(
    path: str, row: Row, name: str, form: str = "csv", flag: str | None = None
) -> Any:
    """Returns the cell of a named column.

    Args:
      path: the file, for the message.
      row: of read_named.
      name: the column.
      form: one of FORMATS.
      flag: the flag that chooses the column, if there is one.

    Raises:
      InputError: there is no such column.
    """
    if name not in row.cells:
        names = list(row.cells)
        chosen = f" ({flag} chooses it)" if flag else ""
        raise errors.InputError(
            f"{path}:{row.line}: no column {name!r}, only: {_names(names)}"
            f"{chosen}{_other_separator(names, form)}"
        )
    return row.cells[name]


def _other_separator(header: Sequence[str], form: str) -> str:
    """Returns a hint for a message if the header has another separator."""
    found = [s for s in _SEPARATORS.get(form, "") if s in header[0]]
    if len(header) > 1 or not found:
        return ""
    return (
        f"; the header seems to be separated by {found[0]!r}, but csv wants "
        "commas and tsv tabs (--task_name=csv|tsv)"
    )


def _unquoted(cell: str) -> str:
    inner = cell[1:-1].replace('""', "")
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inner:
        return cell
    return cell[1:-1].replace('""', '"')


def _open_quote(cells: Sequence[str], form: str) -> str:
    """Returns a hint for a message if a quoted cell is not closed."""
    if form != "tsv" or not cells or cells[-1].count('"') % 2 == 0:
        return ""
    return "; text of several lines needs quotes and commas (--task_name=csv)"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")


def _text(path: str, row: Row, name: str, value: Any) -> str:
    """Returns a text; JSON's null is an empty one, like an empty cell."""
    return "" if value is None else _as_text(path, row, name, value)


def _label(path: str, row: Row, name: str, value: Any) -> str | list[str]:
    def word(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return _as_text(path, row, name, value)

    if value is None:
        return ""
    return list(map(word, value)) if isinstance(value, list) else word(value)


def _as_text(path: str, row: Row, name: str, value: Any) -> str:
    is_text = isinstance(value, (str, int, float))
    is_text = is_text and not isinstance(value, bool)
    # JSON's NaN and Infinity denote missing values.
    if not is_text or (isinstance(value, float) and not math.isfinite(value)):
        raise errors.InputError(
            f"{path}:{row.line}: {name!r} is no text but {value!r:.40}"
        )
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # JSON can contain "\ud800", half of a pair, which UTF-8 cannot.
        raise errors.InputError(
            f"{path}:{row.line}: {name!r} holds {text[error.start]!r}, "
            "which is no character"
        ) from None
    return text
