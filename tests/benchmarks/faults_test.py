"""Runs a sample of benchmarks/faults.py: operations on files that fail.

python -m pytest -m all tests/benchmarks/faults_test.py
"""

import pathlib
import shutil
import subprocess
import sys

import pytest

BENCHMARK = (
    pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
)


@pytest.mark.all
@pytest.mark.skipif(
    not (sys.platform == "linux" and shutil.which("cc")),
    reason="the faults come from a library that cc compiles for Linux",
)
def test_sixty_failed_operations_end_in_one_line_or_do_no_harm():
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--sample=60"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "60 of 60 trials, 0 failures" in done.stdout
