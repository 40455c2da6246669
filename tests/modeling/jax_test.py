"""Proves that Keras on JAX gives the golden outputs, losses and gradients.

python -m pytest tests/modeling/jax_test.py
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
def test_jax_gives_the_golden_outputs():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/modeling/golden_test.py"],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
