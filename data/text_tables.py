"""Tables of text as people have them: rows of .tsv, .csv and .jsonl files.

Every row comes with its line number. Files may end in .gz or .bz2 and begin
with a byte-order mark. Blank lines hold nothing and are passed over, but where
a table has a single column each is an empty text. Whatever else does not fit
is an InputError that names the file and the line.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from data import corpus
from data.examples import Examples
from foundation import errors, file_system

FORMATS = ("csv", "tsv", "jsonl")
_LONGEST_FIELD = 1 << 28
# What a header of one cell may have been meant to be separated by.
_SEPARATORS = {"csv": ";\t|", "tsv": ";,|"}


class Row(NamedTuple):
    """One row and the number of the line where it begins."""

    line: int
    cells: Any  # A list (a blank line's is empty), or a JSON line's object.


def find(path: str) -> str:
    """Returns the path, or that of the compressed file beside it."""
    return file_system.find(path)


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines with their numbers.

    Only a newline ends a line: text may hold U+2028 and its like.
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


def read_csv(path: str) -> Iterator[Row]:
    """Yields comma-separated rows; quoted cells may hold newlines."""
    data = b"".join(block.data for block in corpus.read_blocks([path]))
    csv.field_size_limit(_LONGEST_FIELD)
    end, text = 0, ""
    try:
        text = file_system.decode(data, path)
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        for cells in reader:
            begin, end = end + 1, reader.line_num
            yield Row(begin, cells)
    except csv.Error as error:
        header = text.lstrip().partition("\n")[0].split(",")
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

    A cell of a .tsv that is quoted as in a .csv loses its quotation marks, all
    others are text.
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
    # Lines of one column stay as many, so that predictions fit them.
    blank = [""] if len(header) == 1 else []
    for line, cells in rows:
        if len(cells) == 1 < len(header) and not cells[0].strip():
            continue
        cells = cells or blank
        if not cells:
            continue
        if len(cells) != len(header):
            raise errors.InputError(
                f"{path}:{line}: {len(cells)} columns, but the header "
                f"has {len(header)}{_other_separator(header, form)}"
                f"{_open_quote(cells, form)}"
            )
        if form == "tsv":
            cells = map(_unquoted, cells)
        yield Row(line, dict(zip(header, cells, strict=True)))


def read_examples(
    path: str,
    form: str,
    *,
    text_column: str,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
) -> Examples:
    """Reads somebody's own task.

    Args:
      path: the file.
      form: one of FORMATS.
      text_column: the text's, or the first text's of a pair.
      text_pair_column: the second text's.
      label_column: None where labels are not wanted.
      id_column: None numbers the examples.
    """
    path = find(path)
    rows = list(read_named(path, form))
    if not rows:
        raise errors.InputError(f"{path}: has no examples")

    def column(flag: str, name: str, convert: Callable = _as_text) -> list:
        return [
            convert(path, row, name, require(path, row, name, form, flag))
            for row in rows
        ]

    texts = column("--text_column", text_column, _text)
    empty = [row.line for row, x in zip(rows, texts, strict=True) if not x]
    if empty:
        logging.warning(
            "%s:%d: no text, one of %d such row(s)", path, empty[0], len(empty)
        )
    return Examples(
        path=path,
        lines=[row.line for row in rows],
        guids=column("--id_column", id_column)
        if id_column
        else [str(i) for i in range(len(rows))],
        first=texts,
        second=column("--text_pair_column", text_pair_column, _text)
        if text_pair_column
        else None,
        labels=column("--label_column", label_column, _label)
        if label_column
        else None,
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
      flag: that chooses the column, if one does.

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
    """Returns what to add to a message, if one cell looks like several."""
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
    """Returns what to add to a message, if a quoted cell ends further down."""
    if form != "tsv" or not cells or cells[-1].count('"') % 2 == 0:
        return ""
    return "; text of several lines wants quotes and commas (--task_name=csv)"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")


def _text(path: str, row: Row, name: str, value: Any) -> str:
    """Returns a text; JSON's null is an empty one, as an empty cell is."""
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
    # JSON's NaN and Infinity say that something is missing.
    if not is_text or (isinstance(value, float) and not math.isfinite(value)):
        raise errors.InputError(
            f"{path}:{row.line}: {name!r} is no text but {value!r:.40}"
        )
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # JSON can say "\ud800", half of a pair, which no file can hold.
        raise errors.InputError(
            f"{path}:{row.line}: {name!r} holds {text[error.start]!r}, "
            "which is no character"
        ) from None
    return text
