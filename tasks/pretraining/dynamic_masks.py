"""Masks that are drawn anew for each training batch, for --dynamic_masking.

Records hold the original tokens of their masks. A batch gets these back, then
new masks, as many and of the same kind as data creation has drawn:

    stored       [CLS] the [MASK] sat on it [SEP]     masked_lm_ids  cat
    restored     [CLS] the  cat   sat on it [SEP]
    batch 1      [CLS] [MASK] cat sat on it [SEP]
    batch 2      [CLS] the cat sat on [MASK] [SEP]

The pairs of segments stay as they were stored. The masks are a function of the
seed, the number of the batch and the worker's part of it.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from data import manifest
from data.pretraining import masking
from data.pretraining.settings import Settings
from data.tokenization import vocabulary as vocabularies
from data.tokenization import wordpiece
from foundation import errors
from training import feed

_CHANGED = (
    "input_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicMasks:
    """Draws the masks of shards anew.

    Attributes:
      rule: the rate, the words that are predicted, and what replaces them.
      vocabulary: vocabulary of the records.
    """

    rule: Settings
    vocabulary: vocabularies.Vocabulary

    def redraw(
        self, features: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Returns the _CHANGED features with other masks.

        Args:
          features: a batch of stored records, also of packed ones, in which
            `input_mask` numbers the instances of a row.
          rng: makes all random choices.
        """
        ids, number = _restored(features), features["input_mask"]
        # Masks are drawn with each instance in a row of its own.
        rows, columns = np.nonzero(number)
        key = rows * (int(number.max()) + 1) + number[rows, columns]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        lengths = np.diff(first, append=len(key))
        instance = np.repeat(np.arange(len(first)), lengths)
        position = np.arange(len(key)) - first[instance]
        alone = np.zeros((len(first), ids.shape[1]), ids.dtype)
        alone[instance, position] = ids[rows, columns]
        is_candidate = np.zeros(alone.shape, bool)
        is_candidate[instance, position] = True
        for token in (self.vocabulary.cls_id, self.vocabulary.sep_id):
            is_candidate &= alone != token
        masked = masking.mask(
            alone,
            is_candidate,
            lengths,
            rule=self.rule,
            vocabulary=self.vocabulary,
            rng=rng,
        )
        # Back into the rows, as far as they have room for predictions.
        instance, slot = np.nonzero(masked["masked_lm_weights"])
        position = masked["masked_lm_positions"][instance, slot]
        row = rows[first[instance]]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        has_room = place < features["masked_lm_ids"].shape[1]
        row, place, instance, position = (
            x[has_room] for x in (row, place, instance, position)
        )
        column = columns[first[instance]] + position
        changed = {name: np.zeros_like(features[name]) for name in _CHANGED[1:]}
        for name, values in zip(
            _CHANGED[1:], (column, ids[row, column], 1), strict=True
        ):
            changed[name][row, place] = values
        ids[row, column] = masked["input_ids"][instance, position]
        return {"input_ids": ids, **changed}

    def batches(
        self, make_batches: feed.MakeBatches, seed: int
    ) -> feed.MakeBatches:
        """Returns the same batches with masks that are drawn by a seed."""

        def make(
            *, first_batch: int, part: int, num_parts: int
        ) -> tf.data.Dataset:
            stored = make_batches(
                first_batch=first_batch, part=part, num_parts=num_parts
            )
            names = [*stored.element_spec]
            specs = [stored.element_spec[name] for name in _CHANGED]

            def draw(number, *arrays):
                key = [seed % 2**64, int(number), part, num_parts]
                features = dict(zip(names, arrays, strict=True))
                changed = self.redraw(features, np.random.default_rng(key))
                return [changed[name] for name in _CHANGED]

            def replace(number, features):
                arrays = tf.numpy_function(
                    draw,
                    [number, *(features[name] for name in names)],
                    [spec.dtype for spec in specs],
                )
                return features | {
                    name: tf.ensure_shape(x, spec.shape)
                    for name, x, spec in zip(
                        _CHANGED, arrays, specs, strict=True
                    )
                }

            numbers = tf.data.Dataset.range(first_batch, 2**62)
            return (
                tf.data.Dataset.zip(numbers, stored)
                .map(replace, num_parallel_calls=2, deterministic=True)
                .prefetch(2)
            )

        return make


def _restored(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the tokens before masking: int32 [B, S]."""
    ids = features["input_ids"].copy()
    rows, places = np.nonzero(features["masked_lm_weights"])
    positions = features["masked_lm_positions"][rows, places]
    ids[rows, positions] = features["masked_lm_ids"][rows, places]
    return ids


def of_shards(
    paths: Sequence[str],
    max_predictions_per_seq: int,
    tokenizer: wordpiece.Tokenizer | None,
) -> DynamicMasks:
    """Returns what draws the masks of shards anew.

    Args:
      paths: the shards; those without a manifest have the default rule.
      max_predictions_per_seq: the most predictions of their records.
      tokenizer: tokenizer of the records, with their vocabulary; None if it is
        not known.

    Raises:
      InputError: the masks of these shards cannot be drawn anew.
    """
    if tokenizer is None:
        raise errors.InputError(
            f"--dynamic_masking: no vocabulary beside {paths[0]} tells what "
            "[CLS], [SEP] and [MASK] are; give --vocab_file"
        )
    manifests = manifest.find([*paths])
    rules: dict[Settings, str] = {}
    for path in paths:
        rule = Settings()
        if path in manifests:
            described = manifests[path]
            if described.masking.marks_words:
                raise errors.InputError(
                    f"--dynamic_masking: {path} was made with "
                    f"--words={described.masking.words}; records do not hold "
                    "these words, so their masks cannot be drawn anew"
                )
            rule = described.masking
        rule = dataclasses.replace(
            rule, max_predictions_per_seq=max_predictions_per_seq
        )
        rules.setdefault(rule, path)
    if len(rules) > 1:
        first, other, *_ = rules.values()
        raise errors.InputError(
            f"--dynamic_masking: {first} and {other} were made with different "
            "values of --masked_lm_prob, --mask_token_prob, "
            "--random_token_prob or --do_whole_word_mask"
        )
    return DynamicMasks(rule=next(iter(rules)), vocabulary=tokenizer.vocabulary)
