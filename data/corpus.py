"""Reading text: documents of sentences, from plain, .gz and .bz2 files.

    sentences    one sentence a line, a blank line between documents (the
                 format of google-research/bert)
    paragraphs   prose: a line holds several sentences, a blank line between
                 documents
    jsonl        one document a line: {"text": "..."}

Text is read in blocks of whole lines, so that blocks can be parsed apart from
each other, in any order and by any process; what a block holds depends on
the bytes alone. Lines end at "\\n"; a new file does not start a new document.
Invalid UTF-8 is ignored, as released, as long as it is little.
"""

import collections
import json
import os
import re
from collections.abc import Iterator
from concurrent import futures
from typing import NamedTuple

import tensorflow as tf

import errors
from data import input_files, sentences

FORMATS = ("sentences", "paragraphs", "jsonl")
BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 28
_BYTE_ORDER_MARKS = {
    b"\xff\xfe": "UTF-16 or UTF-32",
    b"\xfe\xff": "UTF-16",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\x1f\x8b": "gzip, but the name does not end in .gz",
    b"BZh": "bzip2, but the name does not end in .bz2",
}


class Block(NamedTuple):
    """Whole lines of one file."""

    path: str
    first_line: int  # Counted from 1.
    data: bytes
    file_bytes: int  # Read from the file for it, compressed ones if it is.


class Parsed(NamedTuple):
    """The sentences of a block.

    A document begins at each index of `starts` (which may equal the number of
    sentences: the next block then begins one). Whether the first sentence
    continues the document of the block before follows from that block.
    """

    texts: list[str]
    starts: list[int]
    counts: collections.Counter  # lines, invalid_bytes


def expand(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the files of a comma-separated list of names and globs.

    Raises:
      InputError: one of them is no file's, or only that of a directory.
    """
    paths = []
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        # A name may hold brackets, which as a pattern mean something else.
        is_name = tf.io.gfile.exists(pattern)
        matched = [pattern] if is_name else _matches(pattern)
        # Side by side: a bucket is asked for each.
        with futures.ThreadPoolExecutor(16) as pool:
            kinds = list(pool.map(tf.io.gfile.isdir, matched))
        found = [
            path
            for path, is_folder in zip(matched, kinds, strict=True)
            if not is_folder
        ]
        if matched and not found:
            raise errors.InputError(
                f"--{flag}={pattern}: is a directory: name its files, e.g. "
                f"{pattern.rstrip('/')}/*"
            )
        if not found:
            raise errors.InputError(f"--{flag}={pattern}: no such file")
        paths.extend(found)
    if not paths:
        raise errors.InputError(f"--{flag}: names no file")
    return paths


def _matches(pattern: str) -> list[str]:
    """Returns what matches, as in a shell without hidden files."""
    if "://" not in pattern:
        # A folder was given with its slash; TensorFlow finds nothing there.
        pattern = re.sub("/{2,}", "/", pattern)
    shows_hidden = os.path.basename(pattern).startswith(".")
    return [
        path
        for path in sorted(tf.io.gfile.glob(pattern))
        if shows_hidden or not os.path.basename(path).startswith(".")
    ]


def read_blocks(
    paths: list[str], block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yields the files in order, in blocks of whole lines."""
    for path in paths:
        with (
            tf.io.gfile.GFile(path, "rb") as raw,
            input_files.decompressed(path, raw) as reader,
        ):
            yield from _file_blocks(path, raw, reader, block_bytes)


def _file_blocks(path, raw, reader, block_bytes):
    line, before, rest = 1, 0, b""
    while True:
        data = reader.read(max(block_bytes, 16))
        if line == 1 and not before:
            _refuse_other_encodings(path, data)
            data = data.removeprefix(b"\xef\xbb\xbf")
        end = data.rfind(b"\n") + 1 if data else 0
        whole, rest = (
            (rest + data[:end], data[end:]) if end else (b"", rest + data)
        )
        if not data:
            whole, rest = rest, b""
        if len(rest) > _LONGEST_LINE:
            raise errors.InputError(
                f"{path}: the line after line {line} is longer than "
                f"{_LONGEST_LINE >> 20} MiB"
            )
        if whole:
            position = raw.tell()
            yield Block(path, line, whole, position - before)
            line, before = line + whole.count(b"\n"), position
        if not data:
            return


def _refuse_other_encodings(path, data) -> None:
    for mark, name in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            raise errors.InputError(
                f"{path}: line 1: not UTF-8 text but {name}"
            )


def parse(block: Block, input_format: str) -> Parsed:
    """Splits a block into sentences; blank lines separate documents."""
    text, invalid = _decode(block)
    texts, starts, blank = [], [], 0
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
            for paragraph in _json_text(block.path, number, line).split("\n"):
                texts.extend(sentences.split(paragraph))
            starts.append(len(texts))
    counts = collections.Counter(
        lines=len(lines), blank_lines=blank, invalid_bytes=invalid
    )
    return Parsed(texts, starts, counts)


def _decode(block) -> tuple[str, int]:
    """Returns the text and the number of bytes that are not UTF-8."""
    data, invalid, place = block.data, 0, 0
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data.decode(errors="ignore")
        invalid, place = len(data) - len(text.encode()), error.start
    zeros = data.count(0)
    if invalid + zeros > max(16, len(data) >> 10):
        if zeros and (not invalid or data.index(0) < place):
            place = data.index(0)
        line = block.first_line + data.count(b"\n", 0, place)
        what = "UTF-16 or a binary file" if zeros else "another encoding"
        raise errors.InputError(
            f"{block.path}: line {line}: not UTF-8 text but {what}"
        )
    return text, invalid


def _json_text(path, number, line) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, RecursionError):
        raise errors.InputError(
            f"{path}: line {number}: not a JSON object"
        ) from None
    except (KeyError, TypeError, IndexError):
        text = None
    if not isinstance(text, str):
        raise errors.InputError(
            f'{path}: line {number}: no "text" field that holds a string'
        )
    # Half of a pair, which JSON can say, is no more text than invalid UTF-8.
    return text.encode("utf-8", "ignore").decode()


def read_documents(
    paths: list[str], input_format: str = "sentences"
) -> Iterator[list[str]]:
    """Yields each document that is not empty, as a list of sentences."""
    document = []
    for block in read_blocks(paths):
        parsed = parse(block, input_format)
        begin = 0
        for start in parsed.starts:
            document.extend(parsed.texts[begin:start])
            begin = start
            if document:
                yield document
                document = []
        document.extend(parsed.texts[begin:])
    if document:
        yield document
