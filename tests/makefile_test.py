"""Proves that every way to install makes `import bert` work.

python -m pytest tests/makefile_test.py
"""

import shutil
import subprocess

import pytest


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    "target", ["install", "install-dev", "install-tpu", "demo", "test"]
)
def test_every_installation_makes_bert_importable(repository, target):
    shown = subprocess.run(
        ["make", "--dry-run", "VENV=none", target],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.count("--no-build-isolation -e .") == 1
