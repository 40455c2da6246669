"""Tests that the benchmarks run at their smallest size, and name what exists.

Most of their imports are inside functions, because the processes of peers have
no TensorFlow. The peers' parts are not run here: the names that they use of
this project are tested, and --smoke --peer_python=... runs them.

python -m pytest tests/benchmarks_test.py
"""

import ast
import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
# Files without a smallest size of their own -> the benchmark that runs them.
PARTS = {
    "accelerator_cases": "accelerator",
    "accelerator_levers": "accelerator_cases",
    "accelerator_process": "accelerator",
    "accelerator_trials": "accelerator",
    "comparison": "finetuning_speed",
    "examples": "finetuning_speed",
    "hlo_transposes": "accelerator_trials",
    "load": "comparison",
    "our_side": "finetuning_speed",
    "smoke": "finetuning_speed",
    "trace_table": "accelerator_cases",
}
# The same of the peers, which need torch, transformers or onnxruntime.
PEERS = {
    "accelerator_jax": "accelerator_trials",
    "accelerator_peer": "accelerator_trials",
    "serving_peer": "serving",
    "squad_peer": "squad_scores",
    "tagging_peer": "tagging_scores",
    "torch_peer": "finetuning_speed",
}


@functools.cache
def _file(module: str) -> pathlib.Path | None:
    """Returns the file or folder of a module of this project, if it is one."""
    for root in (ROOT, ROOT / "benchmarks"):
        path = root / module.replace(".", "/")
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py")
        if (path / "__init__.py").exists():
            return path
    return None


@functools.cache
def _names(module: str) -> set[str]:
    """Returns the names that a module defines, or the modules of a package."""
    path = _file(module)
    if path.is_dir():
        return {child.stem for child in path.iterdir()}
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {x.asname or x.name.split(".")[0] for x in node.names}
        else:
            names |= {
                x.id
                for x in ast.walk(node)
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
            }
    return names


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_imported_names_exist(path):
    tree = ast.parse(path.read_text())
    modules = {}  # Local name -> module of this project.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for x in node.names:
                if _file(x.name):
                    modules[x.asname or x.name] = x.name
        elif isinstance(node, ast.ImportFrom) and _file(node.module):
            for x in node.names:
                assert x.name in _names(node.module), (node.module, x.name)
                inner = f"{node.module}.{x.name}"
                if _file(inner):
                    modules[x.asname or x.name] = inner
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and _file(module).is_file():
                assert node.attr in _names(module), (module, node.attr)


@pytest.mark.all
@pytest.mark.parametrize(
    "path",
    [path for path in BENCHMARKS if path.stem not in PARTS | PEERS],
    ids=lambda path: path.stem,
)
def test_a_benchmark_runs_at_its_smallest_size(path):
    done = subprocess.run(
        [sys.executable, str(path), "--smoke"],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"\d", done.stdout), done.stderr[-3000:]
    assert not re.search(r"\bnan\b", done.stdout), done.stdout


@pytest.mark.parametrize(("part", "benchmark"), (PARTS | PEERS).items())
def test_a_part_is_named_by_the_benchmark_that_runs_it(part, benchmark):
    folder = ROOT / "benchmarks"
    assert (folder / f"{part}.py").exists()
    assert re.search(rf"\b{part}\b", (folder / f"{benchmark}.py").read_text())
