"""Files of predictions: as released, with names, and for leaderboards.

test_results.tsv    probabilities, tab-separated, no header: as released
predictions.tsv     id, label and each label's probability, with a header;
                    cells with tabs or line ends are quoted as in CSV
<task>.tsv          index and prediction, as GLUE's server wants them;
                    submission.zip once all eleven tasks are there
swag_submission.csv the number of the chosen ending
"""

import csv
import io
import os
import zipfile
from collections import Counter
from collections.abc import Sequence

import numpy as np
from absl import logging

from data import examples, glue
from data.examples import Examples
from tasks import classification, file_system

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
    shares = classification.probabilities(kind, logits)
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
    decided = classification.decisions(kind, logits)
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
    decided = classification.decisions(task.kind, logits)
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
        file_system.whole(archive) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(file_system.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)
