"""One progress bar for the phases of data creation."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from foundation import progress

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


class PhaseBar:
    """One progress bar for several phases; a context manager.

        writing: 61%|######    | 00:42<00:27, 58,301 instances/s

    Each phase fills a fraction of the bar in proportion to its expected time,
    so the remaining time is that of all phases. The speed is the phase's.
    """

    def __init__(self, costs: Mapping[str, float]):
        """Shows an empty bar; `costs` are the phases' expected times."""
        total = sum(costs.values())
        self._fractions = {name: cost / total for name, cost in costs.items()}
        self._bar = progress.bar(
            total=1.0, bar_format=_FORMAT, smoothing=0, desc=next(iter(costs))
        )
        self._ended = 0.0  # Fraction of the phases that have ended.

    def __enter__(self) -> "PhaseBar":
        """Returns itself."""
        return self

    def __exit__(self, *exception) -> None:
        """Ends the bar."""
        self._bar.close()

    def clear(self) -> None:
        """Hides the bar until the next update, for lines of text."""
        self._bar.clear()

    @contextlib.contextmanager
    def phase(
        self, name: str, total: int, unit: str, scale: float = 1
    ) -> Iterator[Callable[..., None]]:
        """Shows one phase, whose `total` is counted in units / scale.

        Yields:
          update(count, is_new=True): adds to what is done. If a killed run has
          done it before, it is not new and does not affect the speed.
        """
        bar, begin = self._bar, time.monotonic()
        bar.set_description_str(name, refresh=False)
        fraction = self._fractions[name] / max(total, 1)
        done = 0

        def update(count: int, is_new: bool = True) -> None:
            nonlocal done
            if is_new:
                done += count
                seconds = max(time.monotonic() - begin, 1e-3)
                speed = done / seconds / scale
                decimals = 0 if speed >= 10 else 1
                text = f"{speed:,.{decimals}f} {unit}/s"
                bar.set_postfix_str(text, refresh=False)
            else:
                bar.initial += count * fraction
            # Rounding must not make the bar overflow.
            bar.update(min(count * fraction, bar.total - bar.n))

        yield update
        self._ended += self._fractions[name]
        rest = self._ended - bar.n
        if not done:  # Nothing was new, so this must not affect the speed.
            bar.initial += rest
        bar.update(min(rest, bar.total - bar.n))
