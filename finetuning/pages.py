"""The pages of a model directory, made anew after each evaluation.

report.html    metrics, runs, learning curves, the task's sections, flags
README.md      the model card, with the YAML header of the Hugging Face Hub
"""

import functools
import importlib.metadata
import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from finetuning import record, report
from finetuning import task as tasks
from foundation import atomic, config_flags, file_system, hub
from weights import checkpoint_sources

REPORT, CARD = "report.html", "README.md"
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


def write_report(
    journal: record.RunRecord,
    task: tasks.Task,
    evaluation: tasks.Evaluation,
    step: int,
) -> None:
    """Writes the report of a fine-tuned model on its development set.

    Args:
      journal: the journal of --output_dir.
      task: the task.
      evaluation: that of the first development set.
      step: the training step of the model.
    """
    flags, values = task.flags, evaluation.values
    rows = [[name, values[name]] for name in sorted(values)]
    results = report.table(["metric", "value"], rows)
    for sentence in filter(None, (evaluation.note, task.score_note)):
        results += Markup("<p>{}</p>").format(sentence)
    sections = [report.Section("Results", results)]
    runs = journal.runs
    if len(runs) > 1:
        names = list(runs[journal.best["run"]]["values"])
        cells = [
            [
                name,
                run["failed"] or "",
                *(run["values"].get(x, "") for x in names),
            ]
            for name, run in runs.items()
        ]
        shown = report.table(["run", "failed", *names], cells, minor=names[3:])
        if groups := record.summary(runs):
            statistics = [[x, *y.values()] for x, y in groups.items()]
            header = ["score of", *next(iter(groups.values()))]
            shown += report.table(header, statistics)
        sections.append(report.Section("All runs", shown))
    title = "Learning curves"
    if len(runs) > 1:
        title += f" of {journal.best['run']}"
    sections.append(report.Section(title, report.curves(_metrics_dir(journal))))
    sections += evaluation.sections()
    given = config_flags.given(flags)
    others = config_flags.flat_values(flags)
    others = {name: x for name, x in others.items() if name not in given}
    sections.append(report.Section("Flags", report.flags(given, others)))
    examples = task.sets[task.dev_sets[0]]
    facts = {
        "score": values[record.SCORE],
        f"examples of {os.path.basename(examples.path)}": (
            examples.summary.count
        ),
        "training steps": step,
    }
    path = os.path.join(flags.output_dir, REPORT)
    report.write(path, report.capitalized(task.title), sections, facts)


def _metrics_dir(journal: record.RunRecord) -> str:
    """Returns the directory of the learning curves of the best run."""
    run = journal.best.get("run", "")
    folder = os.path.join(journal.directory, record.RUNS, run)
    is_of_grid = run and file_system.is_folder(folder)
    return folder if is_of_grid else journal.directory


def write_card(journal: record.RunRecord, task: Any, head: Any) -> None:
    """Writes the card of the model that was trained in --output_dir.

    Args:
      journal: the journal of --output_dir.
      task: the task, or what else has title, datasets and flags.
      head: its head, or what else has pipeline_tag and labels.
    """
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
        title=f"BERT for {task.title}",
        tag=head.pipeline_tag,
        hub=_of_base_model(task.flags.init_checkpoint),
        datasets=task.datasets,
        labels=head.labels or (),
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
    atomic.write_text(os.path.join(journal.directory, CARD), text)


def _of_base_model(init_checkpoint: str | None) -> dict[str, str]:
    """Returns the Hub's fields that follow from the pre-trained model.

    They are those in the header of the README.md beside the weights; a release
    is known by the name of its folder.
    """
    if not init_checkpoint:
        return {}
    folder = file_system.folder_of(hub.local(init_checkpoint)).rstrip("/")
    folder = checkpoint_sources.snapshot(folder)
    card = os.path.join(folder, CARD)
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
