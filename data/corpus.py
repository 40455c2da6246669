"""Reading text: documents of sentences, from plain and compressed files.

    sentences    one sentence a line, a blank line between documents (the
                 format of google-research/bert)
    paragraphs   prose: a line holds a paragraph, a blank line between
                 documents
    jsonl        one document an object: {"text": "..."}, or another field, in
                 any form that text_files reads

Files may end in .gz, .bz2, .zst, or in .parquet: a row of a text column is one
document, whose lines are sentences or paragraphs.

Text is read in blocks of complete lines, which can be parsed in any order and
by any process. The contents of a block depend on the bytes alone. Rows of
tables become lines with a blank line around each document:

    {"text": "One. Two.\\n\\nThree."}    ->    "One. Two.", "Three.", ""

Lines end at "\\n"; a new file does not start a new document. A little invalid
UTF-8 is ignored, as released.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from data import sentences, text_files
from foundation import errors, file_system

FORMATS = ("sentences", "paragraphs", "jsonl")
_TEXT, _JSON, _PARQUET = "text", "jsonl", ".parquet"


class Parsed(NamedTuple):
    """The sentences of a block.

    A document begins at each index of `starts`. If an index is the number of
    sentences, a document begins with the next block. Whether the first sentence
    continues a document follows from the previous block.
    """

    texts: list[str]
    starts: list[int]
    # lines, blank_lines, invalid_bytes, rows_without_text
    counts: collections.Counter


def find_text(patterns: str, input_format: str, text_column: str) -> list[str]:
    """Returns the files of --input_file.

    Raises:
      InputError: a file is missing, or none has a column.
    """
    paths = file_system.find_files(patterns)
    has_rows = any(_has_rows(path, input_format) for path in paths)
    if text_column != _TEXT and not has_rows:
        raise errors.InputError(
            f"--text_column={text_column}: only for .parquet files and "
            "--input_format=jsonl"
        )
    return paths


def _has_rows(path: str, input_format: str) -> bool:
    return input_format == _JSON or file_system.ending(path) == _PARQUET


def read_blocks(
    paths: Sequence[str],
    input_format: str = "sentences",
    text_column: str = _TEXT,
    block_bytes: int = text_files.BLOCK_BYTES,
) -> Iterator[text_files.Block]:
    """Yields the files in order, in blocks of complete lines.

    Args:
      paths: paths of text files, possibly compressed, or of Parquet tables.
      input_format: one of FORMATS.
      text_column: name of the column of Parquet tables, or of the field of
        JSON objects.
      block_bytes: about the size of a block of plain text.

    Raises:
      InputError: a file is damaged, or a row has no such column.
    """
    for path in paths:
        if _has_rows(path, input_format):
            yield from _blocks_of_rows(path, text_column, block_bytes)
        else:
            yield from text_files.read_blocks(path, block_bytes)


def _blocks_of_rows(path, text_column, block_bytes):
    """Yields the rows of a table as text, with a blank line around each."""
    if file_system.ending(path) == _PARQUET:
        rows = text_files.read_parquet(path, text_column)
    else:
        rows = text_files.read_named([path], _JSON)
    documents, size, line, before, missing = [b"\n"], 0, 1, 0, 0
    for row in rows:
        text = row.cell(text_column, "--text_column")
        if text is not None and not isinstance(text, str):
            raise errors.InputError(
                f"{row.where}: {text_column!r} is no text but {text!r:.40} "
                "(--text_column)"
            )
        missing += text is None
        # JSON may have half of a surrogate pair, which is ignored like invalid
        # UTF-8. Blank lines within a row do not end its document.
        kept = [x for x in (text or "").split("\n") if x.strip()]
        document = "\n".join([*kept, "\n"]).encode("utf-8", "ignore")
        documents.append(document)
        size += len(document)
        if size >= block_bytes:
            data = b"".join(documents)
            yield text_files.Block(
                path, line, data, row.position - before, missing
            )
            line, before = line + data.count(b"\n"), row.position
            documents, size, missing = [], 0, 0
    rest = file_system.size(path) - before
    yield text_files.Block(path, line, b"".join(documents), rest, missing)


def parse(block: text_files.Block, input_format: str) -> Parsed:
    """Splits a block into sentences; blank lines separate documents."""
    text, invalid = _decode(block)
    texts: list[str] = []
    starts, blank = [], 0
    lines = text.removesuffix("\n").split("\n") if text else []
    for line in lines:
        line = line.strip()
        if not line:
            blank += 1
            starts.append(len(texts))
        elif input_format == "sentences":
            texts.append(line)
        else:
            texts.extend(sentences.split(line))
    counts = collections.Counter(
        lines=len(lines),
        blank_lines=blank,
        invalid_bytes=invalid,
        rows_without_text=block.missing,
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
        raise errors.InputError(
            f"{block.path}:{line}: not UTF-8 text but "
            f"{file_system.other_encoding(data)}"
        )
    return text, invalid
