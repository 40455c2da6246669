"""Scores over seeds of two sides: are they within the noise of seeds?"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contest:
    """What every comparison of scores takes; SHARED are flags of runners."""

    init_checkpoint: str = field("A model directory that both read.")
    output_dir: str = field("Where everything goes.")
    peer_python: str | None = field(
        "Python with absl-py, torch and transformers; None: ours alone.", None
    )
    learning_rate: float = field("Peak.", 5e-5)
    num_train_epochs: float = field("Times that every example is seen.", 3.0)
    train_batch_size: int = field("Examples per step.", 32)
    bias_correction: bool = field(
        "Of ours: PyTorch's AdamW has it, the released one has not.", False
    )
    peer_schedule: Literal["released", "transformers"] = field(
        "How the peer's rate decays.", "transformers"
    )
    precision: Literal["auto", "float32", "bfloat16"] = field(
        "Of both; auto as in the runners.", "auto"
    )
    num_seeds: int = field("Runs of each, seeds 1, 2, ...", 5)

    SHARED = (
        "init_checkpoint",
        "learning_rate",
        "num_train_epochs",
        "train_batch_size",
        "bias_correction",
        "precision",
    )

    def flags(self, *names: str, **others: object) -> list[str]:
        """Returns --name=value for SHARED, these fields, and others."""
        given = {name: getattr(self, name) for name in (*self.SHARED, *names)}
        given |= others
        return [f"--{k}={v}" for k, v in given.items() if v is not None]

    def compute_dtype(self) -> str:
        """Says what "auto" is on this machine: both must compute in it."""
        from training import precision

        return precision.choose(self.precision)

    def peer_flags(self, **others: object) -> list[str]:
        """Returns --name=value of what every script of a peer takes."""
        given = {
            "model": self.init_checkpoint,
            "learning_rate": self.learning_rate,
            "epochs": self.num_train_epochs,
            "batch_size": self.train_batch_size,
            "schedule": self.peer_schedule,
            "precision": self.compute_dtype(),
        }
        return [f"--{k}={v}" for k, v in {**given, **others}.items()]


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
