"""Proves that records are protobuf's bytes and read back as written.

pytest tests/data/records_test.py
"""

import bz2
import gzip
import zlib

import numpy as np
import pytest
import tensorflow as tf

from data import records, schema
from foundation import errors

SCHEMA = schema.pretraining(16, 4)


def columns(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random columns whose integers take one, two and three bytes."""
    generator = np.random.default_rng(seed)
    result = {}
    for feature in SCHEMA.features:
        shape = (count, *feature.shape)
        if feature.dtype == "float32":
            result[feature.name] = generator.random(shape, np.float32)
        else:
            bits = generator.integers(0, 18, shape)
            result[feature.name] = (
                generator.integers(0, 1 << 18, shape) >> bits
            ).astype(np.int32)
    return result


def by_protobuf(kind: schema.Schema, rows: dict) -> list[bytes]:
    """The same records through protobuf's own objects."""
    result = []
    for row in range(len(rows[kind.names[0]])):
        example = tf.train.Example()
        for feature in kind.features:
            values = rows[feature.name][row].ravel().tolist()
            made = example.features.feature[feature.name]
            if feature.dtype == "float32":
                made.float_list.value.extend(values)
            else:
                made.int64_list.value.extend(values)
        result.append(example.SerializeToString(deterministic=True))
    return result


def test_encoding_gives_the_bytes_of_protobuf():
    rows = columns(200)
    assert records.encode(SCHEMA, rows) == by_protobuf(SCHEMA, rows)


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 16383, 16384, 2**31 - 1, -1, -(2**63), 2**63 - 1]
)
def test_every_size_of_integer_is_encoded_as_protobuf_does(value):
    kind = schema.Schema("one", (schema.Feature("x", (3,)),))
    rows = {"x": np.array([[0, value, 5], [value, 200, 1]], np.int64)}
    assert records.encode(kind, rows) == by_protobuf(kind, rows)


def test_batches_larger_than_the_inner_chunk_keep_their_order(monkeypatch):
    rows = columns(50)
    whole = records.encode(SCHEMA, rows)
    monkeypatch.setattr(records, "_CHUNK_BYTES", 2000)
    assert records.encode(SCHEMA, rows) == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop("input_mask"),
        lambda rows: rows.update(extra=rows["input_ids"]),
        lambda rows: rows.update(input_ids=rows["input_ids"][:, :-1]),
        lambda rows: rows.update(input_ids=rows["input_ids"][:-1]),
        lambda rows: rows.update(
            masked_lm_weights=rows["masked_lm_ids"].astype(np.int32)
        ),
    ],
    ids=["missing", "unknown", "too short", "too few rows", "wrong type"],
)
def test_the_writer_refuses_what_the_schema_does_not_say(change):
    rows = columns(3)
    change(rows)
    with pytest.raises(ValueError):
        records.encode(SCHEMA, rows)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_shard_reads_back_as_written(tmp_path, suffix):
    path = str(tmp_path / f"a.tfrecord{suffix}")
    encoded = records.encode(SCHEMA, columns(30))
    assert records.write(path, [encoded[:11], encoded[11:]]) == 30
    assert list(records.read(path)) == encoded
    assert [file.name for file in tmp_path.iterdir()] == [f"a.tfrecord{suffix}"]


def test_model_garden_names_are_read():
    kind = schema.Schema(
        "garden",
        tuple(
            schema.Feature(
                schema.ALIASES.get(feature.name, feature.name),
                feature.shape,
                feature.dtype,
            )
            for feature in SCHEMA.features
        ),
    )
    rows = columns(4)
    renamed = {
        schema.ALIASES.get(name, name): value for name, value in rows.items()
    }
    parsed = records.parse(tf.constant(records.encode(kind, renamed)), SCHEMA)
    assert set(parsed) == set(rows)
    for name, value in parsed.items():
        np.testing.assert_array_equal(value, rows[name])


def test_records_with_neither_name_are_refused():
    kind = schema.Schema("other", SCHEMA.features[1:])
    rows = columns(2)
    del rows["input_ids"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_word_ids"):
        records.parse(tf.constant(records.encode(kind, rows)), SCHEMA)


def test_compressed_shards_may_be_joined_from_parts(tmp_path):
    """Parts of one shard are compressed apart and then put end to end."""
    path = tmp_path / "a.tfrecord.gz"
    encoded = records.encode(SCHEMA, columns(8))
    records.write(str(path), [encoded])
    path.write_bytes(path.read_bytes() * 2)
    assert list(records.read(str(path))) == encoded * 2
    assert gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    "pack",
    [
        *(gzip.compress, zlib.compress, bz2.compress),
        lambda plain: b"A sentence of text.\n" * 9,
    ],
)
def test_what_is_no_shard_is_named_with_the_way_out(tmp_path, pack):
    path = tmp_path / "a.tfrecord"
    encoded = records.encode(SCHEMA, columns(8))
    records.write(str(path), [encoded])
    path.write_bytes(pack(path.read_bytes()))
    for read in (records.counts, records.first_examples):
        with pytest.raises(errors.InputError) as caught:
            read([str(path)])
        assert str(caught.value).startswith(f"{path}: record 1 is truncated")
        assert "no TFRecords" in str(caught.value)
        assert "ends in .gz" in str(caught.value)
    if pack is gzip.compress:
        path = path.rename(f"{path}.gz")
        assert list(records.read(str(path))) == encoded
