"""Proves that the learning rate is the released one at every step.

pytest tests/training/schedules_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from training import optimizers


def rates(steps, **kwargs):
    schedule = optimizers.WarmupDecay(**kwargs)
    return [float(schedule(tf.constant(s, tf.int64))) for s in steps]


def test_golden_values_of_the_published_recipe():
    """1e-4, 10,000 warm-up steps, 1,000,000 steps."""
    steps = [0, 1, 5000, 9999, 10000, 10001, 500000, 999999, 1000000, 1000001]
    expected = [
        0.0,
        1e-8,
        5e-5,
        9.999e-5,
        9.9e-5,  # The rate falls at once when the warm-up ends.
        9.89999e-5,
        5e-5,
        1e-10,
        0.0,
        0.0,
    ]
    found = rates(
        steps, peak=1e-4, num_train_steps=10**6, num_warmup_steps=10**4
    )
    # float32: near the end 1 - step / total has few digits left.
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=6e-12)


def test_without_warmup_the_first_rate_is_the_peak():
    assert rates([0, 5], peak=0.5, num_train_steps=10) == [0.5, 0.25]


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("linear", lambda x: 1 - x),
        ("cosine", lambda x: (1 + np.cos(np.pi * x)) / 2),
        ("constant", np.ones_like),
    ],
)
def test_every_decay_follows_its_formula_after_the_warmup(decay, expected):
    steps = np.array([0, 5, 10, 50, 99, 100, 150])
    found = rates(
        steps,
        peak=0.5,
        num_train_steps=100,
        num_warmup_steps=10,
        decay=decay,
    )
    after = 0.5 * expected(np.minimum(steps / 100, 1.0))
    np.testing.assert_allclose(
        found, np.where(steps < 10, 0.05 * steps, after), rtol=1e-6, atol=1e-7
    )
