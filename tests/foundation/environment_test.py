"""Proves that a missing package or an old Python is one line.

python -m pytest tests/foundation/environment_test.py
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
OLD = (
    "import runpy, sys; sys.version_info = (3, 9, 18, 'final', 0);"
    "sys.argv = sys.argv[1:]; sys.path.insert(0, '');"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def line_of(*arguments):
    """Returns the only line of Python without the installed packages."""
    found = subprocess.run(
        [sys.executable, "-S", "-E", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2, found.stderr
    (line,) = found.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", ["run_classifier.py", "serve.py"])
def test_without_the_environment_a_command_says_what_to_do(command):
    line = line_of(command, "--help")
    assert line.startswith(f"{pathlib.Path(command).name}: ")
    for words in ("'absl'", ".venv/bin/activate", "make install"):
        assert words in line


@pytest.mark.parametrize("command", ["run_classifier.py", "serve.py"])
def test_an_old_python_comes_as_far_as_the_message(command):
    line = line_of("-c", OLD, command)
    assert line.startswith(f"{command}: Python 3.10 to 3.13 is required")
    assert "3.9" in line and "make install" in line
    names = ["__init__", "atomic", "config_flags", "environment", "errors"]
    names.append("file_system")
    for name in [command, *(f"foundation/{x}.py" for x in names)]:
        ast.parse((ROOT / name).read_text(), feature_version=(3, 9))
