"""The files for GLUE's server: CoLA.tsv ..., and submission.zip of all.

A file is "index TAB prediction". Of WNLI, every prediction is the most frequent
label of the training set, as in the paper.
"""

import os
import zipfile
from collections.abc import Sequence
from typing import Any

from absl import logging

from foundation import atomic, copies, file_system
from tasks.classification import label_kinds, tables

ARCHIVE = "submission.zip"
_MNLI_MISMATCHED = "MNLI-mm.tsv"
_LARGEST = 5.0  # The scale of STS-B begins at 0.
_WNLI_MAJORITY = "0"  # 323 of 635 examples of WNLI's training set.


def lines(
    task: Any,
    examples: Sequence[tables.Sentence],
    predictions: Sequence[str],
) -> str:
    """Returns the lines of consecutive examples of a task.Classification."""
    if isinstance(task.kind, label_kinds.Value):
        values = [min(max(float(x), 0.0), _LARGEST) for x in predictions]
        predictions = [f"{value:.3f}" for value in values]
    elif task.table.submission == "WNLI.tsv":
        predictions = [_WNLI_MAJORITY] * len(predictions)
    pairs = zip(examples, predictions, strict=True)
    return "".join(f"{example.id}\t{text}\n" for example, text in pairs)


def write(task: Any, split: str, data: bytes) -> None:
    """Writes the file of a set, and the archive once all files exist."""
    name, folder = task.table.submission, task.flags.glue_submission
    assert name and folder  # The flag is given, and the task has such a file.
    # --test_file may name the mismatched set.
    set_name = f"{split} {os.path.basename(task.sets[split].path)}"
    if name == "MNLI-m.tsv" and "mismatched" in set_name:
        name = _MNLI_MISMATCHED
    file_system.make_folder(folder)
    atomic.write_bytes(
        os.path.join(folder, name), b"index\tprediction\n" + data
    )
    # All files that GLUE's server expects.
    names = filter(None, (x.submission for x in tables.TASKS.values()))
    expected = sorted([*names, _MNLI_MISMATCHED])
    paths = [os.path.join(folder, x) for x in expected]
    missing = [x for x in paths if not file_system.exists(x)]
    if missing:
        shown = ", ".join(map(os.path.basename, missing))
        logging.info("%s: missing %s", folder, shown)
        return
    archive = os.path.join(folder, ARCHIVE)
    with (
        atomic.replacing(archive) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(copies.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)
