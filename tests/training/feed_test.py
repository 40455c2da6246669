"""Proves what every replica is given.

python -m pytest tests/training/feed_test.py
"""

import numpy as np
import pytest
import tensorflow as tf
import toy_run

from training import feed


def first_batches(strategy, accumulation):
    batches = feed.distribute(
        strategy, toy_run.batches(8), num_accumulation_steps=accumulation
    )
    return batches, [x for x, _ in zip(batches, range(3), strict=False)]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_one_cpu_is_given_what_a_distributed_iterator_gives(accumulation):
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    plain, found = first_batches(one, accumulation)
    distributed, expected = first_batches(mirrored, accumulation)
    assert isinstance(plain, tf.data.Dataset)
    assert not isinstance(distributed, tf.data.Dataset)
    assert len(found) == 3
    for one_batch, other in zip(found, expected, strict=True):
        assert one_batch.keys() == other.keys()
        for name, value in one_batch.items():
            assert value.shape[0] == accumulation
            np.testing.assert_array_equal(value, other[name])


def test_nothing_tunes_the_pipeline():
    # The end of an iterator would await the thread that does, up to a minute.
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    batches = feed.distribute(strategy, toy_run.batches(8))
    assert batches.options().autotune.enabled is False
