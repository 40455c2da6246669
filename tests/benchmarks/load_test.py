"""The processor time of other programs is told from a benchmark's own."""

import importlib
import subprocess
import sys
import time
import types

import pytest

_BUSY = "while True: pass"


@pytest.fixture
def load(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("load")


def test_children_are_not_others(load, monkeypatch):
    """Idle time and what this machine does else are part of no sum here."""
    busy, clock = iter([100.0, 103.0]), iter([0.0, 1.5])
    monkeypatch.setattr(load, "_busy_seconds", lambda: next(busy))
    monotonic = types.SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(load, "time", monotonic)
    monkeypatch.setattr(load.os, "cpu_count", lambda: 2)
    measured = load.Load()
    child = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        own, used = load._own_seconds(load.os.getpid()), 0.0
        while used < 0.3:  # However busy the machine is.
            time.sleep(0.05)
            used = load._own_seconds(load.os.getpid()) - own
        others = measured.of_others()
    finally:
        child.kill()
        child.wait()
    assert others == pytest.approx((3.0 - used) / (2 * 1.5), abs=0.05)


def test_all_programs_are_busy_for_some_time(load):
    seconds = load._busy_seconds()
    assert seconds is None or seconds > 0
