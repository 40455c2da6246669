"""Masks that each training step draws again, for --mask_schedule.

Records hold the original tokens of their masks. A step restores them and draws
new masks, for a fraction of the tokens that may fall during the run:

    stored       [CLS] the [MASK] sat on it [SEP]     masked_lm_ids  cat
    restored     [CLS] the  cat   sat on it [SEP]
    step 1       [CLS] [MASK] cat sat on it [SEP]
    step 2       [CLS] the cat [MASK] on [MASK] [SEP]

So every step has other masks, also for a record that was read before. The pairs
of segments stay as they were stored.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from data import manifest
from data.pretraining import graph_masking
from data.pretraining.settings import Settings
from data.tokenization import vocabulary as vocabularies
from data.tokenization import wordpiece
from foundation import errors
from tasks.pretraining import objectives


def find_rule(
    paths: Sequence[str], do_whole_word_mask: bool | None
) -> Settings:
    """Returns the masking rule of shards, by which masks are drawn again.

    Args:
      paths: the shards; those without a manifest have the default rule.
      do_whole_word_mask: the flag, which replaces the manifests' value.

    Raises:
      InputError: the shards differ, or do not hold the words of their text.
    """
    rules: dict[Any, Any] = {}
    manifests = manifest.find([*paths])
    for path in paths:
        rule = Settings()
        if path in manifests:
            stored = manifests[path].masking
            if stored.marks_words:
                raise errors.InputError(
                    f"--mask_schedule: {path} was made with "
                    f"--words={stored.words}; records do not hold these words, "
                    "so their masks cannot be drawn again"
                )
            rule = stored
        if do_whole_word_mask is not None:
            rule = dataclasses.replace(
                rule, do_whole_word_mask=do_whole_word_mask
            )
        rules.setdefault(rule, path)
    if len(rules) > 1:
        first, other, *_ = rules.values()
        raise errors.InputError(
            f"--mask_schedule: {first} and {other} were made with different "
            "values of --mask_token_prob, --random_token_prob or "
            "--do_whole_word_mask"
        )
    return next(iter(rules))


def make(
    fractions: tuple[float, float],
    paths: Sequence[str],
    do_whole_word_mask: bool | None,
    tokenizer: wordpiece.Tokenizer | None,
    seed: int,
) -> "RedrawnMasks":
    """Returns the object that draws the masks of shards again.

    Args:
      fractions: of the tokens to predict, in the first and the last step.
      paths: the shards.
      do_whole_word_mask: the flag, which replaces the manifests' value.
      tokenizer: tokenizer of the records, with their vocabulary; None if it is
        not known.
      seed: seed of all random choices.

    Raises:
      InputError: the masks of these shards cannot be drawn again.
    """
    if tokenizer is None:
        raise errors.InputError(
            f"--mask_schedule: no vocabulary beside {paths[0]} tells what "
            "[CLS], [SEP] and [MASK] are; give --vocab_file"
        )
    return RedrawnMasks(
        fractions=fractions,
        rule=find_rule(paths, do_whole_word_mask),
        vocabulary=tokenizer.vocabulary,
        seed=seed,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RedrawnMasks:
    """Draws the masks of a step.

    Attributes:
      fractions: of the tokens to predict, in the first and the last step.
      rule: the rule: the words that are predicted, and what replaces them.
      vocabulary: vocabulary of the records.
      seed: seed of all random choices.
    """

    fractions: tuple[float, float]
    rule: Settings
    vocabulary: vocabularies.Vocabulary
    seed: int

    def draw(
        self,
        progress: Callable[[tf.Tensor], tf.Tensor],
        features: Mapping[str, tf.Tensor],
        step: tf.Tensor,
        first_row: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Returns the features with other masks.

        Args:
          progress: maps a step to its float [] fraction of the run.
          features: features of some rows of a batch, see
            training.step.PrepareFeatures.
          step: int64 [].
          first_row: int [], the number of the first row in the global batch.
        """
        originals = {**features, "input_ids": objectives.unmasked_ids(features)}
        first, last = self.fractions
        fraction = tf.constant(first, tf.float64)
        if last != first:
            done = tf.cast(progress(step), tf.float64)
            fraction += (last - first) * done
        return originals | graph_masking.mask(
            originals,
            masked_lm_prob=fraction,
            rule=dataclasses.replace(
                self.rule, max_predictions_per_seq=self._width(features)
            ),
            num_instances=_num_instances(features),
            vocabulary=self.vocabulary,
            seed=self.seed,
            step=step,
            first_row=first_row,
        )

    def example_spec(
        self, spec: Mapping[str, tf.TensorSpec]
    ) -> dict[str, tf.TensorSpec]:
        """Returns the features of a batch whose masks were drawn again."""
        return {
            name: tf.TensorSpec([x.shape[0], self._width(spec)], x.dtype)
            if name.startswith("masked_lm_")
            else x
            for name, x in spec.items()
        }

    def _width(self, features: Mapping[str, Any]) -> int:
        return graph_masking.most_predictions(
            max(self.fractions),
            features["input_ids"].shape[1],
            _num_instances(features),
        )


def _num_instances(features: Mapping[str, Any]) -> int:
    """Returns the most instances of a row."""
    if "next_sentence_positions" in features:
        return features["next_sentence_positions"].shape[1]
    return 1
