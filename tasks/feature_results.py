"""What a choice of features ended with, and the table of all choices.

    features/<choice>/result.json   {"step": 8000, "seconds": 301.2,
        "values": {"dev": {"f1": 0.95, ...}},
        "made_from": {"train": {"lstm_size": 768, ...}, "dev": {...}}}

A set's values stand as long as what they were made from does; a tagger is
never taken for one that was trained otherwise.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import errors
from data import input_files
from tasks import file_system, grid_table

NAME = "result.json"
TABLE = "feature_results"
TRAIN = "train"
_OF_SPANS = ("precision", "recall", "f1")
_OF_PLAIN_TAGS = ("accuracy", "f1_macro")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a choice ended with.

    Attributes:
      step: the last one of training.
      seconds: that training took.
      values: metrics of each set; {} of one without tags.
      made_from: JSON values by flag that decide how the tagger was trained,
        under TRAIN, and what each set's values are, under its name.
    """

    step: int
    seconds: float
    values: Mapping[str, Mapping[str, float]]
    made_from: Mapping[str, Mapping[str, Any]]

    def has(self, split: str, made_from: Mapping[str, Any]) -> bool:
        """Tells whether a set's values are there and current."""
        known = self.made_from.get(split)
        return split in self.values and known == _plain(made_from)

    def add(
        self, split: str, values: Mapping[str, float], made_from: Mapping
    ) -> "Result":
        """Returns the result with a set's values."""
        return dataclasses.replace(
            self,
            values={**self.values, split: dict(values)},
            made_from={**self.made_from, split: _plain(made_from)},
        )

    def write(self, folder: str) -> None:
        """Writes result.json."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        file_system.write_text(os.path.join(folder, NAME), text + "\n")


def trained(step: int, seconds: float, settings: Mapping[str, Any]) -> Result:
    """Returns the result of a tagger that no set was tried on yet."""
    return Result(
        step=step,
        seconds=seconds,
        values={},
        made_from={TRAIN: _plain(settings)},
    )


def read(folder: str) -> Result | None:
    """Returns what a choice ended with, None if it has not, or long ago."""
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        return None
    found = input_files.read_json(path)
    if TRAIN not in found.get("made_from", {}):
        return None
    return Result(**found)


def check(folder: str, result: Result, settings: Mapping[str, Any]) -> None:
    """Refuses settings, by flag, that a tagger was not trained with.

    Raises:
      InputError: it names the first flag that differs.
    """
    before, now = result.made_from[TRAIN], _plain(settings)
    for flag in now:
        if flag in before and before[flag] != now[flag]:
            raise errors.InputError(
                f"{_differs(flag, before[flag], now[flag])}: {folder} holds a "
                "trained tagger; choose another --output_dir, or remove it"
            )


def write_table(
    output_dir: str, found: Mapping[str, Result], splits: Sequence[str]
) -> str:
    """Writes feature_results.txt and .json; returns the former's text.

    Args:
      output_dir: of the run.
      found: what each choice ended with.
      splits: the sets that may have scores, in the order of the columns.
    """
    shown = [s for s in splits if any(r.values.get(s) for r in found.values())]
    pairs = [(s, n) for s in shown for n in _scores(found.values(), s)]
    rows = [
        [choice, *_cells(result, pairs), f"{result.seconds:.0f}"]
        for choice, result in found.items()
    ]
    header = ["features", *(f"{s} {n}" for s, n in pairs), "seconds"]
    text = grid_table.text(header, rows)
    path = os.path.join(output_dir, TABLE)
    record = {}
    for choice, result in found.items():
        record[choice] = dataclasses.asdict(result)
        del record[choice]["made_from"]
    file_system.write_text(f"{path}.txt", text + "\n")
    file_system.write_text(f"{path}.json", json.dumps(record, indent=2) + "\n")
    return text


def _scores(results: Iterable[Result], split: str) -> tuple[str, ...]:
    """Returns the names of a set's columns."""
    has_spans = any(_OF_SPANS[-1] in r.values.get(split, {}) for r in results)
    return _OF_SPANS if has_spans else _OF_PLAIN_TAGS


def _cells(result: Result, pairs) -> list[str]:
    values = [result.values.get(split, {}).get(name) for split, name in pairs]
    return ["-" if x is None else f"{100 * x:.2f}" for x in values]


def _differs(flag: str, before: Any, now: Any) -> str:
    """Says how a flag differs; of what a file holds, only that it does."""
    if isinstance(now, dict) or len(str(now)) > 60:
        return f"--{flag} is another"
    return f"--{flag} was {before}, is {now}"


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values as they are read again from JSON."""
    return json.loads(json.dumps(dict(values)))
