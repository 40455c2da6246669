"""Shards to batches: shuffled and endless for training, or in order.

The order of training is a pure function of the seed and the shards' numbers of
records. It can be entered at any batch without replay: a start reads at most
the earlier records of one group of shards, which is short if a shard has about
a million records.

    epoch    all shards, permuted by (seed, epoch), in groups of 16
    group    its shards are read together, a chunk of 2,048 records of each
             in turn
    window   the records of 16 successive chunks, permuted by (seed, epoch,
             group, window); held in memory
    batch    the next B records of the stream of windows, groups, epochs

Records are permuted as bytes. A worker parses only its own rows of a batch.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import manifest, permutations, records, workers
from data import schema as schemas
from foundation import errors

_GROUP = 16
_CHUNK = 2048
_WINDOW = 16
_FOREVER = 2**62
# Fixed, because tf.data tunes it badly; see training.feed.
_PARSERS = max(2, min(16, workers.cores()))
_AHEAD = 4  # Batches.


def train_batches(
    shards: Sequence[str],
    schema: schemas.Schema,
    *,
    batch_size: int,
    seed: int,
    first_batch: int = 0,
    part: int = 0,
    num_parts: int = 1,
    counts: Sequence[int] | None = None,
) -> tf.data.Dataset:
    """Returns endless shuffled batches, every record once per epoch.

    Args:
        shards: the files, in a fixed order.
        schema: schema of the records.
        batch_size: records of the global batch.
        seed: keys every permutation.
        first_batch: number of batches to skip. Of these, only the records of
            the first batch's group are read, and none is parsed.
        part: number of the part to return, of num_parts equal parts of every
          batch.
        num_parts: number of parts, one for each worker.
        counts: records per shard; by default the manifest's.

    Returns:
        A dict of features [batch_size / num_parts, ...], static shapes.
    """
    counts = _counted(shards, counts)
    rows = rows_of_part(batch_size, part, num_parts)
    paths = tf.constant([*shards, ""])
    sizes = tf.constant([*counts, 0], tf.int64)

    def read(shard, start):
        dataset = _open(paths[shard]).skip(start)
        return _exactly(sizes[shard] - start, dataset)

    return (
        _shuffled(counts, seed, first_batch * batch_size, read)
        .rebatch(batch_size, drop_remainder=True)
        # In order, or the batch of a step would depend on the machine's load.
        .map(
            lambda batch: records.parse(batch[rows], schema),
            num_parallel_calls=_PARSERS,
            deterministic=True,
        )
        .prefetch(_AHEAD)
    )


def eval_batches(
    shards: Sequence[str],
    schema: schemas.Schema,
    *,
    batch_size: int,
    part: int = 0,
    num_parts: int = 1,
) -> tf.data.Dataset:
    """Returns every record once, in order.

    The last batch is filled up with copies, for which `is_real_example` int32
    [B] is 0; elsewhere it is 1. Arguments as for train_batches.
    """
    rows = rows_of_part(batch_size, part, num_parts)

    def parse(batch):
        real = tf.size(batch)
        filling = tf.repeat(batch[:1], batch_size - real)
        batch = tf.ensure_shape(tf.concat([batch, filling], 0), [batch_size])
        features = records.parse(batch[rows], schema)
        is_real = tf.cast(tf.range(batch_size) < real, tf.int32)
        return {**features, "is_real_example": is_real[rows]}

    return (
        tf.data.Dataset.from_tensor_slices(list(shards))
        .flat_map(_open)
        .batch(batch_size)
        .map(parse, num_parallel_calls=_PARSERS, deterministic=True)
        .prefetch(_AHEAD)
    )


def locate(
    shards: Sequence[str],
    *,
    batch_size: int,
    seed: int,
    batch: int,
    counts: Sequence[int] | None = None,
) -> list[tuple[str, int]]:
    """Returns the records of a batch as (path, number counted from 0)."""
    counts = _counted(shards, counts)

    def read(shard, start):
        last = tf.gather(tf.constant([*counts, 0], tf.int64), shard)
        numbers = tf.data.Dataset.range(start, last)
        return numbers.map(lambda n: tf.stack([shard, n])).batch(_CHUNK)

    order = _shuffled(counts, seed, batch * batch_size, read)
    (rows,) = order.rebatch(batch_size).take(1).as_numpy_iterator()
    return [(shards[shard], number) for shard, number in rows.tolist()]


def check_records(
    shards: Sequence[str],
    schema: schemas.Schema,
    counts: Sequence[int] | None = None,
) -> None:
    """Reads all records, to name the file after TensorFlow failed in a run.

    Args:
        shards: the files.
        schema: schema of the records.
        counts: records per shard; by default the manifest's.

    Raises:
        InputError: names the first damaged record, or the first shard with
            another number of records.
    """
    for path, count in zip(shards, _counted(shards, counts), strict=True):
        all_records, first = records.read(path), 1
        while block := list(itertools.islice(all_records, _CHUNK)):
            try:
                records.parse(tf.constant(block), schema)
            except records.FAILURES:
                for number, record in enumerate(block, first):
                    _check_record(path, number, record, schema)
            first += len(block)
        if first - 1 != count:
            raise errors.InputError(
                f"{path}: {first - 1} records, its manifest says {count}"
            )


def _check_record(path, number, record, schema) -> None:
    try:
        records.parse(tf.constant([record]), schema)
    except records.FAILURES as error:
        where = f"{path}: record {number}"
        features = records.features_of(record)
        if features is not None:
            records.check_features(where, features, schema)
        raise errors.InputError(f"{where}: {errors.reason(error)}") from None


class _Start(NamedTuple):
    """A position in the order."""

    epoch: int
    group: int
    window: int
    record: int


def _counted(shards, counts) -> list[int]:
    if not shards:
        raise errors.InputError("--input_file: no shards")
    counts = manifest.counts(list(shards)) if counts is None else list(counts)
    if not sum(counts):
        raise errors.InputError(f"{shards[0]}: no records in any shard")
    return counts


def rows_of_part(batch_size: int, part: int, num_parts: int) -> slice:
    """Returns the rows of one of `num_parts` equal parts of a batch."""
    if batch_size % num_parts:
        raise errors.InputError(
            f"batch size {batch_size} does not divide by {num_parts} workers"
        )
    rows = batch_size // num_parts
    return slice(part * rows, (part + 1) * rows)


def _open(path: tf.Tensor) -> tf.data.Dataset:
    is_gzip = tf.strings.regex_full_match(path, r".*\.gz")
    compression = tf.where(is_gzip, "GZIP", "")
    return tf.data.TFRecordDataset(path, compression)


def _exactly(count: tf.Tensor, shard: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the chunks of a shard that must have `count` records.

    Every chunk must be full, and the last one must have what is left. More
    records after a full last chunk would have to be read, and are not found.
    """

    def check(index, chunk):
        expected = tf.minimum(count - index * _CHUNK, _CHUNK)
        size = tf.size(chunk, tf.int64)
        check = tf.debugging.Assert(
            tf.equal(size, expected),
            ["a shard has another number of records than", count],
        )
        with tf.control_dependencies([check]):
            return tf.identity(chunk)

    # If the shard ends early, this chunk comes instead of a missing one.
    end = tf.data.Dataset.from_tensors(tf.constant([], tf.string))
    return shard.batch(_CHUNK).concatenate(end).enumerate().map(check)


def _shuffled(
    counts: Sequence[int],
    seed: int,
    first: int,
    read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
) -> tf.data.Dataset:
    """Returns windows [n, ...] of the endless order, from record `first` on.

    `read` maps (shard, number of its first record) to chunks of its records.
    """
    start = _find(counts, seed, first)

    def groups_of(epoch):
        groups = _groups(len(counts), seed, epoch)
        numbers = tf.range(tf.shape(groups, tf.int64)[0])
        epochs = tf.fill(tf.shape(numbers), epoch)
        return tf.data.Dataset.from_tensor_slices((epochs, numbers, groups))

    def windows_of(index, item):
        epoch, group, shards = item
        is_first = tf.equal(index, 0)
        first_window = tf.cast(is_first, tf.int64) * start.window
        windows = _windows(counts, shards, first_window, read)

        def permute(number, ragged):
            rows = ragged.merge_dims(0, 1)
            size = tf.shape(rows, tf.int64)[0]
            window = first_window + number
            keys = _keys(tf.range(size), seed, epoch, group, window)
            rows = tf.gather(rows, tf.argsort(keys, stable=True))
            is_entered = is_first & tf.equal(number, 0)
            return rows[tf.cast(is_entered, tf.int64) * start.record :]

        return windows.enumerate().map(permute)

    return (
        tf.data.Dataset.range(start.epoch, _FOREVER)
        .flat_map(groups_of)
        .skip(start.group)
        .enumerate()
        .flat_map(windows_of)
        # The next window is read while this one is used.
        .prefetch(1)
    )


def _windows(counts, shards, first_window, read) -> tf.data.Dataset:
    """Returns the windows of one group in order: ragged [chunks, records].

    Ragged, because a shard's last chunk is short.
    """
    sizes = tf.constant([*counts, 0], tf.int64)
    _, choices = _chunks(tf.gather(sizes, shards))
    first = first_window * _WINDOW
    done = tf.math.bincount(
        tf.cast(choices[:first], tf.int32),
        minlength=_GROUP,
        maxlength=_GROUP,
        dtype=tf.int64,
    )
    sources = [
        read(shards[i], done[i] * _CHUNK)
        for i in range(min(_GROUP, len(counts)))
    ]
    return tf.data.Dataset.choose_from_datasets(
        sources,
        tf.data.Dataset.from_tensor_slices(choices[first:]),
        stop_on_empty_dataset=False,
    ).ragged_batch(_WINDOW)


def _find(counts: Sequence[int], seed: int, first: int) -> _Start:
    """Finds the record at position `first` of the endless order."""
    epoch, left = divmod(first, sum(counts))
    groups = _groups(len(counts), seed, tf.constant(epoch, tf.int64)).numpy()
    sizes = np.asarray([*counts, 0])[groups]
    ends = np.cumsum(sizes.sum(axis=1))
    group = int(np.searchsorted(ends, left, side="right"))
    left -= int(ends[group] - sizes[group].sum())
    turns, shards = map(np.asarray, _chunks(tf.constant(sizes[group])))
    # The size of every chunk: full, but for the last of each shard.
    lengths = np.minimum(sizes[group][shards] - turns * _CHUNK, _CHUNK)
    windows = math.ceil(len(lengths) / _WINDOW)
    totals = np.add.reduceat(lengths, np.arange(windows) * _WINDOW)
    ends = np.cumsum(totals)
    window = int(np.searchsorted(ends, left, side="right"))
    return _Start(
        epoch, group, window, left - int(ends[window] - totals[window])
    )


def _groups(number: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """Returns int64 [groups, 16] permuted shards.

    The last group is filled up with `number`, which denotes an empty shard.
    """
    order = tf.argsort(
        _keys(tf.range(number, dtype=tf.int64), seed, epoch), stable=True
    )
    filling = -number % _GROUP
    padded = tf.pad(order, [[0, filling]], constant_values=number)
    return tf.cast(tf.reshape(padded, [-1, _GROUP]), tf.int64)


def _chunks(sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the chunks in reading order.

    Each turn reads one chunk of every shard that has one left.

    Returns:
      The turn of each chunk, which is its number within its shard, and the
      shard: int64 [chunks] each.
    """
    number = -(-sizes // _CHUNK)
    turns = tf.range(tf.reduce_max(number))
    return tuple(tf.unstack(tf.where(number > turns[:, None]), axis=1))


def _keys(numbers: tf.Tensor, *words: int | tf.Tensor) -> tf.Tensor:
    """Hashes every number with all words, see permutations: int64 [N]."""
    unsigned = [tf.bitcast(tf.cast(x, tf.int64), tf.uint64) for x in words]
    keys = permutations.keys(tf.cast(numbers, tf.uint64), *unsigned)
    return tf.bitcast(keys, tf.int64)
