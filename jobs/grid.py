"""The runs of a grid and their results.

A grid has several learning rates, seeds, batch sizes and numbers of epochs:

    plan(Grid(learning_rate=(5e-5, 3e-5), train_batch_size=(16, 32)), 1, "out")
        -> out/runs/lr5e-05_seed1_batch16, out/runs/lr5e-05_seed1_batch32, ...

    out/runs/*/begun.json      the settings that a run was begun with
    out/runs/*/result.json     the results of a finished run
    out/kept.json              the run whose model is in out
    out/grid_results.json      the results of all runs; also as a table, .txt

A grid that was interrupted continues with its unfinished run. A run that has
diverged counts as finished, because it would diverge again. A single run is in
the output directory itself.
"""

import dataclasses
import itertools
import math
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from foundation import atomic, errors, file_system, metadata, stamp
from jobs import run_config

RESULT = "result.json"
BEGUN = "begun.json"
KEPT = "kept.json"
SCORE = "score"  # The metric by which runs are compared.
_GRID_RESULTS = "grid_results"
_FAILED = "failed"
_OfRun = TypeVar("_OfRun")  # What is known of a run.
# Axis of a grid besides learning rate and seed -> its name in directories.
_NAMES_OF_AXES = {"train_batch_size": "batch", "num_train_epochs": "epochs"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Axes:
    """The keys that a run has in the records of a grid; see Run.settings."""

    learning_rate: metadata.Finite
    random_seed: metadata.Whole
    train_batch_size: metadata.Size | None = None
    num_train_epochs: metadata.Finite | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept(_Axes):
    """The content of kept.json."""

    step: metadata.Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Begun:
    """The content of begun.json."""

    settings: metadata.Object = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Result(_Begun):
    """The content of result.json."""

    step: metadata.Count
    seconds: metadata.Number
    values: dict[str, metadata.Number]
    failed: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Record:
    """What is read of grid_results.json."""

    runs: list[_Axes] = dataclasses.field(default_factory=list)
    failed: list[_Axes] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rows:
    """What the tables of a paper need of grid_results.json."""

    runs: list[dict[str, metadata.Number]]

    def __post_init__(self):
        """Checks what every run has."""
        for i, run in enumerate(self.runs):
            for name in ("learning_rate", SCORE):
                if name not in run:
                    raise errors.InputError(f"runs[{i}]: {name} is missing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a grid: its settings.

    Attributes:
      learning_rate: the peak learning rate.
      random_seed: seed of weights, dropout and the order of the examples.
      directory: directory of the run's checkpoints and metrics.
      train_batch_size: examples per training step, over all replicas.
      num_train_epochs: passes over the training set.
      varied: names of the settings above in which the runs of the grid differ,
        besides learning rate and seed.
    """

    learning_rate: float
    random_seed: int
    directory: str
    train_batch_size: int
    num_train_epochs: float
    varied: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The settings that runs with different seeds share, in words."""
        text = f"{self.learning_rate:g}"
        if "train_batch_size" in self.varied:
            text += f", batch {self.train_batch_size}"
        if "num_train_epochs" in self.varied:
            text += f", {self.num_train_epochs:g} epochs"
        return text

    @property
    def name(self) -> str:
        """The run in words."""
        return f"learning rate {self.group}, seed {self.random_seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The flags in which the runs of a grid differ."""
        names = ("learning_rate", "random_seed", *self.varied)
        return {name: getattr(self, name) for name in names}

    def result(self) -> dict | None:
        """Returns the results of the run, None if it has not finished."""
        path = os.path.join(self.directory, RESULT)
        return metadata.read_object(path, _Result)

    def as_kept(self, step: int) -> dict[str, Any]:
        """Returns what kept.json contains if the model is this run's."""
        return {**self.settings, "step": step}

    def begun(self) -> dict | None:
        """Returns the record of the run's beginning, None if it has none."""
        path = os.path.join(self.directory, BEGUN)
        return metadata.read_object(path, _Begun)

    def check(self, recorded: Mapping[str, Any], common: stamp.Stamp) -> None:
        """Refuses other settings than those of a record.

        Args:
          recorded: the record that result() or begun() returns.
          common: the settings of all runs of the grid.

        Raises:
          InputError: one differs.
        """
        now = common.with_values(self.settings)
        state = "has ended already" if "step" in recorded else "was begun so"
        stamp.refuse(
            now.difference(recorded.get("settings", {})),
            f"{self.directory} {state}; take another --output_dir",
        )

    def begin(self, common: stamp.Stamp) -> None:
        """Records the settings of a run before it trains."""
        file_system.make_folder(self.directory)
        settings = common.with_values(self.settings).to_json()
        path = os.path.join(self.directory, BEGUN)
        atomic.write_json(path, {"settings": settings})

    def finish(self, result: Mapping[str, Any]) -> None:
        """Records the results of the run; see Results.add."""
        path = os.path.join(self.directory, RESULT)
        atomic.write_json(path, result)


def plan(axes: run_config.Grid, first_seed: int, output_dir: str) -> list[Run]:
    """Returns the runs of a grid, each with its directory.

    Args:
      axes: the flags.
      first_seed: seed of the first run of each learning rate; the seeds of its
        other runs count up.
      output_dir: directory of the grid, and of its only run if there is one
        run.
    """
    varied = tuple(
        name for name in _NAMES_OF_AXES if len(getattr(axes, name)) > 1
    )
    runs = [
        Run(
            learning_rate=learning_rate,
            random_seed=seed,
            directory=output_dir,
            train_batch_size=batch_size,
            num_train_epochs=epochs,
            varied=varied,
        )
        for learning_rate, seed, batch_size, epochs in itertools.product(
            axes.learning_rate,
            range(first_seed, first_seed + axes.num_seeds),
            axes.train_batch_size,
            axes.num_train_epochs,
        )
    ]
    if len(runs) == 1:
        return runs
    return [_in_folder(run, output_dir) for run in runs]


def next_run(
    runs: Sequence[Run], results: "Results", saved: Collection[Run]
) -> Run | None:
    """Returns the run to train next; None if nothing is left to do.

    Runs without results come first, in their order; then the best run, if its
    model is not saved.

    Args:
      runs: the runs of the grid.
      results: the results of those that have finished or failed.
      saved: the runs whose model output_dir may have.

    Raises:
      InputError: all runs have failed.
    """
    for run in runs:
        if run not in results:
            return run
    results.check()
    best = results.best_run
    return None if best in saved else best


def kept(output_dir: str) -> dict[str, Any] | None:
    """Returns learning_rate, random_seed and step of the model kept there."""
    return metadata.read_object(os.path.join(output_dir, KEPT), _Kept)


def settings_of_kept(output_dir: str) -> Mapping[str, Any]:
    """Returns the settings of the run whose model is kept, {} if unknown."""
    path = os.path.join(output_dir, KEPT)
    row = metadata.read_if_present(path, _Kept)
    if row is None:
        return {}
    run = _run_of(row, output_dir)
    # It was one of several runs, or the only one.
    for directory in (run.directory, output_dir):
        found = dataclasses.replace(run, directory=directory).result() or {}
        settings = found.get("settings", {})
        values = {**settings, "step": found.get("step")}
        if all(values.get(k) == v for k, v in run.as_kept(row.step).items()):
            return settings
    return {}


def rows(output_dir: str) -> list[dict[str, float]] | None:
    """Returns settings and metrics of each run that has not failed, if any.

    Raises:
      InputError: grid_results.json is damaged, or a run has no score.
    """
    path = os.path.join(output_dir, f"{_GRID_RESULTS}.json")
    record = metadata.read_if_present(path, _Rows)
    return None if record is None else record.runs


class Results:
    """The results of the finished runs of a grid."""

    def __init__(self, output_dir: str):
        """Reads and writes nothing; `output_dir` is that of the grid."""
        self._output_dir = output_dir
        self._finished: dict[Run, Mapping[str, Any]] = {}
        self._was_read = False

    def read(self) -> None:
        """Reads the results of an earlier command's grid, for the report.

        Drops them if their best run is not the kept one: then output_dir has
        the model of another grid.
        """
        path = os.path.join(self._output_dir, f"{_GRID_RESULTS}.json")
        self._was_read = True
        record = metadata.read_if_present(path, _Record) or _Record()
        for row in (*record.runs, *record.failed):
            run = _run_of(row, self._output_dir)
            if (result := run.result()) is not None:
                self._finished[run] = result
        kept_record = kept(self._output_dir)
        if not self.values or kept_record not in (
            None,
            self.as_kept(self.best_run),
        ):
            self._finished.clear()

    def as_kept(self, run: Run) -> dict[str, Any]:
        """Returns what kept.json contains if the model is a finished run's."""
        return run.as_kept(self._finished[run]["step"])

    def __len__(self) -> int:
        """Returns the number of finished runs, failed ones included."""
        return len(self._finished)

    def __contains__(self, run: Run) -> bool:
        """Returns whether a run has finished or failed."""
        return run in self._finished

    @property
    def values(self) -> dict[Run, Mapping[str, float]]:
        """The metrics of every run that has not failed."""
        return {
            run: result["values"]
            for run, result in self._finished.items()
            if _FAILED not in result
        }

    @property
    def failures(self) -> dict[Run, Mapping[str, Any]]:
        """The results of every failed run; "failed" gives the reason."""
        return {
            run: result
            for run, result in self._finished.items()
            if _FAILED in result
        }

    @property
    def best(self) -> Mapping[str, Any]:
        """The results of the best run."""
        return self._finished[self.best_run]

    @property
    def best_run(self) -> Run:
        """The best run."""
        return best_run(self.values)

    def saved_runs(self) -> set[Run]:
        """Returns the finished runs whose model output_dir may have.

        An earlier grid may have saved the model of another run there. Without
        kept.json, which early versions did not write, all are returned.
        """
        recorded = kept(self._output_dir)
        return {
            run
            for run in self._finished
            if recorded is None or recorded == self.as_kept(run)
        }

    def is_best(self, run: Run) -> bool:
        """Returns whether a run is the best so far."""
        return run in self.values and self.best_run == run

    @property
    def seconds(self) -> float | None:
        """The time that all runs trained; None if this command trains none."""
        if self._was_read or not self._finished:
            return None
        return sum(result["seconds"] for result in self._finished.values())

    @property
    def metrics_dir(self) -> str:
        """The directory of the best run's learning curves."""
        return self.best_run.directory if self._finished else self._output_dir

    def add(self, run: Run, result: Mapping[str, Any]) -> bool:
        """Adds the results of a run; returns whether it is the best so far.

        They are its values, step, seconds and settings; "failed" is a reason.
        """
        self._finished[run] = result
        return self.is_best(run)

    def check(self, run: Run | None = None) -> None:
        """Refuses a run that has failed; without a run, a grid that has failed.

        Raises:
          InputError: the run has failed, or all runs; the message gives the
            reason of the run, or of the first run.
        """
        failures = self.failures
        if run is None and not self.values:
            run = next(iter(failures))
        if run in failures:
            raise errors.InputError(f"{run.name}: {failures[run][_FAILED]}")

    def keep(self, run: Run) -> None:
        """Records that output_dir has the model of a run."""
        atomic.write_json(
            os.path.join(self._output_dir, KEPT), self.as_kept(run)
        )
        if run.directory == self._output_dir:
            # The results of a grid whose model has just been replaced.
            for ending in (".json", ".txt"):
                path = os.path.join(self._output_dir, _GRID_RESULTS + ending)
                file_system.discard(path)

    def table(self) -> tuple[list[str], list[list]] | None:
        """Returns header and rows of all runs, with statistics of each group.

        A failed run has a row with its reason and is not part of the
        statistics. Returns None for a single run.
        """
        if len(self) < 2:
            return None
        names = list(summarize(self.values))
        rows: list[list] = []

        def add_statistics(group: str, results: Mapping) -> None:
            summary = summarize(results)
            for kind in ("best", "mean", "median", "std"):
                rows.append([group, kind, *(summary[n][kind] for n in names)])

        ordered = self.values | self.failures
        for group, same_group in by_group(ordered).items():
            for run, result in list(same_group.items()):
                if _FAILED in result:
                    del same_group[run]
                    reason = f"diverged at step {result['step']}"
                    cells = [reason, *[""] * (len(names) - 1)]
                else:
                    cells = [result[name] for name in names]
                rows.append([group, str(run.random_seed), *cells])
            if len(same_group) > 1:
                add_statistics(group, same_group)
        if len({run.group for run in self.values}) > 1:
            add_statistics("all", self.values)
        return ["learning rate", "seed", *names], rows

    def write(self) -> str:
        """Writes grid_results.json and .txt; returns the text of the latter."""
        record = {
            "best": self.best_run.name,
            "summary": summarize(self.values),
            "runs": [
                {**run.settings, **values}
                for run, values in self.values.items()
            ],
            _FAILED: [
                {**self.as_kept(run), _FAILED: result[_FAILED]}
                for run, result in self.failures.items()
            ],
        }
        path = os.path.join(self._output_dir, _GRID_RESULTS)
        table = self.table()
        assert table is not None  # There are several runs.
        text = format_table(*table)
        atomic.write_json(f"{path}.json", record)
        atomic.write_text(f"{path}.txt", text + "\n")
        return text


def by_group(results: Mapping[Run, _OfRun]) -> dict[str, dict[Run, _OfRun]]:
    """Returns the results of runs that differ in their seeds only, by group."""
    groups: dict[str, dict[Run, _OfRun]] = {}
    for run, result in results.items():
        groups.setdefault(run.group, {})[run] = result
    return groups


def best_run(results: Mapping[Run, Mapping[str, float]]) -> Run:
    """Returns the run with the highest score; of equal ones the first.

    The only run of a job without evaluations has no score.
    """

    def rank(run: Run) -> float:
        score = results[run].get(SCORE, 0.0)
        return score if math.isfinite(score) else -math.inf

    return max(results, key=rank)


def summarize(
    results: Mapping[Run, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Returns best, mean, median and std of the metrics that all runs have.

    "best" is the value of the best run; "std" is that of a sample.
    """
    chosen = results[best_run(results)]
    columns = {
        name: [values[name] for values in results.values()]
        for name in chosen
        if all(name in values for values in results.values())
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


def format_table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Returns a table as aligned text."""
    cells = [list(header)] + [
        [x if isinstance(x, str) else f"{x:.4f}" for x in row] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True))
        for row in cells
    )


def _run_of(row: _Axes, output_dir: str) -> Run:
    """Returns the run of a record of a grid."""
    run = Run(
        learning_rate=row.learning_rate,
        random_seed=row.random_seed,
        directory=output_dir,
        # Records have these two keys only if the runs differ in them.
        train_batch_size=row.train_batch_size or 0,
        num_train_epochs=row.num_train_epochs or 0.0,
        varied=tuple(name for name in _NAMES_OF_AXES if getattr(row, name)),
    )
    return _in_folder(run, output_dir)


def _in_folder(run: Run, output_dir: str) -> Run:
    """Returns one of several runs, with its directory."""
    name = f"lr{run.learning_rate:g}_seed{run.random_seed}"
    for axis in run.varied:
        name += f"_{_NAMES_OF_AXES[axis]}{getattr(run, axis):g}"
    folder = os.path.join(output_dir, "runs", name)
    return dataclasses.replace(run, directory=folder)
