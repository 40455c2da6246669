"""Compares every loss with its formula written out in NumPy.

python -m pytest tests/modeling/losses_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from modeling import losses

RNG = np.random.default_rng(0)


def _log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _pair(weighted):
    return float(weighted.sum), float(weighted.weight)


def test_masked_lm_without_any_position_is_zero_and_not_nan():
    logits = np.zeros((1, 2, 5), np.float32)
    ids = np.zeros((1, 2), np.int32)
    loss = losses.masked_lm(logits, ids, np.zeros((1, 2), np.float32))
    assert _pair(loss) == (0.0, 0.0)
    assert loss.epsilon > 0.0


def test_accuracies_count_what_is_right_and_weighted():
    logits = np.eye(3, dtype=np.float32)[[[0, 1, 2], [2, 2, 0]]]
    ids = np.array([[0, 1, 0], [2, 0, 0]], np.int32)
    weights = np.array([[1, 1, 1], [1, 1, 0]], np.float32)
    right = losses.accuracy(logits, ids, weights)
    assert _pair(right) == (3.0, 5.0)
    pairs = np.array([[2.0, 1.0], [0.0, 1.0]], np.float32)
    labels = np.array([[0], [0]], np.int32)
    right = losses.accuracy(pairs, labels, np.ones(2))
    assert _pair(right) == (1.0, 2.0)
    assert _pair(losses.accuracy(pairs, labels[:, 0])) == (1, 2)
    tags = np.array([[0, 1, -1], [-1, 0, 0]], np.int32)
    assert _pair(losses.accuracy(logits, tags, tags >= 0)) == (3.0, 4.0)


def test_a_tie_counts_as_a_blind_choice_would():
    logits = np.array([[1, 3, 3], [2, 2, 2], [5, 3, 5], [7, 1, 0]], np.float32)
    labels = np.array([1, 0, 1, 0], np.int32)
    right = losses.accuracy(logits, labels)
    assert _pair(right) == pytest.approx((1 / 2 + 1 / 3 + 0 + 1, 4.0))
    nothing = np.full((1, 3), np.nan, np.float32)
    assert _pair(losses.accuracy(nothing, labels[:1])) == (0, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_over_the_vocabulary_is_probability_minus_label(dtype):
    # Scores so far apart that a plain exponential would overflow.
    scores = RNG.normal(size=(2, 3, 7)).astype(np.float32) * 100
    ids = np.array([[1, 6, 0], [2, 2, 5]], np.int32)
    weights = np.array([[1, 2, 0], [1, 0.5, 1]], np.float32)
    logits = tf.cast(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = losses.masked_lm(logits, ids, weights)
    found = tape.gradient(loss.sum, logits)
    assert found.dtype == dtype
    log_probs = _log_softmax(tf.cast(logits, tf.float32).numpy())
    one_hot = np.eye(7)[ids]
    expected = weights[..., None] * (np.exp(log_probs) - one_hot)
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), expected, atol=tolerance
    )
    expected = -(weights * (log_probs * one_hot).sum(-1)).sum()
    assert float(loss.sum) == pytest.approx(expected, rel=1e-6)


def test_span_is_the_mean_of_start_and_end():
    start, end = RNG.normal(size=(2, 2, 6)).astype(np.float32)
    starts = np.array([0, 4], np.int32)
    ends = np.array([0, 5], np.int32)
    rows = [0, 1]
    expected = -0.5 * (
        _log_softmax(start)[rows, starts].sum()
        + _log_softmax(end)[rows, ends].sum()
    )
    loss = losses.span(start, end, starts, ends)
    assert _pair(loss) == pytest.approx((expected, 2.0), rel=1e-5)


def test_tagging_ignores_minus_one():
    logits = RNG.normal(size=(1, 3, 4)).astype(np.float32)
    labels = np.array([[2, -1, 0]], np.int32)
    log_probs = _log_softmax(logits)
    expected = -(log_probs[0, 0, 2] + log_probs[0, 2, 0])
    loss = losses.tagging(logits, labels)
    assert _pair(loss) == pytest.approx((expected, 2.0), rel=1e-5)


def _divergence(student, teacher, temperature):
    student, teacher = (
        _log_softmax(x.astype(np.float64) / temperature)
        for x in (student, teacher)
    )
    terms = np.exp(teacher) * (teacher - student)
    return temperature**2 * terms.sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_soft_targets_diverge_as_hinton_says(temperature):
    student, teacher = RNG.normal(size=(2, 3, 4)).astype(np.float32) * 5
    expected = _divergence(student, teacher, temperature)
    found = losses.soft_classification(student, teacher, temperature)
    assert _pair(found) == pytest.approx((expected.sum(), 3), rel=1e-5)
    weights = np.array([1, 0, 2], np.float32)
    found = losses.soft_classification(student, teacher, temperature, weights)
    expected = (expected * weights).sum()
    assert _pair(found) == pytest.approx((expected, 3), rel=1e-5)
    same = losses.soft_classification(teacher, teacher, temperature)
    assert _pair(same) == pytest.approx((0, 3), abs=1e-5)


def test_soft_targets_of_spans_ignore_padding():
    student, teacher = RNG.normal(size=(2, 2, 2, 5)).astype(np.float32) * 5
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    expected = sum(
        _divergence(student[i, row, :n], teacher[i, row, :n], 2.0) / 2
        for i in range(2)
        for row, n in ((0, 3), (1, 5))
    )
    found = losses.soft_span(student, teacher, mask, 2.0)
    assert _pair(found) == pytest.approx((expected, 2), rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_gradient_of_soft_targets(temperature):
    """T (softmax(student / T) - softmax(teacher / T))."""
    student, teacher = RNG.normal(size=(2, 3, 4)).astype(np.float32) * 5
    x = tf.constant(student)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = losses.soft_classification(x, teacher, temperature)
    p, q = (np.exp(_log_softmax(x / temperature)) for x in (teacher, student))
    np.testing.assert_allclose(
        tape.gradient(loss.sum, x), temperature * (q - p), atol=1e-5
    )
