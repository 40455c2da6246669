"""Makes the batches that loops ask for, of features in memory.

What is returned is called by training.feed: make(first_batch=, part=,
num_parts=) -> tf.data.Dataset.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from data import length_groups
from data.features import Features


def train(
    features: Features,
    *,
    batch_size: int,
    seed: int,
    lengths: Sequence[int],
) -> Callable[..., tf.data.Dataset]:
    """Returns what makes the endless batches of training."""
    return functools.partial(
        length_groups.train_batches,
        features,
        batch_size=batch_size,
        seed=seed,
        lengths=lengths,
    )


def predict(
    features: Features, *, batch_size: int, lengths: Sequence[int]
) -> Callable[..., tf.data.Dataset]:
    """Returns what makes the batches of a prediction, without labels.

    Labels are compared on the host: the model need not see them, and sets with
    and without them compile to the same program.
    """
    ragged = {k: x for k, x in features.ragged.items() if k != "label_ids"}
    unlabeled = dataclasses.replace(features, dense={}, ragged=ragged)

    def make(*, first_batch: int, part: int, num_parts: int) -> tf.data.Dataset:
        del first_batch  # A prediction always begins at the beginning.
        return length_groups.eval_batches(
            unlabeled,
            batch_size=batch_size,
            lengths=lengths,
            part=part,
            num_parts=num_parts,
        )

    return make
