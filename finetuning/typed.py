r"""Reads lines from a terminal or a pipe.

    read = typed.reader(sys.stdin, sys.stdout)
    read("question> ")  -> b"Who?\n", at the end b""

A prompt is shown only if somebody types, not for a pipe. A byte order mark at
the beginning of a pipe is skipped.

At a terminal, lines can be edited, and can be longer than the terminal's own
limit of 4,095 bytes.
"""

import codecs
import importlib
from collections.abc import Callable, Iterator
from typing import TextIO


def reader(lines: TextIO, output: TextIO) -> Callable[[str], bytes]:
    """Returns a function from a prompt to the line read, b"" at the end."""
    is_typed = lines.isatty()
    if is_typed and output.isatty():  # As input() requires.
        importlib.import_module("readline")  # Then input() uses it.
        return _edit

    is_first = True

    def read(prompt: str) -> bytes:
        nonlocal is_first
        output.write(prompt if is_typed else "")
        output.flush()
        line = lines.buffer.readline()
        if is_first:
            line = line.removeprefix(codecs.BOM_UTF8)
        is_first = False
        return line

    return read


def lines(stream: TextIO, output: TextIO) -> Iterator[bytes]:
    """Yields all lines, without a prompt."""
    read = reader(stream, output)
    return iter(lambda: read(""), b"")


def _edit(prompt: str) -> bytes:
    try:
        return f"{input(prompt)}\n".encode("utf-8", "surrogateescape")
    except EOFError:
        return b""
    except UnicodeDecodeError as error:  # In any locale.
        return error.object + b"\n"
