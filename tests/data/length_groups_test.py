"""Proves that batches keep nothing in memory once nobody reads them.

python -m pytest tests/data/length_groups_test.py
"""

import gc
import time
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
        return length_groups.eval_batches(features, **options)
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


def test_batches_that_are_ahead_end_without_a_word(capfd):
    class Slow(Features):
        def batch(self, rows, length):
            time.sleep(0.02)
            return super().batch(rows, length)

    features = make_features()
    slow = Slow(row_splits=features.row_splits, ragged=features.ragged)
    rows = iter(make_batches(slow, "train"))
    next(rows)
    del rows, slow
    gc.collect()
    time.sleep(0.1)
    assert "Error" not in capfd.readouterr().err
