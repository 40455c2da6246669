"""Proves that the rooms depend one way only and that files stay small.

python -m pytest tests/house_law_test.py
"""

import ast
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "data": set(),
    "modeling": set(),
    "training": set(),
    "tasks": {"modeling", "data"},
}
ROOMS = set(MAY_IMPORT)
RUNNERS = sorted(path.stem for path in ROOT.glob("*.py"))
MAX_LINES = 350
MAX_FUNCTION_LINES = 50


def _sources(*folders: str) -> list[pathlib.Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*.py")
    )


def _imports(path: pathlib.Path) -> set[str]:
    """Top-level names of every import in the file, at any depth of nesting."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_import_only_what_the_design_allows(room):
    for path in _sources(room):
        forbidden = ROOMS - MAY_IMPORT[room] - {room}
        forbidden |= set(RUNNERS) - {"errors", "fusion", "tensorflow_setup"}
        assert not _imports(path) & forbidden, path.relative_to(ROOT)


def test_modeling_never_imports_tensorflow():
    for path in _sources("modeling"):
        assert not _imports(path) & {"tensorflow", "tensorflow_text"}, path


def test_nothing_imports_what_has_ended_or_is_for_comparison():
    for path in _sources(*ROOMS) + sorted(ROOT.glob("*.py")):
        assert "tensorflow_addons" not in _imports(path), path
        assert "transformers" not in _imports(path), path


def test_only_runners_and_entry_points_print():
    for path in _sources(*ROOMS):
        tree = ast.parse(path.read_text())
        prints = {
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        }
        main = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == "main"
        ]
        allowed = {
            line
            for node in main
            for line in range(node.lineno, node.end_lineno + 1)
        }
        assert prints <= allowed, path.relative_to(ROOT)


def test_files_and_functions_fit_a_reader():
    for path in _sources(*ROOMS) + sorted(ROOT.glob("*.py")):
        text = path.read_text()
        assert len(text.splitlines()) <= MAX_LINES, path.relative_to(ROOT)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                where = f"{path.relative_to(ROOT)}: {node.name}"
                assert length <= MAX_FUNCTION_LINES, where


def test_commands_in_help_can_be_copied():
    for path in sorted(ROOT.glob("*.py")) + _sources("benchmarks"):
        shown = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert "\\\\\n" not in shown, path.relative_to(ROOT)


def test_package_markers_are_empty():
    for room in ROOMS:
        assert (ROOT / room / "__init__.py").read_text() == ""


def test_every_runner_and_room_is_packaged():
    """A module that pyproject.toml forgets would be missing once installed."""
    text = (ROOT / "pyproject.toml").read_text()
    for name in RUNNERS:
        assert f'"{name}"' in text, name
    for room in ROOMS:
        assert f'"{room}"' in text, room


def test_data_is_not_ignored_by_git():
    """Common .gitignore templates list data/, which would lose the package."""
    result = subprocess.run(
        ["git", "check-ignore", "-q", "data/new_file.py"], cwd=ROOT, check=False
    )
    assert result.returncode != 0
