"""TFRecord shards: encoding, writing and parsing records.

`encode` builds the bytes of tf.train.Example for a batch with NumPy, about
thirty times as fast as protobuf objects, and byte for byte as protobuf's
deterministic serialization (features sorted by name):

    {"input_ids": int [N, S], ...} -> [b"\\n\\x9b\\x07...", ...]  (N records)

A record is one row of a byte matrix in which every variable-length integer has
the width of the longest; the unused bytes are dropped at the end.
"""

import collections
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

from data import schema as schemas
from foundation import errors

_CHUNK_BYTES = 1 << 21  # The byte matrix fits in the processor's cache.
_TABLE_SIZE = 1 << 16  # Integers below it are looked up, not computed.
_COUNTED_AT_ONCE, _SHARDS_AT_ONCE = 1024, 16
# A message of TensorFlow's with bytes of a record may not be UTF-8.
FAILURES = (tf.errors.OpError, UnicodeDecodeError)
_STORED_TYPES = {int: schemas.INTEGER, float: schemas.FLOAT, bytes: "bytes"}
_LIST_TAG = {schemas.INTEGER: 0x1A, schemas.FLOAT: 0x12}


def encode(
    schema: schemas.Schema, columns: dict[str, np.ndarray]
) -> list[bytes]:
    """Returns N serialized tf.train.Examples.

    Args:
      schema: the features of a record.
      columns: an array [N, *feature.shape] for each feature.
    """
    flat = _checked(schema, columns)
    count = len(next(iter(flat.values())))
    row_bytes = sum(feature.size * 4 for feature in schema.features)
    step = max(1, _CHUNK_BYTES // row_bytes)
    result = []
    for start in range(0, count, step):
        rows = {name: x[start : start + step] for name, x in flat.items()}
        result.extend(_encode_rows(schema, rows))
    return result


def _checked(schema, columns) -> dict[str, np.ndarray]:
    """Returns the columns as [N, size]; they must be those of the schema."""
    if set(columns) != set(schema.names):
        raise ValueError(
            f"{schema.kind}: expected {schema.names}, got {list(columns)}"
        )
    flat = {}
    for feature in schema.features:
        column = np.asarray(columns[feature.name])
        if column.shape[1:] != feature.shape:
            raise ValueError(
                f"{feature.name}: expected [N, {feature.shape}], "
                f"got {column.shape}"
            )
        if (feature.dtype == schemas.FLOAT) != (column.dtype.kind == "f"):
            raise ValueError(
                f"{feature.name}: {feature.dtype}, not {column.dtype}"
            )
        flat[feature.name] = column.reshape(len(column), feature.size)
    return flat


def _encode_rows(schema, rows) -> list[bytes]:
    count = len(next(iter(rows.values())))
    parts, total = [], np.zeros(count, np.int64)
    for feature in sorted(schema.features, key=lambda feature: feature.name):
        entry, size = _map_entry(feature, rows[feature.name])
        parts.extend(entry)
        total += size
    header, size = _prefix(b"\x0a", total)  # Example.features
    parts = [*header, *parts]
    matrix = np.empty((count, sum(x.shape[1] for x, _ in parts)), np.uint8)
    keep = np.ones(matrix.shape, bool)
    column = 0
    for data, used in parts:
        end = column + data.shape[1]
        matrix[:, column:end] = data
        if used is not None:
            keep[:, column:end] = used
        column = end
    stream = np.compress(keep.ravel(), matrix.ravel()).tobytes()
    ends = np.cumsum(total + size).tolist()
    return [stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _map_entry(feature, values):
    """Returns the byte matrices of one map entry and its size in each row."""
    if feature.dtype == schemas.FLOAT:
        packed = np.ascontiguousarray(values, "<f4").view(np.uint8)
        parts = [(packed, None)]
    else:
        parts = [_varints(values)]
    size = _size(parts[0], len(values))
    key = feature.name.encode()
    for tag in (
        b"\x0a",  # Int64List.value or FloatList.value, packed
        bytes([_LIST_TAG[feature.dtype]]),  # Feature.int64_list or .float_list
        b"\x0a" + bytes([len(key)]) + key + b"\x12",  # the key; the value
        b"\x0a",  # Features.feature, a map entry
    ):
        prefix, added = _prefix(tag, size)
        parts = [*prefix, *parts]
        size = size + added
    return parts, size


def _prefix(tag: bytes, size):
    """Returns byte matrices of a tag and a length, and their size."""
    if len(size) and size.min() == size.max():
        length, used = _varints(size[:1, None])
        if used is not None:
            length = length[used][None]
        constant = np.frombuffer(tag + length.tobytes(), np.uint8)[None]
        return [(constant, None)], constant.shape[1]
    length = _varints(size[:, None])
    constant = np.frombuffer(tag, np.uint8)[None]
    return [(constant, None), length], _size(length, len(size)) + len(tag)


def _size(part, count) -> np.ndarray:
    data, used = part
    if used is None:
        return np.full(count, data.shape[1], np.int64)
    return used.view(np.uint8).sum(axis=1, dtype=np.int64)


def _varints(values):
    """Returns base-128 bytes [N, M * width] and which of them are used."""
    rows = len(values)
    smallest, largest = values.min(initial=0), values.max(initial=0)
    if smallest < 0:
        data, used = _base_128(values.astype(np.int64).view(np.uint64), 10)
    elif largest < 1 << 7:
        return values.astype(np.uint8), None
    elif largest < _TABLE_SIZE:
        data, used = (table.take(values) for table in _table())
        return (
            data.view(np.uint8).reshape(rows, -1),
            used.view(bool).reshape(rows, -1),
        )
    else:
        width = -(-int(largest).bit_length() // 7)
        data, used = _base_128(values.astype(np.uint64), width)
    return data.reshape(rows, -1), used.reshape(rows, -1)


@functools.cache
def _table():
    """Returns `_base_128` of the small numbers, four bytes in one uint32."""
    data, used = _base_128(np.arange(_TABLE_SIZE, dtype=np.uint64), 4)
    return data.view(np.uint32)[:, 0], used.view(np.uint32)[:, 0]


def _base_128(values, width):
    data = np.empty((*values.shape, width), np.uint8)
    used = np.empty((*values.shape, width), bool)
    rest, more = values, np.ones(values.shape, bool)
    for digit in range(width):
        used[..., digit] = more
        after = rest >> np.uint64(7)
        more = after != 0
        data[..., digit] = (rest & np.uint64(127)) | (more * np.uint64(128))
        rest = after
    return data, used


def compression_type(path: str) -> str:
    """Returns TFRecordDataset's name of it: "GZIP" for .gz, "" otherwise."""
    return "GZIP" if str(path).endswith(".gz") else ""


def write(path: str, batches: Iterable[Sequence[bytes]], name: str = "") -> int:
    """Writes the records of some batches; returns their number.

    Args:
      path: the file.
      batches: the records.
      name: the later name of a temporary file; one that ends in .gz compresses.
    """
    count, kind = 0, compression_type(name or path)
    with tf.io.TFRecordWriter(os.fspath(path), kind) as writer:
        for batch in batches:
            for record in batch:
                writer.write(record)
            count += len(batch)
    return count


@tf.autograph.experimental.do_not_convert  # Converting takes 0.3 s.
def parse(
    serialized: tf.Tensor, schema: schemas.Schema
) -> dict[str, tf.Tensor]:
    """Parses a batch of records inside a graph; int64 becomes int32.

    Args:
      serialized: string [B].
      schema: schema of the records. Model Garden's input_word_ids and
        input_type_ids are accepted as input_ids and segment_ids.

    Returns:
      For each feature int32 or float32 [B, *feature.shape].
    """
    spec = {}
    for feature in schema.features:
        alias, default = schemas.ALIASES.get(feature.name), None
        if alias is not None:
            default = np.full(feature.shape, -1)
        kind = tf.io.FixedLenFeature(
            feature.shape, tf.dtypes.as_dtype(feature.dtype), default
        )
        spec[feature.name] = kind
        if alias is not None:
            spec[alias] = kind
    parsed = tf.io.parse_example(serialized, spec)
    result = {}
    for feature in schema.features:
        value = parsed[feature.name]
        alias = schemas.ALIASES.get(feature.name)
        if alias is not None:  # Where a name is absent, all ids are -1.
            first = (slice(None), *[slice(0, 1)] * len(feature.shape))
            value = tf.where(value[first] < 0, parsed[alias], value)
            check = tf.debugging.assert_non_negative(
                value[first], f"records hold neither {feature.name} nor {alias}"
            )
            value = _after(check, value)
        if feature.dtype == schemas.INTEGER:
            value = tf.cast(value, tf.int32)
        if feature.limit is not None:
            # Negative numbers are large unsigned ones.
            largest = tf.reduce_max(tf.bitcast(value, tf.uint32))
            message = (
                f"the model's {feature.name} are below {feature.limit}, the "
                "records have"
            )
            check = tf.debugging.Assert(
                largest < feature.limit,
                [message, tf.bitcast(largest, tf.int32)],
            )
            value = _after(check, value)
        result[feature.name] = value
    return result


def _after(check: tf.Operation | None, value: tf.Tensor) -> tf.Tensor:
    """Returns the value, which is computed after the check has succeeded.

    Run eagerly, a check has raised its error already and is None.
    """
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(value)


def read(path: str) -> Iterator[bytes]:
    """Yields the records of one shard.

    Raises:
      InputError: names the first record that is damaged.
    """
    dataset = tf.data.TFRecordDataset(path, compression_type(path))
    number = 0
    try:
        for record in dataset.prefetch(64).as_numpy_iterator():
            number += 1
            yield record
    except tf.errors.NotFoundError:
        raise errors.InputError(f"{path}: no such file") from None
    except FAILURES as error:
        what = f"record {number + 1} is truncated or damaged"
        if not number:
            what += (
                ", or the file has no TFRecords, which "
                "create_pretraining_data.py makes of text, or is compressed; "
                "only a name that ends in .gz says so"
            )
        raise errors.InputError(
            f"{path}: {what} ({type(error).__name__})"
        ) from None


def counts(paths: Sequence[str]) -> list[int]:
    """Returns the number of records of each shard; verifies their checksums.

    Raises:
      InputError: names the first shard that is damaged or missing.
    """
    with futures.ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
        return list(pool.map(_count, paths))


def _count(path: str) -> int:
    groups = tf.data.TFRecordDataset(path, compression_type(path))
    groups = groups.batch(_COUNTED_AT_ONCE)
    try:
        return sum(map(len, groups.as_numpy_iterator()))
    except FAILURES:
        collections.deque(read(path), maxlen=0)  # Names the record.
        raise


def first_examples(paths: Sequence[str]) -> list[dict[str, list]]:
    """Returns the first record of each shard: feature name -> values.

    Raises:
      InputError: names a shard without a record, or with a damaged one.
    """
    with futures.ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
        firsts = list(pool.map(lambda path: next(read(path), None), paths))
    result = []
    for path, record in zip(paths, firsts, strict=True):
        if record is None:
            raise errors.InputError(f"{path}: holds no records")
        features = features_of(record)
        if features is None:
            raise errors.InputError(
                f"{path}: record 1 is not a tf.train.Example"
            )
        result.append(features)
    return result


def features_of(record: bytes) -> dict[str, list] | None:
    """Returns feature name -> values; None if it is not a tf.train.Example."""
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except Exception:  # protobuf's DecodeError, by any implementation.
        return None
    result = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        result[name] = list(getattr(feature, kind).value) if kind else []
    return result


def check_features(
    where: str, features: dict[str, list], schema: schemas.Schema
) -> None:
    """Compares a record with the schema.

    Args:
      where: names the file, and the record if it is not the first.
      features: the features, from `features_of`.
      schema: the schema that the features should have.

    Raises:
      InputError: names the first feature of another length or type.
    """
    for feature in schema.features:
        alias = schemas.ALIASES.get(feature.name, feature.name)
        values = features.get(feature.name, features.get(alias)) or []
        if len(values) != feature.size:
            raise errors.InputError(
                f"{where}: feature {feature.name} has {len(values)} values "
                f"instead of {feature.size}"
            )
        stored = {_STORED_TYPES[type(value)] for value in values}
        if stored - {feature.dtype}:
            raise errors.InputError(
                f"{where}: feature {feature.name} holds {stored.pop()} "
                f"instead of {feature.dtype}"
            )
