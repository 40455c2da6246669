"""README.md of a model directory: what the model is and how it was made.

card.json holds its contents, so that an evaluation can add to them:

    begin(directory, "BERT that tags words", data={"train": "..."}, ...)
    add_scores(directory, "dev", data={"dev": "..."}, metrics={"eval_f1": 0.9})

A directory without card.json has a README.md from elsewhere, or none, and is
not changed.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors, file_system

NAME = "README.md"
JSON = "card.json"


def begin(
    directory: str,
    title: str,
    *,
    data: Mapping[str, str],
    flags: Mapping[str, Any],
    seconds: float,
    labels: Sequence[str] | None = None,
    weights: str | None = None,
) -> None:
    """Writes the card of a newly trained model.

    Args:
      directory: of the model.
      title: what the model does.
      data: description of each training set, with its digest.
      flags: the flags that differ from their defaults.
      seconds: duration of training.
      labels: names of the classes.
      weights: digest of the weights.
    """
    card = {
        "title": title,
        "labels": list(labels or ()),
        "data": dict(data),
        "evaluations": {},
        "flags": dict(flags),
        "versions": {
            "Python": platform.python_version(),
            "TensorFlow": tf.__version__,
            "Keras": keras.__version__,
            "NumPy": np.__version__,
        },
        "seconds": seconds,
        "weights": weights,
    }
    _write(directory, card)


def add_scores(
    directory: str,
    name: str,
    *,
    data: Mapping[str, str],
    metrics: Mapping[str, float],
) -> None:
    """Adds an evaluation to the card, replacing an earlier one.

    Args:
      directory: of the model.
      name: of the evaluation, such as "dev".
      data: description of each set.
      metrics: their names differ from those of other evaluations.
    """
    card = _read(directory)
    if card is not None:
        found = {"data": dict(data), "metrics": dict(metrics)}
        card["evaluations"][name] = found
        _write(directory, card)


def end(directory: str, *, seconds: float, flags: Mapping[str, Any]) -> None:
    """Replaces the time and the flags by those of the complete grid."""
    card = _read(directory)
    if card is not None:
        _write(directory, card | {"seconds": seconds, "flags": dict(flags)})


def weights_of(directory: str) -> str | None:
    """Returns the digest of the weights that the card describes."""
    card = _read(directory)
    return None if card is None else card["weights"]


def data_of(directory: str, name: str) -> str | None:
    """Returns what a set of an evaluation contains, if the card says so."""
    card = _read(directory) or {"evaluations": {}}
    return card["evaluations"].get(name, {"data": {}})["data"].get(name)


def _read(directory: str) -> dict[str, Any] | None:
    path = os.path.join(directory, JSON)
    if not file_system.exists(path):
        return None
    try:
        # Cards of earlier versions have no "evaluations".
        return {"evaluations": {}} | file_system.read_json(path)
    except errors.InputError as error:  # Written by hand, or damaged.
        logging.warning("%s; writing a new model card", error)
        return None


def _write(directory: str, card: Mapping[str, Any]) -> None:
    text = "\n".join(_lines(card)) + "\n"
    file_system.write_text(os.path.join(directory, NAME), text)
    # The last file: card.json implies a complete README.md.
    file_system.write_json(os.path.join(directory, JSON), card)


def _lines(card: Mapping[str, Any]) -> list[str]:
    lines = [f"# {card['title']}", ""]
    if card["labels"]:
        names = enumerate(card["labels"])
        shown = ", ".join(f"{i} = {name}" for i, name in names)
        lines += [f"Labels: {shown}.", ""]
    data, metrics = dict(card["data"]), {}
    for found in card["evaluations"].values():
        data |= found["data"]
        metrics |= found["metrics"]
    lines += ["## Data", "", *_table(("set", "content"), data)]
    if metrics:
        values = {name: f"{metrics[name]:.6g}" for name in sorted(metrics)}
        lines += ["", "## Results", "", *_table(("metric", "value"), values)]
    flags = {name: json.dumps(value) for name, value in card["flags"].items()}
    lines += ["", "## Flags", "", *_table(("flag", "value"), flags)]
    versions = _table(("package", "version"), card["versions"])
    lines += ["", "## Versions", "", *versions]
    return [*lines, "", f"Training took {card['seconds']:.0f} seconds."]


def _table(header: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    cells = [header, ("---", "---"), *rows.items()]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in cells]


def _cell(text: str) -> str:
    return str(text).replace("|", r"\|").replace("\n", " ")
