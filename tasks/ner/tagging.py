"""Tagging on tensors: the loss, the predictions, and the best tags.

Only the first token of each word has a label and is predicted; see windowing.

A CRF is trained on complete sequences of tags and predicts them. Its scores of
one tag after another are stored in crf.json beside the model, because token
classifiers of other programs have no variables for them.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import scipy.special
from keras import ops

from data.features import Features
from foundation import atomic, errors, file_system, metadata
from modeling import crf, losses, models
from modeling.config import BertConfig
from tasks.ner import tag_spans, windowing, word_files
from weights import task_files

_LOSS = "tagging_loss"
_BOUNDARIES = "boundaries"


_Row = list[Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]]


@dataclasses.dataclass(frozen=True)
class _StoredScores:
    """The content of crf.json."""

    labels: list[str]
    transitions: list[_Row]
    start: _Row
    end: _Row

    def __post_init__(self):
        """Checks that there is a score for every label."""
        rows = [self.start, self.end, *self.transitions]
        for count in (len(self.transitions), *map(len, rows)):
            if count != len(self.labels):
                raise errors.InputError(
                    f"transitions, start and end: {count} scores for "
                    f"{len(self.labels)} labels"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingObjective:
    """The head, the loss, the metric and the predictions of a tagger.

    The loss is the cross entropy of single words, or the loss of the CRF.

    Attributes:
      config: hyperparameters of the encoder.
      labels: the labels in the order of the model's outputs.
      has_crf: whether the model has a CRF.
      is_plain: whether tags do not mark spans.
    """

    per_token: ClassVar[bool] = True
    config: BertConfig
    labels: Sequence[str]
    has_crf: bool = False
    is_plain: bool = False

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        return {"labels": list(self.labels), "crf": self.has_crf}

    def make_model(self, **options: Any) -> Any:
        """Makes the model; see task_model.Objective."""
        count = len(self.labels)
        if not self.has_crf:
            return models.TaggingModel(
                self.config, num_classes=count, **options
            )
        scheme = tag_spans.PLAIN
        if not self.is_plain:
            scheme = tag_spans.scheme_of(self.labels)
        return crf.CrfTaggingModel(
            self.config,
            num_classes=count,
            forbidden=forbidden(self.labels, scheme),
            **options,
        )

    def load_files(self, model: Any, folder: str) -> list[str]:
        """Sets the scores of a CRF; see load_crf."""
        return load_crf(model, self.labels, folder) if self.has_crf else []

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of words."""
        is_word = features["label_ids"] >= 0
        return {_LOSS: ops.sum(ops.cast(is_word, "float32"))}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss, and the accuracy of each word by itself."""
        logits = model(features, dropout_seed=dropout_seed)
        if not isinstance(model, crf.CrfTaggingModel):
            return self.hard_losses(logits, features)
        labels = features["label_ids"]
        loss = model.sequence_loss(logits, labels, features[_BOUNDARIES])
        return {_LOSS: loss}, {
            "accuracy": losses.tagging_accuracy(logits, labels)
        }

    def hard_losses(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[dict, dict]:
        """Returns what `forward` does without a CRF, from the logits."""
        labels = features["label_ids"]
        accuracy = losses.tagging_accuracy(outputs, labels)
        return {_LOSS: losses.tagging(outputs, labels)}, {"accuracy": accuracy}

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See distillation.Objective."""
        return losses.soft_tagging(
            outputs, teacher["logits"], features["label_ids"], temperature
        )

    def of_teacher(self, config: BertConfig, folder: str) -> "TaggingObjective":
        """See distillation.Objective; neither model may have a CRF.

        The logits of a CRF are no distributions of tags.

        Raises:
          InputError: one has a CRF.
        """
        if self.has_crf:
            raise errors.InputError("--crf: not with --teacher_dir")
        if has_crf(folder):
            raise errors.InputError(
                f"{folder} has a CRF, whose logits are no probabilities of tags"
            )
        return dataclasses.replace(self, config=config)

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the logits float32 [B, S, C]."""
        return {"logits": model(features)}


def with_boundaries(
    features: Features, sentences: word_files.Sentences
) -> Features:
    """Adds the boundaries of sentences to features, for the loss of a CRF."""
    positions = windowing.word_positions(features)
    rows = sentences.row_splits
    boundaries = np.zeros(features.row_splits[-1], np.int32)
    boundaries[positions[rows[:-1]]] |= crf.BEGINS
    boundaries[positions[rows[1:] - 1]] |= crf.ENDS
    ragged = {**features.ragged, _BOUNDARIES: boundaries}
    return dataclasses.replace(features, ragged=ragged)


def of_words(
    features: Features, name: str, batches: Iterable[Mapping[str, np.ndarray]]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields consecutive words and the values of their first tokens [n, ...].

    Args:
      features: features from windowing.encode.
      name: name of the values.
      batches: the values [B, S, ...] and example_index [B].
    """
    positions = windowing.word_positions(features)
    rows = np.searchsorted(features.row_splits, positions, "right") - 1
    columns = positions - features.row_splits[rows]
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
    """Returns float32 [W, C], the logits of the first token of each word.

    Args:
      features: features from windowing.encode.
      num_classes: C.
      batches: see `of_words`; the values are logits [B, S, C].
    """
    count = len(windowing.word_positions(features))
    result = np.zeros((count, num_classes), np.float32)
    for words, logits in of_words(features, "logits", batches):
        result[words] = logits
    return result


def word_losses(logits: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
    """Returns float64 [W], the cross entropy of each word."""
    log_probs = scipy.special.log_softmax(logits.astype(np.float64), axis=1)
    return -log_probs[np.arange(len(logits)), label_ids]


def best_tags(
    scores: crf.Scores | None,
    logits: np.ndarray,
    row_splits: np.ndarray,
    labels: Sequence[str],
) -> list[str]:
    """Returns the most probable tag of each word.

    With a CRF, returns the most probable sequence of tags of each sentence.

    Args:
      scores: scores of tag sequences; None without a CRF.
      logits: float [W, C].
      row_splits: int [N + 1], of the sentences.
      labels: C names.
    """
    if scores is None:
        return [labels[i] for i in logits.argmax(axis=1)]
    tags: list[str] = []
    for start, end in itertools.pairwise(row_splits):
        tags += [labels[i] for i in viterbi(logits[start:end], *scores)]
    return tags


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


def forbidden(labels: Sequence[str], scheme: str) -> crf.Scores:
    """Returns bools: which tags may not follow another, be first or be last.

    Args:
      labels: C names.
      scheme: scheme of the labels; plain and IOB1 allow any order.
    """
    tags = [tag_spans.split_tag(label) for label in labels]
    if scheme in (tag_spans.PLAIN, tag_spans.IOB1):
        tags = [(tag_spans.OUTSIDE, "")] * len(labels)
    continues = [prefix in ("I", "E") for prefix, _ in tags]
    must_continue = [
        scheme == tag_spans.IOBES and prefix in ("B", "I") for prefix, _ in tags
    ]
    transitions = [
        [
            (continues[j] or must_continue[i])
            and not (
                continues[j] and prefix in ("B", "I") and kind == tags[j][1]
            )
            for j in range(len(tags))
        ]
        for i, (prefix, kind) in enumerate(tags)
    ]
    return crf.Scores(*map(np.array, (transitions, continues, must_continue)))


def has_crf(directory: str | None) -> bool:
    """Returns whether a model directory has a CRF."""
    return directory is not None and file_system.exists(
        os.path.join(directory, task_files.CRF)
    )


def save_crf(model: Any, labels: Sequence[str], directory: str) -> None:
    """Writes crf.json, or removes it if the model has no CRF."""
    path = os.path.join(directory, task_files.CRF)
    if not isinstance(model, crf.CrfTaggingModel):
        file_system.discard(path)
        return
    values = {k: v.tolist() for k, v in model.scores._asdict().items()}
    text = json.dumps({"labels": list(labels), **values})
    atomic.write_text(path, text + "\n")


def load_crf(
    model: crf.CrfTaggingModel, labels: Sequence[str], directory: str
) -> list[str]:
    """Sets the CRF's scores from crf.json; returns the variables' paths.

    Returns [] if there is no crf.json.
    """
    if not has_crf(directory):
        return []
    model.set_scores(read_crf(labels, directory))
    return [variable.path for variable in model.learned]


def read_crf(labels: Sequence[str], directory: str) -> crf.Scores:
    """Reads crf.json.

    Raises:
      InputError: it is damaged, or has other labels.
    """
    path = os.path.join(directory, task_files.CRF)
    stored = metadata.read(path, _StoredScores)
    if stored.labels != list(labels):
        raise errors.InputError(f"{path}: has other labels than the model")
    arrays = (
        np.array(getattr(stored, name), np.float32)
        for name in crf.Scores._fields
    )
    return crf.Scores(*arrays)
