"""Scores over seeds of two sides: are they within the noise of seeds?"""

import math
import statistics
from collections.abc import Mapping, Sequence


def compare(title: str, scores: Mapping[str, Sequence[float]]) -> bool:
    """Prints mean and deviation of the sides, and how far they are apart.

    Args:
      title: begins the line.
      scores: "ours" and, if there is one, "peer": a score for every seed.

    Returns:
      Whether the means differ by more than three standard errors.
    """
    shown = [
        f"{side} {statistics.fmean(x):.4f} +- {_deviation(x):.4f} ({len(x)})"
        for side, x in scores.items()
    ]
    apart = 0.0
    if "peer" in scores:
        apart = _errors_apart(scores["ours"], scores["peer"])
        shown.append(f"apart by {apart:+.1f} standard errors")
    print(f"{title}: {'; '.join(shown)}", flush=True)
    return abs(apart) > 3


def _errors_apart(ours: Sequence[float], peer: Sequence[float]) -> float:
    apart = statistics.fmean(ours) - statistics.fmean(peer)
    error = math.hypot(
        *(_deviation(x) / math.sqrt(len(x)) for x in (ours, peer))
    )
    return apart / error if error else 0.0


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
