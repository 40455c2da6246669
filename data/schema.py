"""Schemas: the names, shapes and types of the features of each kind of record.

The writer's check, the parser and the model's inputs derive from a `Schema`.
Names, types and lengths are those of google-research/bert's TFRecords:

    pretraining(128, 20) -> input_ids             int64   [128]
                            input_mask            int64   [128]
                            segment_ids           int64   [128]
                            masked_lm_positions   int64   [20]
                            masked_lm_ids         int64   [20]
                            masked_lm_weights     float32 [20]
                            next_sentence_labels  int64   [1]

`packed_pretraining` is the schema of records with several instances each.
"""

import dataclasses
import math

INTEGER = "int64"
FLOAT = "float32"

_TAGGING = "tagging"

# Model Garden's names; `records.parse` accepts both.
ALIASES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named array of every record; `dtype` is as stored on disk.

    Values are at least 0 and below `limit`, if there is one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = INTEGER
    limit: int | None = None

    @property
    def size(self) -> int:
        """Number of values that a record stores for this feature."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Schema:
    """The features of one kind of record, in the order of the original."""

    kind: str
    features: tuple[Feature, ...]

    @property
    def ragged_names(self) -> list[str]:
        """The features with a value for every token, except the mask."""
        # Labels [S] are those of S classes, except in tagging.
        dense = ["input_mask"]
        dense += [] if self.kind == _TAGGING else ["label_ids"]
        shape = self["input_ids"].shape
        return [
            feature.name
            for feature in self.features
            if feature.shape == shape and feature.name not in dense
        ]

    @property
    def names(self) -> list[str]:
        """The feature names, in order."""
        return [feature.name for feature in self.features]

    def limited(self, **limits: int) -> "Schema":
        """Returns the schema for a model, e.g. with segment_ids=2."""
        features = (
            dataclasses.replace(feature, limit=limits.get(feature.name))
            for feature in self.features
        )
        return dataclasses.replace(self, features=tuple(features))

    def without(self, name: str) -> "Schema":
        """Returns the schema of readers that do not need a feature."""
        features = (x for x in self.features if x.name != name)
        return dataclasses.replace(self, features=tuple(features))

    def __getitem__(self, name: str) -> Feature:
        """Returns the feature of that name."""
        return {feature.name: feature for feature in self.features}[name]


LABEL = Feature("label_ids", (1,))
VALUE = Feature("label_ids", (1,), FLOAT)
_IS_REAL = Feature("is_real_example", (1,))


def labels(number: int) -> Feature:
    """Returns the feature of `number` labels, each 0 or 1."""
    return Feature("label_ids", (number,))


def pretraining(max_seq_length: int, max_predictions_per_seq: int) -> Schema:
    """Returns the schema of masked-LM and next-sentence records."""
    return Schema(
        "pretraining",
        (
            *_inputs((max_seq_length,)),
            *_predictions((max_predictions_per_seq,)),
            Feature("next_sentence_labels", (1,)),
        ),
    )


def packed_pretraining(
    max_seq_length: int, predictions_per_row: int, instances_per_row: int
) -> Schema:
    """Returns the schema of records that hold several instances each.

    `input_mask` holds the number of each token's instance, 1, 2, ..., and 0 for
    padding. `position_ids` start at 0 in each instance.
    `next_sentence_positions` are the positions of the [CLS] tokens; those of
    weight 0 are padding.
    """
    sequence, pairs = (max_seq_length,), (instances_per_row,)
    return Schema(
        "packed_pretraining",
        (
            *_inputs(sequence),
            Feature("position_ids", sequence),
            *_predictions((predictions_per_row,)),
            Feature("next_sentence_positions", pairs),
            Feature("next_sentence_labels", pairs),
            Feature("next_sentence_weights", pairs, FLOAT),
        ),
    )


def classification(max_seq_length: int, label: Feature | None = None) -> Schema:
    """Returns the schema of sentences and pairs with a label.

    `label` is LABEL (the default), VALUE, or `labels(n)` for several labels.
    """
    return _labeled("classification", (max_seq_length,), label or LABEL)


def multiple_choice(max_seq_length: int, num_choices: int) -> Schema:
    """Returns the schema of several sequences, one of which is correct."""
    return _labeled("multiple_choice", (num_choices, max_seq_length), LABEL)


def text_groups(
    max_seq_length: int, num_texts: int, *, have_scores: bool
) -> Schema:
    """Returns the schema of texts that are compared, perhaps with a score."""
    scores = (VALUE,) if have_scores else ()
    inputs = _inputs((num_texts, max_seq_length))
    return Schema("text_groups", (*inputs, *scores, _IS_REAL))


def question_answering(max_seq_length: int, *, is_training: bool) -> Schema:
    """Returns the schema of windows; with the answer's positions to train."""
    answer = ("start_positions", "end_positions", "is_impossible")
    return Schema(
        "question_answering",
        (
            Feature("unique_ids", (1,)),
            *_inputs((max_seq_length,)),
            *(Feature(name, (1,)) for name in answer if is_training),
        ),
    )


def tagging(max_seq_length: int) -> Schema:
    """Returns the schema of sequences with labels for some of their tokens.

    `label_ids` is -1 for tokens without a label.
    """
    return _labeled(
        _TAGGING, (max_seq_length,), Feature("label_ids", (max_seq_length,))
    )


def _labeled(kind: str, shape: tuple[int, ...], label: Feature) -> Schema:
    return Schema(kind, (*_inputs(shape), label, _IS_REAL))


def _inputs(shape: tuple[int, ...]) -> list[Feature]:
    names = ("input_ids", "input_mask", "segment_ids")
    return [Feature(name, shape) for name in names]


def _predictions(shape: tuple[int, ...]) -> list[Feature]:
    return [
        Feature("masked_lm_positions", shape),
        Feature("masked_lm_ids", shape),
        Feature("masked_lm_weights", shape, FLOAT),
    ]
