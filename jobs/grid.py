"""The paper's protocol: several learning rates, several seeds, the best on dev.

    plan([5e-5, 3e-5], [1, 2], "out")
        -> out/runs/lr5e-05_seed1, out/runs/lr5e-05_seed2, ...

Every finished run leaves result.json in its folder, so an interrupted grid goes
on where it was; begun.json says how the others were begun, as which they go on.
One that has diverged is finished as well: it would do so again. A grid of one
run is that run, in output_dir itself. kept.json says which run's model lies in
output_dir.
"""

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from foundation import errors, file_system

# ----------------------------------------------------------------------
# What the runs of a grid are worth: the best, the mean, tables of all.

_SCORE = "score"


class RunRow(Protocol):
    """A cell of a grid."""

    learning_rate: float
    random_seed: int


def best_run_of(results: Mapping[RunRow, Mapping[str, float]]) -> RunRow:
    """Returns the run with the highest score, of equals the first.

    The only run of a job without an evaluation has no score, and needs none.
    """

    def rank(run: RunRow) -> float:
        score = results[run].get(_SCORE, 0.0)
        return score if math.isfinite(score) else -math.inf

    return max(results, key=rank)


def runs_summary(
    results: Mapping[RunRow, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Returns best, mean, median and deviation of every metric over all runs.

    "best" is that of the best run; the deviation is that of a sample.
    """
    chosen = results[best_run_of(results)]
    columns = {
        name: [values[name] for values in results.values()]
        for name in _common_names(results)
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


def _common_names(
    results: Mapping[RunRow, Mapping[str, float]],
) -> list[str]:
    """Returns the metrics that all runs have, in the order of the best run."""
    return [
        name
        for name in results[best_run_of(results)]
        if all(name in values for values in results.values())
    ]


def runs_table(
    results: Mapping[RunRow, Mapping[str, float]],
    failures: Mapping[RunRow, str] | None = None,
) -> tuple[list[str], list[list]]:
    """Returns the header and the rows of a table of all runs and by rate.

    Of the failures, each has a row that says how; nothing else counts them.
    """
    failures = failures or {}
    names = _common_names(results)
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
            rows += _statistics(f"{rate:g}", runs_summary(part), names)
    if len({run.learning_rate for run in results}) > 1:
        rows += _statistics("all", runs_summary(results), names)
    return header, rows


def runs_text(header: Sequence[str], rows: Sequence[Sequence]) -> str:
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


RESULT = "result.json"
BEGUN = "begun.json"
KEPT = "kept.json"
_GRID_RESULTS = "grid_results"
_FAILED = "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One cell of the grid."""

    learning_rate: float
    random_seed: int
    directory: str

    @property
    def name(self) -> str:
        """Says in words which one it is."""
        return f"learning rate {self.learning_rate:g}, seed {self.random_seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from the others, by flag."""
        return {
            "learning_rate": self.learning_rate,
            "random_seed": self.random_seed,
        }

    def is_that_of(self, kept: Mapping[str, Any] | None) -> bool:
        """Says whether it is the one that `kept` tells of; None may be it."""
        return kept is None or self.settings.items() <= kept.items()

    def result(self) -> dict | None:
        """Returns what the run ended with, None if it has not."""
        return _read(os.path.join(self.directory, RESULT))

    def check(
        self, made: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        """Refuses other settings, by flag, than a run has been made with.

        Only those that both know are compared.

        Args:
          made: of result() or begun().
          settings: of now.
        """
        old = made.get("settings", {})
        settings = {**settings, **self.settings}
        changed = [
            f"--{name} was {old[name]}, is {value}"
            for name, value in json.loads(json.dumps(settings)).items()
            if name in old and not _is_same(name, old[name], value)
        ]
        if changed:
            state = "has ended already" if "step" in made else "was begun so"
            raise errors.InputError(
                f"{', '.join(changed)}: {self.directory} {state}; "
                "take another --output_dir"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Notes what the run of a grid is made with, before it trains."""
        file_system.make_folder(self.directory)
        self._write(BEGUN, {"settings": {**settings, **self.settings}})

    def begun(self) -> dict | None:
        """Returns what the run of a grid was begun with, if it was."""
        return _read(os.path.join(self.directory, BEGUN))

    def finish(self, done: Mapping[str, Any]) -> None:
        """Notes what the run ended with; see Results.add."""
        self._write(RESULT, done)

    def _write(self, name: str, told: Mapping[str, Any]) -> None:
        path = os.path.join(self.directory, name)
        file_system.write_text(path, json.dumps(told, indent=2) + "\n")


def kept(output_dir: str) -> dict[str, Any] | None:
    """Returns learning_rate, random_seed and step of the model kept there."""
    return _read(os.path.join(output_dir, KEPT))


def plan(
    learning_rates: Sequence[float], seeds: Sequence[int], output_dir: str
) -> list[Run]:
    """Returns the runs, each with its folder."""
    runs = [(rate, seed) for rate in learning_rates for seed in seeds]
    if len(runs) == 1:
        (rate, seed) = runs[0]
        return [Run(learning_rate=rate, random_seed=seed, directory=output_dir)]
    return [_run(rate, seed, output_dir) for rate, seed in runs]


class Results:
    """What the runs of a grid ended with, as far as they have."""

    def __init__(self, output_dir: str):
        """Writes nothing yet; `output_dir` is that of the whole grid."""
        self._output_dir = output_dir
        self._ended: dict[Run, Mapping[str, Any]] = {}
        self._is_over = False

    def read(self) -> None:
        """Reads what an earlier command's grid ended with, for the report.

        One whose best run is not the one that was kept is of another model.
        """
        path = os.path.join(self._output_dir, f"{_GRID_RESULTS}.json")
        self._is_over = True
        record = _read(path) or {}
        for row in (*record.get("runs", ()), *record.get(_FAILED, ())):
            rate, seed = row["learning_rate"], row["random_seed"]
            run = _run(rate, seed, self._output_dir)
            done = run.result()
            if done is not None:
                self._ended[run] = done
        found = kept(self._output_dir)
        if not self.values or found not in (None, self._told(self.best_run)):
            self._ended.clear()

    def _told(self, run: Run) -> dict[str, Any]:
        """Returns what KEPT says of a run."""
        return {**run.settings, "step": self._ended[run]["step"]}

    def __len__(self) -> int:
        """Returns how many runs have ended, however they did."""
        return len(self._ended)

    def __contains__(self, run: Run) -> bool:
        """Says whether a run has ended, however it did."""
        return run in self._ended

    @property
    def values(self) -> dict[Run, Mapping[str, float]]:
        """The metrics of every run that has not failed."""
        return {
            run: done["values"]
            for run, done in self._ended.items()
            if _FAILED not in done
        }

    @property
    def failures(self) -> dict[Run, Mapping[str, Any]]:
        """What every run that has failed ended with; "failed" says why."""
        return {
            run: done for run, done in self._ended.items() if _FAILED in done
        }

    @property
    def best(self) -> Mapping[str, Any]:
        """What the best run ended with."""
        return self._ended[self.best_run]

    @property
    def best_run(self) -> Run:
        """The best run."""
        return best_run_of(self.values)

    def is_best(self, run: Run) -> bool:
        """Says whether a run is the best so far."""
        return run in self.values and self.best_run == run

    @property
    def seconds(self) -> float | None:
        """How long all of them trained; None if this command trains none."""
        if self._is_over:
            return None
        seconds = [done["seconds"] for done in self._ended.values()]
        return sum(seconds) if seconds else None

    @property
    def metrics_dir(self) -> str:
        """Where the best run has its learning curves."""
        return self.best_run.directory if self._ended else self._output_dir

    def add(self, run: Run, done: Mapping[str, Any]) -> bool:
        """Notes what a run ended with; says whether it is the best so far.

        Args:
          run: that has ended.
          done: values, step, seconds, settings; and why it "failed", if so.
        """
        self._ended[run] = done
        return self.is_best(run)

    def check(self, run: Run | None = None) -> None:
        """Refuses to go on if a run has failed; without one, if all have.

        Raises:
          InputError: it says why the run, or the first of them, has.
        """
        failures = self.failures
        if run is None and not self.values:
            run = next(iter(failures))
        if run in failures:
            raise errors.InputError(f"{run.name}: {failures[run][_FAILED]}")

    def keep(self, run: Run) -> None:
        """Notes that output_dir has the model of a run."""
        path = os.path.join(self._output_dir, KEPT)
        text = json.dumps(self._told(run), indent=2)
        file_system.write_text(path, text + "\n")
        path = os.path.join(self._output_dir, _GRID_RESULTS)
        if run.directory == self._output_dir:
            # Of a grid whose model is no more.
            file_system.discard(f"{path}.json")
            file_system.discard(f"{path}.txt")

    def _rows(self) -> tuple[list[str], list[list]]:
        failures = {
            run: f"diverged at step {done['step']}"
            for run, done in self.failures.items()
        }
        return runs_table(self.values, failures)

    def table(self) -> tuple[list[str], list[list]] | None:
        """Returns the table of more than one run."""
        return self._rows() if len(self) > 1 else None

    def text(self) -> str:
        """Returns the table of all runs as text."""
        return runs_text(*self._rows())

    def write(self) -> str:
        """Writes grid_results.json and .txt; returns the latter's text."""
        shown = self.text()
        runs = [
            {**run.settings, **values} for run, values in self.values.items()
        ]
        record = {
            "best": self.best_run.name,
            "summary": runs_summary(self.values),
            "runs": runs,
            _FAILED: [
                {**self._told(run), _FAILED: done[_FAILED]}
                for run, done in self.failures.items()
            ],
        }
        path = os.path.join(self._output_dir, _GRID_RESULTS)
        file_system.write_text(
            f"{path}.json", json.dumps(record, indent=2) + "\n"
        )
        file_system.write_text(f"{path}.txt", shown + "\n")
        return shown


def _run(rate: float, seed: int, output_dir: str) -> Run:
    """Returns one of several runs, with its folder."""
    name = f"lr{rate:g}_seed{seed}"
    return Run(
        learning_rate=rate,
        random_seed=seed,
        directory=os.path.join(output_dir, "runs", name),
    )


def _is_same(flag: str, old: Any, new: Any) -> bool:
    """Compares the values of a flag; a path may be written in several ways."""
    if flag == "init_checkpoint" and None not in (old, new):
        old, new = map(file_system.real, (old, new))
    return old == new


def _read(path: str) -> dict[str, Any] | None:
    if not file_system.exists(path):
        return None
    return file_system.read_json(path)
