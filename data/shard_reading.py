"""Reads shards as they lie there: records, the first of each, how many.

Starting a pipeline takes TensorFlow 30 ms, so all shards go through one; only
where something is wrong with them are they read one by one, to name it.
"""

import collections
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

import errors
from data import records

_TOGETHER = 1024  # Records that are counted at once.


def read(path: str) -> Iterator[bytes]:
    """Yields the records of one shard; a damaged one ends with one line."""
    dataset = tf.data.TFRecordDataset(path, records.compression_type(path))
    number = 0
    try:
        for record in dataset.prefetch(64).as_numpy_iterator():
            number += 1
            yield record
    except tf.errors.NotFoundError:
        raise errors.InputError(f"{path}: no such file") from None
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise errors.InputError(
            f"{path}: record {number + 1} is cut off or damaged "
            f"({type(error).__name__})"
        ) from None


def counts(paths: Sequence[str]) -> list[int]:
    """Counts the records of each shard, checking each one's checksum.

    Raises:
      InputError: naming the first shard that is damaged or not there.
    """

    def sizes(number, shard):
        groups = shard.batch(_TOGETHER)
        return groups.map(lambda group: (number, tf.size(group)))

    result = np.zeros(len(paths), np.int64)
    for number, size in _of_all(paths, sizes):
        result[number] += size
    return result.tolist()


def first_examples(paths: Sequence[str]) -> list[dict[str, list]]:
    """Returns the first record of each shard, as a feature's name -> values.

    Raises:
      InputError: naming a shard that has none, or none that can be read.
    """

    def first(number, shard):
        return shard.take(1).map(lambda record: (number, record))

    found = dict(_of_all(paths, first))
    result = []
    for number, path in enumerate(paths):
        if number not in found:
            raise errors.InputError(f"{path}: holds no records")
        result.append(_values(path, found[number]))
    return result


def _of_all(
    paths: Sequence[str],
    choose: Callable[[tf.Tensor, tf.data.Dataset], tf.data.Dataset],
) -> Iterator[tuple]:
    """Yields what is chosen of (number of a shard, its records), unordered."""
    if not paths:
        return
    kinds = [records.compression_type(path) for path in paths]
    names = tf.data.Dataset.from_tensor_slices((list(paths), kinds))
    shards = names.enumerate()
    chosen = shards.interleave(
        lambda number, name: choose(number, tf.data.TFRecordDataset(*name)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    try:
        yield from chosen.as_numpy_iterator()
    except tf.errors.OpError:
        if len(paths) > 1:
            for path in paths:
                collections.deque(_of_all([path], choose), maxlen=0)
        else:
            collections.deque(read(*paths), maxlen=0)
        raise


def _values(path: str, record: bytes) -> dict[str, list]:
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except Exception:  # protobuf's DecodeError, by any implementation.
        raise errors.InputError(
            f"{path}: record 1 is not a tf.train.Example"
        ) from None
    result = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        result[name] = list(getattr(feature, kind).value) if kind else []
    return result
