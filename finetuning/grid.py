"""The runs of a grid: their plan, their names and the table of their results.

A grid has several learning rates, batch sizes, numbers of epochs or seeds. Its
runs are in output_dir/runs/NAME; a single run is in output_dir itself. The name
has all of these settings, so a grid that is extended finds the runs that it has
trained already.
"""

import dataclasses
import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from finetuning import flags as flags_lib
from finetuning import record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a grid, or the only one.

    Attributes:
      learning_rate: the peak learning rate.
      batch_size: examples per training step, over all replicas.
      epochs: passes over the training set.
      seed: seed of weights, dropout and the order of the examples.
      directory: directory of its checkpoints and metrics.
    """

    learning_rate: float
    batch_size: int
    epochs: float
    seed: int
    directory: str

    @property
    def name(self) -> str:
        """The run in the journal and in names of folders."""
        return f"{self.group}_seed{self.seed}"

    @property
    def group(self) -> str:
        """What the runs with other seeds have in common."""
        return (
            f"lr{self.learning_rate!r}_batch{self.batch_size}"
            f"_epochs{float(self.epochs)!r}"
        )


def plan(flags: flags_lib.FinetuningFlags) -> list[Run]:
    """Returns the runs of a command, usually one."""
    seeds = range(flags.random_seed, flags.random_seed + flags.num_seeds)
    runs = [
        Run(
            learning_rate=learning_rate,
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            directory=flags.output_dir,
        )
        for learning_rate, seed, batch_size, epochs in itertools.product(
            flags.learning_rate,
            seeds,
            flags.train_batch_size,
            flags.num_train_epochs,
        )
    ]
    if not flags.is_grid:
        return runs
    folder = os.path.join(flags.output_dir, record.RUNS)
    return [
        dataclasses.replace(run, directory=os.path.join(folder, run.name))
        for run in runs
    ]


def table(runs: Sequence[Run], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the results of a grid as lines of text.

    A line for each run, with its metrics or why it failed; then for each group
    of runs that differ in their seeds the best, mean, median and deviation of
    the score.
    """
    lines = []
    for run in runs:
        result = results[run.name]
        values = [f"{k}={x:.4f}" for k, x in result["values"].items()]
        lines.append(f"{run.name}  {result['failed'] or '  '.join(values)}")
    for group, statistic in summary(runs, results).items():
        texts = [f"{name} {x:.4f}" for name, x in statistic.items()]
        lines.append(f"{group}  score: {', '.join(texts)}")
    return "\n".join(lines) + "\n"


def summary(
    runs: Sequence[Run], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Returns the statistics of the scores of each group of several runs."""
    groups: dict[str, list[float]] = {}
    for run in runs:
        result = results[run.name]
        if not result["failed"]:
            groups.setdefault(run.group, []).append(
                result["values"][record.SCORE]
            )
    return {
        group: {
            "best": max(scores),
            "mean": statistics.fmean(scores),
            "median": statistics.median(scores),
            "deviation": statistics.stdev(scores),
        }
        for group, scores in groups.items()
        if len(scores) > 1
    }
