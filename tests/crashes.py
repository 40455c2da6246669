"""Operations on files that fail, or at which a process ends.

    with crashes.at(folder) as undisturbed:
        write()
    for number in range(len(undisturbed.events)):
        with crashes.at(folder, number, errno.ENOSPC):
            write()

Operations are those that make, open for writing, rename or remove a file or a
folder below `folder`, in any thread, as Python's audit events name them.
"""

import contextlib
import dataclasses
import errno
import os
import sys
from collections.abc import Iterator

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link")


class Killed(BaseException):
    """Ends a command like a signal: nothing of the project handles it."""


@dataclasses.dataclass
class Crash:
    """Counts operations; the one of `number` raises `error`.

    Attributes:
      folder: the folder whose operations count.
      number: counted from 0; None for none.
      error: what it raises: Killed, or the number of an OSError.
      events: the kinds of the operations that there were.
    """

    folder: str
    number: int | None = None
    error: int | type[Killed] = errno.ENOSPC
    events: list[str] = dataclasses.field(default_factory=list)

    def __call__(self, event, arguments):
        """Takes an audit event, before its operation."""
        if event == "open":
            is_writing = bool((arguments[2] or 0) & _WRITING)
        else:
            is_writing = event in _EVENTS
        if not is_writing or not isinstance(arguments[0], str | os.PathLike):
            return
        path = os.path.abspath(os.fspath(arguments[0]))
        if not path.startswith(self.folder + os.sep):
            return
        self.events.append(event)
        if len(self.events) - 1 != self.number:
            return
        if isinstance(self.error, int):
            raise OSError(self.error, os.strerror(self.error), path)
        raise self.error


_active: list[Crash] = []


def _hook(event, arguments):
    for crash in _active:
        crash(event, arguments)


sys.addaudithook(_hook)  # Cannot be removed, so there is one.


@contextlib.contextmanager
def at(folder, number=None, error=errno.ENOSPC) -> Iterator[Crash]:
    """Lets the operation of a number fail; counts only without a number."""
    crash = Crash(os.path.abspath(folder), number, error)
    _active.append(crash)
    try:
        yield crash
    finally:
        _active.remove(crash)
