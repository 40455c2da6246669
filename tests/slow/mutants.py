r"""Changes the code at random and counts how many changes the tests notice.

    python tests/slow/mutants.py --mutants=200 --seed=1 --state=mutants.json

A mutant is one changed comparison, constant or operator, or one removed
statement, chosen by the seed among all of the rooms. The quickest tests that
run its line, --seconds of them, run in a copy of the checkout until one fails;
each mutant in a fork of this process, which has imported TensorFlow. The traces
of the tests are made once and kept beside --state, as are the results: the same
command continues, and with more --seconds it tries the survivors again. Prints
each mutant, and the share that was killed. A mutant of a line that no test runs
has survived.
"""

import argparse
import ast
import collections
import contextlib
import importlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN_MAKE_TEST = "not all and not docs and not proofs"
NO_TESTS = 5  # The exit code of pytest without a test.
NOT_COPIED = (".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache")
ROOMS = (
    "data,finetuning,foundation,modeling,paper,serving,tasks,training,weights"
)
# What the tests import, so that forks have it.
LIBRARIES = (
    *("keras", "tensorflow", "tensorflow_text", "tensorboard", "pytest"),
    *("hypothesis", "safetensors.numpy", "pyarrow.parquet", "sklearn.metrics"),
    *("scipy.stats", "aiohttp.web", "jinja2", "prometheus_client", "onnx"),
)
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


def traces(
    folder: pathlib.Path, rooms: list[str], tests: list[str], jobs: int
) -> None:
    """Runs the tests once with a tracer; writes their output at the end."""
    folder.mkdir(parents=True)
    tracing = ROOT / "tests" / "slow" / "tracing"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tracing), str(ROOT)]),
        "TRACES": str(folder),
        "TRACED_ROOMS": os.pathsep.join(f"{ROOT / x}{os.sep}" for x in rooms),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs)]
    command += ["--dist", "loadfile", "--no-loadscope-reorder", "-vv"]
    command += ["--durations=0", "-m", IN_MAKE_TEST]
    command += ["-p", "no:cacheprovider", "-p", "sitecustomize"]
    shown = subprocess.run(
        [*command, *tests],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    (folder / "pytest.txt").write_text(shown.stdout)


class Covering:
    """Which tests run a line, and how long they take."""

    def __init__(self, folder: pathlib.Path):
        """Reads traces. Tests that fail without a mutant are left out."""
        text = (folder / "pytest.txt").read_text()
        self.seconds: dict[str, float] = collections.defaultdict(float)
        for seconds, test in re.findall(
            r"^([\d.]+)s (?:call|setup) +(\S.*)$", text, re.MULTILINE
        ):
            self.seconds[test] += float(seconds)
        self.failed = set(
            re.findall(
                r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", text, re.MULTILINE
            )
        )
        self._tests: dict[tuple[str, int], set[str]] = collections.defaultdict(
            set
        )
        for path in folder.glob("*.json"):
            for test, file, lines in json.loads(path.read_text()):
                for line in [0, *lines]:
                    place = os.path.relpath(file, ROOT), line
                    self._tests[place].add(test)

    def of(self, file: str, line: int) -> list[str]:
        """Returns the tests that run a line, the quickest first.

        A line that runs at the import has all tests of its file.
        """
        found = self._tests.get((file, line), set())
        if "" in found:
            found = self._tests[file, 0]
        found = found - self.failed - {""}
        return sorted(found, key=lambda test: (self.seconds[test], test))


class Chosen:
    """A plugin of pytest that runs some tests, the quickest files first."""

    def __init__(self, tests: list[str], seconds: dict[str, float]):
        """Takes the tests and the time of each."""
        self.files: dict[str, float] = collections.defaultdict(float)
        for test in tests:
            self.files[test.partition("::")[0]] += seconds[test]
        self._tests = {*tests}

    def pytest_collection_modifyitems(self, items):
        """Keeps the order within a file, whose tests share fixtures."""
        items[:] = [x for x in items if x.nodeid in self._tests]
        items.sort(key=lambda x: self.files[x.nodeid.partition("::")[0]])


def load_libraries() -> None:
    """Imports what all tests import, and nothing of the project."""
    sys.path[0] = str(ROOT)
    importlib.import_module("foundation.tensorflow_setup")
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in [x for x in sys.modules if x.startswith("foundation")]:
        del sys.modules[name]


def run_tests(copied: pathlib.Path, chosen: Chosen) -> NoReturn:
    """Runs tests in this process, which it ends with pytest's exit code."""
    code = 1
    try:
        os.setsid()
        os.chdir(copied)
        sys.path[0] = str(copied)
        output = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(output, descriptor)
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        options += ["-m", IN_MAKE_TEST]
        files = sorted(chosen.files, key=lambda x: chosen.files[x])
        code = importlib.import_module("pytest").main(
            [*options, *files], plugins=[chosen]
        )
    finally:
        os._exit(code)


class Trial(NamedTuple):
    """A mutant whose tests run."""

    key: str
    path: pathlib.Path
    copied: pathlib.Path
    latest: float  # When it is taken for one that hangs.
    count: int  # Of tests.


def wait(running: dict[int, Trial]) -> tuple[Trial, bool]:
    """Waits until a trial has ended; returns it, and whether it was killed."""
    while True:
        for pid, trial in running.items():
            found, status = os.waitpid(pid, os.WNOHANG)
            is_late = time.monotonic() > trial.latest
            if found or is_late:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # With what it started.
                if not found:
                    os.waitpid(pid, 0)
                del running[pid]
                code = os.waitstatus_to_exitcode(status)
                return trial, is_late or code not in (0, NO_TESTS)
        time.sleep(0.05)


def quick(tests: list[str], covering: Covering, seconds: float) -> list[str]:
    """Returns the first tests, which take so many seconds together."""
    times = itertools.accumulate(covering.seconds[test] for test in tests)
    return tests[: sum(time <= seconds for time in times)] or tests[:1]


def main() -> None:
    """Tries the mutants and prints the share that was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", default=ROOMS, help="folders, with commas")
    parser.add_argument("--tests", default="tests", help="with commas")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60, help="per mutant")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", default="mutants.json")
    options = parser.parse_args()
    rooms, state = options.rooms.split(","), pathlib.Path(options.state)
    results = json.loads(state.read_text()) if state.exists() else {}
    folder = state.with_suffix(".traces").absolute()
    if not (folder / "pytest.txt").exists():
        shutil.rmtree(folder, ignore_errors=True)
        traces(folder, rooms, options.tests.split(","), options.jobs)
    covering = Covering(folder)
    for test in sorted(covering.failed):
        print(f"fails without a mutant: {test}")
    places = [
        (path, number)
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        for number in range(len([*mutations(ast.parse(path.read_text()))]))
    ]
    chosen = random.Random(options.seed).sample(places, options.mutants)
    load_libraries()
    running: dict[int, Trial] = {}

    def note(key: str, end: str, count: int = 0) -> None:
        results[key] = [end, count]
        state.write_text(json.dumps(results, indent=1))
        print(f"{end} by {count} tests: {key}", flush=True)

    def finish() -> None:
        trial, is_killed = wait(running)
        file = trial.path.relative_to(ROOT)
        shutil.copy2(trial.path, trial.copied / file)
        free.append(trial.copied)
        note(trial.key, "killed" if is_killed else "survived", trial.count)

    with tempfile.TemporaryDirectory() as name:
        free = [pathlib.Path(name) / str(job) for job in range(options.jobs)]
        for copied in free:
            ignored = shutil.ignore_patterns(*NOT_COPIED)
            shutil.copytree(ROOT, copied, ignore=ignored)
        for path, number in chosen:
            file = str(path.relative_to(ROOT))
            text, line, before, after = mutant(path, number)
            key = f"{file}:{line}: {before} -> {after} ({number})"
            tests = covering.of(file, line)
            tests = quick(tests, covering, options.seconds) if tests else []
            end, count = results.get(key, ("", -1))
            if end == "killed" or count >= len(tests):
                continue
            if not tests:
                note(key, "not run")
                continue
            if not free:
                finish()
            copied = free.pop()
            (copied / file).write_text(text)
            plugin = Chosen(tests, covering.seconds)
            pid = os.fork()
            if not pid:
                run_tests(copied, plugin)
            limit = 120 + 10 * sum(covering.seconds[x] for x in tests)
            latest = time.monotonic() + limit
            running[pid] = Trial(key, path, copied, latest, len(tests))
        while running:
            finish()
    killed = sum(end == "killed" for end, _ in results.values())
    print(f"{killed} of {len(results)} killed ({killed / len(results):.0%})")


if __name__ == "__main__":
    main()
