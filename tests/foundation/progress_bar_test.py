"""Proves what long work shows at a terminal and in a log.

pytest tests/foundation/progress_bar_test.py
"""

import logging
import sys

import pytest

from foundation import progress


def test_a_terminal_shows_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.bar(total=4, desc="reading") as bar:
        bar.update(4)
    assert "reading: 100%|" in capsys.readouterr().err


def test_a_log_shows_lines_with_the_time_left(capsys, caplog):
    caplog.set_level(logging.INFO)
    with progress.bar(total=100, desc="reading", smoothing=0) as bar:
        now = bar.start_t
        for _ in range(5):
            now += 15
            bar._time = lambda now=now: now
            bar.update(5)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "reading: 10 %, 00:30 elapsed, 04:30 left"
    assert len(lines) < 5
    assert "\r" not in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_brief_work_shows_nothing(monkeypatch, capsys, caplog, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with progress.bar(is_brief=True, total=4, desc="reading") as bar:
        bar.update(4)
    assert not capsys.readouterr().err.strip() and not caplog.text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 seconds"),
        (0.6, "1 second"),
        (1.6, "2 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
    ],
)
def test_durations_have_one_unit_in_its_number(seconds, shown):
    assert progress.duration(seconds) == shown


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (999_600, "1 MB"), (1_089_000_000, "1.09 GB")],
)
def test_sizes_have_three_digits_and_a_unit(num_bytes, shown):
    assert progress.size(num_bytes) == shown
