"""The sections of a sentence task in report.html."""

from collections import Counter
from typing import Any

import numpy as np
from markupsafe import Markup

from finetuning import pages, report
from finetuning import task as tasks
from tasks.classification import label_kinds

_MOST_CLASSES = 30  # More would be an unreadable table of C * C cells.
_MOST_CONFUSIONS, _MOST_MISTAKES, _MOST_POINTS = 50, 25, 2000
_MOST_CHARACTERS = 800


def make(
    task: Any,
    examples: tasks.Examples,
    logits: np.ndarray,
    targets: np.ndarray,
) -> list[report.Section]:
    """Returns the sections on a development set.

    Args:
      task: a labels.LabelTask.
      examples: the N examples.
      logits: float [N, C].
      targets: those of the examples; see label_kinds.
    """
    sections = []
    if isinstance(task.kind, label_kinds.Value):
        drawn = report.plot(
            lambda axes: _true_and_predicted(axes, logits, targets)
        )
        sections.append(
            report.Section("True and predicted", report.charts([drawn]))
        )
    elif not isinstance(task.kind, label_kinds.AnyLabels):
        shown = _confusions(task, logits, targets)
        sections.append(report.Section("Confusions", shown))
    if rows := task.by_label(logits, targets):
        by_label = report.table(pages.BY_LABEL, rows, minor=["predicted"])
        sections.append(report.Section("By label", by_label))
    mistakes = _worst_mistakes(task, examples, logits, targets)
    return [*sections, report.Section("Worst mistakes", mistakes)]


def _confusions(task: Any, logits: np.ndarray, targets: np.ndarray) -> Markup:
    """Counts pairs of true and predicted classes (or choices)."""
    labels, truth = task.labels, targets[:, 0]
    predicted = logits.argmax(axis=1)
    if len(labels) <= _MOST_CLASSES:
        counts = np.zeros((len(labels), len(labels)), int)
        np.add.at(counts, (truth, predicted), 1)
        return report.heat_map("true", labels, counts.tolist())
    is_wrong = truth != predicted
    pairs = zip(truth[is_wrong], predicted[is_wrong], strict=True)
    rows = [
        [labels[true], labels[other], count]
        for (true, other), count in Counter(pairs).most_common(_MOST_CONFUSIONS)
    ]
    return report.table(["true", "predicted", "examples"], rows)


def _true_and_predicted(
    axes: Any, logits: np.ndarray, targets: np.ndarray
) -> None:
    truth = targets[:, 0]
    every_nth = slice(None, None, -(-len(truth) // _MOST_POINTS))
    axes.scatter(truth[every_nth], logits[every_nth, 0], s=6, alpha=0.4)
    axes.axline((float(truth.mean()),) * 2, slope=1, color="gray")
    axes.set(xlabel="true value", ylabel="predicted")


def _worst_mistakes(
    task: Any,
    examples: tasks.Examples,
    logits: np.ndarray,
    targets: np.ndarray,
) -> Markup:
    """Returns the wrong predictions with the largest losses."""
    losses, decided = (
        task.kind.losses(logits, targets),
        task.kind.decide(logits),
    )
    is_wrong = (decided != targets).any(axis=1)
    order = np.argsort(-losses, kind="stable")
    worst = order[is_wrong[order]][:_MOST_MISTAKES].tolist()
    if not worst:
        return Markup("<p>None.</p>")
    chosen = {i: x for i, x in enumerate(examples) if i in {*worst}}
    rows = []
    for i in worst:
        where = chosen[i].where.rpartition("/")[2]
        labels: list[Any] = [
            task.kind.text(x[i]) or "none" for x in (targets, decided)
        ]
        if isinstance(task.kind, label_kinds.Value):
            labels = [float(targets[i, 0]), float(decided[i, 0])]
        text = task.text_of(chosen[i])
        shown = text[:_MOST_CHARACTERS] + "..." * (len(text) > _MOST_CHARACTERS)
        rows.append([where, *labels, float(losses[i]), shown])
    header = ["line", "true", "predicted", "loss", "text"]
    return report.table(header, rows, minor=["loss"])
