"""Writes what a sentence task leaves: metrics, predictions, model, report.

    eval_results.txt    metrics of the development sets, also as JSON
    test_results.tsv    probabilities [N, C], tab-separated, no header
    predictions.tsv     id, predicted label, probability of each label, with a
                        header; cells with tabs or line ends are quoted
    scores_test.txt     metrics of a test set that has labels
    swag_submission.csv number of the predicted ending
    <task>.tsv          index and prediction for GLUE's server;
                        submission.zip once all eleven files exist
    report.html         confusions, metrics by length, largest errors

Files of a second set end in its name, as in predictions_mismatched.tsv.
"""

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
from foundation import errors, file_system
from jobs import report, run_files
from tasks.classification import objective, sentence_tasks
from tasks.classification.sentence_files import DEV, TRAIN
from weights import task_files

_ARCHIVE = "submission.zip"
_MNLI_MISMATCHED = "MNLI-mm.tsv"
_MAX_STSB_SCORE = 5.0  # The scale of STS-B begins at 0.
_PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel("Score", ("train/accuracy", "eval/score")),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
_MAX_CLASSES_IN_TABLE = 30  # More would be an unreadable table of C * C cells.
_MAX_CONFUSIONS = 50
_MAX_ERRORS = 25
_LENGTH_GROUPS = 5
_MAX_TEXT_CHARACTERS = 400
_MAX_POINTS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSet:
    """A split with its labels and a model's predictions.

    Attributes:
      task: has the split.
      texts: the N examples.
      label_ids: as returned by data.examples.encode_labels.
      logits: float [N, C].
      lengths: int [N], in tokens.
    """

    task: sentence_tasks.SentenceTask
    texts: Examples
    label_ids: np.ndarray
    logits: np.ndarray
    lengths: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The metrics of all development sets, and the first of them in detail.

    Attributes:
      values: metrics, "score" and "loss"; the names of a second set's metrics
        begin with its name, as in "mismatched_accuracy".
      evaluated: the first set.
    """

    values: dict[str, float]
    evaluated: EvaluatedSet


def evaluate(
    task: sentence_tasks.SentenceTask,
    logits: Mapping[str, np.ndarray],
    lengths: np.ndarray,
) -> Evaluation:
    """Compares predictions with labels.

    Args:
      task: has the splits.
      logits: split -> float [N, C], the most important split first.
      lengths: int [N], tokens of the first split's examples.
    """
    first, *others = logits
    values = _metrics(task, logits[first], task.label_ids(first))
    for split in others:
        found = _metrics(task, logits[split], task.label_ids(split))
        del found["score"]  # Runs are compared by the first split alone.
        suffix = split.partition("_")[2]
        values |= {f"{suffix}_{name}": value for name, value in found.items()}
    evaluated = EvaluatedSet(
        task=task,
        texts=task.read(first),
        label_ids=task.label_ids(first),
        logits=logits[first],
        lengths=lengths,
    )
    return Evaluation(values=values, evaluated=evaluated)


def _metrics(
    task: sentence_tasks.SentenceTask, logits: np.ndarray, label_ids: np.ndarray
) -> dict[str, float]:
    return objective.evaluate(
        task.kind,
        task.metrics,
        logits,
        label_ids,
        selected_by=task.selected_by,
        positive=task.positive,
    )


class OutputWriter:
    """Writes all files of a job; only the chief process writes."""

    def __init__(
        self, files: run_files.RunFiles, task: sentence_tasks.SentenceTask
    ):
        """Creates a writer into the directory of `files`."""
        self._files = files
        self._task = task

    def save_model(self, model: Any) -> None:
        """Writes the model directory and begins its model card."""
        task = self._task
        labels = list(task.labels)
        if task.kind in (examples.MULTIPLE_CHOICE, examples.REGRESSION):
            labels = None
        weights = self._files.save_model(
            model,
            labels=labels,
            problem_type=task_files.PROBLEM_TYPES[task.kind],
        )
        if weights is None:
            return
        self._files.begin_card(
            f"BERT for the task {task.name}",
            data={TRAIN: self._describe(TRAIN)},
            labels=labels,
            weights=weights,
        )
        best = self._files.results.best
        if best["values"]:  # The runs of a grid have been evaluated.
            self._add_dev_scores(
                run_files.eval_results(best["values"], best["step"])
            )

    def evaluation(self, found: Evaluation, step: int) -> None:
        """Writes eval_results.txt, the model card's metrics, report.html."""
        if not self._files.is_chief:
            return
        values = run_files.eval_results(found.values, step)
        run_files.write_eval_results(self._files.output_dir, values)
        self._add_dev_scores(values)
        self._files.report(
            f"Task {self._task.name}",
            values=values,
            panels=_PANELS,
            sections=sections(found.evaluated),
        )

    def predictions(
        self,
        split: str,
        logits: np.ndarray,
        *,
        glue_submission: str | None = None,
        wnli_majority: bool = False,
    ) -> None:
        """Writes the predictions of a test set, and its metrics if labeled.

        Args:
          split: the test set.
          logits: float [N, C].
          glue_submission: directory of the files for GLUE's server, if any.
          wnli_majority: predict WNLI's most frequent label there.
        """
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        task, texts = self._task, self._task.read(split)
        suffix = split.partition("_")[2]
        if task.name == "ax":  # Predicted in the directory of MNLI's model.
            suffix = task.name
        suffix = f"_{suffix}" if suffix else ""
        run_files.keep_other_sets(
            output_dir,
            [
                f"test_results{suffix}.tsv",
                f"predictions{suffix}.tsv",
                f"scores_test{suffix}.txt",
            ],
            name=os.path.basename(texts.path).partition(".")[0],
            digest=texts.digest,
        )
        write_predictions(output_dir, suffix, task, texts, logits)
        if task.kind == examples.MULTIPLE_CHOICE:
            write_swag(output_dir, texts, logits)
        if glue_submission:
            majority = None
            if wnli_majority:
                majority = majority_label(task.read(TRAIN))
            write_glue(glue_submission, task, split, logits, majority=majority)
        self._test_scores(split, suffix, logits)

    def _test_scores(self, split: str, suffix: str, logits: np.ndarray) -> None:
        """Writes the metrics of a test set, if its file has labels."""
        task = self._task
        try:
            texts = task.read(split, is_labeled=True)
            label_ids = examples.encode_labels(texts, task.kind, task.labels)
        except errors.InputError as error:
            logging.info("No metrics of the test set: %s", error)
            return
        values = {
            f"{split}_{name}": value
            for name, value in _metrics(task, logits, label_ids).items()
        }
        lines = [f"{name} = {values[name]}" for name in sorted(values)]
        path = os.path.join(self._files.output_dir, f"scores_test{suffix}.txt")
        file_system.write_text(path, "\n".join(lines) + "\n")
        logging.info("%s:\n%s", path, "\n".join(lines))
        data = {split: self._describe(split)}
        self._files.add_scores(split, data=data, metrics=values)

    def _add_dev_scores(self, values: Mapping[str, float]) -> None:
        data = {split: self._describe(split) for split in self._task.dev_splits}
        self._files.add_scores(DEV, data=data, metrics=values)

    def _describe(self, split: str) -> str:
        texts = self._task.read(split)
        name = os.path.basename(texts.path)
        digest = file_system.sha256(texts.path)
        return f"{len(texts)} examples of {name}, SHA-256 {digest}"


def write_predictions(
    output_dir: str,
    suffix: str,
    task: sentence_tasks.SentenceTask,
    texts: Examples,
    logits: np.ndarray,
) -> None:
    """Writes test_results.tsv and predictions.tsv.

    Args:
      output_dir: directory of the run.
      suffix: of both names, e.g. "_mismatched".
      task: gives the kind and the labels.
      texts: the N examples.
      logits: float [N, C].
    """
    probabilities = [
        [repr(float(x)) for x in row]
        for row in objective.probabilities(task.kind, logits)
    ]
    path = os.path.join(output_dir, f"test_results{suffix}.tsv")
    lines = ["\t".join(row) + "\n" for row in probabilities]
    file_system.write_text(path, "".join(lines))
    names = label_names(task, logits)
    lines = [_tsv_line(["id", "label", *task.labels])]
    for guid, name, row in zip(texts.guids, names, probabilities, strict=True):
        lines.append(_tsv_line([guid, name, *(row if task.labels else [])]))
    path = os.path.join(output_dir, f"predictions{suffix}.tsv")
    file_system.write_text(path, "".join(lines))
    logging.info("%s: %d predictions", path, len(texts))


def _tsv_line(cells: Sequence[str]) -> str:
    """Returns a line that csv reads back as the same cells."""
    end = "\r\n"  # Before Python 3.13, csv quotes "\r" only if the end has it.
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator=end).writerow(cells)
    return file.getvalue().removesuffix(end) + "\n"


def label_names(
    task: sentence_tasks.SentenceTask, logits: np.ndarray
) -> list[str]:
    """Returns each prediction as text: a value, a label, or labels "a,b"."""
    decisions = objective.decisions(task.kind, logits)
    if task.kind == examples.REGRESSION:
        return [f"{value:.4f}" for value in decisions]
    if task.kind == examples.MULTI_LABEL:
        return [
            ",".join(task.labels[i] for i in np.flatnonzero(row))
            for row in decisions
        ]
    return [task.labels[i] for i in decisions]


def write_glue(
    directory: str,
    task: sentence_tasks.SentenceTask,
    split: str,
    logits: np.ndarray,
    *,
    majority: str | None = None,
) -> None:
    """Writes a task's file for GLUE's server, and the archive when complete.

    Args:
      directory: of the files of all tasks.
      task: one of GLUE.
      split: "test" or "test_mismatched".
      logits: float [N, C].
      majority: label to write for every example instead of the predicted one.
    """
    texts = task.read(split)
    name = sentence_tasks.TASKS[task.name].submission
    if name is None:
        logging.warning("GLUE has no task %s", task.name)
        return
    # --test_file may name the mismatched set.
    is_mismatched = "mismatched" in os.path.basename(texts.path)
    if task.name == "mnli" and (split == "test_mismatched" or is_mismatched):
        name = _MNLI_MISMATCHED
    decisions = objective.decisions(task.kind, logits)
    if majority is not None:
        predictions = [majority] * len(texts)
    elif task.kind == examples.REGRESSION:
        decisions = np.clip(decisions, 0.0, _MAX_STSB_SCORE)
        predictions = [f"{value:.3f}" for value in decisions]
    else:
        predictions = [task.labels[i] for i in decisions]
    lines = ["index\tprediction\n"]
    for guid, prediction in zip(texts.guids, predictions, strict=True):
        lines.append(f"{guid}\t{prediction}\n")
    file_system.make_folder(directory)
    file_system.write_text(os.path.join(directory, name), "".join(lines))
    _archive(directory)


def _archive(directory: str) -> None:
    """Writes submission.zip if all files of GLUE exist."""
    paths = [os.path.join(directory, name) for name in submission_files()]
    missing = [
        os.path.basename(path) for path in paths if not file_system.exists(path)
    ]
    if missing:
        logging.info("%s: missing %s", directory, ", ".join(missing))
        return
    archive = os.path.join(directory, _ARCHIVE)
    with (
        file_system.replacing(archive, on_disk=True) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(file_system.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)


def submission_files() -> list[str]:
    """Returns the names of all files that GLUE's server expects."""
    names = [task.submission for task in sentence_tasks.TASKS.values()]
    return sorted([*filter(None, names), _MNLI_MISMATCHED])


def majority_label(texts: Examples) -> str:
    """Returns the most frequent label; of equally frequent ones the first."""
    counts = Counter(texts.labels)
    return min(counts, key=lambda label: (-counts[label], label))


def write_swag(output_dir: str, texts: Examples, logits: np.ndarray) -> None:
    """Writes `id,pred`: the number of the predicted ending of each row."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", "pred"])
    writer.writerows(zip(texts.guids, logits.argmax(axis=1), strict=True))
    path = os.path.join(output_dir, "swag_submission.csv")
    file_system.write_text(path, file.getvalue())


def sections(evaluated: EvaluatedSet) -> list[report.Section]:
    """Returns the report's sections on one evaluated set."""
    overview = {
        examples.CLASSIFICATION: _confusions,
        examples.MULTIPLE_CHOICE: _confusions,
        examples.MULTI_LABEL: _by_label,
        examples.REGRESSION: _true_and_predicted,
    }[evaluated.task.kind]
    return [
        overview(evaluated),
        report.Section("By length", _by_length(evaluated)),
        report.Section("Worst mistakes", _worst_mistakes(evaluated)),
    ]


def _confusions(evaluated: EvaluatedSet) -> report.Section:
    """Counts pairs of true and predicted classes (or choices)."""
    labels = evaluated.task.labels
    truth = evaluated.label_ids[:, 0]
    predicted = evaluated.logits.argmax(axis=1)
    if len(labels) <= _MAX_CLASSES_IN_TABLE:
        matrix = sklearn.metrics.confusion_matrix(
            truth, predicted, labels=range(len(labels))
        )
        header = ["true label", *(f"predicted {label}" for label in labels)]
        rows = [
            [label, *map(int, row)]
            for label, row in zip(labels, matrix, strict=True)
        ]
        return report.Section("Confusions", report.table(header, rows))
    is_wrong = truth != predicted
    pairs = zip(truth[is_wrong], predicted[is_wrong], strict=True)
    header = ["true label", "predicted", "examples"]
    rows = [
        [labels[true], labels[other], count]
        for (true, other), count in Counter(pairs).most_common(_MAX_CONFUSIONS)
    ]
    return report.Section("Confusions", report.table(header, rows))


def _by_label(evaluated: EvaluatedSet) -> report.Section:
    """Returns precision, recall and F1 of each label of a multi-label task."""
    task = evaluated.task
    decisions = objective.decisions(task.kind, evaluated.logits)
    rows = []
    for label, truth, predicted in zip(
        task.labels, evaluated.label_ids.T, decisions.T, strict=True
    ):
        *scores, _ = sklearn.metrics.precision_recall_fscore_support(
            truth, predicted, average="binary", zero_division=0.0
        )
        counts = int(truth.sum()), int(predicted.sum())
        rows.append([label, *counts, *map(float, scores)])
    header = ["label", "examples", "predicted", "precision", "recall", "f1"]
    return report.Section("By label", report.table(header, rows))


def _true_and_predicted(evaluated: EvaluatedSet) -> report.Section:
    """Plots predicted over true values of up to _MAX_POINTS examples."""
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    truth = evaluated.label_ids[:, 0]
    shown = slice(None, None, -(-len(truth) // _MAX_POINTS))
    axes.scatter(truth[shown], evaluated.logits[shown, 0], s=6, alpha=0.4)
    axes.axline((float(truth.mean()),) * 2, slope=1, color="gray", linewidth=1)
    axes.set_xlabel("true value", fontsize=9)
    axes.set_ylabel("predicted", fontsize=9)
    axes.grid(alpha=0.3)
    return report.Section("True and predicted", report.svg(figure))


def _by_length(evaluated: EvaluatedSet) -> str:
    """Returns the metrics of equally large groups of similar length."""
    task = evaluated.task
    order = np.argsort(evaluated.lengths, kind="stable")
    rows = []
    for group in np.array_split(order, min(_LENGTH_GROUPS, len(order))):
        lengths = evaluated.lengths[group]
        values = objective.scores(
            task.metrics,
            task.kind,
            evaluated.logits[group],
            evaluated.label_ids[group],
            positive=task.positive,
        )
        span = f"{lengths.min()} - {lengths.max()}"
        rows.append([span, len(group), *values.values()])
    header = ["tokens", "examples", *task.metrics]
    return report.table(header, rows)


def _worst_mistakes(evaluated: EvaluatedSet) -> str:
    """Returns the wrong predictions with the largest losses."""
    task, logits = evaluated.task, evaluated.logits
    losses = objective.example_losses(task.kind, logits, evaluated.label_ids)
    decisions = objective.decisions(task.kind, logits)
    if task.kind == examples.REGRESSION:
        is_wrong = losses > 0
    elif task.kind == examples.MULTI_LABEL:
        is_wrong = (decisions != evaluated.label_ids).any(axis=1)
    else:
        is_wrong = decisions != evaluated.label_ids[:, 0]
    order = np.argsort(-losses, kind="stable")
    worst = order[is_wrong[order]][:_MAX_ERRORS]
    if not len(worst):
        return "<p>None.</p>"
    rows = [
        [
            evaluated.texts.where(i).rpartition("/")[2],
            _shown_text(evaluated.texts, i),
            str(evaluated.texts.labels[i]),
            name,
            float(losses[i]),
        ]
        for i, name in zip(
            worst.tolist(), label_names(task, logits[worst]), strict=True
        )
    ]
    header = ["line", "text", "true label", "predicted", "loss"]
    return report.table(header, rows)


def _shown_text(texts: Examples, number: int) -> str:
    """Returns the texts of an example; a premise of choices only once."""
    rows = slice(number * texts.num_choices, (number + 1) * texts.num_choices)
    parts = list(texts.first[rows])
    if texts.second is not None:
        parts = [parts[0], *texts.second[rows]]
    parts = [
        part
        if len(part) <= _MAX_TEXT_CHARACTERS
        else part[:_MAX_TEXT_CHARACTERS] + "..."
        for part in parts
    ]
    return " | ".join(parts)
