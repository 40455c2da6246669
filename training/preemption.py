"""SIGTERM and Ctrl-C end a run at the next step, after a checkpoint.

A machine that is taken away sends SIGTERM: the run saves and exits with
EXIT_CODE, which says "run the same command again" (75 is EX_TEMPFAIL of
sysexits.h). The first Ctrl-C saves and exits with 130; a second one does not
wait.
"""

import signal
import threading
from typing import Any

EXIT_CODE = 75


class Preemption:
    """Context in which the two signals are noted instead of obeyed."""

    def __init__(self) -> None:
        """Notes nothing yet."""
        self.signal = 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "Preemption":
        """Takes the signals over; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        """Gives the signals back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def exit(self, number: int) -> None:
        """Ends the process as the signal asks; call after saving."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(EXIT_CODE)

    def _note(self, number: int, frame: object) -> None:
        if self.signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.signal = number
