"""Progress of long work: a bar at a terminal, else a line now and then.

with progress.bar(total=9, desc="reading", unit=" files") as bar:
    bar.update(3)

A line of the log is "reading: 33 %, 00:20 elapsed, 00:40 left".
"""

import sys
from typing import Any

import tqdm
from absl import logging

_SECONDS_BETWEEN_LINES = 20
_LINE = (
    "{desc}: {percentage:.0f} %, {elapsed} elapsed, {remaining} left{postfix}"
)


def bar(*, is_brief: bool = False, **options: Any) -> tqdm.tqdm:
    """Makes a progress bar; its lines go to the log if there is no terminal.

    Args:
      is_brief: whether to show nothing if the work takes less than two seconds,
        and to remove the bar at the end.
      **options: of tqdm, among them `desc` and `total`.
    """
    if is_brief:
        options |= {"delay": 2, "leave": False}
    if sys.stderr.isatty():
        return tqdm.tqdm(**options)
    options |= {
        "bar_format": _LINE,
        "file": _Log(),
        "mininterval": _SECONDS_BETWEEN_LINES,
        "delay": _SECONDS_BETWEEN_LINES,
    }
    return tqdm.tqdm(**options)


def duration(seconds: float) -> str:
    """Returns a time in one unit: "40 seconds", "3 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"


class _Log:
    """Writes what tqdm draws as lines of the log."""

    def write(self, text: str) -> None:
        if line := text.strip():
            logging.info("%s", line)

    def flush(self) -> None:
        pass
