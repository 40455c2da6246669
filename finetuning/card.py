"""README.md of a model directory: what the model is and how it was made.

It begins with the YAML header of the Hugging Face Hub. It is made anew, from
the journal of the run, after each evaluation.
"""

import functools
import importlib.metadata
import json
import math
import os
import re
import typing
from collections.abc import Sequence
from typing import Any

import jinja2

from finetuning import record
from foundation import atomic, file_system, hub
from weights import checkpoint_sources

if typing.TYPE_CHECKING:
    from finetuning import session as sessions

NAME = "README.md"
_PACKAGES = ("tensorflow", "keras", "numpy")
BY_LABEL = ("label", "examples", "predicted", "precision", "recall", "F1")
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
_FIELDS = re.compile(
    r'^(base_model|language|license): *"?([\w./-]+)"? *$', re.MULTILINE
)


def write(session: "sessions.Session") -> None:
    """Writes the card of the model that was trained in --output_dir."""
    journal, kind = session.record, session.task
    sets = {
        name: f"{x['examples']} examples of {os.path.basename(x['path'])}, "
        f"texts and labels with the SHA-256 {x['digest']}"
        for name, x in journal.sets.items()
    }
    results = [
        {
            "split": split,
            "data": sets[split].partition(", texts")[0],
            "metrics": {
                metric: value
                for metric, value in found["values"].items()
                if metric not in ("loss", record.SCORE) and math.isfinite(value)
            },
            "note": found["note"],
            "by_label": found["by_label"],
        }
        for split, found in journal.evaluations.items()
    ]
    text = _template().render(
        title=f"BERT for {kind.title}",
        tag=session.head.pipeline_tag,
        hub=_of_base_model(session.flags.init_checkpoint),
        datasets=kind.datasets,
        labels=session.head.labels or (),
        sets=sets,
        results=results,
        by_label=BY_LABEL,
        flags={
            name: value
            for name, value in journal.flags.items()
            if value not in (None, False)
        },
        versions={x: importlib.metadata.version(x) for x in _PACKAGES},
        seconds=round(sum(run["seconds"] for run in journal.runs.values())),
    )
    atomic.write_text(os.path.join(journal.directory, NAME), text)


def _of_base_model(init_checkpoint: str | None) -> dict[str, str]:
    """Returns the Hub's fields that follow from the pre-trained model.

    They are those in the header of the README.md beside the weights; a release
    is known by the name of its folder.
    """
    if not init_checkpoint:
        return {}
    folder = file_system.folder_of(hub.local(init_checkpoint)).rstrip("/")
    folder = checkpoint_sources.snapshot(folder)
    card = os.path.join(folder, NAME)
    fields = {}
    if file_system.is_file(card):
        text = file_system.read(card).decode("utf-8", "replace")
        header = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        fields = dict(_FIELDS.findall(header[1])) if header else {}
    name = os.path.basename(os.path.abspath(folder))
    if name in _ON_THE_HUB:
        language = "multilingual" if name.startswith("multi") else "en"
        language = "zh" if name.startswith("chinese") else language
        return {
            "base_model": _ON_THE_HUB[name],
            "language": language,
            "license": "apache-2.0",
        }
    if cached := re.search(r"models--([\w.-]+?)--([\w.-]+)(/|$)", folder):
        fields["base_model"] = f"{cached[1]}/{cached[2]}"
    return fields


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("|", r"\|").replace("\n", " ")


def _table(header: Sequence[str], rows: Any) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, x)) + " |" for x in cells)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"yaml": json.dumps, "table": _table}
    return environment.get_template("card.md")
