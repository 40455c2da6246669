"""Proves that the training order is a permutation that can be entered anywhere.

pytest tests/data/pipelines_test.py
"""

import itertools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from data import pipelines, records, schema
from foundation import errors

SCHEMA = schema.pretraining(8, 2)
COUNTS = (5, 3, 0, 17, 1)  # One shard is empty, one (index 3) is compressed.
TOTAL = sum(COUNTS)


def make_windows_small(patch):
    patch.setattr(pipelines, "_GROUP", 2)
    patch.setattr(pipelines, "_CHUNK", 3)
    patch.setattr(pipelines, "_WINDOW", 2)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Makes groups, chunks and windows small enough to end in mid-shard."""
    make_windows_small(monkeypatch)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


@pytest.fixture(scope="module")
def whole(shards):
    """The first batches of a run that nothing interrupts."""
    with pytest.MonkeyPatch.context() as patch:
        make_windows_small(patch)
        return numbers(shards, take=3 * TOTAL // 4 + 2)


def write_shards(directory, counts):
    """Writes records whose first id is their number over all shards."""
    paths, number = [], 0
    for index, count in enumerate(counts):
        suffix = ".gz" if index == 3 else ""
        paths.append(str(directory / f"{index}.tfrecord{suffix}"))
        ids = np.zeros([count, 8], np.int64)
        ids[:, 0] = np.arange(number, number + count)
        number += count
        zeros = np.zeros([count, 2], np.int64)
        columns = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "masked_lm_positions": zeros,
            "masked_lm_ids": zeros,
            "masked_lm_weights": zeros.astype(np.float32),
            "next_sentence_labels": zeros[:, :1],
        }
        encoded = records.encode(SCHEMA, columns) if count else []
        records.write(paths[-1], [encoded])
    return paths


def numbers(shards, *, first=0, take=None, batch_size=4, seed=1, **kwargs):
    batches = pipelines.train_batches(
        shards,
        SCHEMA,
        batch_size=batch_size,
        seed=seed,
        first_batch=first,
        **kwargs,
    )
    return [b["input_ids"][:, 0].numpy().tolist() for b in batches.take(take)]


def test_any_start_enters_permutations_of_all_records():
    @hypothesis.settings(
        max_examples=100, derandomize=True, deadline=None, database=None
    )
    @hypothesis.given(
        counts=strategies.lists(
            strategies.integers(0, 9), min_size=1, max_size=7
        ).filter(any),
        batch_size=strategies.integers(1, 9),
        seed=strategies.integers(0, 2**31 - 1),
        first=strategies.integers(0, 10**12),
    )
    def check(counts, batch_size, seed, first):
        shards = [str(number) for number in range(len(counts))]
        size = sum(counts)
        skipped = -first * batch_size % size  # Until an epoch begins.
        stream = []
        for batch in itertools.count(first):
            # Each batch is a start of its own.
            stream += pipelines.locate(
                shards,
                batch_size=batch_size,
                seed=seed,
                batch=batch,
                counts=counts,
            )
            if len(stream) >= skipped + 2 * size:
                break
        for begin in (skipped, skipped + size):
            assert sorted(stream[begin : begin + size]) == [
                (shard, number)
                for shard, count in zip(shards, counts, strict=True)
                for number in range(count)
            ]

    check()


def test_the_order_depends_on_the_seed_and_on_nothing_else(shards, whole):
    assert numbers(shards, take=20) == whole[:20]
    assert numbers(shards, take=20, seed=2) != whole[:20]


def test_the_order_is_pinned(shards):
    """A change of these numbers breaks the resume of every running job."""
    assert numbers(shards, take=3, batch_size=9) == GOLDEN


def test_order_mixes_shards_and_distant_records(tmp_path, monkeypatch):
    monkeypatch.undo()
    shards = write_shards(tmp_path, [100] * 10)
    (order,) = numbers(shards, take=1, batch_size=1000)
    assert sorted(order) == list(range(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1
    steps = np.abs(np.diff(order))
    assert 280 < steps.mean() < 390  # Of a random permutation: 333.


def test_workers_take_their_rows_of_the_same_batch(shards, whole, parts=2):
    cut = [
        numbers(shards, take=9, part=i, num_parts=parts) for i in range(parts)
    ]
    together = [list(itertools.chain(*rows)) for rows in zip(*cut, strict=True)]
    assert together == whole[:9]


def test_locate_names_the_records_of_a_batch(shards, whole):
    starts = dict(zip(shards, np.cumsum((0, *COUNTS)), strict=False))
    for batch in (3, 11):
        located = pipelines.locate(shards, batch_size=4, seed=1, batch=batch)
        found = [starts[path] + number for path, number in located]
        assert found == whole[batch]


def test_eval_batches_keep_order_and_fill_up_the_last_batch(shards):
    seen, real = [], []
    for batch in pipelines.eval_batches(shards, SCHEMA, batch_size=8):
        assert batch["input_ids"].shape == (8, 8)
        seen += batch["input_ids"][:, 0].numpy().tolist()
        real += batch["is_real_example"].numpy().tolist()
    assert seen[:TOTAL] == list(range(TOTAL))
    assert real == [1] * TOTAL + [0] * (len(real) - TOTAL)
    assert len(real) == 32


def test_empty_shards_are_one_line(tmp_path):
    with pytest.raises(errors.InputError, match="no records in any shard"):
        numbers(write_shards(tmp_path, [0]), take=1)


def test_a_damaged_record_is_named(tmp_path):
    shards = write_shards(tmp_path, COUNTS)
    path = tmp_path / "0.tfrecord"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(tf.errors.InvalidArgumentError):
        numbers(shards, take=7, counts=COUNTS)
    with pytest.raises(errors.InputError, match=r"0\.tfrecord: record 3"):
        pipelines.check_records(shards, SCHEMA)


def with_feature(record, name, **values):
    example = tf.train.Example.FromString(record)
    feature = example.features.feature[name]
    feature.Clear()
    for kind, numbers_of_it in values.items():
        getattr(feature, kind).value.extend(numbers_of_it)
    return example.SerializeToString()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda x: with_feature(x, "masked_lm_weights", int64_list=[0, 1]),
            "feature masked_lm_weights holds int64 instead of float32",
        ),
        (
            lambda x: with_feature(x, "masked_lm_ids", int64_list=[1]),
            "feature masked_lm_ids has 1 values instead of 2",
        ),
        (
            lambda x: with_feature(x, "next_sentence_labels"),
            "feature next_sentence_labels has 0 values instead of 1",
        ),
        (
            lambda x: b"\xff\xc1",
            r"Could not parse example input, value: '\xff\xc1'",
        ),
    ],
)
def test_a_record_that_does_not_fit_is_named_in_one_line(
    tmp_path, change, line
):
    (path,) = write_shards(tmp_path, [3])
    found = list(records.read(path))
    records.write(path, [[*found[:2], change(found[2])]])
    with pytest.raises(errors.InputError) as raised:
        pipelines.check_records([path], SCHEMA, [3])
    assert str(raised.value) == f"{path}: record 3: {line}"


@pytest.mark.parametrize("count", [4, 6, 1, 9])
def test_another_number_of_records_is_found(shards, count):
    counts = (count, *COUNTS[1:])
    with pytest.raises(tf.errors.InvalidArgumentError, match="number of rec"):
        numbers(shards, take=7, counts=counts)
    with pytest.raises(errors.InputError, match=rf"0\.tf.*5 .*says {count}"):
        pipelines.check_records(shards, SCHEMA, counts)


GOLDEN = [
    [5, 6, 25, 7, 3, 4, 1, 2, 0],
    [12, 11, 8, 13, 10, 9, 14, 17, 15],
    [18, 19, 16, 21, 20, 23, 22, 24, 0],
]
