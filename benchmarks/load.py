"""What other programs take of the machine while a benchmark measures.

    load = Load()
    ...                      the measured work, in this process and its children
    load.of_others()         0.25: a quarter of all cores were taken by others

PyTorch's threads wait actively, and lose far more time beside other programs
than TensorFlow's: a ratio that was measured on a busy machine is wrong.
"""

import os
import pathlib
import time

MOST = 0.1  # The fraction of the cores that others may take.
_PROC = pathlib.Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """Processor time since the beginning, by its owner."""

    def __init__(self):
        """Begins to measure."""
        self._started = time.monotonic()
        self._all, self._own = _busy_seconds(), _own_seconds(os.getpid())

    def of_others(self) -> float | None:
        """Returns the fraction of all cores that others took; None if unknown.

        Call it while the children still run: with them, their processor time
        disappears.
        """
        if self._all is None:
            return None
        seconds = time.monotonic() - self._started
        cores = os.cpu_count() or 1
        own = _own_seconds(os.getpid()) - self._own
        others = _busy_seconds() - self._all - own
        return max(others, 0.0) / (seconds * cores)


def _busy_seconds() -> float | None:
    """Returns the processor time of all programs; None if it is not known."""
    path = _PROC / "stat"
    if not path.exists():
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = list(map(int, path.read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS


def _own_seconds(root: int) -> float:
    """Returns the processor time of a process and its descendants."""
    seconds: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # It has ended.
            continue
        # The name in parentheses may have spaces.
        cells = text.rpartition(")")[2].split()
        process = int(path.parent.name)
        children.setdefault(int(cells[1]), []).append(process)
        # Of itself, and of children that have ended.
        seconds[process] = sum(map(int, cells[11:15])) / _TICKS
    total, pending = 0.0, [root]
    while pending:
        process = pending.pop()
        total += seconds.get(process, 0.0)
        pending += children.get(process, [])
    return total
