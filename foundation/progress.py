"""Progress of long work: a bar at a terminal, else a line now and then.

with progress.bar(total=9, desc="reading", unit=" files") as bar:
    bar.update(3)

A line of the log is "reading: 33 %, 00:20 elapsed, 00:40 left".
"""

import io
import logging as std_logging
import sys
import weakref
from typing import Any

import tqdm
from absl import logging

_BARS: weakref.WeakSet[tqdm.tqdm] = weakref.WeakSet()  # At the terminal.
_SECONDS_BETWEEN_LINES = 20
_LINE = (
    "{desc}: {percentage:.0f} %, {elapsed} elapsed, {remaining} left{postfix}"
)


def bar(*, is_brief: bool = False, **options: Any) -> tqdm.tqdm:
    """Makes a progress bar; its lines go to the log if there is no terminal.

    Args:
      is_brief: whether to show nothing if the work takes less than two seconds,
        and to remove the bar at the end.
      **options: options of tqdm, among them `desc` and `total`.
    """
    if is_brief:
        options |= {"delay": 2, "leave": False}
    if sys.stderr.isatty():
        shown = tqdm.tqdm(**options)
        _BARS.add(shown)
        logging.get_absl_handler().addFilter(_clear_bars)
        return shown
    options |= {
        "bar_format": _LINE,
        "file": _Log(),
        "mininterval": _SECONDS_BETWEEN_LINES,
        "delay": _SECONDS_BETWEEN_LINES,
    }
    return tqdm.tqdm(**options)


def _clear_bars(record: std_logging.LogRecord) -> bool:
    """Removes bars before a line of the log; their next update draws them."""
    for shown in _BARS:
        shown.clear(nolock=True)
    return True


def duration(seconds: float) -> str:
    """Returns a time in one unit: "40 seconds", "3 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"


def size(num_bytes: float) -> str:
    """Returns a number of bytes with three digits: "273 MB", "1.09 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


class _Log(io.TextIOBase):
    """Writes what tqdm draws as lines of the log."""

    def write(self, text: str) -> int:
        if line := text.strip():
            logging.info("%s", line)
        return len(text)
