r"""Changes the code at random and counts how many changes the tests notice.

    python tests/slow/mutants.py --rooms=data,foundation --mutants=200 \
        --seed=1 --state=mutants.json

A mutant is one changed comparison, constant or operator, or one removed
statement, chosen by the seed among all of the rooms. The tests that run its
line, the quickest first, run in a copy of the checkout until one fails. The
traces of the tests are made once and kept beside --state, as are the results:
the same command continues. Prints each mutant, and the share that was killed.
A mutant of a line that no test runs has survived.
"""

import argparse
import ast
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_COPIED = (".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache")
LIMIT = 600  # Seconds of the tests of a mutant; one that hangs is noticed.
OPERATORS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
REMOVED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise)


def mutations(tree: ast.AST) -> Iterator[tuple[ast.AST, str, object]]:
    """Yields all changes of a module: node, its field and the new value.

    Texts, annotations, imports and docstrings are not changed.
    """
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for name in ("annotation", "returns")
        if isinstance(outer := getattr(node, name, None), ast.AST)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.Compare):
            for i, operator in enumerate(node.ops):
                new = [*node.ops]
                new[i] = OPERATORS[type(operator)]()
                yield node, "ops", new
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
            if type(node.op) in OPERATORS:
                yield node, "op", OPERATORS[type(node.op)]()
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                yield node, "value", not node.value
            elif isinstance(node.value, int | float):
                yield node, "value", node.value + 1
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if not isinstance(statements, list):
                continue
            for i, statement in enumerate(statements):
                is_text = isinstance(statement, ast.Expr) and isinstance(
                    statement.value, ast.Constant
                )
                if isinstance(statement, REMOVED) and not is_text:
                    new = [*statements]
                    new[i] = ast.copy_location(ast.Pass(), statement)
                    yield node, name, new


def line_of(node: ast.AST, field: str, new: object) -> int:
    """Returns the line of a change."""
    if isinstance(new, list) and field != "ops":
        for statement in new:
            if isinstance(statement, ast.Pass):
                node = statement
    return getattr(node, "lineno", 1)


def mutant(path: pathlib.Path, number: int) -> tuple[str, int, str, str]:
    """Returns a file with one change: the text, its line, before and after."""
    tree = ast.parse(path.read_text())
    node, field, new = [*mutations(tree)][number]
    line = line_of(node, field, new)
    lines = path.read_text().splitlines()
    setattr(node, field, new)
    is_removed = isinstance(new, list) and field != "ops"
    after = "removed" if is_removed else ast.unparse(node)
    return ast.unparse(tree) + "\n", line, lines[line - 1].strip(), after


def traces(folder: pathlib.Path, rooms: list[str], tests: list[str]) -> None:
    """Runs the tests once with a tracer."""
    folder.mkdir(parents=True)
    tracing = ROOT / "tests" / "slow" / "tracing"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tracing), str(ROOT)]),
        "TRACES": str(folder),
        "TRACED_ROOMS": os.pathsep.join(f"{ROOT / x}{os.sep}" for x in rooms),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--durations=0"]
    options = [
        "-vv",
        "-p",
        "no:cacheprovider",
        "-m",
        "not all and not docs and not proofs",
    ]
    shown = subprocess.run(
        [*command, *options, *tests],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    (folder / "pytest.txt").write_text(shown.stdout)
    if shown.returncode:
        sys.exit(f"the tests fail without a mutant:\n{shown.stdout[-3000:]}")


def covering(folder: pathlib.Path) -> dict[tuple[str, int], list[str]]:
    """Returns (file, line) -> tests that run it, the quickest first.

    Lines that run at the import, before a test, have all tests of their file.
    """
    seconds: dict[str, float] = collections.defaultdict(float)
    durations = r"^([\d.]+)s (?:call|setup) +(\S.*)$"
    for text, test in re.findall(
        durations, (folder / "pytest.txt").read_text(), re.MULTILINE
    ):
        seconds[test] += float(text)
    found: dict[tuple[str, int], set[str]] = collections.defaultdict(set)
    for path in folder.glob("*.json"):
        for test, file, lines in json.loads(path.read_text()):
            for line in [0, *lines]:
                found[os.path.relpath(file, ROOT), line].add(test)
    for file, line in [*found]:
        if "" in found[file, line]:
            found[file, line] = found[file, 0] - {""}
    return {
        place: sorted(tests, key=lambda test: (seconds[test], test))
        for place, tests in found.items()
    }


def is_killed(copied: pathlib.Path, tests: list[str]) -> bool:
    """Returns whether one of the tests fails in the copy, or hangs."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n", "0"]
    arguments = copied / "mutant_tests.txt"
    arguments.write_text("\n".join(tests))
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", f"@{arguments}"],
            cwd=copied,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Tries the mutants and prints the share that was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", required=True, help="folders, with commas")
    parser.add_argument("--tests", default="tests", help="with commas")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", default="mutants.json")
    options = parser.parse_args()
    rooms, state = options.rooms.split(","), pathlib.Path(options.state)
    results = json.loads(state.read_text()) if state.exists() else {}
    folder = state.with_suffix(".traces").absolute()
    if not (folder / "pytest.txt").exists():
        shutil.rmtree(folder, ignore_errors=True)
        traces(folder, rooms, options.tests.split(","))
    tests_of = covering(folder)
    places = [
        (path, number)
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        for number in range(len([*mutations(ast.parse(path.read_text()))]))
    ]
    chosen = random.Random(options.seed).sample(places, options.mutants)
    with tempfile.TemporaryDirectory() as name:
        copied = pathlib.Path(name) / "copy"
        shutil.copytree(
            ROOT, copied, ignore=shutil.ignore_patterns(*NOT_COPIED)
        )
        for path, number in chosen:
            file = str(path.relative_to(ROOT))
            text, line, before, after = mutant(path, number)
            key = f"{file}:{line}: {before} -> {after}"
            if key not in results:
                began = time.monotonic()
                tests = tests_of.get((file, line), [])
                (copied / file).write_text(text)
                end = "killed" if tests and is_killed(copied, tests) else ""
                shutil.copy(path, copied / file)
                results[key] = end or ("survived" if tests else "not run")
                state.write_text(json.dumps(results, indent=1))
                print(
                    f"{results[key]}, {time.monotonic() - began:.0f} s: {key}"
                )
    killed = sum(end == "killed" for end in results.values())
    print(f"{killed} of {len(results)} killed ({killed / len(results):.0%})")


if __name__ == "__main__":
    main()
