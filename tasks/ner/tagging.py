"""From logits to tags: the best tag of each word, or the best sequence.

A CRF is trained on complete sequences of tags and predicts them. Its scores of
one tag after another are stored in crf.json beside the model, because token
classifiers of other programs have no variables for them. Scores are arrays by
name, those of modeling.crf.Scores: transitions [C, C], of a column's tag after
a row's; start [C] and end [C], of a sentence's first and last tag.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import scipy.special

from foundation import atomic, errors, file_system, metadata
from tasks.ner import tag_spans
from weights import task_files

Scores = Mapping[str, np.ndarray]
_SCORES = ("transitions", "start", "end")
_Row = list[Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]]


@dataclasses.dataclass(frozen=True)
class _StoredScores:
    """The content of crf.json."""

    labels: list[str]
    transitions: list[_Row]
    start: _Row
    end: _Row


def best_tags(
    logits: np.ndarray,
    lengths: Sequence[int],
    labels: Sequence[str],
    scores: Scores | None,
) -> list[list[str]]:
    """Returns the most probable tags of the words of each sentence.

    With a CRF, returns the most probable sequences of tags.

    Args:
      logits: float [W, C].
      lengths: the number of words of each sentence.
      labels: C names.
      scores: scores of tag sequences; None without a CRF.
    """
    best = logits.argmax(axis=1).tolist()
    found = []
    for start, end in itertools.pairwise(np.cumsum([0, *lengths]).tolist()):
        part = best[start:end]
        if scores is not None and part:
            part = viterbi(logits[start:end], **scores)
        found.append([labels[i] for i in part])
    return found


def viterbi(
    logits: np.ndarray,
    transitions: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> list[int]:
    """Returns the n classes with the highest total score.

    Args:
      logits: float [n, C].
      transitions: float [C, C], score of a column after a row.
      start: float [C], score of each class at the first word.
      end: float [C], score of each class at the last word.
    """
    score, before = start + logits[0], []
    for row in logits[1:]:
        paths = score[:, None] + transitions
        before.append(paths.argmax(axis=0))
        score = paths.max(axis=0) + row
    best = [int((score + end).argmax())]
    for came_from in reversed(before):
        best.append(int(came_from[best[-1]]))
    return best[::-1]


def word_losses(logits: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
    """Returns float64 [W], the cross entropy of each word, of logits [W, C]."""
    log_probs = scipy.special.log_softmax(logits.astype(np.float64), axis=1)
    return -log_probs[np.arange(len(logits)), label_ids]


def probabilities(
    logits: np.ndarray, tags: Iterable[Sequence[str]], labels: Sequence[str]
) -> list[float]:
    """Returns the probability of the tag of each word, by itself.

    Args:
      logits: float [W, C].
      tags: the tags of each sentence.
      labels: C names.
    """
    numbers = {label: i for i, label in enumerate(labels)}
    chosen = [numbers[tag] for tag in itertools.chain.from_iterable(tags)]
    values = scipy.special.softmax(logits.astype(np.float64), axis=1)
    return values[np.arange(len(chosen)), chosen].tolist()


def forbidden(labels: Sequence[str], scheme: str) -> dict[str, np.ndarray]:
    """Returns bools: which tags may not follow another, be first or be last.

    Args:
      labels: C names.
      scheme: scheme of the labels; plain and IOB1 allow any order.
    """
    tags = list(map(tag_spans.split_tag, labels))
    if scheme in (tag_spans.PLAIN, tag_spans.IOB1):
        tags = [(tag_spans.OUTSIDE, "")] * len(labels)
    prefixes, kinds = map(np.array, zip(*tags, strict=True))
    continues = np.isin(prefixes, ["I", "E"])
    opens = np.isin(prefixes, ["B", "I"])
    must_continue = opens & (scheme == tag_spans.IOBES)
    is_same = opens[:, None] & continues & (kinds[:, None] == kinds)
    transitions = (continues | must_continue[:, None]) & ~is_same
    values = (transitions, continues, must_continue)
    return dict(zip(_SCORES, values, strict=True))


def has_crf(directory: str | None) -> bool:
    """Returns whether a model directory has a CRF."""
    return directory is not None and file_system.exists(
        os.path.join(directory, task_files.CRF)
    )


def save_crf(model: Any, labels: Sequence[str], directory: str) -> None:
    """Writes crf.json, or removes it if the model has no CRF."""
    path = os.path.join(directory, task_files.CRF)
    scores = getattr(model, "scores", None)
    if scores is None:
        file_system.discard(path)
        return
    values = {name: getattr(scores, name).tolist() for name in _SCORES}
    text = json.dumps({"labels": list(labels), **values})
    atomic.write_text(path, text + "\n")


def read_crf(labels: Sequence[str], directory: str) -> dict[str, np.ndarray]:
    """Reads the scores in crf.json.

    Raises:
      InputError: it is damaged, or has other labels.
    """
    path = os.path.join(directory, task_files.CRF)
    stored = metadata.read(path, _StoredScores)
    if stored.labels != list(labels):
        raise errors.InputError(f"{path}: has other labels than the model")
    rows = [*stored.transitions, stored.start, stored.end]
    if [len(row) for row in rows] != [len(labels)] * (len(labels) + 2):
        raise errors.InputError(
            f"{path}: transitions, start and end are not {len(labels)} a tag"
        )
    return {
        name: np.array(getattr(stored, name), np.float32) for name in _SCORES
    }
