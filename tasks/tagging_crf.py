"""Tagging with a CRF: whole sentences of tags are trained on and predicted.

crf.json beside the model holds the scores of one tag following another, which
no other program's token classifier has a place for.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import errors
from data import conll, conll_tags, input_files
from data import tagging as windows
from data.features import Features
from modeling import crf, losses
from tasks import file_system, tagging

NAME = "crf.json"
_BOUNDARIES = "boundaries"


class CrfTask(tagging.TaggingTask):
    """Takes the CRF's loss in place of every word's own."""

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracy of every word by itself."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        accuracy = losses.tagging_accuracy(logits, labels)
        loss = model.sequence_loss(logits, labels, features[_BOUNDARIES])
        return {tagging.LOSS: loss}, {"accuracy": accuracy}


def with_boundaries(features: Features, sentences: conll.Sentences) -> Features:
    """Adds to the features of a set where its sentences begin and end."""
    places = windows.word_places(features)
    rows = sentences.row_splits
    marks = np.zeros(features.row_splits[-1], np.int32)
    marks[places[rows[:-1]]] |= crf.BEGINS
    marks[places[rows[1:] - 1]] |= crf.ENDS
    ragged = {**features.ragged, _BOUNDARIES: marks}
    return dataclasses.replace(features, ragged=ragged)


def forbidden(labels: Sequence[str], scheme: str) -> crf.Scores:
    """Returns which tags may not follow another, be first, be last: bool.

    Args:
      labels: C of them.
      scheme: what they are in; plain ones may stand in any order, and so
        may IOB1's.
    """
    tags = [conll_tags.split(label) for label in labels]
    if scheme in (conll_tags.PLAIN, conll_tags.IOB1):
        tags = [(conll_tags.OUTSIDE, "")] * len(labels)
    goes_on = [prefix in ("I", "E") for prefix, _ in tags]
    must_go_on = [
        scheme == conll_tags.IOBES and prefix in ("B", "I")
        for prefix, _ in tags
    ]
    transitions = [
        [
            (goes_on[j] or must_go_on[i])
            and not (goes_on[j] and before in ("B", "I") and kind == tags[j][1])
            for j in range(len(tags))
        ]
        for i, (before, kind) in enumerate(tags)
    ]
    return crf.Scores(*map(np.array, (transitions, goes_on, must_go_on)))


def save(model: crf.CrfTaggingModel, labels: Sequence[str], directory: str):
    """Writes crf.json."""
    values = {k: v.tolist() for k, v in model.scores._asdict().items()}
    text = json.dumps({"labels": list(labels), **values})
    file_system.write_text(os.path.join(directory, NAME), text + "\n")


def is_here(directory: str | None) -> bool:
    """Tells whether a model directory has a CRF."""
    return directory is not None and file_system.exists(
        os.path.join(directory, NAME)
    )


def remove(directory: str) -> None:
    """Removes the crf.json of an earlier model, if there is one."""
    file_system.discard(os.path.join(directory, NAME))


def load(
    model: crf.CrfTaggingModel, labels: Sequence[str], directory: str
) -> list[str]:
    """Sets the CRF's scores from crf.json; returns the variables' paths."""
    path = os.path.join(directory, NAME)
    values = input_files.read_json(path)
    if values["labels"] != list(labels):
        raise errors.InputError(f"{path}: has other labels than the model")
    names = crf.Scores._fields
    arrays = (np.array(values[name], np.float32) for name in names)
    model.set_scores(crf.Scores(*arrays))
    return [variable.path for variable in model.learned]


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
    scores = model.scores
    found: list[str] = []
    for start, end in zip(row_splits[:-1], row_splits[1:], strict=True):
        found += [labels[i] for i in viterbi(logits[start:end], *scores)]
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
