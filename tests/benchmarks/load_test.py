"""The processor time of other programs is told from a benchmark's own."""

import importlib
import subprocess
import sys
import time

import pytest

_BUSY = "while True: pass"


@pytest.fixture
def load(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("load")


def test_children_are_not_others(load, monkeypatch):
    """Idle time and what this machine does else are part of no sum here."""
    busy = iter([100.0, 103.0])
    monkeypatch.setattr(load, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(load.os, "cpu_count", lambda: 2)
    measured = load.Load()
    child = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        started = time.monotonic()
        own = load._own_seconds(load.os.getpid())
        time.sleep(1.5)
        used = load._own_seconds(load.os.getpid()) - own
        seconds = time.monotonic() - started
        others = measured.of_others()
    finally:
        child.kill()
        child.wait()
    assert used > 0.2  # Of 1.5 s, beside other tests.
    assert others == pytest.approx((3.0 - used) / (2 * seconds), abs=0.1)


def test_all_programs_are_busy_for_some_time(load):
    seconds = load._busy_seconds()
    assert seconds is None or seconds > 0
