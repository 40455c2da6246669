"""SIGTERM and Ctrl-C end a run after the compiled call and a checkpoint.

A machine that is taken away sends SIGTERM: the run saves and exits with
EXIT_CODE, which means "run the same command again" (75 is EX_TEMPFAIL of
sysexits.h). The first Ctrl-C saves and exits with 130; a second one exits at
once. An evaluation changes no weights and is interrupted at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

EXIT_CODE = 75


class Interrupted(BaseException):
    """Ends an evaluation; not an Exception, so that nothing catches it."""


class Preemption:
    """Context in which the two signals are recorded, and end nothing."""

    def __init__(self) -> None:
        """Starts without a signal."""
        self.signal = 0
        self._is_interruptible = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "Preemption":
        """Installs the handlers, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._old[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Context in which a signal, or an earlier one, raises Interrupted."""
        self._is_interruptible = True
        try:
            if self.signal:
                raise Interrupted
            yield
        finally:
            self._is_interruptible = False

    def exit(self, number: int) -> NoReturn:
        """Ends the process as the signal requires; call it after saving."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(EXIT_CODE)

    def _record(self, number: int, frame: object) -> None:
        if self.signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.signal = number
        if self._is_interruptible:
            self._is_interruptible = False
            raise Interrupted
