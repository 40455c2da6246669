"""Proves what the rate of a progress bar is made of.

python -m pytest tests/foundation/progress_bars_test.py
"""

import io

import pytest
import tqdm

from foundation import progress


def test_items_left_out_are_not_part_of_the_rate(monkeypatch):
    now = 0.0
    bar = tqdm.tqdm(total=100, file=io.StringIO())
    monkeypatch.setattr(bar, "_time", lambda: now)
    bar.start_t = bar.last_print_t = now
    for item in range(20):
        seconds = 60.0 if item < 4 else 2.0
        now += seconds
        if item < 4:
            progress.leave_out(bar, 1, seconds)
        bar.update()
    assert bar.n == 20
    assert bar.format_dict["rate"] == pytest.approx(0.5)
