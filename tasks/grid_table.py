"""What the runs of a grid are worth: the best, the mean, tables of all."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

_SCORE = "score"


class Run(Protocol):
    """A cell of a grid."""

    learning_rate: float
    random_seed: int


def best(results: Mapping[Run, Mapping[str, float]]) -> Run:
    """Returns the run with the highest score, of equals the first.

    The only run of a job without an evaluation has no score, and needs none.
    """

    def rank(run: Run) -> float:
        score = results[run].get(_SCORE, 0.0)
        return score if math.isfinite(score) else -math.inf

    return max(results, key=rank)


def summary(
    results: Mapping[Run, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Returns best, mean, median and deviation of every metric over all runs.

    "best" is that of the best run; the deviation is that of a sample.
    """
    chosen = results[best(results)]
    columns = {
        name: [values[name] for values in results.values()] for name in chosen
    }
    return {
        name: {
            "best": chosen[name],
            "mean": statistics.fmean(values),
            "median": statistics.median(values),
            "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        }
        for name, values in columns.items()
    }


def table(
    results: Mapping[Run, Mapping[str, float]],
    failures: Mapping[Run, str] | None = None,
) -> tuple[list[str], list[list]]:
    """Returns the header and the rows of a table of all runs and by rate.

    Of the failures, each has a row that says how; nothing else counts them.
    """
    failures = failures or {}
    names = list(results[best(results)])
    header = ["learning rate", "seed", *names]
    rows: list[list] = []
    for rate in dict.fromkeys(run.learning_rate for run in results | failures):
        part = {
            run: values
            for run, values in results.items()
            if run.learning_rate == rate
        }
        for run, values in part.items():
            cells = [values[name] for name in names]
            rows.append([f"{rate:g}", str(run.random_seed), *cells])
        for run, how in failures.items():
            if run.learning_rate == rate:
                cells = [how, *[""] * (len(names) - 1)]
                rows.append([f"{rate:g}", str(run.random_seed), *cells])
        if len(part) > 1:
            rows += _statistics(f"{rate:g}", summary(part), names)
    if len({run.learning_rate for run in results}) > 1:
        rows += _statistics("all", summary(results), names)
    return header, rows


def text(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Returns a table as aligned text."""
    cells = [list(header)] + [
        [x if isinstance(x, str) else f"{x:.4f}" for x in row] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True))
        for row in cells
    )


def _statistics(rate: str, values, names) -> list[list]:
    return [
        [rate, kind, *(values[name][kind] for name in names)]
        for kind in ("best", "mean", "median", "std")
    ]
