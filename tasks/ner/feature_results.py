"""Results of the feature-based approach: one for each run, and their table.

output_dir/features/<choice>/result.json    or .../<choice>/runs/*/result.json
    {"step": 8000, "seconds": 301.2, "values": {"dev": {"f1": 0.95, ...}},
     "made_from": {"train": {"lstm_size": 768, ...}, "dev": {...}}}
output_dir/feature_results.txt, .json    the table of all choices
"""

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from foundation import atomic, metadata, stamp
from jobs import grid
from tasks.ner.ner_data import DEV, TRAIN

_FILE = "result.json"
_TABLE = "feature_results"
_SPAN_METRICS = ("precision", "recall", "f1")
_PLAIN_METRICS = ("accuracy", "f1_macro")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run; see the module's docstring.

    Attributes:
      step: the last training step.
      seconds: the duration of training.
      values: metrics by split; {} for a split without tags.
      made_from: settings by split, as JSON: for TRAIN those of the tagger, for
        other splits those that the metrics depend on besides the tagger.
      failed: the reason, if the run has diverged.
    """

    step: metadata.Count
    seconds: metadata.Number
    values: Mapping[str, Mapping[str, metadata.Number]]
    made_from: Mapping[str, Mapping[str, Any]]
    failed: str = ""

    @classmethod
    def trained(
        cls, step: int, seconds: float, settings: stamp.Stamp, failed: str = ""
    ) -> "Result":
        """Returns the result of a tagger that is not evaluated yet."""
        made_from = {TRAIN: settings.to_json()}
        return cls(
            step=step,
            seconds=seconds,
            values={},
            made_from=made_from,
            failed=failed,
        )

    @classmethod
    def read(cls, folder: str, settings: stamp.Stamp) -> "Result | None":
        """Returns the result in the directory of a run; None if there is none.

        Raises:
          InputError: the tagger was trained with other settings.
        """
        path = os.path.join(folder, _FILE)
        result = metadata.read_if_present(path, cls)
        # Early versions wrote results without settings.
        if result is None or TRAIN not in result.made_from:
            return None
        stamp.refuse(
            settings.difference(result.made_from[TRAIN]),
            f"{folder} contains a trained tagger; choose another --output_dir, "
            "or remove it",
        )
        return result

    def has(self, split: str, made_from: stamp.Stamp) -> bool:
        """Returns whether the values of a split exist and are current."""
        stored = self.made_from.get(split)
        return split in self.values and made_from.is_same(stored)

    def add(
        self, split: str, values: Mapping[str, float], made_from: stamp.Stamp
    ) -> "Result":
        """Returns the result with the values of a split."""
        return dataclasses.replace(
            self,
            values={**self.values, split: dict(values)},
            made_from={**self.made_from, split: made_from.to_json()},
        )

    def write(self, folder: str) -> None:
        """Writes result.json."""
        path = os.path.join(folder, _FILE)
        atomic.write_json(path, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Returns the content of result.json."""
        record = dataclasses.asdict(self)
        if not self.failed:
            del record["failed"]
        return record

    def to_row(self) -> dict[str, Any]:
        """Returns what feature_results.json has of a run."""
        record = self.to_json()
        del record["made_from"]
        return record

    def metrics(self, splits: Sequence[str]) -> dict[str, float]:
        """Returns the metrics of the table, as "dev f1" for example."""
        return {
            f"{split} {name}": values[name]
            for split in splits
            if (values := self.values.get(split))
            for name in (_SPAN_METRICS if "f1" in values else _PLAIN_METRICS)
        }


def write_table(
    output_dir: str,
    results: Mapping[str, Mapping[grid.Run, Result]],
    splits: Sequence[str],
) -> str:
    """Writes feature_results.txt and .json; returns the former's text.

    A choice of several runs has a row for each, and for the mean and standard
    deviation of each group of seeds. The .json has the means of its best group.

    Args:
      output_dir: directory of the command.
      results: results of the runs by choice.
      splits: the splits that may have metrics, in the order of the columns.
    """
    columns = list(
        dict.fromkeys(
            name
            for split in splits
            for runs in results.values()
            for result in runs.values()
            for name in result.metrics([split])
        )
    )
    has_several = any(len(runs) > 1 for runs in results.values())
    labels = ["features", *(["learning rate", "seed"] if has_several else [])]
    rows, record = [], {}
    for choice, runs in results.items():
        groups = grid.by_group(runs)
        for group, members in groups.items():
            for run, result in members.items():
                row = [choice, group, str(run.random_seed)][: len(labels)]
                values = result.metrics(splits)
                cells = [_percent(values.get(name)) for name in columns]
                seconds = f"{result.seconds:.0f}"
                if result.failed:
                    seconds = f"diverged at step {result.step}"
                rows.append([*row, *cells, seconds])
            spread = _summary(members, splits) if len(members) > 1 else {}
            for kind in ("mean", "std") if spread else ():
                values = {k: x[kind] for k, x in spread.items()}
                cells = [_percent(values.get(name)) for name in columns]
                rows.append([choice, group, kind, *cells, ""])
        record[choice] = _record(groups)
    text = grid.format_table([*labels, *columns, "seconds"], rows)
    path = os.path.join(output_dir, _TABLE)
    atomic.write_text(f"{path}.txt", text + "\n")
    atomic.write_json(f"{path}.json", record)
    return text


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _summary(
    runs: Mapping[grid.Run, Result], splits: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns the statistics of the metrics of runs that have not diverged."""
    metrics = {
        run: result.metrics(splits)
        for run, result in runs.items()
        if not result.failed
    }
    return grid.summarize(metrics) if metrics else {}


def _record(groups: Mapping[str, Mapping[grid.Run, Result]]) -> dict[str, Any]:
    """Returns a choice's entry of feature_results.json.

    Of several runs, it has the means of the group with the best mean on the
    development set, and all runs.
    """
    runs = {run: x for group in groups.values() for run, x in group.items()}
    if len(runs) == 1:
        (result,) = runs.values()
        return result.to_row()

    def means(group: Mapping[grid.Run, Result]) -> dict[str, dict[str, float]]:
        kept = [x.values for x in group.values() if not x.failed]
        return {
            split: {
                name: statistics.fmean(values[split][name] for values in kept)
                for name in kept[0][split]
            }
            for split in (kept[0] if kept else ())
        }

    def score(values: Mapping[str, Mapping[str, float]]) -> float:
        return values.get(DEV, {}).get(grid.SCORE, 0.0)

    return {
        "values": max(map(means, groups.values()), key=score),
        "runs": [
            run.settings | result.to_row() for run, result in runs.items()
        ],
    }
