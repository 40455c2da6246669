"""Proves that a command that is killed at random moments ends with equal files.

KILLS=20 python -m pytest tests/slow/kills_test.py
"""

import os
import random
import time

import pytest

from tests.slow import scenarios

KILLS = int(os.environ.get("KILLS", "4"))
# operations_test.py kills at operations, but not the processes of workers.
NAMES = ("records", "grid", "questions")
pytestmark = pytest.mark.all


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_command_ends_with_the_files_of_an_undisturbed_run(
    name, process, data, tmp_path
):
    def run(folder, **options):
        arguments = scenarios.arguments(name, data, tmp_path / folder)
        return process.run(arguments, **options)

    began = time.monotonic()
    ended = run("undisturbed")
    assert ended.code == 0, ended.text
    seconds = time.monotonic() - began
    expected = scenarios.contents(tmp_path / "undisturbed")
    assert any(expected.values())
    rng = random.Random(name)
    kills = 0
    for trial in range(KILLS):
        folder = f"trial{trial}"
        while True:
            ended = run(folder, kill_after=rng.uniform(0.05, seconds))
            if ended.code is not None:
                break
            kills += 1
            if rng.random() < 0.5:
                ended = run(folder)
                break
        assert ended.code == 0, ended.text
        assert scenarios.contents(tmp_path / folder) == expected
    assert kills >= KILLS / 2
