"""Divides global batches among replicas and micro-batches.

    global batch [B, ...] -> worker's part [B / workers, ...]
        -> one element per replica, [accumulation steps, micro-batch, ...]

Rows stay in order: worker 0 has the first, its replica 0 the first of those.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from foundation import errors


class MakeBatches(Protocol):
    """Makes one of `num_parts` equal, contiguous parts of every batch.

    The runner wraps data.pipelines; shapes are static.
    """

    def __call__(
        self, *, first_batch: int, part: int, num_parts: int
    ) -> tf.data.Dataset:
        """Returns batches from the first_batch-th on, a dict of [rows, ...]."""


@runtime_checkable
class FiniteBatches(Protocol):
    """Batches of arrays, of which a dataset can be made, too."""

    @property
    def element_spec(self) -> Mapping[str, tf.TensorSpec]:
        """The specification of the arrays."""

    def arrays(self) -> Iterator[Mapping[str, np.ndarray]]:
        """Yields the batches, for one device."""

    def dataset(
        self, *, first_batch: int, part: int, num_parts: int
    ) -> tf.data.Dataset:
        """Makes their dataset, see MakeBatches."""


def distribute(
    strategy: tf.distribute.Strategy,
    make_batches: MakeBatches,
    *,
    first_batch: int = 0,
    num_accumulation_steps: int = 1,
    is_endless: bool = False,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns per-replica features [accumulation steps, micro-batch, ...].

    One device takes the batches from where they are made. A distributed
    iterator would hand them over through threads of its own; on a GPU it would
    also wait for the end of each step before it fetches the next batch.

    Set `is_endless` for endless batches: then workers need not find out at
    every step whether one has reached the end, and shapes stay static.
    """

    # Nothing in it is Python that would have to be made a graph.
    @tf.autograph.experimental.do_not_convert
    def make_part(context: tf.distribute.InputContext) -> tf.data.Dataset:
        parts = context.num_input_pipelines
        replicas = context.num_replicas_in_sync // parts
        batches = make_batches(
            first_batch=first_batch,
            part=context.input_pipeline_id,
            num_parts=parts,
        )

        def cut(features):
            return {
                name: _cut(x, replicas, num_accumulation_steps)
                for name, x in features.items()
            }

        batches = batches.map(cut).unbatch().prefetch(2 * replicas)
        if is_endless:
            endless = tf.data.INFINITE_CARDINALITY
            batches = batches.apply(
                tf.data.experimental.assert_cardinality(endless)
            )
        return batches.with_options(_options())

    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return make_part(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(make_part)


def _options() -> tf.data.Options:
    """Returns options without autotuning.

    The end of an iterator awaits the thread that tunes it, which at times
    sleeps on until its next turn, after 10 ms, 20 ms, 40 ms, ..., one minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def check_batch_size(
    flag: str,
    batch_size: int,
    strategy: tf.distribute.Strategy,
    num_accumulation_steps: int = 1,
) -> None:
    """Refuses a global batch that cannot be divided equally."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * num_accumulation_steps):
        raise errors.InputError(
            f"--{flag}={batch_size} does not divide into {replicas} "
            f"replica(s) x {num_accumulation_steps} accumulation step(s)"
        )


def _cut(x: tf.Tensor, replicas: int, accumulation: int) -> tf.Tensor:
    micro_batch = x.shape[0] // (replicas * accumulation)
    first = [replicas, accumulation, micro_batch]
    # Lengths and numbers of windows vary from batch to batch.
    divided = tf.reshape(x, tf.concat([first, tf.shape(x)[1:]], 0))
    return tf.ensure_shape(divided, [*first, *x.shape[1:]])
