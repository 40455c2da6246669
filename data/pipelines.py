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

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from data import manifest, permutations, records, workers
from data import schema as schemas
from foundation import errors

_GROUP = 16
_CHUNK = 2048
_WINDOW = 16
# Fixed, because tf.data tunes it badly; see training.feed.
_permutation = functools.partial(permutations.permutation, dtype=np.int64)
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
    rows = permutations.rows_of_part(batch_size, part, num_parts)

    def read(shard: int, first: int) -> Iterator[np.ndarray]:
        path = shards[shard]
        stored = tf.data.TFRecordDataset(path, records.compression_type(path))
        chunks = stored.skip(first).batch(_CHUNK).prefetch(1)
        return chunks.as_numpy_iterator()

    return (
        tf.data.Dataset.from_generator(
            lambda: _windows(counts, seed, first_batch * batch_size, read),
            output_signature=tf.TensorSpec([None], tf.string),
        )
        # The next window is read while this one is used.
        .prefetch(1)
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
    rows = permutations.rows_of_part(batch_size, part, num_parts)
    kinds = [records.compression_type(path) for path in shards]

    def parse(batch):
        real = tf.size(batch)
        filling = tf.repeat(batch[:1], batch_size - real)
        batch = tf.ensure_shape(tf.concat([batch, filling], 0), [batch_size])
        features = records.parse(batch[rows], schema)
        is_real = tf.cast(tf.range(batch_size) < real, tf.int32)
        return {**features, "is_real_example": is_real[rows]}

    return (
        tf.data.Dataset.from_tensor_slices((list(shards), kinds))
        .flat_map(tf.data.TFRecordDataset)
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

    def read(shard: int, first: int) -> Iterator[np.ndarray]:
        for begin in range(first, counts[shard], _CHUNK):
            end = min(begin + _CHUNK, counts[shard])
            numbers = np.arange(begin, end)
            yield np.stack([np.full(len(numbers), shard), numbers], 1)

    rows = itertools.chain.from_iterable(
        _windows(counts, seed, batch * batch_size, read)
    )
    first = itertools.islice(rows, batch_size)
    return [(shards[shard], int(number)) for shard, number in first]


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


def _counted(shards, counts) -> list[int]:
    counts = manifest.counts(list(shards)) if counts is None else list(counts)
    if not sum(counts):
        raise errors.InputError(f"{shards[0]}: no records in any shard")
    return counts


def _windows(
    counts: Sequence[int],
    seed: int,
    first: int,
    read: Callable[[int, int], Iterator[np.ndarray]],
) -> Iterator[np.ndarray]:
    """Yields windows [n, ...] of the endless order, from record `first` on.

    `read` takes a shard and the number of its first record, and returns the
    chunks of its records.
    """
    first_epoch, skipped = divmod(first, sum(counts))
    for epoch in itertools.count(first_epoch):
        order = _permutation(len(counts), seed, epoch)
        for group in range(-(-len(order) // _GROUP)):
            members = order[group * _GROUP : (group + 1) * _GROUP].tolist()
            turns = -(-max(counts[shard] for shard in members) // _CHUNK)
            # Each turn reads one chunk of every shard that has one left.
            chunks = [
                (shard, turn, min(_CHUNK, counts[shard] - turn * _CHUNK))
                for turn in range(turns)
                for shard in members
                if turn * _CHUNK < counts[shard]
            ]
            readers: dict[int, Iterator[np.ndarray]] = {}
            for window in range(-(-len(chunks) // _WINDOW)):
                chosen = chunks[window * _WINDOW : (window + 1) * _WINDOW]
                total = sum(size for _, _, size in chosen)
                if skipped >= total:
                    skipped -= total
                    continue
                for shard, turn, _ in chosen:
                    if shard not in readers:
                        readers[shard] = read(shard, turn * _CHUNK)
                rows = np.concatenate(
                    [_chunk(readers[shard], size) for shard, _, size in chosen]
                )
                order_within = _permutation(total, seed, epoch, group, window)
                yield rows[order_within[skipped:]]
                skipped = 0


def _chunk(reader: Iterator[np.ndarray], size: int) -> np.ndarray:
    """Returns the next chunk, which must have so many records.

    More records after a full last chunk would have to be read, and are not
    found.
    """
    try:
        chunk = next(reader, np.empty(0))
    except records.FAILURES as error:
        # TensorFlow makes an InvalidArgumentError of it, as of a record that
        # does not fit the schema.
        raise ValueError(errors.reason(error)) from None
    if len(chunk) != size:
        raise ValueError("a shard has another number of records than it should")
    return chunk
