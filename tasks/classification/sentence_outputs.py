"""The outputs of a sentence task: model, metrics, report and predictions.

    eval_results.txt    metrics of the development sets, also as JSON
    report.html         confusions, metrics by length, largest errors
    test_results.tsv    probabilities [N, C], tab-separated, no header
    predictions.tsv     id, predicted label, probability of each label, kept
                        columns (of own tables the text), with a header; cells
                        with tabs or line ends are quoted
    scores_test.txt     metrics of a test set that has labels
    swag_submission.csv number of the predicted ending
    <task>.tsv          index and prediction for GLUE's server;
                        submission.zip once all eleven files exist

Files of a second set end in its name, as in predictions_mismatched.tsv.
"""

import csv
import dataclasses
import io
import itertools
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sklearn.metrics
from absl import logging
from markupsafe import Markup
from matplotlib.figure import Figure

from data import examples
from data.examples import Example
from foundation import atomic, copies, file_system
from jobs import model_card, report, run_directory, streaming
from tasks.classification import objective, outcomes, sentence_tasks
from tasks.classification.sentence_files import DEV
from training import metric_writer

# The parts of a block of predictions.
PREDICTIONS, LOGITS = "predictions", "logits"
_RESULTS, _SWAG, _GLUE = "test_results", "swag_submission", "glue"
ARCHIVE = "submission.zip"
_SWAG_TASK = "swag"
_MNLI_MISMATCHED = "MNLI-mm.tsv"
_MAX_STSB_SCORE = 5.0  # The scale of STS-B begins at 0.
_MAX_CLASSES_IN_TABLE = 30  # More would be an unreadable table of C * C cells.
_MAX_CONFUSIONS = 50
_MAX_ERRORS = 25
_LENGTH_GROUPS = 5
_NUM_BINS = 10  # Of probabilities.
_MAX_TEXT_CHARACTERS = 400
_MAX_POINTS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The metrics of all development sets, and the first of them in detail.

    Attributes:
      values: metrics, "score" and "loss"; the names of a second set's metrics
        begin with its name, as in "mismatched_accuracy".
      task: the task of the sets.
      texts: the N examples of the first set.
      label_ids: encoded labels, as data.examples.encode_labels returns them.
      logits: float [N, C].
      lengths: int [N], numbers of tokens.
    """

    values: dict[str, float]
    task: sentence_tasks.SentenceTask
    texts: Iterable[Example]
    label_ids: np.ndarray
    logits: np.ndarray
    lengths: np.ndarray


def evaluate(
    task: sentence_tasks.SentenceTask,
    logits: Mapping[str, np.ndarray],
    lengths: np.ndarray,
) -> Evaluation:
    """Compares predictions with labels.

    Args:
      task: the task of the splits.
      logits: split -> float [N, C], the most important split first.
      lengths: int [N], tokens of the first split's examples.
    """
    first, *other_splits = logits
    values = task.metrics_of(logits[first], task.label_ids(first))
    for split in other_splits:
        metrics = task.metrics_of(logits[split], task.label_ids(split))
        del metrics["score"]  # Runs are compared by the first split alone.
        suffix = split.partition("_")[2]
        values |= {f"{suffix}_{name}": value for name, value in metrics.items()}
    return Evaluation(
        values=values,
        task=task,
        texts=task.read(first),
        label_ids=task.label_ids(first),
        logits=logits[first],
        lengths=lengths,
    )


def on_the_hub(task_name: str, train_file: str | None) -> list[str]:
    """Returns the Hub's name of a released training set; [] for --train_file.

    The latter is the user's own, whatever its name.
    """
    if train_file or not sentence_tasks.TASKS[task_name].files:
        return []
    hub_names = {
        "xnli": "facebook/xnli",
        "swag": "allenai/swag",
        "boolq": "google/boolq",
        **dict.fromkeys(("cb", "copa", "wic"), "aps/super_glue"),
    }
    return [hub_names.get(task_name, "nyu-mll/glue")]


# Predictions.


def prediction_parts(
    task: sentence_tasks.SentenceTask,
    block: Sequence[Example],
    logits: np.ndarray,
    *,
    majority: str | None = None,
) -> dict[str, bytes]:
    """Returns the lines of consecutive examples in each predicted file.

    Args:
      task: the task, with its kind and its labels.
      block: the N examples.
      logits: float [N, C].
      majority: label for GLUE's server, instead of the predicted labels.
    """
    probabilities = outcomes.probabilities(task.kind, logits).tolist()
    names = outcomes.label_names(task.kind, task.labels, logits)
    guids = [example.guid for example in block]
    predictions = []
    for example, name, row in zip(block, names, probabilities, strict=True):
        scores = [f"{x:.6f}" for x in row] if task.labels else []
        predictions.append(
            _tsv_line([example.guid, name, *scores, *example.kept])
        )
    lines = {
        _RESULTS: ["\t".join(map(repr, x)) + "\n" for x in probabilities],
        PREDICTIONS: predictions,
    }
    if task.name == _SWAG_TASK:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(zip(guids, logits.argmax(axis=1), strict=True))
        lines[_SWAG] = [file.getvalue()]
    if sentence_tasks.TASKS[task.name].submission:
        if majority is not None:
            names = [majority] * len(names)
        elif task.kind == examples.REGRESSION:
            values = outcomes.decisions(task.kind, logits)
            values = np.clip(values, 0.0, _MAX_STSB_SCORE)
            names = [f"{value:.3f}" for value in values]
        pairs = zip(guids, names, strict=True)
        lines[_GLUE] = [f"{guid}\t{name}\n" for guid, name in pairs]
    parts = {name: "".join(x).encode() for name, x in lines.items()}
    return parts | {LOGITS: logits.astype(np.float32).tobytes()}


def write_predictions(
    blocks: streaming.Blocks,
    task: sentence_tasks.SentenceTask,
    split: str,
    output_dir: str,
    glue_submission: str | None = None,
    *,
    have_scores: bool = False,
) -> dict[str, str]:
    """Writes the files of a predicted set; returns their paths.

    Args:
      blocks: blocks with the parts of `prediction_parts`.
      task: the task of the set.
      split: the set.
      output_dir: directory of the run.
      glue_submission: directory of the files for GLUE's server, if any.
      have_scores: whether the set has labels, so that scores follow. If it has
        not, a file of earlier scores is renamed, even if the texts are equal.

    Returns:
      Part -> path; for a test set also the path of the "scores", which this
      function does not write.
    """
    texts = task.read(split)
    suffix = split if split.startswith(DEV) else split.partition("_")[2]
    if task.name in (
        "ax",
        "ax-g",
    ):  # Their files are beside those of another task.
        suffix = task.name
    suffix = f"_{suffix}" if suffix else ""
    names = {
        _RESULTS: f"test_results{suffix}.tsv",
        PREDICTIONS: f"predictions{suffix}.tsv",
    }
    if not split.startswith(DEV):
        names["scores"] = f"scores_test{suffix}.txt"
    if task.name == _SWAG_TASK:
        names[_SWAG] = f"swag_submission{suffix}.csv"
    # The digest is of the texts; scores are of texts with labels.
    scores_digest = texts.digest if have_scores else f"{texts.digest} unlabeled"
    for part, file in names.items():
        run_directory.keep_other_sets(
            output_dir,
            [file],
            name=task.set_name(split),
            digest=scores_digest if part == "scores" else texts.digest,
        )
    paths = {x: os.path.join(output_dir, name) for x, name in names.items()}
    heads = {
        PREDICTIONS: predictions_head(task, task.kept),
        _SWAG: b"id,pred\n",
        _GLUE: b"index\tprediction\n",
    }
    if glue_submission and (name := _glue_file(task, split)):
        file_system.make_folder(glue_submission)
        paths[_GLUE] = os.path.join(glue_submission, name)
    for part in {*paths} - {"scores"}:
        blocks.write(part, paths[part], head=heads.get(part, b""))
    if glue_submission and _GLUE in paths:
        _archive(glue_submission)
    return paths


def predictions_head(
    task: sentence_tasks.SentenceTask, kept: Sequence[str] = ()
) -> bytes:
    """Returns the header of predictions.tsv.

    The name of a kept column that the header has already, such as "label", is
    followed by "(given)".
    """
    names = ["id", "label", *task.labels]
    kept_names = [f"{name} (given)" if name in names else name for name in kept]
    return _tsv_line([*names, *kept_names]).encode()


def _tsv_line(cells: Sequence[str]) -> str:
    """Returns a line that csv reads back as the same cells."""
    end = "\r\n"  # Before Python 3.13, csv quotes "\r" only if the end has it.
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator=end).writerow(cells)
    return file.getvalue().removesuffix(end) + "\n"


def _glue_file(task: sentence_tasks.SentenceTask, split: str) -> str | None:
    """Returns the name of a set's file for GLUE's server."""
    name = sentence_tasks.TASKS[task.name].submission
    # --test_file may name the mismatched set.
    set_name = f"{split} {os.path.basename(task.read(split).path)}"
    if task.name == "mnli" and "mismatched" in set_name:
        return _MNLI_MISMATCHED
    return name


def _archive(directory: str) -> None:
    """Writes submission.zip if all files of GLUE exist."""
    paths = [os.path.join(directory, name) for name in submission_files()]
    missing = [
        os.path.basename(path) for path in paths if not file_system.exists(path)
    ]
    if missing:
        logging.info("%s: missing %s", directory, ", ".join(missing))
        return
    archive = os.path.join(directory, ARCHIVE)
    with (
        atomic.replacing(archive, on_disk=True) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(copies.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)


def submission_files() -> list[str]:
    """Returns the names of all files that GLUE's server expects."""
    names = [task.submission for task in sentence_tasks.TASKS.values()]
    return sorted([*filter(None, names), _MNLI_MISMATCHED])


def majority_label(texts: Iterable[Example]) -> str:
    """Returns the most frequent label; of equally frequent ones the first."""
    counts = Counter(str(example.label) for example in texts)
    return min(counts, key=lambda label: (-counts[label], label))


# The report.


def sections(evaluation: Evaluation) -> list[report.Section]:
    """Returns the report's sections on one evaluated set."""
    kind, overview = evaluation.task.kind, []
    if kind in (examples.CLASSIFICATION, examples.MULTIPLE_CHOICE):
        overview.append(_confusions(evaluation))
    if rows := by_label(evaluation):
        shown = report.table(model_card.BY_LABEL, rows, minor=["predicted"])
        overview.append(report.Section("By label", shown))
    if kind == examples.REGRESSION:
        overview.append(_true_and_predicted(evaluation))
    else:
        calibration = _calibration(evaluation)
        overview.append(report.Section("Calibration", calibration))
    return [
        *overview,
        report.Section("By length", _by_length(evaluation)),
        report.Section("Worst mistakes", _worst_mistakes(evaluation)),
    ]


def _calibration(evaluation: Evaluation) -> Markup:
    """Compares the probability of decisions with the fraction that is correct.

    A decision is the predicted class of an example; in a multi-label task,
    whether an example has a label.
    """
    kind = evaluation.task.kind
    probabilities = outcomes.probabilities(kind, evaluation.logits)
    decisions = outcomes.decisions(kind, evaluation.logits)
    if kind == examples.MULTI_LABEL:
        confidence = np.maximum(probabilities, 1 - probabilities).ravel()
        is_right = (decisions == evaluation.label_ids).ravel()
    else:
        confidence = probabilities.max(axis=1)
        is_right = decisions == evaluation.label_ids[:, 0]
    bins = np.minimum((confidence * _NUM_BINS).astype(int), _NUM_BINS - 1)
    rows, points, error = [], [], 0.0
    for number in np.unique(bins):
        chosen = bins == number
        mean, correct = confidence[chosen].mean(), is_right[chosen].mean()
        error += chosen.mean() * abs(mean - correct)
        low, high = number / _NUM_BINS, (number + 1) / _NUM_BINS
        span = f"{low:.1f}\u2013{high:.1f}"
        rows.append(
            [span, int(chosen.sum()), mean, report.heat(correct, correct)]
        )
        points.append((mean, correct))
    with report.style():
        figure = Figure(figsize=(4.6, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], linestyle=":", color="gray")
        axes.plot(*zip(*points, strict=True), marker="o")
        axes.set_xlabel("mean probability of the predictions")
        axes.set_ylabel("fraction correct")
        axes.grid(alpha=0.25)
        drawn = report.charts([report.svg(figure)])
    header = ["probability", "predictions", "mean probability", "correct"]
    note = (
        "<p>Expected calibration error: {:.3f}, the mean difference between "
        "the probability of predictions and the fraction that is correct.{}"
        "</p>"
    )
    detail = (
        " Each label of each example is one prediction: present or absent."
        if kind == examples.MULTI_LABEL
        else ""
    )
    return (
        Markup(note).format(error, detail) + drawn + report.table(header, rows)
    )


def _confusions(evaluation: Evaluation) -> report.Section:
    """Counts pairs of true and predicted classes (or choices)."""
    labels = evaluation.task.labels
    truth = evaluation.label_ids[:, 0]
    predicted = evaluation.logits.argmax(axis=1)
    if len(labels) <= _MAX_CLASSES_IN_TABLE:
        matrix = sklearn.metrics.confusion_matrix(
            truth, predicted, labels=range(len(labels))
        )
        heat_map = report.heat_map("true", labels, matrix.tolist())
        return report.Section("Confusions", heat_map)
    is_wrong = truth != predicted
    pairs = zip(truth[is_wrong], predicted[is_wrong], strict=True)
    header = ["true", "predicted", "examples"]
    rows = [
        [labels[true], labels[other], count]
        for (true, other), count in Counter(pairs).most_common(_MAX_CONFUSIONS)
    ]
    return report.Section("Confusions", report.table(header, rows))


def by_label(evaluation: Evaluation) -> list[list[Any]]:
    """Returns a row with the columns model_card.BY_LABEL for each label.

    Returns [] for regression and multiple choice, which have no labels.
    """
    task = evaluation.task
    if task.kind not in (examples.CLASSIFICATION, examples.MULTI_LABEL):
        return []
    truth = evaluation.label_ids
    predicted = outcomes.decisions(task.kind, evaluation.logits)
    if task.kind == examples.CLASSIFICATION:
        classes = np.arange(len(task.labels))
        truth, predicted = truth == classes, predicted[:, None] == classes
    rows = []
    for label, is_true, is_predicted in zip(
        task.labels, truth.T, predicted.T, strict=True
    ):
        *scores, _ = sklearn.metrics.precision_recall_fscore_support(
            is_true, is_predicted, average="binary", zero_division=0.0
        )
        counts = int(is_true.sum()), int(is_predicted.sum())
        rows.append([label, *counts, *map(float, scores)])
    return rows


def baseline(evaluation: Evaluation) -> tuple[dict[str, float], str]:
    """Returns the accuracy without a model: a fact of the report, a sentence.

    Both are empty if examples do not have one of several labels each.
    """
    if evaluation.task.kind != examples.CLASSIFICATION:
        return {}, ""
    counts = np.bincount(evaluation.label_ids[:, 0])
    label = evaluation.task.labels[int(counts.argmax())]
    fraction = float(counts.max() / counts.sum())
    return {f"accuracy of always \u201c{label}\u201d": fraction}, (
        f"To predict always `{label}`, the most frequent label, has the "
        f"accuracy {fraction:.4g}."
    )


def warn_of_one_label(
    evaluation: Evaluation, name: str, *, has_windows: bool = False
) -> None:
    """Logs a warning if the model predicts one label for all examples.

    `name` is their file; texts in windows get more advice.
    """
    task, truth = evaluation.task, evaluation.label_ids
    if task.kind != examples.CLASSIFICATION or len(np.unique(truth)) == 1:
        return
    predicted = np.unique(outcomes.decisions(task.kind, evaluation.logits))
    if len(predicted) == 1:
        advice = "another --learning_rate, other seeds (--num_seeds)"
        if has_windows:
            advice += (
                ", --window_pooling=max, a first run of the head alone "
                "(--freeze_layers)"
            )
        logging.warning(
            "%s: the model predicts %r for all %d examples: it has not learned "
            "to tell the labels apart; what helps: more examples or epochs, %s",
            name,
            task.labels[int(predicted[0])],
            len(truth),
            advice,
        )


def _true_and_predicted(evaluation: Evaluation) -> report.Section:
    """Plots predicted over true values of up to _MAX_POINTS examples."""
    truth = evaluation.label_ids[:, 0]
    every_nth = slice(None, None, -(-len(truth) // _MAX_POINTS))
    with report.style():
        figure = Figure(figsize=(4.6, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.scatter(
            truth[every_nth], evaluation.logits[every_nth, 0], s=6, alpha=0.4
        )
        axes.axline((float(truth.mean()),) * 2, slope=1, color="gray")
        axes.set_xlabel("true value")
        axes.set_ylabel("predicted")
        axes.grid(alpha=0.25)
        drawn = report.charts([report.svg(figure)])
    return report.Section("True and predicted", drawn)


def _by_length(evaluation: Evaluation) -> Markup:
    """Returns the metrics of equally large groups of similar length."""
    task = evaluation.task
    rows = []
    for span, group in report.length_groups(evaluation.lengths, _LENGTH_GROUPS):
        values = objective.scores(
            task.metrics,
            task.kind,
            evaluation.logits[group],
            evaluation.label_ids[group],
            positive=task.positive,
        )
        rows.append([span, len(group), *values.values()])
    header = [
        "tokens",
        "examples",
        *map(metric_writer.name_in_words, task.metrics),
    ]
    return report.table(header, rows, minor=header[4:])


def _worst_mistakes(evaluation: Evaluation) -> Markup:
    """Returns the wrong predictions with the largest losses."""
    task, logits = evaluation.task, evaluation.logits
    losses = objective.example_losses(task.kind, logits, evaluation.label_ids)
    decisions = outcomes.decisions(task.kind, logits)
    if task.kind == examples.REGRESSION:
        is_wrong = losses > 0
    elif task.kind == examples.MULTI_LABEL:
        is_wrong = (decisions != evaluation.label_ids).any(axis=1)
    else:
        is_wrong = decisions != evaluation.label_ids[:, 0]
    order = np.argsort(-losses, kind="stable")
    worst = order[is_wrong[order]][:_MAX_ERRORS]
    if not len(worst):
        return Markup("<p>None.</p>")
    numbers = set(worst.tolist())
    examples_by_index = {
        i: x for i, x in enumerate(evaluation.texts) if i in numbers
    }
    names = outcomes.label_names(task.kind, task.labels, logits[worst])
    rows = []
    for i, name in zip(worst.tolist(), names, strict=True):
        labels: list[Any] = [str(examples_by_index[i].label), name]
        if task.kind == examples.REGRESSION:
            labels = [float(evaluation.label_ids[i, 0]), float(logits[i, 0])]
        elif task.kind == examples.MULTI_LABEL:
            labels = [
                ", ".join(itertools.compress(task.labels, chosen)) or "none"
                for chosen in (evaluation.label_ids[i], decisions[i])
            ]
        where = examples_by_index[i].where.rpartition("/")[2]
        loss = float(losses[i])
        rows.append([where, *labels, loss, _shown_text(examples_by_index[i])])
    header = ["line", "true", "predicted", "loss", "text"]
    return report.table(header, rows, minor=["loss"])


def _shown_text(example: Example) -> str:
    parts = [
        part
        if len(part) <= _MAX_TEXT_CHARACTERS
        else part[:_MAX_TEXT_CHARACTERS] + "..."
        for part in (example.first, *example.second)
    ]
    return " | ".join(parts)
