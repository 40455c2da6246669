"""Tagging on tensors: what is trained on, and what a word's logits become.

Only the first piece of every word has a label and is scored; see
ner_windows.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special
from keras import ops

from data.features import Features
from foundation import errors, file_system
from modeling import crf, losses
from tasks.ner import conll, ner_windows
from weights import task_files

LOSS = "tagging_loss"


class TaggingTask:
    """Joins labeled words, a model, a loss and a metric."""

    def loss_weights(self, features: dict) -> dict[str, Any]:
        """Returns the number of words."""
        is_word = features["label_ids"] >= 0
        return {LOSS: ops.sum(ops.cast(is_word, "float32"))}

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracy over words."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        loss = losses.tagging(logits, labels)
        accuracy = losses.tagging_accuracy(logits, labels)
        return {LOSS: loss}, {"accuracy": accuracy}

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns the logits float32 [B, S, C]."""
        return {"logits": model(features)}


def of_words(
    features: Features,
    name: str,
    batches: Iterable[Mapping[str, np.ndarray]],
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields some words in a row, and what is said where each begins [n, ...].

    Args:
      features: of tasks.ner.ner_windows.
      name: of what is said of every piece.
      batches: of that [B, S, ...] and example_index [B].
    """
    places = ner_windows.word_places(features)
    rows = np.searchsorted(features.row_splits, places, "right") - 1
    columns = places - features.row_splits[rows]
    firsts = np.searchsorted(rows, np.arange(len(features) + 1))
    for batch in batches:
        for row, values in zip(
            batch["example_index"], batch[name], strict=True
        ):
            words = slice(firsts[row], firsts[row + 1])
            yield words, values[columns[words]]


def word_logits(
    features: Features,
    num_classes: int,
    batches: Iterable[Mapping[str, np.ndarray]],
) -> np.ndarray:
    """Returns float32 [W, C]: what is predicted where each word begins.

    Args:
      features: of tasks.ner.ner_windows.
      num_classes: C.
      batches: of logits [B, S, C] and example_index [B].
    """
    count = len(ner_windows.word_places(features))
    result = np.zeros((count, num_classes), np.float32)
    for words, logits in of_words(features, "logits", batches):
        result[words] = logits
    return result


def word_losses(logits: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
    """Returns float64 [W], the cross entropy of every word."""
    shares = scipy.special.log_softmax(logits.astype(np.float64), axis=1)
    return -shares[np.arange(len(logits)), label_ids]


def best_tags(logits: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Returns the most probable tag of every word by itself."""
    return [labels[i] for i in logits.argmax(axis=1)]


# ----------------------------------------------------------------------
# Tagging with a CRF: whole sentences of tags are trained on and predicted.
#
# crf.json beside the model holds the scores of one tag following another, which
# no other program's token classifier has a place for.

_BOUNDARIES = "boundaries"


class CrfTask(TaggingTask):
    """Takes the CRF's loss in place of every word's own."""

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracy of every word by itself."""
        logits = model(features, dropout_seed=dropout_seed)
        labels = features["label_ids"]
        accuracy = losses.tagging_accuracy(logits, labels)
        loss = model.sequence_loss(logits, labels, features[_BOUNDARIES])
        return {LOSS: loss}, {"accuracy": accuracy}


def with_boundaries(features: Features, sentences: conll.Sentences) -> Features:
    """Adds to the features of a set where its sentences begin and end."""
    places = ner_windows.word_places(features)
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
    tags = [conll.split(label) for label in labels]
    if scheme in (conll.PLAIN, conll.IOB1):
        tags = [(conll.OUTSIDE, "")] * len(labels)
    goes_on = [prefix in ("I", "E") for prefix, _ in tags]
    must_go_on = [
        scheme == conll.IOBES and prefix in ("B", "I") for prefix, _ in tags
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


def save_crf(model: crf.CrfTaggingModel, labels: Sequence[str], directory: str):
    """Writes crf.json."""
    values = {k: v.tolist() for k, v in model.scores._asdict().items()}
    text = json.dumps({"labels": list(labels), **values})
    file_system.write_text(os.path.join(directory, task_files.CRF), text + "\n")


def has_crf(directory: str | None) -> bool:
    """Tells whether a model directory has a CRF."""
    return directory is not None and file_system.exists(
        os.path.join(directory, task_files.CRF)
    )


def remove_crf(directory: str) -> None:
    """Removes the crf.json of an earlier model, if there is one."""
    file_system.discard(os.path.join(directory, task_files.CRF))


def load_crf(
    model: crf.CrfTaggingModel, labels: Sequence[str], directory: str
) -> list[str]:
    """Sets the CRF's scores from crf.json; returns the variables' paths."""
    path = os.path.join(directory, task_files.CRF)
    values = file_system.read_json(path)
    if values["labels"] != list(labels):
        raise errors.InputError(f"{path}: has other labels than the model")
    names = crf.Scores._fields
    arrays = (np.array(values[name], np.float32) for name in names)
    model.set_scores(crf.Scores(*arrays))
    return [variable.path for variable in model.learned]


def best_sequences(
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
