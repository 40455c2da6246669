"""Lines of text as streams, from files, globs, folders or standard input.

    lines = text_lines.open_lines("news/*.txt.zst")
    lines.total, lines.digest            known after a first reading
    for line in lines.read(): ...        reads again

"-" is standard input, which is read once: its total is not known.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from data import text_tables
from foundation import errors


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

    name: of a file, a glob or a folder, as the user gave it.
    paths: of the files, or of standard input.
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
            for number, text in text_tables.lines(path):
                yield Line(path, number, text.rstrip("\r"))


def open_lines(name: str) -> Lines:
    """Finds the files of a name, and reads them once to check them.

    Args:
      name: of a file, which may be compressed, a glob, a folder of .txt files,
        or "-" for standard input.

    Raises:
      InputError: there are no lines, or one is not UTF-8.
    """
    paths = text_tables.expand(name, ["txt"])
    lines = Lines(name, paths, None, "")
    if paths == [text_tables.STANDARD_INPUT]:
        return lines
    digest, total = hashlib.sha256(), 0
    for line in lines.read():
        digest.update(b"\n" * bool(total) + line.text.encode("utf-8"))
        total += 1
    if not total:
        raise errors.InputError(f"{name}: has no lines")
    return lines._replace(total=total, digest=digest.hexdigest())
