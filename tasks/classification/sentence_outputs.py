"""What remains of a sentence task's run: scores, predictions, model, report."""

import csv
import dataclasses
import io
import os
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn.metrics
from absl import logging
from matplotlib.figure import Figure

from data import examples
from data.examples import Examples
from foundation import file_system
from jobs import report, run_files
from tasks.classification import glue, objective, sentence_tasks
from weights import task_files

# ----------------------------------------------------------------------
# Files of predictions: as released, with names, and for leaderboards.
#
# test_results.tsv    probabilities, tab-separated, no header: as released
# predictions.tsv     id, label and each label's probability, with a header;
#                     cells with tabs or line ends are quoted as in CSV
# <task>.tsv          index and prediction, as GLUE's server wants them;
#                     submission.zip once all eleven tasks are there
# swag_submission.csv the number of the chosen ending

ARCHIVE = "submission.zip"
_LARGEST_SCORE = 5.0  # STS-B's scale begins at 0.


def write(
    output_dir: str,
    suffix: str,
    *,
    kind: str,
    texts: Examples,
    labels: Sequence[str],
    logits: np.ndarray,
) -> None:
    """Writes test_results.tsv and predictions.tsv.

    Args:
      output_dir: of the run.
      suffix: of both names, e.g. "_mismatched".
      kind: of the task.
      texts: what was predicted.
      labels: names of the classes.
      logits: float [N, C].
    """
    shares = objective.probabilities(kind, logits)
    rows = [[repr(float(x)) for x in row] for row in shares]
    lines = ["\t".join(row) + "\n" for row in rows]
    path = os.path.join(output_dir, f"test_results{suffix}.tsv")
    file_system.write_text(path, "".join(lines))
    named = label_names(kind, labels, logits)
    lines = [_line(["id", "label", *labels])]
    for guid, label, row in zip(texts.guids, named, rows, strict=True):
        lines.append(_line([guid, label, *(row if labels else [])]))
    path = os.path.join(output_dir, f"predictions{suffix}.tsv")
    file_system.write_text(path, "".join(lines))
    logging.info("%s: %d predictions", path, len(texts))


def _line(cells: Sequence[str]) -> str:
    """Returns a row of a tab-separated file that csv reads back as it was."""
    end = "\r\n"  # Before Python 3.13, "\r" is quoted only if a line's end.
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator=end).writerow(cells)
    return file.getvalue().removesuffix(end) + "\n"


def label_names(
    kind: str, labels: Sequence[str], logits: np.ndarray
) -> list[str]:
    """Returns what is predicted, in words: values, labels, "a,b"."""
    decided = objective.decisions(kind, logits)
    if kind == examples.REGRESSION:
        return [f"{value:.4f}" for value in decided]
    if kind == examples.MULTI_LABEL:
        return [
            ",".join(labels[i] for i in np.flatnonzero(row)) for row in decided
        ]
    return [labels[i] for i in decided]


def write_glue(
    directory: str,
    name: str,
    split: str,
    *,
    texts: Examples,
    labels: Sequence[str],
    logits: np.ndarray,
    majority: str | None = None,
) -> None:
    """Writes a task's file for GLUE's server, and the archive when complete.

    Args:
      directory: of all tasks' files.
      name: a key of glue.TASKS.
      split: "test" or "test_mismatched".
      texts: the test set.
      labels: in the order of the model's outputs.
      logits: float [N, C].
      majority: predicted for every example instead, if given.
    """
    task = glue.TASKS[name]
    file = task.submission
    if file is None:
        logging.warning("GLUE has no task %s", name)
        return
    # The file's name says it too, where --test_file is the only one.
    is_named_so = name == "mnli" and "mismatched" in os.path.basename(
        texts.path
    )
    if split == "test_mismatched" or is_named_so:
        file = "MNLI-mm.tsv"
    decided = objective.decisions(task.kind, logits)
    if task.kind == examples.REGRESSION:
        decided = np.clip(decided, 0.0, _LARGEST_SCORE)
        predictions = [f"{value:.3f}" for value in decided]
    else:
        predictions = [labels[i] for i in decided]
    if majority is not None:
        predictions = [majority] * len(texts)
    lines = ["index\tprediction\n"]
    lines += [
        f"{guid}\t{prediction}\n"
        for guid, prediction in zip(texts.guids, predictions, strict=True)
    ]
    file_system.make_folder(directory)
    file_system.write_text(os.path.join(directory, file), "".join(lines))
    _archive(directory)


def majority_label(texts: Examples) -> str:
    """Returns the label that most examples have, of equals the first."""
    counts = Counter(texts.labels)
    return min(counts, key=lambda label: (-counts[label], label))


def write_swag(output_dir: str, *, texts: Examples, logits: np.ndarray) -> None:
    """Writes `id,pred`: the number of the ending chosen for each row."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", "pred"])
    writer.writerows(zip(texts.guids, logits.argmax(axis=1), strict=True))
    path = os.path.join(output_dir, "swag_submission.csv")
    file_system.write_text(path, file.getvalue())


def submission_files() -> list[str]:
    """Returns the names of all that GLUE's server wants."""
    names = [t.submission for t in glue.TASKS.values() if t.submission]
    return sorted([*names, "MNLI-mm.tsv"])


def _archive(directory: str) -> None:
    paths = [os.path.join(directory, name) for name in submission_files()]
    missing = [path for path in paths if not file_system.exists(path)]
    if missing:
        absent = ", ".join(os.path.basename(path) for path in missing)
        logging.info("%s: still without %s", directory, absent)
        return
    archive = os.path.join(directory, ARCHIVE)
    with (
        file_system.replacing(archive, on_disk=True) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(file_system.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)


# ----------------------------------------------------------------------
# What report.html shows of a sentence task on its development set.

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
class EvaluatedSet:
    """A set with its truth and what a model made of it.

    Attributes:
      kind: of the task.
      metrics: of tasks.classification.objective.
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


def sections(evaluated: EvaluatedSet) -> list[report.Section]:
    """Returns confusions, scores by length and the worst mistakes."""
    shown = [_OVERVIEWS[evaluated.kind](evaluated)]
    shown.append(report.Section("By length", _by_length(evaluated)))
    shown.append(report.Section("Worst mistakes", _mistakes(evaluated)))
    return shown


def _confusions(evaluated: EvaluatedSet) -> report.Section:
    """Counts what every class, or every choice's place, is called."""
    matrix = sklearn.metrics.confusion_matrix(
        evaluated.label_ids[:, 0],
        evaluated.logits.argmax(axis=1),
        labels=range(len(evaluated.labels)),
    )
    header = ["true label", *(f"called {label}" for label in evaluated.labels)]
    rows = [
        [label, *map(int, row)]
        for label, row in zip(evaluated.labels, matrix, strict=True)
    ]
    return report.Section("Confusions", report.table(header, rows))


def _by_label(evaluated: EvaluatedSet) -> report.Section:
    """Scores every label by itself, where an example has any number."""
    decided = objective.decisions(evaluated.kind, evaluated.logits)
    rows = []
    for label, truth, called in zip(
        evaluated.labels, evaluated.label_ids.T, decided.T, strict=True
    ):
        *scores, _ = sklearn.metrics.precision_recall_fscore_support(
            truth, called, average="binary", zero_division=0.0
        )
        counts = int(truth.sum()), int(called.sum())
        rows.append([label, *counts, *map(float, scores)])
    header = ["label", "examples", "called", "precision", "recall", "f1"]
    return report.Section("By label", report.table(header, rows))


def _true_and_predicted(evaluated: EvaluatedSet) -> report.Section:
    """Draws the examples of a regression, of many only some."""
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    truth = evaluated.label_ids[:, 0]
    shown = slice(None, None, -(-len(truth) // _POINTS))
    axes.scatter(truth[shown], evaluated.logits[shown, 0], s=6, alpha=0.4)
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


def _by_length(evaluated: EvaluatedSet) -> str:
    """Scores groups of equal size, from the shortest inputs to the longest."""
    order = np.argsort(evaluated.lengths, kind="stable")
    rows = []
    for part in np.array_split(order, min(_GROUPS, len(order))):
        lengths = evaluated.lengths[part]
        values = objective.scores(
            evaluated.metrics,
            evaluated.kind,
            evaluated.logits[part],
            evaluated.label_ids[part],
            positive=evaluated.positive,
        )
        span = f"{lengths.min()} - {lengths.max()}"
        rows.append([span, len(part), *values.values()])
    header = ["pieces", "examples", *evaluated.metrics]
    return report.table(header, rows)


def _mistakes(evaluated: EvaluatedSet) -> str:
    losses = objective.example_losses(
        evaluated.kind, evaluated.logits, evaluated.label_ids
    )
    decided = objective.decisions(evaluated.kind, evaluated.logits)
    if evaluated.kind == examples.REGRESSION:
        is_wrong = losses > 0
    elif evaluated.kind == examples.MULTI_LABEL:
        is_wrong = (decided != evaluated.label_ids).any(axis=1)
    else:
        is_wrong = decided != evaluated.label_ids[:, 0]
    order = np.argsort(-losses, kind="stable")
    worst = order[is_wrong[order]][:_MISTAKES]
    if not len(worst):
        return "<p>None.</p>"
    named = label_names(
        evaluated.kind, evaluated.labels, evaluated.logits[worst]
    )
    rows = [
        [
            evaluated.texts.where(i).rpartition("/")[2],
            _text(evaluated.texts, i),
            str(evaluated.texts.labels[i]),
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores on all development sets, and the first of them in detail.

    Attributes:
      values: metrics, the "score" and the "loss"; those of a second
        set begin with its name, as in "mismatched_accuracy".
      evaluated: the first set.
    """

    values: dict[str, float]
    evaluated: EvaluatedSet


def evaluate(
    task: sentence_tasks.SentenceTask,
    logits: Mapping[str, np.ndarray],
    lengths: np.ndarray,
) -> Evaluation:
    """Compares logits with labels.

    Args:
      task: of the sets.
      logits: split -> float [N, C], the most important first.
      lengths: pieces of the first set's examples.
    """
    values: dict[str, float] = {}
    first, *_ = logits
    for split, found in logits.items():
        scores = objective.evaluate(
            task.kind,
            task.metrics,
            found,
            task.label_ids(split),
            selected_by=task.selected_by,
            positive=task.positive,
        )
        if split != first:
            scores.pop("score")
            prefix = split.partition("_")[2]
            scores = {f"{prefix}_{name}": x for name, x in scores.items()}
        values |= scores
    evaluated = EvaluatedSet(
        kind=task.kind,
        metrics=task.metrics,
        positive=task.positive,
        labels=task.labels,
        texts=task.read(first),
        label_ids=task.label_ids(first),
        logits=logits[first],
        lengths=lengths,
    )
    return Evaluation(values=values, evaluated=evaluated)


class OutputWriter:
    """Writes all files that remain of a job."""

    def __init__(
        self, files: run_files.RunFiles, task: sentence_tasks.SentenceTask
    ):
        """Writes nothing yet."""
        self._files = files
        self._task = task

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir, and begins its card."""
        labels = _stored_labels(self._task)
        weights = self._files.save_model(
            model,
            labels=labels,
            problem_type=task_files.PROBLEM_TYPES[self._task.kind],
        )
        if weights is None:
            return
        self._files.begin_card(
            f"BERT for the task {self._task.name}",
            data={sentence_tasks.TRAIN: self._describe(sentence_tasks.TRAIN)},
            labels=labels,
            weights=weights,
        )
        done = self._files.results.best
        if done["values"]:  # Of a grid, whose runs were all evaluated.
            self._judge_card(run_files.named(done["values"], done["step"]))

    def evaluation(self, found: Evaluation, step: int) -> None:
        """Writes eval_results.txt, report.html and the model card."""
        if not self._files.is_chief:
            return
        values = run_files.named(found.values, step)
        run_files.write_eval_results(self._files.output_dir, values)
        self._judge_card(values)
        self._files.report(
            f"Task {self._task.name}",
            values=values,
            panels=PANELS,
            sections=sections(found.evaluated),
        )

    def _judge_card(self, values: Mapping[str, float]) -> None:
        data = {split: self._describe(split) for split in self._task.dev_splits}
        self._files.add_scores(sentence_tasks.DEV, data=data, metrics=values)

    def predictions(
        self,
        split: str,
        logits: np.ndarray,
        *,
        glue_submission: str | None = None,
        wnli_majority: bool = False,
    ) -> None:
        """Writes all that is predicted of a test set."""
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        task, texts = self._task, self._task.read(split)
        rest = split.partition("_")[2]
        if task.name == "ax":  # In the folder of MNLI's model, mostly.
            rest = task.name
        write(
            output_dir,
            f"_{rest}" if rest else "",
            kind=task.kind,
            texts=texts,
            labels=task.labels,
            logits=logits,
        )
        if task.kind == examples.MULTIPLE_CHOICE:
            write_swag(output_dir, texts=texts, logits=logits)
        if glue_submission and task.name in glue.TASKS:
            majority = None
            if wnli_majority and task.name == "wnli":
                majority = majority_label(task.read(sentence_tasks.TRAIN))
            write_glue(
                glue_submission,
                task.name,
                split,
                texts=texts,
                labels=task.labels,
                logits=logits,
                majority=majority,
            )

    def _describe(self, split: str) -> str:
        texts = self._task.read(split)
        name = os.path.basename(texts.path)
        digest = file_system.sha256(texts.path)
        return f"{len(texts)} examples of {name}, SHA-256 {digest}"


def _stored_labels(task: sentence_tasks.SentenceTask) -> list[str] | None:
    if task.kind in (examples.MULTIPLE_CHOICE, examples.REGRESSION):
        return None
    return list(task.labels)
