"""Tagging with a CRF: whole sentences of tags are trained on and predicted.

crf.json beside the model holds the scores of one tag following another, which
no other program's token classifier has a place for.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import errors
from modeling import crf, losses
from tasks import report, tagging

NAME = "crf.json"
_PARTS = ("transitions", "start", "end")


class CrfTask(tagging.TaggingTask):
    """Takes the CRF's loss in place of every word's own."""

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracy of every word by itself."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        accuracy = losses.tagging_accuracy(logits, labels)
        loss = model.sequence_loss(logits, labels)
        return {tagging.LOSS: loss}, {"accuracy": accuracy}


def save(model: crf.CrfTaggingModel, labels: Sequence[str], directory: str):
    """Writes crf.json."""
    values = {
        name: keras.ops.convert_to_numpy(getattr(model, name)).tolist()
        for name in _PARTS
    }
    text = json.dumps({"labels": list(labels), **values})
    report.write_text(os.path.join(directory, NAME), text + "\n")


def is_here(directory: str | None) -> bool:
    """Tells whether a model directory has a CRF."""
    return directory is not None and os.path.exists(
        os.path.join(directory, NAME)
    )


def load(
    model: crf.CrfTaggingModel, labels: Sequence[str], directory: str
) -> list[str]:
    """Sets the CRF's scores from crf.json; returns the variables' paths."""
    path = os.path.join(directory, NAME)
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    if values["labels"] != list(labels):
        raise errors.InputError(f"{path}: has other labels than config.json")
    for name in _PARTS:
        getattr(model, name).assign(np.array(values[name], np.float32))
    return [getattr(model, name).path for name in _PARTS]


def best_tags(
    model: crf.CrfTaggingModel,
    logits: np.ndarray,
    row_splits: np.ndarray,
    labels: Sequence[str],
) -> list[str]:
    """Returns the most probable tags of every sentence as a whole.

    Args:
      model: has the transitions.
      logits: float [W, C].
      row_splits: int [N + 1], of the sentences.
      labels: C names.
    """
    parts = [keras.ops.convert_to_numpy(getattr(model, n)) for n in _PARTS]
    found: list[str] = []
    for start, end in zip(row_splits[:-1], row_splits[1:], strict=True):
        found += [labels[i] for i in viterbi(logits[start:end], *parts)]
    return found


def viterbi(
    logits: np.ndarray,
    transitions: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> list[int]:
    """Returns the classes of a sentence, logits [n, C], of highest score."""
    score = start + logits[0]
    before = []
    for row in logits[1:]:
        paths = score[:, None] + transitions
        before.append(paths.argmax(axis=0))
        score = paths.max(axis=0) + row
    best = [int((score + end).argmax())]
    for came_from in reversed(before):
        best.append(int(came_from[best[-1]]))
    return best[::-1]
