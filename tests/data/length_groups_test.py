"""Proves that batches keep nothing in memory once nobody reads them.

python -m pytest tests/data/length_groups_test.py
"""

import gc
import weakref

import numpy as np
import pytest

from data import length_groups
from data.features import Features


@pytest.mark.parametrize("count, batch_size", [(33, 32), (100, 32), (777, 8)])
def test_an_epoch_ends_before_its_examples_come_again(count, batch_size):
    """But for the batch that has the end of one and the start of the next."""
    lengths = np.random.default_rng(0).integers(3, 60, count)
    order = length_groups.Order(lengths, batch_size=batch_size, seed=1)
    for epochs in (1, 2, 5):
        batches = -(-epochs * count // batch_size)
        rows = np.concatenate([order.batch(i) for i in range(batches)])
        times = np.bincount(rows, minlength=count)
        assert times.min() == epochs
        assert times.sum() == batches * batch_size
    if count > 10 * batch_size:  # Else the border may meet itself.
        for i in range(batches):
            assert len(set(order.batch(i))) == batch_size


def make_features():
    ids = np.arange(1000, dtype=np.int32)
    return Features(row_splits=ids[::5], ragged={"input_ids": ids})


def make_batches(features, kind):
    options = {"batch_size": 8, "lengths": [8]}
    if kind == "eval":
        make = length_groups.OrderedBatches(features, **options)
        return make.dataset(first_batch=0, part=0, num_parts=1)
    return length_groups.train_batches(features, seed=1, **options)


@pytest.mark.parametrize("kind", ["eval", "train"])
def test_examples_live_as_long_as_their_batches(kind):
    """As text of any length is read block by block, each with batches."""
    features = make_features()
    held = weakref.ref(features.ragged["input_ids"])
    batches = make_batches(features, kind)
    del features
    # What others make of a dataset keeps it, and an iterator does.
    batches = batches.map(lambda batch: batch).unbatch().prefetch(2)
    rows = batches.as_numpy_iterator()
    del batches
    gc.collect()
    for _ in range(100):
        assert next(rows)["input_mask"].sum() == 5
    del rows
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("lengths", [[8, 16], [16]])
def test_arrays_equal_the_batches_of_the_dataset(lengths):
    splits = np.concatenate([[0], np.cumsum(np.arange(21) % 9 + 3)])
    ids = np.arange(splits[-1], dtype=np.int32)
    features = Features(
        row_splits=splits,
        ragged={"input_ids": ids, "label_ids": ids},
        dense={"weight": np.ones(21, np.float32)},
    )
    made = length_groups.OrderedBatches(features, batch_size=8, lengths=lengths)
    arrays = list(made.arrays())
    for num_parts in (1, 2):
        parts = [
            made.dataset(
                first_batch=0, part=i, num_parts=num_parts
            ).as_numpy_iterator()
            for i in range(num_parts)
        ]
        for batch, *cut in zip(arrays, *parts, strict=True):
            assert batch.keys() == made.element_spec.keys()
            for name, values in batch.items():
                joined = np.concatenate([part[name] for part in cut])
                np.testing.assert_array_equal(values, joined)
                spec = made.element_spec[name]
                assert spec.shape.is_compatible_with(values.shape)
    assert {batch["input_ids"].shape[1] for batch in arrays} == set(lengths)
    assert made.element_spec["input_ids"].shape.as_list() == (
        [8, 16] if lengths == [16] else [None, None]
    )
    assert "label_ids" not in arrays[0]
