"""One progress bar over a job of several phases, each with a rate of its own.

    writing: 61%|######    | 00:42<00:27, 58,301 instances/s

A phase takes as much of the bar as its expected share of the time, so that
the remaining time is that of the whole job.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import tqdm

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


class Progress:
    """Shows a job's progress; a context manager that ends the bar."""

    def __init__(self, costs: Mapping[str, float]):
        """Shows an empty bar.

        Args:
          costs: for each phase, in order, its expected part of the time, in
            any unit.
        """
        total = sum(costs.values())
        self.shares = {name: cost / total for name, cost in costs.items()}
        self._bar = tqdm.tqdm(
            total=1.0, bar_format=_FORMAT, smoothing=0, desc=next(iter(costs))
        )
        self._ended = 0.0  # Share of the phases that are over.

    def __enter__(self) -> "Progress":
        """Returns itself."""
        return self

    def __exit__(self, *exception) -> None:
        """Ends the bar."""
        self._bar.close()

    def clear(self) -> None:
        """Makes room for lines of text, until the next step."""
        self._bar.clear()

    @contextlib.contextmanager
    def phase(
        self, name: str, total: int, unit: str, scale: float = 1
    ) -> Iterator[Callable[..., None]]:
        """Shows one phase.

        Args:
          name: one of the costs.
          total: how much there is to do.
          unit: of what.
          scale: what the displayed rate is divided by, e.g. 1e6 for "MB".

        Yields:
          A function of how much more is done and whether it `stood` before,
          which says nothing about the speed.
        """
        bar, begin = self._bar, time.monotonic()
        bar.set_description_str(name, refresh=False)
        fraction = self.shares[name] / max(total, 1)
        fresh = 0

        def update(count: int, stood: bool = False) -> None:
            nonlocal fresh
            if stood:
                bar.initial += count * fraction
            else:
                fresh += count
                rate = fresh / max(time.monotonic() - begin, 1e-3) / scale
                bar.set_postfix_str(f"{rate:,.0f} {unit}/s", refresh=False)
            # Rounding must not make the bar overflow.
            bar.update(min(count * fraction, bar.total - bar.n))

        yield update
        self._ended += self.shares[name]
        rest = self._ended - bar.n
        if not fresh:  # All of it stood, or nothing had to be done.
            bar.initial += rest
        bar.update(min(rest, bar.total - bar.n))
