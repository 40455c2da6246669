"""Runs examples/minimal.py at its smallest size. See also serving/example_test.

python -m pytest tests/example_scripts_test.py
"""

import ast
import os
import re
import subprocess
import sys

import pytest

NAMES = ("masked_lm_accuracy", "next_sentence_accuracy", "package_accuracy")


@pytest.fixture
def path(repository):
    return repository / "examples" / "minimal.py"


@pytest.mark.slow
def test_the_complete_path_prints_what_it_has_learned(path, tmp_path):
    command = [sys.executable, str(path), f"--output_dir={tmp_path / 'new'}"]
    command += ["--num_train_steps=2", "--num_characters=300000"]
    run = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(path.parents[1] / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for name in NAMES:
        assert re.search(rf"{name} 0\.\d+, baseline 0\.\d+", run.stdout), name
    # Two sentences, each with the four best tokens.
    assert (
        len(re.findall(r"\[MASK\].*(  \S+ 0\.\d+){4}$", run.stdout, re.M)) == 2
    )
    assert (tmp_path / "new" / "pretrained" / "model.safetensors").exists()


def test_one_evening_suffices_to_read_it(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 200
    functions = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    ]
    for node in functions:
        assert node.end_lineno - node.lineno < 30, node.name


def test_it_does_without_jobs_and_commands(path):
    modules = {
        node.module.split(".")[0]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom)
    }
    own = {x for x in modules if (path.parent.parent / x).is_dir()}
    assert own == {
        *("data", "foundation", "modeling", "tasks", "training", "weights")
    }
