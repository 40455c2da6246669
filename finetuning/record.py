"""What a directory of fine-tuning remembers: one journal, output_dir/run.json.

    {"flags": {"learning_rate": "5e-05,3e-05", ...},     of the training
     "made_from": {"train": SHA-256, "labels": [...]},   what it has read
     "runs": {"lr5e-05_batch32_epochs3.0_seed1": {"step": 345, "seconds": 60.2,
              "values": {"score": 0.9, ...}, "failed": ""}, ...},
     "best": {"run": "lr5e-05_batch32_epochs3.0_seed1", "step": 345},
     "evaluations": {"dev": {"values": {"accuracy": 0.9, ...}, "note": "",
                     "by_label": []}},                   of the model there
     "sets": {"test": {"path": ..., "digest": ..., "examples": 408}}}

A grid has several learning rates, batch sizes, numbers of epochs or seeds. Its
runs are in output_dir/runs/NAME; a single run is in output_dir itself. The name
has all of these settings, so a grid that is extended finds the runs that it has
trained already.

A run is among "runs" when it has ended and its model, if it is the best, is
written: save the model, then the journal, then remove the checkpoints. Killed
anywhere, the same command continues from what the journal says.
"""

import dataclasses
import fcntl
import itertools
import math
import os
import socket
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from absl import logging

from foundation import (
    atomic,
    config_flags,
    errors,
    file_system,
    metadata,
    tensor_files,
)
from weights import task_files

NAME, LOCK = task_files.JOURNAL, ".training.lock"
_KEYS = ("flags", "made_from", "runs", "best", "evaluations", "sets")
RUNS = "runs"  # The folder of the runs of a grid.
SCORE = "score"  # The metric by which runs are compared.
# The flags that the name of a run tells: a grid may get more of their values.
_AXES = (
    "learning_rate",
    "train_batch_size",
    "num_train_epochs",
    "random_seed",
    "num_seeds",
)
_SEED = "_seed"  # Between a run's group and its seed.
_LOCKS: dict[str, TextIO] = {}  # The files that this process has locked.


class RunRecord:
    """The journal of a directory; read once, written at each change.

    Attributes:
      flags: the flags of the training, {} without one.
      made_from: what the training has read: digests, labels, sizes.
      runs: the results of the runs that have ended, by name.
      best: the run whose weights the directory has, and their step.
      evaluations: what is known of the model in the directory, by set.
      sets: the sets that the model was trained on and has predicted.
    """

    flags: Mapping[str, Any]
    made_from: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, Any]]
    best: Mapping[str, Any]
    evaluations: Mapping[str, Mapping[str, Any]]
    sets: Mapping[str, Mapping[str, Any]]

    def __init__(self, directory: str, *, is_chief: bool = True):
        """Reads the journal, if there is one; only the chief ever writes."""
        self.directory, self.is_chief = directory, is_chief
        self._path = os.path.join(directory, NAME)
        stored = metadata.read_if_present(self._path, metadata.Object) or {}
        for key in _KEYS:
            setattr(self, key, stored.get(key, {}))

    def begin(
        self, flags: Any, made_from: Mapping[str, Any], *, goes_on: bool = False
    ) -> None:
        """Reserves the directory for a training that begins or continues.

        Args:
          flags: the flags.
          made_from: what the training reads, by names for messages.
          goes_on: whether a run that has ended may go on with other flags, such
            as more steps.

        Raises:
          InputError: another process trains there, or a training there read
            other files or had other flags. A single run that was stopped may
            go on with other flags that do not affect what it reads.
        """
        if self.is_chief:
            lock(self.directory)
        before = {**self.flags, **self.made_from} if self._has_begun else {}
        changes = config_flags.changes(flags, made_from, before)
        if flags.is_grid:
            changes = [x for x in changes if x.name not in _AXES]
        if goes_on or not (self.runs or flags.is_grid):
            for change in changes:
                logging.warning(
                    "the training goes on otherwise: %s", change.shown
                )
            changes = [x for x in changes if x.forbids_resuming]
        if changes:
            raise errors.InputError(
                f"{', '.join(x.shown for x in changes)}: {self.directory} has "
                "a training that began so; take another --output_dir"
            )
        values = config_flags.flat_values(flags)
        self.write(flags=values, made_from=dict(made_from))

    @property
    def _has_begun(self) -> bool:
        """Whether a run has ended, or has left a checkpoint."""
        if self.runs:
            return True
        folders = ("", os.path.join(RUNS, "*"))
        patterns = [
            os.path.join(self.directory, x, tensor_files.POINTER)
            for x in folders
        ]
        return any(file_system.matches(pattern) for pattern in patterns)

    def finish(self, run: str, result: Mapping[str, Any]) -> None:
        """Notes the result of a run that has ended.

        Args:
          run: name of the run.
          result: "step", "seconds", "values" by name, and why it "failed" or
            "". If it is the best, the directory has its weights.
        """
        best = {"run": run, "step": result["step"]}
        if self.is_best(run, result) and best != self.best:
            self.best = best
            self.evaluations = {}  # They are of another model.
        self.write(runs={**self.runs, run: dict(result)})

    def is_best(self, run: str, result: Mapping[str, Any]) -> bool:
        """Returns whether no other run that has ended is as good."""
        if result["failed"]:
            return False
        return all(
            _score(result) > _score(other)
            for name, other in self.runs.items()
            if name != run and not other["failed"]
        )

    def note_set(self, split: str, **values: Any) -> None:
        """Notes a set that the model was trained on, or has predicted."""
        self.write(sets={**self.sets, split: values})

    def note_evaluation(self, split: str, **values: Any) -> None:
        """Notes an evaluation of the model in the directory."""
        self.write(evaluations={**self.evaluations, split: values})

    def write(self, **values: Mapping[str, Any]) -> None:
        """Writes the journal with other values of these attributes."""
        vars(self).update(values)
        if self.is_chief:
            file_system.make_folder(self.directory)
            known = {key: getattr(self, key) for key in _KEYS}
            known = {key: value for key, value in known.items() if value}
            atomic.write_json(self._path, known)


def _score(result: Mapping[str, Any]) -> float:
    score = result["values"].get(SCORE, 0.0)
    return score if score == score else -math.inf  # Nothing is worse than NaN.


def lock(directory: str) -> None:
    """Reserves a directory for the training of this process, until it ends.

    The system releases the lock when the process ends, however it ends. A
    bucket, and a disk without locks, are not reserved.

    Raises:
      InputError: another process is training there.
    """
    path = os.path.join(directory, LOCK)
    if file_system.is_remote(path) or os.path.realpath(path) in _LOCKS:
        return
    file_system.make_folder(directory)
    # Not flock: a worker process would keep the lock of its killed parent.
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise errors.InputError(
            f"--output_dir={directory}: {owner} is training there; wait for "
            "its end, stop it, or choose another --output_dir"
        ) from None
    except OSError as error:
        logging.info("%s: not reserved for this run: %s", directory, error)
    _LOCKS[os.path.realpath(path)] = file
    with file_system.naming(path):
        file.truncate(0)
        file.write(
            f"{os.path.basename(sys.argv[0])} (process {os.getpid()} on "
            f"{socket.gethostname()}, since {time.strftime('%F %T')})\n"
        )
        file.flush()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a grid, or the only one.

    Attributes:
      name: the run in the journal and in names of folders.
      learning_rate: the peak learning rate.
      batch_size: examples per training step, over all replicas.
      epochs: passes over the training set.
      seed: seed of weights, dropout and the order of the examples.
      directory: directory of its checkpoints and metrics.
    """

    name: str
    learning_rate: float
    batch_size: int
    epochs: float
    seed: int
    directory: str


def plan(flags: Any) -> list[Run]:
    """Returns the runs of a command, usually one; `flags` has their axes."""
    seeds = range(flags.random_seed, flags.random_seed + flags.num_seeds)
    runs = []
    for learning_rate, seed, batch_size, epochs in itertools.product(
        flags.learning_rate,
        seeds,
        flags.train_batch_size,
        flags.num_train_epochs,
    ):
        group = f"lr{learning_rate!r}_batch{batch_size}_epochs{float(epochs)!r}"
        name, directory = f"{group}{_SEED}{seed}", flags.output_dir
        if flags.is_grid:
            directory = os.path.join(directory, RUNS, name)
        runs.append(
            Run(
                name=name,
                learning_rate=learning_rate,
                batch_size=batch_size,
                epochs=epochs,
                seed=seed,
                directory=directory,
            )
        )
    return runs


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the results of runs, by their names, as lines of text.

    A line for each run, with its metrics or why it failed; then for each group
    of runs that differ in their seeds the statistics of the score.
    """
    lines = []
    for name, result in results.items():
        values = [f"{k}={x:.4f}" for k, x in result["values"].items()]
        lines.append(f"{name}  {result['failed'] or '  '.join(values)}")
    for group, statistic in summary(results).items():
        texts = [f"{name} {x:.4f}" for name, x in statistic.items()]
        lines.append(f"{group}  score: {', '.join(texts)}")
    return "\n".join(lines) + "\n"


def summary(
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, float]]:
    """Returns statistics of the scores of runs that differ in their seeds."""
    groups: dict[str, list[float]] = {}
    for name, result in results.items():
        if not result["failed"]:
            scores = groups.setdefault(name.rpartition(_SEED)[0], [])
            scores.append(result["values"].get(SCORE, math.nan))
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
