"""README.md of a model directory: what the model is and how it was made.

It begins with the YAML header of the Hugging Face Hub. card.json holds its
contents, so that an evaluation can add to them:

    begin(directory, "BERT for named entities", data={"train": "..."}, ...)
    add_scores(directory, "dev", data={"dev": "..."}, metrics={"eval_f1": 0.9})

A directory without card.json has a README.md from elsewhere, or none, and is
not changed.
"""

import dataclasses
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from foundation import atomic, errors, file_system, hub, metadata
from training import checkpoints
from weights import checkpoint_sources, tokenizer_files

NAME = "README.md"
JSON = "card.json"
# Released names whose models have other names on the Hub.
_ON_THE_HUB = {
    "uncased_L-12_H-768_A-12": "google-bert/bert-base-uncased",
    "cased_L-12_H-768_A-12": "google-bert/bert-base-cased",
    "uncased_L-24_H-1024_A-16": "google-bert/bert-large-uncased",
    "cased_L-24_H-1024_A-16": "google-bert/bert-large-cased",
    "multi_cased_L-12_H-768_A-12": "google-bert/bert-base-multilingual-cased",
    "multilingual_L-12_H-768_A-12": (
        "google-bert/bert-base-multilingual-uncased"
    ),
    "chinese_L-12_H-768_A-12": "google-bert/bert-base-chinese",
}
# Columns of the scores of each label.
BY_LABEL = ("label", "examples", "predicted", "precision", "recall", "F1")


class _Scores(TypedDict):
    data: dict[metadata.Text, metadata.Text]
    metrics: dict[metadata.Text, metadata.Number]


class _Evaluation(_Scores, total=False):
    by_label: list[list[metadata.Text | metadata.Number]]
    note: metadata.Text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Card:
    """The content of card.json; that of earlier versions had less."""

    title: metadata.Text
    labels: list[metadata.Text]
    data: dict[metadata.Text, metadata.Text]
    flags: dict[metadata.Text, Any]
    versions: dict[metadata.Text, metadata.Text]
    seconds: metadata.Number
    weights: str | None
    hub: dict[metadata.Text, metadata.Text | list[metadata.Text]] = (
        dataclasses.field(default_factory=dict)
    )
    evaluations: dict[str, _Evaluation] = dataclasses.field(
        default_factory=dict
    )


def begin(
    directory: str,
    title: str,
    *,
    data: Mapping[str, str],
    flags: Mapping[str, Any],
    seconds: float,
    pipeline_tag: str | None = None,
    datasets: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    weights: str | None = None,
) -> None:
    """Writes the card of a newly trained model.

    Args:
      directory: directory of the model.
      title: what the model does.
      data: description of each training set, with its digest.
      flags: the flags that differ from their defaults.
      seconds: duration of training.
      pipeline_tag: the Hub's name for the task.
      datasets: the Hub's names of the training sets, if they are there.
      labels: names of the classes.
      weights: digest of the weights.
    """
    hub_fields = {
        "library_name": "transformers",
        "pipeline_tag": pipeline_tag,
        "datasets": list(datasets),
        **_of_base_model(flags.get("init_checkpoint")),
    }
    card = {
        "title": title,
        "hub": {name: value for name, value in hub_fields.items() if value},
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
    by_label: Sequence[Sequence[Any]] = (),
    note: str = "",
) -> None:
    """Adds an evaluation to the card, replacing an earlier one.

    Args:
      directory: directory of the model.
      name: name of the evaluation, such as "dev".
      data: description of each set.
      metrics: their names differ from those of other evaluations.
      by_label: see outputs.Scores.
      note: a sentence on the metrics.
    """
    card = _read(directory)
    if card is not None:
        evaluation = {
            "data": dict(data),
            "metrics": dict(metrics),
            "by_label": [list(row) for row in by_label],
            "note": note,
        }
        card["evaluations"][name] = evaluation
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
    """Returns the card's description of a set of an evaluation, if any."""
    card = _read(directory) or {"evaluations": {}}
    return card["evaluations"].get(name, {"data": {}})["data"].get(name)


def metrics_of(directory: str) -> dict[str, float]:
    """Returns the metrics of all evaluations in the card, if there is one."""
    card = _read(directory) or {"evaluations": {}}
    metrics: dict[str, float] = {}
    for evaluation in card["evaluations"].values():
        metrics |= evaluation["metrics"]
    return metrics


def _read(directory: str) -> dict[str, Any] | None:
    path = os.path.join(directory, JSON)
    try:
        card = metadata.read_object(path, _Card)
        return card and {"evaluations": {}} | card
    except errors.InputError as error:  # Written by hand, or damaged.
        logging.warning("%s; writing a new model card", error)
        return None


def _write(directory: str, card: Mapping[str, Any]) -> None:
    text = "\n".join(_lines(card)) + "\n"
    atomic.write_text(os.path.join(directory, NAME), text)
    # The last file: card.json implies a complete README.md.
    atomic.write_json(os.path.join(directory, JSON), card)


def _of_base_model(init_checkpoint: str | None) -> dict[str, Any]:
    """Returns the Hub's fields that follow from the pre-trained model.

    The language and the license are those of a release, or those in the header
    of the README.md beside the weights. The base model is known by its name on
    the Hub; that of another folder is the one in that header, if any.
    """
    if not init_checkpoint:
        return {}
    path = hub.local(init_checkpoint)
    folder = file_system.folder_of(path).rstrip("/")
    folder = checkpoint_sources.snapshot(folder)
    if not file_system.is_remote(folder):
        folder = os.path.abspath(folder)  # "." has no name.
    name = os.path.basename(folder)
    paths = [os.path.join(folder, NAME)]
    # A run writes one card, that of the model above its best one.
    if name == checkpoints.BEST:
        paths.append(os.path.join(os.path.dirname(folder), NAME))
    hub_fields: dict[str, Any] = {}
    if card := next(filter(file_system.is_file, paths), None):
        text = file_system.read(card).decode("utf-8", "replace")
        header = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        pattern = r'^(base_model|language|license): *"?([\w./-]+)"? *$'
        if header:
            hub_fields = dict(re.findall(pattern, header[1], re.MULTILINE))
    base = hub_fields.pop("base_model", None)
    if tokenizer_files.case_of_release(folder) is not None:
        language = "en"
        if name.startswith(("multi", "chinese")):
            language = "zh" if name.startswith("chinese") else "multilingual"
        hub_fields = {"language": language, "license": "apache-2.0"}
    in_cache = r"models--([\w.-]+?)--([\w.-]+)(/snapshots/[^/]+)?$"
    cached = re.search(in_cache, folder)
    if cached:
        base = f"{cached[1]}/{cached[2]}"
    return {"base_model": _ON_THE_HUB.get(name, base), **hub_fields}


def _header(card: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the YAML header."""
    hub_fields = card.get("hub", {})
    results = []
    for name, evaluation in card["evaluations"].items():
        metrics = [
            {"type": re.sub(r"^(eval|test)_", "", metric), "value": value}
            for metric, value in evaluation["metrics"].items()
            if metric not in ("global_step", "loss") and math.isfinite(value)
        ]
        content = evaluation["data"].get(name, name).partition(", SHA-256")[0]
        dataset = {"name": content, "type": "text", "split": name}
        task = {"type": hub_fields.get("pipeline_tag", "text-classification")}
        if metrics:
            results.append(
                {"task": task, "dataset": dataset, "metrics": metrics}
            )
    if not results:
        return dict(hub_fields)
    index = {"name": card["title"], "results": results}
    return {**hub_fields, "model-index": [index]}


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yields the lines of mappings, lists and scalars as YAML."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, Mapping | list):
                yield f"{indent}{name}:"
                yield from _yaml(inner, indent + "  ")
            else:
                yield f"{indent}{name}: {json.dumps(inner)}"
        return
    for inner in value:
        if isinstance(inner, Mapping):
            first, *rest = _yaml(inner, indent + "  ")
            yield f"{indent}- {first.strip()}"
            yield from rest
        else:
            yield f"{indent}- {json.dumps(inner)}"


def _lines(card: Mapping[str, Any]) -> list[str]:
    lines = ["---", *_yaml(_header(card)), "---", "", f"# {card['title']}", ""]
    if card["labels"]:
        names = enumerate(card["labels"])
        shown = ", ".join(f"{i} is the label `{name}`" for i, name in names)
        lines += [f"Outputs of the model: {shown}.", ""]
    data = dict(card["data"])
    metrics: dict[str, float] = {}
    for evaluation in card["evaluations"].values():
        data |= evaluation["data"]
        metrics |= evaluation["metrics"]
    lines += ["## Data", "", *_table(("set", "content"), data.items())]
    if metrics:
        if "eval_loss" in metrics:  # Cards of earlier versions have both.
            metrics.pop("loss", None)
        values = [(name, f"{metrics[name]:.6g}") for name in sorted(metrics)]
        lines += ["", "## Results", "", *_table(("metric", "value"), values)]
    for name, evaluation in card["evaluations"].items():
        if rows := evaluation.get("by_label"):
            cells = [
                [x, *(f"{value:.4g}" for value in row)] for x, *row in rows
            ]
            lines += ["", f"By label, {name}:", "", *_table(BY_LABEL, cells)]
        if note := evaluation.get("note"):
            lines += ["", note]
    flags = [(name, json.dumps(value)) for name, value in card["flags"].items()]
    lines += ["", "## Flags", "", *_table(("flag", "value"), flags)]
    versions = _table(("package", "version"), card["versions"].items())
    lines += ["", "## Versions", "", *versions]
    return [*lines, "", f"Training took {card['seconds']:.0f} seconds."]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in cells]


def _cell(text: str) -> str:
    return str(text).replace("|", r"\|").replace("\n", " ")
