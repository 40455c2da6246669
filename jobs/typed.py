r"""Lines that somebody types, or that come by a pipe.

    read = typed.reader(sys.stdin, sys.stdout)
    read("question> ")  -> b"Who?\n", at the end b""

At a terminal they can be edited, and be longer than the 4,095 bytes that one
hands over by itself.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import TextIO


def reader(lines: TextIO, output: TextIO) -> Callable[[str], bytes]:
    """Returns what shows a prompt and reads a line, b"" at the end."""

    def ask(prompt: str) -> bytes:
        output.write(prompt)
        output.flush()
        return lines.buffer.readline()

    if not (lines.isatty() and output.isatty()):  # input() asks for both.
        return ask
    importlib.import_module("readline")  # Which input() uses from then on.
    return _edit


def lines(stream: TextIO, output: TextIO) -> Iterator[bytes]:
    """Yields all lines, without a prompt."""
    read = reader(stream, output)
    return iter(lambda: read(""), b"")


def _edit(prompt: str) -> bytes:
    try:
        return f"{input(prompt)}\n".encode("utf-8", "surrogateescape")
    except EOFError:
        return b""
    except UnicodeDecodeError as error:  # Whatever the locale says.
        return error.object + b"\n"
