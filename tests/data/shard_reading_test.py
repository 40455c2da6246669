"""Proves that shards are counted and read together, and damage is named.

pytest tests/data/shard_reading_test.py
"""

import tensorflow as tf

from data import records


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
        records.write(path, [[example(number + i) for i in range(size)]])
        paths.append(path)
    return paths


def test_many_shards_are_counted_in_their_order(tmp_path):
    sizes = [draw * 37 % 50 for draw in range(40)] + [2100]
    assert 0 in sizes
    assert records.counts(write(tmp_path, sizes)) == sizes


def test_the_first_record_of_each_shard_is_its_own(tmp_path):
    found = records.first_examples(write(tmp_path, [3, 1, 2] * 10))
    assert found == [{"number": [n], "empty": []} for n in range(30)]
