"""Tests that the benchmarks use modules and names that exist.

Most of their imports are inside functions, because the processes of peers have
no TensorFlow. So a renamed module would be noticed only when a benchmark runs.

python -m pytest tests/benchmarks_test.py
"""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


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
