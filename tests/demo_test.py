"""Proves that the demo's commands run and are compared with guessing.

python -m pytest -m all tests/demo_test.py
"""

import os
import re
import subprocess
import sys

import pytest

NAMES = (
    *("held-out masked_lm_accuracy", "held-out next_sentence_accuracy"),
    "package of a held-out paragraph",
)


@pytest.mark.all
def test_the_demo_prints_what_it_has_learned(repository, tmp_path):
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
    for name in NAMES:
        line = rf"^{name}: .*\d\.\d%.*; guessing \d+\.\d%$"
        assert re.search(line, run.stdout, re.M), name
    assert (tmp_path / "demo/classifier/report.html").exists()
