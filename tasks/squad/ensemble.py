"""The mean of the logits that several runs have predicted for the same windows.

    ensemble = Ensemble(["run1", "run2"], of_windows)
    ensemble.predict(features, batch_size)    in place of a network

A prediction leaves its logits beside its answers:

    output_dir/predict_logits.npz    start, end: float32 [T], of all windows
                                     windows: identifies them; see of_windows
"""

import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data import features as features_lib
from data.features import Features
from finetuning import record
from finetuning import task as tasks
from foundation import errors, file_system, metadata
from weights import task_files

LOGITS = "predict_logits.npz"
MEMBERS = "members"  # Whose threshold question_answering.json has.
_NAMES = ("start", "end")


def of_windows(task: tasks.Task, examples: tasks.Examples) -> str:
    """Returns a digest of what the windows of a set are made from."""
    facts = [
        examples.summary.digest,
        features_lib.tokenizer_recipe(task.tokenizer),
        task.settings,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def stored(windows: str, start: bytes, end: bytes) -> bytes:
    """Returns the content of a file of logits, float32 [T] each."""
    file = io.BytesIO()
    logits = [np.frombuffer(x, np.float32) for x in (start, end)]
    np.savez(file, start=logits[0], end=logits[1], windows=np.array(windows))
    return file.getvalue()


class Ensemble:
    """Predicts a set from the logits of several runs.

    Attributes:
      digest: identifies the logits.
    """

    def __init__(self, directories: Sequence[str], windows: str):
        """Reads the logits of all windows.

        Raises:
          InputError: a run has no logits, or those of other windows.
        """
        total: Any = 0.0
        for directory in directories:
            total = total + _read(directory, windows).astype(np.float64)
        self._logits = (total / len(directories)).astype(np.float32)
        self.digest = hashlib.sha256(self._logits.tobytes()).hexdigest()
        self._at = 0

    def predict(
        self, features: Features, batch_size: int
    ) -> Mapping[str, np.ndarray]:
        """Returns the logits of the next windows of the set."""
        begin, self._at = self._at, self._at + int(features.row_splits[-1])
        start, end = self._logits[:, begin : self._at]
        return {"start_logits": start, "end_logits": end}


def _read(directory: str, windows: str) -> np.ndarray:
    path = os.path.join(directory, LOGITS)
    if not file_system.exists(path):
        raise errors.InputError(
            f"--ensemble_dirs: {path} is missing: predict with this run, "
            "--do_predict"
        )
    try:
        with (
            file_system.open_binary(path) as file,
            np.load(file, allow_pickle=False) as found,
        ):
            is_same = str(found["windows"]) == windows
            logits = np.stack([found[name] for name in _NAMES])
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise errors.InputError(f"{path}: cannot be read: {error}") from None
    if not is_same:
        raise errors.InputError(
            f"--ensemble_dirs: {path} has the logits of other windows: "
            "predict the same file, with a model of the same vocabulary and "
            "the same --max_seq_length, --doc_stride and --max_query_length"
        )
    return logits


def members(directories: Sequence[str]) -> list[list[str]]:
    """Returns the digests of the weights that each run has predicted with."""
    runs = [record.RunRecord(x).sets.values() for x in directories]
    return sorted(
        sorted({found["weights"] for found in sets if "weights" in found})
        for sets in runs
    )


def settings(
    output_dir: str, directories: Sequence[str]
) -> task_files.SquadSettings | None:
    """Returns what was found for these weights, else the runs' own settings.

    The threshold of the latter is the mean of those of the runs.
    """
    path = os.path.join(output_dir, task_files.SQUAD_SETTINGS)
    own = metadata.read_if_present(path, metadata.Object) or {}
    if own.get(MEMBERS) == members(directories):
        return task_files.read_settings(output_dir)
    runs = [x for x in map(task_files.read_settings, directories) if x]
    thresholds = [
        x.null_score_diff_threshold
        for x in runs
        if x.null_score_diff_threshold is not None
    ]
    mean = float(np.mean(thresholds)) if thresholds else None
    if not runs:
        return None
    return dataclasses.replace(runs[0], null_score_diff_threshold=mean)
