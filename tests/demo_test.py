"""Proves that the demo's commands run, and compare results with guessing.

python -m pytest -m all tests/demo_test.py
"""

import os
import subprocess
import sys

import pytest


@pytest.mark.all
def test_the_reports_of_the_demo_compare_results_with_guessing(
    repository, tmp_path
):
    command = [sys.executable, str(repository / "examples/demo.py")]
    command += [f"--output_dir={tmp_path / 'demo'}", "--text_megabytes=0.4"]
    run = subprocess.run(
        [*command, "--num_train_steps=6"],
        env=os.environ | {"PYTHONPATH": str(repository / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("=== ") == 7
    for name, guessing in (
        ("pretrained", "constant answer"),
        ("classifier", "Always predicting"),
    ):
        report = tmp_path / f"demo/{name}/report.html"
        assert guessing in report.read_text()
        assert str(report) in run.stdout
