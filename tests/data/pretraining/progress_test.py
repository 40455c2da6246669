"""Proves that the bar covers all phases, and that processes start when needed.

pytest tests/data/pretraining/progress_test.py
"""

import errno
import os
import signal
import sys
import time

import pytest

from data import workers
from data.pretraining import progress


def test_a_phase_takes_its_fraction_of_the_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.PhaseBar({"reading": 1, "writing": 3}) as bar:
        with bar.phase("reading", 10, "MB") as update:
            update(5)
            assert bar._bar.n == pytest.approx(0.125)
        assert bar._bar.n == pytest.approx(0.25)
        with bar.phase("writing", 100, "records") as update:
            for _ in range(100):
                update(1)
        assert bar._bar.n == pytest.approx(1)
    assert "writing: 100%" in capsys.readouterr().err


def test_what_was_done_before_does_not_affect_the_rate(monkeypatch):
    """After a tenth of the bar in one second, nine are left."""
    with progress.PhaseBar({"reading": 5, "writing": 5}) as bar:
        with bar.phase("reading", 10, "MB"):
            pass  # All of it was done before.
        with bar.phase("writing", 10, "records") as update:
            update(4, is_new=False)
            assert bar._bar.initial == pytest.approx(0.7)
            begin = bar._bar.start_t
            update(2)
            monkeypatch.setattr(bar._bar, "_time", lambda: begin + 1)
            state = bar._bar.format_dict
            done = state["n"] - state["initial"]
            assert done == pytest.approx(0.1)
            left = state["elapsed"] * (1 - state["n"]) / done
            assert left == pytest.approx(2, rel=1e-3)


def whoami(_, task):
    time.sleep(0.05)
    return task, os.getpid()


@pytest.mark.parametrize("count, tasks", [(1, 5), (2, 1)])
def test_one_worker_and_one_task_need_no_process(count, tasks):
    with workers.Workers(count, None, "errors") as pool:
        found = list(pool.map(whoami, range(tasks)))
    assert found == [(n, os.getpid()) for n in range(tasks)]


def test_a_pool_that_starts_later_does_short_work_in_this_process():
    with workers.Workers(2, None, "errors", start_after_seconds=60) as pool:
        found = list(pool.map(whoami, range(10)))
    assert {process for _, process in found} == {os.getpid()}


def die(_, task):
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_killed_worker_is_a_lack_of_memory():
    with workers.Workers(2, None, "errors") as pool:
        for _ in range(2):  # The second time no task can be submitted.
            with pytest.raises(OSError, match="--num_workers=1") as caught:
                list(pool.map(die, range(100)))
            assert caught.value.errno == errno.ENOMEM


def test_workers_join_work_that_lasts_and_keep_its_order():
    with workers.Workers(2, None, "errors", start_after_seconds=0.1) as pool:
        found, deadline = [], time.monotonic() + 60
        for number, process in pool.map(whoami, range(10**6)):
            found.append(process)
            assert number == len(found) - 1
            if len(set(found)) == 3 or time.monotonic() > deadline:
                break
    assert found[0] == os.getpid() and len(set(found)) == 3
