"""What report.html shows of a sentence task on its development set."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import sklearn.metrics
from matplotlib.figure import Figure

from data import examples
from data.examples import Examples
from tasks import classification, report, sentence_predictions

PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel("Score", ("train/accuracy", "eval/score")),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
_MISTAKES = 25
_GROUPS = 5
_LONGEST_TEXT = 400
_POINTS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """A set with its truth and what a model made of it.

    Attributes:
      kind: of the task.
      metrics: of tasks.metrics.
      positive: the class that "f1" is of, where there are two.
      labels: names of the classes.
      texts: the examples.
      label_ids: as data.examples.encode_labels gives them.
      logits: float [N, C].
      lengths: int [N], pieces.
    """

    kind: str
    metrics: Sequence[str]
    positive: int = 1
    labels: Sequence[str]
    texts: Examples
    label_ids: np.ndarray
    logits: np.ndarray
    lengths: np.ndarray


def sections(judged: Judged) -> list[report.Section]:
    """Returns confusions, scores by length and the worst mistakes."""
    shown = [_OVERVIEWS[judged.kind](judged)]
    shown.append(report.Section("By length", _by_length(judged)))
    shown.append(report.Section("Worst mistakes", _mistakes(judged)))
    return shown


def _confusions(judged: Judged) -> report.Section:
    """Counts what every class, or every choice's place, is called."""
    matrix = sklearn.metrics.confusion_matrix(
        judged.label_ids[:, 0],
        judged.logits.argmax(axis=1),
        labels=range(len(judged.labels)),
    )
    header = ["true label", *(f"called {label}" for label in judged.labels)]
    rows = [
        [label, *map(int, row)]
        for label, row in zip(judged.labels, matrix, strict=True)
    ]
    return report.Section("Confusions", report.table(header, rows))


def _by_label(judged: Judged) -> report.Section:
    """Scores every label by itself, where an example has any number."""
    decided = classification.decisions(judged.kind, judged.logits)
    rows = []
    for label, truth, called in zip(
        judged.labels, judged.label_ids.T, decided.T, strict=True
    ):
        *scores, _ = sklearn.metrics.precision_recall_fscore_support(
            truth, called, average="binary", zero_division=0.0
        )
        counts = int(truth.sum()), int(called.sum())
        rows.append([label, *counts, *map(float, scores)])
    header = ["label", "examples", "called", "precision", "recall", "f1"]
    return report.Section("By label", report.table(header, rows))


def _true_and_predicted(judged: Judged) -> report.Section:
    """Draws the examples of a regression, of many only some."""
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    truth = judged.label_ids[:, 0]
    shown = slice(None, None, -(-len(truth) // _POINTS))
    axes.scatter(truth[shown], judged.logits[shown, 0], s=6, alpha=0.4)
    axes.axline((float(truth.mean()),) * 2, slope=1, color="gray", linewidth=1)
    axes.set_xlabel("true value", fontsize=9)
    axes.set_ylabel("predicted", fontsize=9)
    axes.grid(alpha=0.3)
    return report.Section("True and predicted", report.svg(figure))


_OVERVIEWS = {
    examples.CLASSIFICATION: _confusions,
    examples.MULTIPLE_CHOICE: _confusions,
    examples.MULTI_LABEL: _by_label,
    examples.REGRESSION: _true_and_predicted,
}


def _by_length(judged: Judged) -> str:
    """Scores groups of equal size, from the shortest inputs to the longest."""
    order = np.argsort(judged.lengths, kind="stable")
    rows = []
    for part in np.array_split(order, min(_GROUPS, len(order))):
        lengths = judged.lengths[part]
        values = classification.scores(
            judged.metrics,
            judged.kind,
            judged.logits[part],
            judged.label_ids[part],
            positive=judged.positive,
        )
        span = f"{lengths.min()} - {lengths.max()}"
        rows.append([span, len(part), *values.values()])
    header = ["pieces", "examples", *judged.metrics]
    return report.table(header, rows)


def _mistakes(judged: Judged) -> str:
    losses = classification.example_losses(
        judged.kind, judged.logits, judged.label_ids
    )
    decided = classification.decisions(judged.kind, judged.logits)
    if judged.kind == examples.REGRESSION:
        is_wrong = losses > 0
    elif judged.kind == examples.MULTI_LABEL:
        is_wrong = (decided != judged.label_ids).any(axis=1)
    else:
        is_wrong = decided != judged.label_ids[:, 0]
    order = np.argsort(-losses, kind="stable")
    worst = order[is_wrong[order]][:_MISTAKES]
    if not len(worst):
        return "<p>None.</p>"
    named = sentence_predictions.label_names(
        judged.kind, judged.labels, judged.logits[worst]
    )
    rows = [
        [
            judged.texts.where(i).rpartition("/")[2],
            _text(judged.texts, i),
            str(judged.texts.labels[i]),
            label,
            float(losses[i]),
        ]
        for i, label in zip(worst.tolist(), named, strict=True)
    ]
    header = ["where", "text", "true label", "predicted", "loss"]
    return report.table(header, rows)


def _text(texts: Examples, number: int) -> str:
    count = texts.num_choices
    places = range(number * count, (number + 1) * count)
    second = texts.second
    if second is None:
        parts = [texts.first[i] for i in places]
    else:
        parts = [second[i] for i in places]
        parts.insert(0, texts.first[places[0]])
    parts = [
        part if len(part) <= _LONGEST_TEXT else part[:_LONGEST_TEXT] + "..."
        for part in parts
    ]
    return " | ".join(parts)
