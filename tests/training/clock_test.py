"""Proves that the clock's plans are continuous, end in time and can be resumed.

pytest tests/training/clock_test.py
"""

import json

import pytest
import tensorflow as tf

from training import clock


def progress(made, step):
    return float(made.progress(tf.constant(step, tf.int64)))


def run(made, step, elapsed, pace):
    """Ticks at a constant pace until the end; returns last step and time."""
    while step < made.end:
        step, elapsed = step + 1, elapsed + pace
        made.tick(step, elapsed)
    return step, elapsed


def test_a_run_that_was_cut_off_goes_on_if_it_is_given_more_time():
    made = clock.Clock(10.0, 100)
    made.tick(1, 1.0)
    made.tick(20, 11.0)
    state = made.state(11.0)
    reached = progress(made, 20)
    assert made.end == 20
    assert 0.1 < reached < 0.5
    same = clock.Clock(10.0, 100)
    same.restore(state)
    assert same.end == 20
    more = clock.Clock(100.0, 100)
    more.restore(state)
    assert more.end == 100
    assert progress(more, 20) == pytest.approx(reached)
    done = clock.Clock(100.0, 100)
    done.restore({"plan": [5, 0.5, 50], "seconds_used": 12.0})
    assert done.end == 50
    assert progress(done, 50) == 1.0


def test_without_haste_progress_is_the_share_of_steps():
    made = clock.Clock(1000.0, 100)
    for step in range(1, 100):
        made.tick(step, step * 0.1)
        assert progress(made, step) == pytest.approx(step / 100, abs=1e-5)
    assert made.end == 100


@pytest.mark.parametrize("pace", [0.3, 1.0, 7.0])
def test_a_slow_run_ends_in_time_at_progress_one(pace):
    made = clock.Clock(100.0, 10**6)
    step, elapsed = run(made, 0, 0.0, pace)
    assert 100 - 2 * pace <= elapsed <= 100 + pace
    assert progress(made, step) == pytest.approx(1.0, abs=0.1)


def test_the_log_tells_the_progress_at_the_end(caplog):
    made = clock.Clock(10.0, 100)
    made.restore({"plan": [5, 0.5, 50], "seconds_used": 1.0})
    with caplog.at_level("INFO"):
        made.tick(50, 9.0)
    assert "after 50 steps: progress 1.000" in caplog.text
    cut_off = clock.Clock(10.0, 100)
    cut_off.tick(1, 1.0)
    with caplog.at_level("INFO"):
        cut_off.tick(20, 11.0)
    assert "after 20 steps: progress 0.200" in caplog.text


def test_a_new_plan_never_jumps():
    made = clock.Clock(100.0, 10**6)
    before = 0.0
    for step in range(1, 60):
        made.tick(step, step * (0.5 if step < 30 else 1.5))
        assert before <= progress(made, step) <= before + 0.1
        before = progress(made, step)


def test_a_resumed_clock_goes_on_with_its_plan_and_its_time():
    made = clock.Clock(100.0, 10**6)
    for step in range(1, 50):
        made.tick(step, step * 1.0)
    resumed = clock.Clock(100.0, 10**6)
    resumed.restore(made.state(49.0))
    for step in (49, 60, 99):
        assert progress(resumed, step) == progress(made, step)
    step, elapsed = run(resumed, 49, 0.0, 1.0)
    assert 49 <= elapsed <= 52


def test_phases_have_their_parts_of_the_time():
    """The first fifth has slow steps; a passed end of a phase never moves."""
    made = clock.Clock(1000.0, 10**6)
    step, elapsed, passed = 0, 0.0, None
    made.begin_phase()
    while step < made.step_at(10**6):
        if step == made.step_at(200_000):
            passed, in_time = step, elapsed
            made.begin_phase()
        step += 1
        elapsed += 1.0 if passed is None else 0.4
        made.tick(step, elapsed)
        if passed is not None:
            assert made.step_at(200_000) == passed
    assert in_time == pytest.approx(200, rel=0.02)
    assert elapsed == pytest.approx(1000, rel=0.02)
    assert progress(made, step) == pytest.approx(1.0, abs=0.02)
    state = json.loads(json.dumps(made.state(elapsed)))
    assert clock.step_at(state, 0.2) == passed
    resumed = clock.Clock(2000.0, 10**6)
    resumed.restore(state)
    assert resumed.step_at(200_000) == passed
    assert resumed.step_at(10**6) == resumed.end


def test_all_phases_end_with_the_time():
    made = clock.Clock(10.0, 100)
    made.tick(1, 1.0)
    made.tick(20, 11.0)
    assert [made.step_at(x) for x in (0, 10, 20, 60, 100)] == [
        0,
        10,
        20,
        20,
        20,
    ]


def test_the_rate_rises_to_its_peak_and_falls_to_zero():
    made = clock.Clock(1000.0, 100)
    rate = clock.TimedDecay(peak=0.5, warmup=0.2, clock=made)
    rates = [
        float(rate(tf.constant(s, tf.int64))) for s in (0, 10, 20, 60, 100)
    ]
    assert rates == pytest.approx([0.0, 0.25, 0.4, 0.2, 0.0])
