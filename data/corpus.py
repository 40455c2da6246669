"""Reading text: documents of sentences, from plain and compressed files.

    sentences    one sentence a line, a blank line between documents (the
                 format of google-research/bert)
    paragraphs   prose: a line holds a paragraph, a blank line between
                 documents
    jsonl        one document a line: {"text": "..."}, or another field

Files may end in .gz, .bz2, .zst, or in .parquet: a row of a text column is one
document, whose lines are sentences or paragraphs.

Text is read in blocks of complete lines, which can be parsed in any order and
by any process. The contents of a block depend on the bytes alone. Lines end at
"\\n"; a new file does not start a new document. A little invalid UTF-8 is
ignored, as released.
"""

import collections
import functools
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

from absl import logging

from data import sentences
from foundation import errors, file_system

FORMATS = ("sentences", "paragraphs", "jsonl")
BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 28
_PARQUET = ".parquet"
# Rows and bytes of a table that are read at once.
_PARQUET_ROWS, _PARQUET_BYTES = 256, 1 << 18
_TEXT = "text"  # The usual field of JSON lines.
# Hard-wrapped text: in the beginning of a file with at least 20 lines within
# paragraphs, most of these are about as long as the longest ones and do not end
# a sentence.
_HEAD_BYTES, _INNER_LINES, _WIDTHS = 1 << 16, 20, range(40, 91)
# How files begin whose text has other things around it: dumps of Wikipedia, the
# output of WikiExtractor, web pages, JSON that is not lines of objects.
_MARKUP = re.compile(r"\s*(<(?:doc id=|mediawiki|\?xml|!doctype|html))", re.I)
_JSON = re.compile(r"\s*(?:\[\s*\{|\{\s*\n)\s*\"")
_TABLES = (".csv", ".tsv")
# How files begin that are not UTF-8 text. Text may begin with "BZh" or "PAR1".
_OTHER_FORMATS = {
    rb"\xff\xfe": "UTF-16 or UTF-32",
    rb"\xfe\xff": "UTF-16",
    rb"\x00\x00\xfe\xff": "UTF-32",
    rb"\x1f\x8b": "gzip, but the name does not end in .gz",
    rb"BZh[1-9]1AY&SY": "bzip2, but the name does not end in .bz2",
    rb"\x28\xb5\x2f\xfd": "zstd, but the name does not end in .zst",
    rb"PAR1\x15": "a Parquet table; a corpus of them is named *.parquet",
    rb"(?s:.{257})ustar[\0 ]": "a tar archive; unpack its files",
    rb"PK\x03\x04": "a zip archive, or a document of an office suite",
    rb"\xfd7zXZ\0": "xz; unpack it, or use gzip, bzip2 or zstd",
    rb"%PDF-1\.|%PDF-2\.": "PDF; extract its text",
}
_BETWEEN_DOCUMENTS = "<|endoftext|>"  # In corpora for GPT-2.


class Block(NamedTuple):
    """Complete lines of one file."""

    path: str
    first_line: int  # Counted from 1.
    data: bytes
    file_bytes: int  # Read from the file; compressed if it is.


class Parsed(NamedTuple):
    """The sentences of a block.

    A document begins at each index of `starts`. If an index is the number of
    sentences, a document begins with the next block. Whether the first sentence
    continues a document follows from the previous block.
    """

    texts: list[str]
    starts: list[int]
    counts: collections.Counter  # lines, blank_lines, invalid_bytes


def find_files(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the files of a comma-separated list of names and globs.

    A file that is named twice is returned once, with a warning.

    Raises:
      InputError: one of them matches no file, or only a directory.
    """
    paths = []
    files_of = functools.cache(_files)
    names = file_system.split_names(patterns, lambda x: bool(files_of(x)))
    for pattern in names:
        files = files_of(pattern)
        if not files:
            pattern = _without_double_slashes(pattern)
            if file_system.exists(pattern) or matches(pattern):
                raise errors.InputError(
                    f"--{flag}={pattern}: is a directory: name its files, e.g. "
                    f"{pattern.rstrip('/')}/*"
                )
            raise errors.InputError(f"--{flag}={pattern}: no such file")
        paths.extend(files)
    if not paths:
        raise errors.InputError(f"--{flag}: names no file")
    found_at: dict[str, str] = {}
    again = []
    for path in paths:
        real = file_system.real(path)
        if real in found_at:
            again.append(path)
        found_at.setdefault(real, path)
    if again:
        logging.warning(
            f"--{flag}: names {len(again)} file(s) again, e.g. {again[0]}; "
            "each file is read once"
        )
    return list(found_at.values())


def _files(pattern: str) -> list[str]:
    """Returns the files of a name or a glob, without directories."""
    pattern = _without_double_slashes(pattern)
    # A name may contain brackets, which are special in a pattern.
    is_name = file_system.exists(pattern)
    matched = [pattern] if is_name else matches(pattern)
    # In parallel: a bucket needs a request for each.
    with futures.ThreadPoolExecutor(16) as pool:
        is_file = [not x for x in pool.map(file_system.is_folder, matched)]
    return list(itertools.compress(matched, is_file))


def _without_double_slashes(path: str) -> str:
    """Returns a path as the manifest and TensorFlow's globs need it."""
    is_remote = file_system.is_remote(path)
    return path if is_remote else re.sub("/{2,}", "/", path)


def matches(pattern: str) -> list[str]:
    """Returns the sorted paths that match a glob, without hidden files.

    A folder that exists is taken by its name, also if it has brackets.
    """
    pattern = _without_double_slashes(pattern)
    folder, name = os.path.split(pattern)
    shows_hidden = name.startswith(".")
    if file_system.PATTERN.search(folder) and file_system.is_folder(folder):
        pattern = os.path.join(file_system.escaped(folder), name)
    return [
        path
        for path in sorted(file_system.matches(pattern))
        if shows_hidden or not os.path.basename(path).startswith(".")
    ]


def read_blocks(
    paths: Sequence[str],
    block_bytes: int = BLOCK_BYTES,
    text_column: str | None = None,
) -> Iterator[Block]:
    """Yields the files in order, in blocks of complete lines.

    Args:
      paths: paths of text files, possibly compressed, or of Parquet tables.
      block_bytes: about the size of a block of plain text.
      text_column: name of the column of Parquet tables; None refuses them.

    Raises:
      InputError: a file is damaged, or a table has no such column.
    """
    for path in paths:
        if text_column and file_system.ending(path) == _PARQUET:
            yield from _parquet_blocks(path, block_bytes, text_column)
            continue
        with (
            file_system.open_binary(path) as raw,
            file_system.decompressed(path, raw) as reader,
        ):
            yield from _file_blocks(path, raw, reader, block_bytes)


def find_text(
    patterns: str, input_format: str, text_column: str
) -> tuple[list[str], str | None]:
    """Returns the files of --input_file, and their column of text.

    The column is None for plain text and for the usual field of JSON lines.
    Logs a warning if text is hard-wrapped, or seems to have other things in it.

    Raises:
      InputError: a file is missing, or cannot have this format or column.
    """
    paths = find_files(patterns)
    tables = [x for x in paths if file_system.ending(x) == _PARQUET]
    if input_format == "jsonl":
        if tables:
            raise errors.InputError(
                f"--input_format=jsonl: {tables[0]} is a Parquet table; its "
                "rows are documents of sentences or paragraphs"
            )
        return paths, None if text_column == _TEXT else text_column
    texts = [
        path
        for path in paths
        if file_system.ending(path) != _PARQUET
        # A pipe can be read only once.
        and file_system.is_regular(path)
    ]
    # In parallel: a bucket needs requests for each.
    with futures.ThreadPoolExecutor(16) as pool:
        looks = list(pool.map(_look_at, texts))
    widths, surplus = [x[0] for x in looks], [x[1] for x in looks]
    for what in sorted(set(filter(None, surplus))):
        logging.warning(
            f"--input_file: {surplus.count(what)} file(s), e.g. "
            f"{texts[surplus.index(what)]}, {what}"
        )
    wrapped = list(itertools.compress(texts, widths))
    if wrapped:
        logging.warning(
            f"--input_file: the lines of {len(wrapped)} file(s) seem to end "
            f"within sentences, after about {max(widths)} characters, e.g. of "
            f"{wrapped[0]}; each line is read alone: make a paragraph one "
            "line, as docs/data.md shows"
        )
    if not tables and text_column != _TEXT:
        raise errors.InputError(
            f"--text_column={text_column}: only for .parquet files and "
            "--input_format=jsonl"
        )
    return paths, text_column if tables else None


def _look_at(path: str) -> tuple[int, str]:
    """Returns `_wrapped_at` and `_surplus` of the beginning of a file."""
    block = next(read_blocks([path], _HEAD_BYTES), None)
    text = "" if block is None else block.data.decode(errors="ignore")
    return _wrapped_at(path, text), _surplus(path, text)


def _wrapped_at(path: str, text: str) -> int:
    """Returns the width of hard-wrapped text, 0 for other text.

    Raises:
      InputError: the file begins with a JSON object, or a list of them.
    """
    lines = [line.strip() for line in text.split("\n")]
    if _is_json_object(next(filter(None, lines), "")):
        raise errors.InputError(
            f"{path}: holds JSON lines; give --input_format=jsonl"
        )
    if _JSON.match(text):
        raise errors.InputError(
            f"{path}: holds JSON; write an object a line, and give "
            "--input_format=jsonl"
        )
    inner = [
        line for line, after in itertools.pairwise(lines) if line and after
    ]
    if len(inner) < _INNER_LINES:
        return 0
    lengths = sorted(map(len, inner))
    width = lengths[len(lengths) * 19 // 20]
    full = sum(length > 0.8 * width for length in lengths)
    marks = sentences.NARROW + sentences.WIDE
    ended = sum(x.rstrip(sentences.CLOSING)[-1:] in marks for x in inner)
    is_wrapped = full > 0.75 * len(inner) and ended < 0.5 * len(inner)
    return width if is_wrapped and width in _WIDTHS else 0


def _surplus(path: str, text: str) -> str:
    """Returns what a file has besides sentences, for a warning; "" if none."""
    if found := _MARKUP.match(text):
        return f"begin with {found[1]}: markup, which is read as text"
    if _BETWEEN_DOCUMENTS in text:
        return (
            f"have {_BETWEEN_DOCUMENTS}, which is read as text; a blank line "
            "separates documents"
        )
    if file_system.ending(file_system.uncompressed(path)) in _TABLES:
        return (
            "are tables by their names: the header and all cells are read as "
            "text; write the texts alone, or a .parquet file"
        )
    if "\r" in text.rstrip() and "\n" not in text:
        return "have lines that end in \\r, which are read as one; use \\n"
    return ""


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _parquet_blocks(path, block_bytes, text_column):
    """Yields the rows of a table as text, with a blank line around each."""
    lines, line, before = [b"\n"], 1, 0
    for batch, position in read_parquet(path, text_column):
        for value in batch[0].cast("large_binary").to_pylist():
            # Lines within a row that `parse` takes for blank do not end its
            # document.
            kept = [
                line
                for line in (value or b"").split(b"\n")
                if line.decode(errors="ignore").strip()
            ]
            lines.append(b"\n".join([*kept, b"\n"]))
        if sum(map(len, lines)) >= block_bytes:
            data = b"".join(lines)
            yield Block(path, line, data, position - before)
            line, before, lines = line + data.count(b"\n"), position, []
    if lines:
        size = file_system.size(path)
        yield Block(path, line, b"".join(lines), size - before)


def read_parquet(
    path: str, text_column: str | None = None
) -> Iterator[tuple[Any, int]]:
    """Yields the rows of a table in small batches: pyarrow.RecordBatch.

    With each comes the position in the file, in bytes, in proportion to the
    rows. A text column is read alone.

    Raises:
      InputError: the file is not a table, is damaged, or has no such column
        of text.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with file_system.open_binary(path) as raw:
            size, rows = raw.seek(0, os.SEEK_END), 0
            # A row group may be larger than the memory.
            table = parquet.ParquetFile(
                raw, buffer_size=_PARQUET_BYTES, pre_buffer=False
            )
            name = errors.repeated(table.schema_arrow.names)
            if name is not None:  # One of them would be lost.
                raise errors.InputError(f"{path}: two columns named {name!r}")
            if text_column is not None:
                _check_column(path, table.schema_arrow, text_column)
            columns = text_column and [text_column]
            expected = table.metadata.num_rows
            for batch in table.iter_batches(_PARQUET_ROWS, columns=columns):
                rows += len(batch)
                if rows > expected:
                    break
                yield batch, size * rows // expected
            if rows != expected:
                has = "only " if rows < expected else "more than "
                count = rows if rows < expected else expected
                raise errors.InputError(
                    f"{path}: damaged: its footer says {expected} rows, but "
                    f"it has {has}{count}"
                )
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise errors.InputError(
            f"{path}: not Parquet, or damaged: {errors.reason(error)}"
        ) from None
    except UnicodeDecodeError as error:
        raise errors.InputError(
            f"{path}: a column's name is not UTF-8: {errors.reason(error)}"
        ) from None


def _check_column(path, schema, name) -> None:
    import pyarrow as pa

    if name not in schema.names:
        raise errors.InputError(
            f"--text_column={name}: {path} has only the columns "
            + errors.listed(schema.names)
        )
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise errors.InputError(
            f"--text_column={name}: {path} has no text there but {kind}"
        )


def _file_blocks(path, raw, reader, block_bytes):
    line, before, rest = 1, 0, b""
    while True:
        data = reader.read(max(block_bytes, 16))
        if line == 1 and not before and not rest:
            for beginning, name in _OTHER_FORMATS.items():
                if re.match(beginning, data):
                    raise errors.InputError(
                        f"{path}: line 1: not UTF-8 text but {name}"
                    )
            data = data.removeprefix(b"\xef\xbb\xbf")
        end = data.rfind(b"\n") + 1 if data else 0
        if end:
            complete, rest = rest + data[:end], data[end:]
        elif data:
            complete, rest = b"", rest + data
        else:
            complete, rest = rest, b""
        if len(rest) > _LONGEST_LINE:
            raise errors.InputError(
                f"{path}: line {line} is longer than {_LONGEST_LINE >> 20} MiB"
            )
        if complete:
            is_file = raw.seekable()  # Not a pipe.
            position = raw.tell() if is_file else before + len(complete)
            yield Block(path, line, complete, position - before)
            line, before = line + complete.count(b"\n"), position
        if not data:
            return


def parse(
    block: Block, input_format: str, text_column: str | None = None
) -> Parsed:
    """Splits a block into sentences; blank lines separate documents.

    The column is the field of JSON lines; None is the usual one.
    """
    text, invalid = _decode(block)
    texts: list[str] = []
    starts, blank = [], 0
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, block.first_line):
        line = line.strip()
        if not line:
            blank += 1
            starts.append(len(texts))
        elif input_format == "sentences":
            texts.append(line)
        elif input_format == "paragraphs":
            texts.extend(sentences.split(line))
        else:
            starts.append(len(texts))
            document = _json_text(
                block.path, number, line, text_column or _TEXT
            )
            for paragraph in document.split("\n"):
                texts.extend(sentences.split(paragraph))
            starts.append(len(texts))
    counts = collections.Counter(
        lines=len(lines), blank_lines=blank, invalid_bytes=invalid
    )
    return Parsed(texts, starts, counts)


def _decode(block) -> tuple[str, int]:
    """Returns the text and the number of bytes that are not UTF-8."""
    data, invalid, first = block.data, 0, 0
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data.decode(errors="ignore")
        invalid, first = len(data) - len(text.encode()), error.start
    zeros = data.count(0)
    if invalid + zeros > max(16, len(data) >> 10):
        if zeros and (not invalid or data.index(0) < first):
            first = data.index(0)
        line = block.first_line + data.count(b"\n", 0, first)
        what = "UTF-16 or a binary file" if zeros else "another encoding"
        raise errors.InputError(
            f"{block.path}: line {line}: not UTF-8 text but {what}"
        )
    return text, invalid


def _json_text(path, number, line, field) -> str:
    try:
        text = json.loads(line)[field]
    except (ValueError, RecursionError):
        raise errors.InputError(
            f"{path}: line {number}: not a JSON object"
        ) from None
    except (KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise errors.InputError(
            f'{path}: line {number}: no "{field}" field with a string '
            "(--text_column)"
        )
    # JSON can contain half of a surrogate pair, which is ignored like invalid
    # UTF-8.
    return text.encode("utf-8", "ignore").decode()
