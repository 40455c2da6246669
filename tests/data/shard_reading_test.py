"""Proves that shards are counted and read together, and damage is named.

pytest tests/data/shard_reading_test.py
"""

import pytest
import tensorflow as tf

from data import records
from foundation import errors


def example(number: int) -> bytes:
    made = tf.train.Example()
    made.features.feature["number"].int64_list.value.append(number)
    made.features.feature["empty"].SetInParent()
    return made.SerializeToString()


def write(folder, sizes: list[int]) -> list[str]:
    """Writes shards, every other one compressed; record i of shard n is n+i."""
    paths = []
    for number, size in enumerate(sizes):
        path = str(folder / f"{number}.tfrecord{'.gz' if number % 2 else ''}")
        with records.ShardWriter(path) as writer:
            writer.write([example(number + i) for i in range(size)])
        paths.append(path)
    return paths


def test_many_shards_are_counted_in_their_order(tmp_path):
    sizes = [draw * 37 % 50 for draw in range(40)] + [2100]
    assert 0 in sizes
    assert records.counts(write(tmp_path, sizes)) == sizes


def test_the_first_record_of_each_shard_is_its_own(tmp_path):
    found = records.first_examples(write(tmp_path, [3, 1, 2] * 10))
    assert found == [{"number": [n], "empty": []} for n in range(30)]


def test_no_shards_have_nothing():
    assert records.counts([]) == []
    assert records.first_examples([]) == []


@pytest.mark.parametrize("index", [0, 1])
def test_a_truncated_shard_is_named_with_its_record(tmp_path, index):
    paths = write(tmp_path, [30] * 4)
    damaged = tmp_path / paths[index]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(errors.InputError) as caught:
        records.counts(paths)
    assert str(caught.value).startswith(f"{damaged}: record ")
    assert "is truncated or damaged" in str(caught.value)


def test_a_damaged_record_is_named_by_number(tmp_path):
    paths = write(tmp_path, [3] * 3)
    damaged = tmp_path / paths[2]
    data = bytearray(damaged.read_bytes())
    data[16 + len(example(2)) + 20] ^= 1
    damaged.write_bytes(data)
    assert len(records.first_examples(paths)) == 3
    with pytest.raises(
        errors.InputError, match="2.tfrecord: record 2 is truncated"
    ):
        records.counts(paths)


def test_a_shard_without_a_record_is_named(tmp_path):
    paths = write(tmp_path, [2, 2, 0])
    with pytest.raises(errors.InputError, match="2.tfrecord: holds no records"):
        records.first_examples(paths)
    paths[2] = str(tmp_path / "b.tfrecord")
    with pytest.raises(errors.InputError, match="b.tfrecord: no such file"):
        records.first_examples(paths)
    with pytest.raises(errors.InputError, match="b.tfrecord: no such file"):
        records.counts(paths)
    with records.ShardWriter(paths[2]) as writer:
        writer.write([b"\xff\xff not an example"])
    with pytest.raises(errors.InputError, match="record 1 is not a tf.train"):
        records.first_examples(paths)
