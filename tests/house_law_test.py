"""Proves that dependence between the folders has one direction, without cycles.

python -m pytest tests/house_law_test.py
"""

import ast
import functools
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What the modules of a folder may import besides each other.
MAY_IMPORT = {
    "foundation": set(),
    "modeling": {"foundation"},
    "data": {"foundation"},
    "training": {"foundation"},
    "weights": {"foundation", "modeling", "data"},
    "finetuning": {"foundation", "modeling", "data", "training", "weights"},
}

MAY_IMPORT["tasks"] = {*MAY_IMPORT["finetuning"], "finetuning"}
for _top in ("serving", "paper"):
    MAY_IMPORT[_top] = {*MAY_IMPORT["tasks"], "tasks"}
# The commands, and `bert`, which users import.
COMMANDS = {path.stem for path in ROOT.glob("*.py")}


def _modules() -> dict[str, pathlib.Path]:
    """Maps the dotted names of all modules of the project to their files."""
    paths = list(ROOT.glob("*.py"))
    for folder in MAY_IMPORT:
        paths += (ROOT / folder).rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in paths
        if path.name != "__init__.py"
    }


MODULES = _modules()


@functools.cache
def _imports(name: str) -> set[str]:
    """Returns all dotted names that a module imports, at any depth of code."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _own_imports(name: str) -> set[str]:
    """Returns the modules of the project that a module imports."""
    return _imports(name) & set(MODULES)


def _reachable(name: str) -> set[str]:
    """Returns the modules of the project that a module needs, itself too."""
    found, pending = set(), [name]
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += _own_imports(module)
    return found


def _folder(name: str) -> str:
    """Returns the top folder of a module; "" for a command."""
    return name.split(".")[0] if "." in name else ""


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_follow_the_direction_of_dependence(name):
    for other in _own_imports(name):
        assert _folder(other), f"{name} imports the command {other}"
        if _folder(name) not in ("", _folder(other)):
            assert _folder(other) in MAY_IMPORT[_folder(name)], other
        if _folder(name) == _folder(other) == "tasks":
            assert name.split(".")[1] == other.split(".")[1], (
                f"{name} imports another task: {other}"
            )


def test_no_module_imports_itself_through_others():
    for name in MODULES:
        for other in _own_imports(name):
            assert name not in _reachable(other), f"{name} <-> {other}"


def test_every_module_is_used():
    used = set().union(*(_own_imports(name) for name in MODULES))
    unused = set(MODULES) - used - COMMANDS
    # What "python -m" and the examples run.
    assert unused <= {
        "data.docstrings",
        *("paper.__main__", "tasks.squad.triviaqa"),
    }


@pytest.mark.parametrize(
    "command", ["run_classifier", "run_embeddings", "run_ner", "run_squad"]
)
def test_a_command_loads_one_task(command):
    folders = {x.split(".")[1] for x in _reachable(command) if "tasks." in x}
    assert len(folders) == 1


def test_modeling_never_imports_tensorflow():
    for name in MODULES:
        if _folder(name) == "modeling":
            tops = {other.split(".")[0] for other in _imports(name)}
            assert not tops & {"tensorflow", "tensorflow_text"}, name


def test_nothing_imports_what_has_ended_or_is_for_comparison():
    for name in MODULES:
        tops = {other.split(".")[0] for other in _imports(name)}
        assert not tops & {"tensorflow_addons", "transformers"}, name


def test_only_commands_and_entry_points_print():
    for name, path in MODULES.items():
        if not _folder(name):
            continue
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
        assert prints <= allowed, name


def test_benchmarks_start_commands_and_import_none_of_the_project():
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or node.names[0].name]
                assert names[0].split(".")[0] not in MAY_IMPORT, path


def test_every_folder_of_modules_is_a_package():
    for name, path in MODULES.items():
        if _folder(name):
            assert (path.parent / "__init__.py").exists(), name


def test_data_is_not_ignored_by_git():
    """Common .gitignore templates list data/, which would lose the package."""
    result = subprocess.run(
        ["git", "check-ignore", "-q", "data/new_file.py"], cwd=ROOT, check=False
    )
    assert result.returncode != 0
