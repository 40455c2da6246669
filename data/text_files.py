"""Text files as streams: blocks, lines of text, or the rows of a table.

    lines = text_files.open_lines("news/*.txt.zst")
    lines.total, lines.digest            known after a first reading
    for line in lines.read(): ...        reads again

    for row in text_files.read_named(["train.csv", "more.jsonl"]):
        row.text("sentence"), row.texts("labels"), row.where

`open_lines` takes the name of a file, a glob, a folder, or "-", standard input,
which is read once. `find_all` gives the files of such a name; the readers of
rows take these. Files may be compressed, and begin with a byte-order mark. They
are read several times, so a pipe is refused.

There is one reader for each form of a table:

    csv      a header; quoted cells may contain commas, newlines and "" for "
    tsv      a header; a line is split at its tabs, and a cell that is quoted as
             a whole loses its quotation marks, as pandas writes them
    jsonl    objects: one a line or indented, with or without commas between
             them, in an array, or in {"data": [...]}
    parquet  a table of Parquet

Every row has the number of its first line (in Parquet, of the row). Blank lines
of a table are skipped, except in a table of one column, where each is an empty
text. A row with another number of cells than the header, and anything else that
does not fit, is an InputError that names the file and the line.
"""

import csv
import hashlib
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from foundation import errors, file_system

FORMATS = ("csv", "tsv", "jsonl", "parquet")
STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 20
# Endings of files that have another form than their name.
_FORM_OF = {"json": "jsonl", "ndjson": "jsonl", "txt": "tsv"}
_LONGEST_FIELD = 1 << 28
# Rows and bytes of a Parquet table that are read at once.
_PARQUET_ROWS, _PARQUET_BYTES = 256, 1 << 18
# What may be before the rows of a JSON file: the beginning of an object whose
# member "data" has them, after members that are no objects.
_BEFORE_ROWS = re.compile(
    r'\s*\{(?:\s*"\w+"\s*:\s*(?:"[^"]*"|[\w.+-]+)\s*,)*'
    r'\s*"data"\s*:\s*\[(?=\s*[{\]])'
)
# What separates rows, and the rows of "data", which end with "]".
_BETWEEN_ROWS = re.compile(r"[\s,\[\]]*")
_BETWEEN_DATA = re.compile(r"[\s,]*")


class Block(NamedTuple):
    """Complete lines of one file."""

    path: str
    first_line: int  # Counted from 1.
    data: bytes
    file_bytes: int  # Read from the file; compressed if it is.
    missing: int = 0  # Rows of a table that have no text.


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
    position: int = 0  # Bytes of the file that were read by then.

    @property
    def where(self) -> str:
        """Names file and line, for a message."""
        return f"{self.path}:{self.line}"

    def cell(self, column: str, flag: str | None = None) -> Any:
        """Returns the cell of a named column, of any type.

        Args:
          column: name of the column.
          flag: the flag that chooses the column, if there is one.

        Raises:
          InputError: there is no such column; names those that there are.
        """
        if column not in self.cells:
            names = errors.listed(f"{x!r:.50}" for x in self.cells)
            chosen = f" ({flag} chooses it)" if flag else ""
            raise errors.InputError(
                f"{self.where}: no column {column!r}, only: {names}{chosen}"
            )
        return self.cells[column]

    def text(self, column: str, flag: str | None = None) -> str:
        """Returns a cell as text; a null is an empty one, like an empty cell.

        Raises:
          InputError: there is no such column, or it has no text or number.
        """
        value = self.cell(column, flag)
        return "" if value is None else self._as_text(column, value)

    def texts(self, column: str, flag: str | None = None) -> list[str]:
        """Returns the texts of a list, or the one text of another cell."""
        value = self.cell(column, flag)
        values = value if isinstance(value, list) else [value]
        return [
            self._as_text(column, str(x).lower() if isinstance(x, bool) else x)
            for x in values
            if x is not None or isinstance(value, list)
        ]

    def _as_text(self, column: str, value: Any) -> str:
        is_text = isinstance(value, (str, int, float))
        is_text = is_text and not isinstance(value, bool)
        # JSON's NaN and Infinity denote missing values.
        if not is_text or isinstance(value, float) and not math.isfinite(value):
            raise errors.InputError(
                f"{self.where}: {column!r} is no text but {value!r:.40}"
            )
        text = str(value)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            # JSON can contain "\ud800", half of a pair, which UTF-8 cannot.
            raise errors.InputError(
                f"{self.where}: {column!r} holds {text[error.start]!r}, "
                "which is no character"
            ) from None
        return text


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
    pattern = os.path.join(name, "*") if is_folder else name
    paths = [
        path
        for path in file_system.matches(pattern)
        if not file_system.is_folder(path)
        and (is_pattern or _ending(path) in endings)
    ]
    if not paths:
        kind = f" .{' or .'.join(endings)}" if is_folder else ""
        raise errors.InputError(f"{name}: no{kind} file there")
    return paths


def _ending(path: str) -> str:
    """Returns the ending of a file's name, without that of a compressed one."""
    return file_system.ending(file_system.uncompressed(path))[1:]


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


def read_blocks(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yields a file in blocks of complete lines, of about the given size.

    Raises:
      InputError: the compressed file is damaged.
    """
    with (
        file_system.open_binary(path) as raw,
        file_system.decompressed(path, raw) as reader,
    ):
        line, before = 1, 0
        while data := reader.read(block_bytes):
            data += reader.readline()
            is_file = raw.seekable()  # Not a pipe.
            position = raw.tell() if is_file else before + len(data)
            if line == 1:
                data = data.removeprefix(b"\xef\xbb\xbf")
            yield Block(path, line, data, position - before)
            line, before = line + data.count(b"\n"), position


def open_lines(name: str) -> Lines:
    """Finds the files of a name, and reads them once to check them.

    Args:
      name: name of a file, which may be compressed, a glob, a folder of .txt
        files, or STANDARD_INPUT.

    Raises:
      InputError: there are no lines, or one is not UTF-8.
    """
    opened = Lines(name, find_all(name, ["txt"]), None, "")
    if opened.paths == [STANDARD_INPUT]:
        return opened
    digest, total = hashlib.sha256(), 0
    for line in opened.read():
        digest.update(b"\n" * bool(total) + line.text.encode("utf-8"))
        total += 1
    if not total:
        raise errors.InputError(f"{name}: has no lines")
    return opened._replace(total=total, digest=digest.hexdigest())


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file with their numbers.

    Only a newline ends a line: text may contain U+2028 and similar characters.
    """
    for block in _typed() if path == STANDARD_INPUT else read_blocks(path):
        text = file_system.decode(block.data, block.path, block.first_line)
        complete = text.removesuffix("\n").split("\n")
        for number, line in enumerate(complete, block.first_line):
            yield number, line.removesuffix("\r")


def _typed() -> Iterator[Block]:
    """Yields each line of standard input as soon as it is there."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        data = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        yield Block("standard input", number, data, len(line))


def form_of(path: str) -> str:
    """Returns the form of a table by the ending of its name.

    Raises:
      InputError: the ending is none of a table.
    """
    ending = _ending(path)
    form = _FORM_OF.get(ending, ending)
    if form not in FORMATS:
        raise errors.InputError(
            f"{path}: a table is named *.{', *.'.join(FORMATS)}, *.json or, "
            "with tabs, *.txt"
        )
    return form


def read_named(paths: Iterable[str], form: str | None = None) -> Iterator[Row]:
    """Yields every row of some files as a mapping of column names.

    Args:
      paths: the files.
      form: one of FORMATS; None for the form of each file's name.
    """
    for path in paths:
        yield from _READERS[form or form_of(path)](path)


def read_tsv(path: str) -> Iterator[Row]:
    """Yields tab-separated rows; quotation marks are text, as in GLUE."""
    for number, line in lines(path):
        yield Row(path, number, line.split("\t") if line else [])


def _unquoted(cell: str) -> str:
    inner = cell[1:-1].replace('""', "")
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inner:
        return cell
    return cell[1:-1].replace('""', '"')


def _read_csv(path: str) -> Iterator[Row]:
    """Yields rows in which quoted cells may contain commas and newlines."""
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader((f"{x}\n" for _, x in lines(path)), strict=True)
    begin = 1
    try:
        for cells in reader:
            yield Row(path, begin, cells)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise errors.InputError(
            f"{path}:{begin}: the row that begins here is no CSV: {error}"
        ) from None


def _below_header(rows: Iterator[Row]) -> Iterator[Row]:
    """Yields the rows below the first that is not blank: the header."""
    row = next(rows, None)
    while row is not None and not row.cells:
        row = next(rows, None)
    if row is None:
        return
    header = row.cells
    _check_header(row.path, header)
    for row in rows:
        cells = row.cells or [""]
        if len(header) > 1 and len(cells) == 1 and not cells[0].strip():
            continue
        if len(cells) != len(header):
            raise errors.InputError(
                f"{row.where}: {len(cells)} columns, but the header has "
                f"{len(header)}"
            )
        yield row._replace(cells=dict(zip(header, cells, strict=True)))


def _check_header(path: str, header: Sequence[str]) -> None:
    """Refuses columns of the same name, one of which would be lost."""
    name = errors.repeated(filter(None, header))
    if name is not None:
        raise errors.InputError(f"{path}: two columns named {name!r}")


def _read_json(path: str) -> Iterator[Row]:
    """Yields the objects of a file, wherever its lines end."""
    decode = json.JSONDecoder().raw_decode
    text, at, line, position, between = "", 0, 1, 0, _BETWEEN_ROWS
    for block in itertools.chain(read_blocks(path), [None]):
        text, at = text[at:], 0
        if block is not None:
            text += file_system.decode(block.data, path, block.first_line)
            position += block.file_bytes
            if block.first_line == 1 and (found := _BEFORE_ROWS.match(text)):
                at, between = found.end(), _BETWEEN_DATA
                line += text.count("\n", 0, at)
        while True:
            gap = between.match(text, at)
            assert gap is not None  # It may be empty.
            line, at = line + gap[0].count("\n"), gap.end()
            if text.startswith("]", at):  # The end of {"data": [...]}.
                return
            if at == len(text):
                break
            try:
                cells, end = decode(text, at)
            except (ValueError, RecursionError) as error:
                failed_at = getattr(error, "pos", at)
                if block is not None and not text[failed_at + 1 :].strip():
                    break  # The object goes on in the next block.
                number = line + text.count("\n", at, failed_at)
                message = getattr(error, "msg", error)
                raise errors.InputError(
                    f"{path}:{number}: not JSON: {message}"
                ) from None
            if not isinstance(cells, dict):
                raise errors.InputError(f"{path}:{line}: not a JSON object")
            yield Row(path, line, cells, position)
            line, at = line + text.count("\n", at, end), end


def read_parquet(path: str, column: str | None = None) -> Iterator[Row]:
    """Yields the rows of a table, or the cells of one column if it is there.

    Raises:
      InputError: the file is not a table, or is damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with file_system.open_binary(path) as raw:
            # A row group may be larger than the memory.
            table = parquet.ParquetFile(
                raw, buffer_size=_PARQUET_BYTES, pre_buffer=False
            )
            names = table.schema_arrow.names
            _check_header(path, names)  # One of them would be lost.
            size, total = file_system.size(path), table.metadata.num_rows
            batches = table.iter_batches(
                _PARQUET_ROWS, columns=[column] if column in names else None
            )
            for number, cells in enumerate(
                itertools.chain.from_iterable(x.to_pylist() for x in batches), 1
            ):
                yield Row(path, number, cells, size * number // max(total, 1))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None):
            raise
        raise errors.InputError(
            f"{path}: not Parquet, or damaged: {errors.reason(error)}"
        ) from None


_READERS = {
    "csv": lambda path: _below_header(_read_csv(path)),
    "tsv": lambda path: _below_header(
        row._replace(cells=[*map(_unquoted, row.cells)])
        for row in read_tsv(path)
    ),
    "jsonl": _read_json,
    "parquet": read_parquet,
}
