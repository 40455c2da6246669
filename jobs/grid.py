"""The runs of a grid and their results: several learning rates and seeds.

    plan([5e-5, 3e-5], [1, 2], "out")
        -> out/runs/lr5e-05_seed1, out/runs/lr5e-05_seed2, ...

    out/runs/*/begun.json      the settings that a run was begun with
    out/runs/*/result.json     the results of a finished run
    out/kept.json              the run whose model is in out
    out/grid_results.json      the results of all runs; also as a table, .txt

A grid that was interrupted continues where it was. A run that has diverged is
finished as well, because it would diverge again. A grid of a single run is that
run, in the output directory itself.
"""

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from foundation import errors, file_system

RESULT = "result.json"
BEGUN = "begun.json"
KEPT = "kept.json"
SCORE = "score"  # The metric by which runs are compared.
_GRID_RESULTS = "grid_results"
_FAILED = "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a grid."""

    learning_rate: float
    random_seed: int
    directory: str

    @property
    def name(self) -> str:
        """The run in words."""
        return f"learning rate {self.learning_rate:g}, seed {self.random_seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The flags in which the runs of a grid differ."""
        return {
            "learning_rate": self.learning_rate,
            "random_seed": self.random_seed,
        }

    def result(self) -> dict | None:
        """Returns the results of the run, None if it has not finished."""
        return _read(os.path.join(self.directory, RESULT))

    def begun(self) -> dict | None:
        """Returns the record of the run's beginning, None if it has none."""
        return _read(os.path.join(self.directory, BEGUN))

    def check(
        self, recorded: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        """Compares settings, where both have one, with those of a record.

        Args:
          recorded: from result() or begun().
          settings: the current ones, by flag.

        Raises:
          InputError: one differs.
        """

        def key(name: str, value: Any) -> Any:
            is_path = name == "init_checkpoint" and value is not None
            return file_system.real(value) if is_path else value

        old = recorded.get("settings", {})
        settings = {**settings, **self.settings}
        changed = [
            f"--{name} was {old[name]}, is {value}"
            for name, value in json.loads(json.dumps(settings)).items()
            if name in old and key(name, old[name]) != key(name, value)
        ]
        if changed:
            state = (
                "has ended already" if "step" in recorded else "was begun so"
            )
            raise errors.InputError(
                f"{', '.join(changed)}: {self.directory} {state}; "
                "take another --output_dir"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Records the settings of a run before it trains."""
        file_system.make_folder(self.directory)
        file_system.write_json(
            os.path.join(self.directory, BEGUN),
            {"settings": {**settings, **self.settings}},
        )

    def finish(self, result: Mapping[str, Any]) -> None:
        """Records the results of the run; see Results.add."""
        path = os.path.join(self.directory, RESULT)
        file_system.write_json(path, result)


def plan(
    learning_rates: Sequence[float], seeds: Sequence[int], output_dir: str
) -> list[Run]:
    """Returns the runs of a grid, each with its directory."""
    pairs = [(rate, seed) for rate in learning_rates for seed in seeds]
    if len(pairs) > 1:
        return [_run(rate, seed, output_dir) for rate, seed in pairs]
    ((rate, seed),) = pairs
    return [Run(learning_rate=rate, random_seed=seed, directory=output_dir)]


def kept(output_dir: str) -> dict[str, Any] | None:
    """Returns learning_rate, random_seed and step of the model kept there."""
    return _read(os.path.join(output_dir, KEPT))


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
        record = _read(path) or {}
        for row in (*record.get("runs", ()), *record.get(_FAILED, ())):
            rate, seed = row["learning_rate"], row["random_seed"]
            run = _run(rate, seed, self._output_dir)
            if (result := run.result()) is not None:
                self._finished[run] = result
        found = kept(self._output_dir)
        if not self.values or found not in (None, self._record(self.best_run)):
            self._finished.clear()

    def _record(self, run: Run) -> dict[str, Any]:
        return {**run.settings, "step": self._finished[run]["step"]}

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

        Args:
          run: that has finished.
          result: values, step, seconds, settings; "failed", a reason, if so.
        """
        self._finished[run] = result
        return self.is_best(run)

    def check(self, run: Run | None = None) -> None:
        """Raises if a run has failed; without a run, if all have.

        Raises:
          InputError: with the reason of the run, or of the first one.
        """
        failures = self.failures
        if run is None and not self.values:
            run = next(iter(failures))
        if run in failures:
            raise errors.InputError(f"{run.name}: {failures[run][_FAILED]}")

    def keep(self, run: Run) -> None:
        """Records that output_dir has the model of a run."""
        file_system.write_json(
            os.path.join(self._output_dir, KEPT), self._record(run)
        )
        if run.directory == self._output_dir:
            # The results of a grid whose model has just been replaced.
            for ending in (".json", ".txt"):
                path = os.path.join(self._output_dir, _GRID_RESULTS + ending)
                file_system.discard(path)

    def table(self) -> tuple[list[str], list[list]] | None:
        """Returns header and rows of all runs, with statistics by rate.

        A failed run has a row with its reason and is not part of the
        statistics. Returns None for a single run.
        """
        if len(self) < 2:
            return None
        names = list(summarize(self.values))
        rows: list[list] = []

        def add_statistics(rate: str, some: Mapping) -> None:
            summary = summarize(some)
            for kind in ("best", "mean", "median", "std"):
                rows.append([rate, kind, *(summary[n][kind] for n in names)])

        ordered = self.values | self.failures
        for rate in dict.fromkeys(run.learning_rate for run in ordered):
            same = {r: x for r, x in ordered.items() if r.learning_rate == rate}
            for run, result in list(same.items()):
                if _FAILED in result:
                    del same[run]
                    reason = f"diverged at step {result['step']}"
                    cells = [reason, *[""] * (len(names) - 1)]
                else:
                    cells = [result[name] for name in names]
                rows.append([f"{rate:g}", str(run.random_seed), *cells])
            if len(same) > 1:
                add_statistics(f"{rate:g}", same)
        if len({run.learning_rate for run in self.values}) > 1:
            add_statistics("all", self.values)
        return ["learning rate", "seed", *names], rows

    def text(self) -> str:
        """Returns the table of several runs as text."""
        return format_table(*self.table())

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
                {**self._record(run), _FAILED: result[_FAILED]}
                for run, result in self.failures.items()
            ],
        }
        path = os.path.join(self._output_dir, _GRID_RESULTS)
        text = self.text()
        file_system.write_json(f"{path}.json", record)
        file_system.write_text(f"{path}.txt", text + "\n")
        return text


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


def _run(rate: float, seed: int, output_dir: str) -> Run:
    """Returns one of several runs, with its directory."""
    name = f"lr{rate:g}_seed{seed}"
    return Run(
        learning_rate=rate,
        random_seed=seed,
        directory=os.path.join(output_dir, "runs", name),
    )


def _read(path: str) -> dict[str, Any] | None:
    return file_system.read_json(path) if file_system.exists(path) else None
