"""Tests `import bert`: from anywhere, beside other modules, installed or not.

python -m pytest tests/bert_test.py
"""

import importlib
import os
import pathlib
import subprocess
import sys
import sysconfig
import types
import warnings

import pytest

import bert
from serving import api, predictors

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIP = (*("-m", "pip", "install"), "--disable-pip-version-check")
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")
# Prints which files are imported.
PROGRAM = "import bert, data, sys; print(bert.load, bert.Word, data.__file__)"


def test_it_has_the_results_of_all_tasks():
    results = {
        name
        for name, value in (vars(api) | vars(predictors)).items()
        if isinstance(value, type)
        and issubclass(value, tuple)
        and not name.startswith("_")
    } - {"Item", "Spec"}
    assert {*bert.__all__} == {"load", "InputError", "Model", *results}
    for name in {*bert.__all__} - {"InputError"}:
        of_api = getattr(api, name, None)
        assert getattr(bert, name) is getattr(predictors, name, of_api)


def test_a_module_imported_before_is_named(monkeypatch):
    other = types.ModuleType("data")
    other.__file__ = "/home/me/data.py"
    monkeypatch.setitem(sys.modules, "data", other)
    with pytest.raises(ImportError) as raised:
        importlib.reload(bert)
    (line,) = str(raised.value).splitlines()
    assert "/home/me/data.py" in line and str(ROOT / "data") in line


@pytest.mark.parametrize("marker", ["__init__.py", None])
def test_a_module_that_is_hidden_is_named(marker, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    if marker:
        (tmp_path / "data" / marker).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "data")
    path = list(sys.path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.reload(bert)
    assert sys.path == path
    found = [str(x.message) for x in caught if "import bert" in str(x.message)]
    assert len(found) == (1 if marker else 0)
    for line in found:
        assert str(tmp_path / "data") in line and str(ROOT / "data") in line
    assert sys.modules["data"].__file__ == str(ROOT / "data" / "__init__.py")


def run(python, *arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.all
def test_a_fresh_environment_imports_it_from_any_folder(tmp_path):
    """An environment with the required packages, and nothing of the project."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "v", cwd=ROOT)
    python = str(tmp_path / "v" / "bin" / "python")
    name = "python{}.{}".format(*sys.version_info)
    own = tmp_path / "v" / "lib" / name / "site-packages"
    # Reads the packages of this environment, but not its path files.
    (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = run(python, "-c", "import bert", cwd=tmp_path)
    assert "No module named 'bert'" in done.stderr
    done = run(
        *(python, *PIP, *OFFLINE, "--ignore-installed", "-e", f"{ROOT}[gpu]"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    # Of a user: modules, tables, and a folder with a checkpoint.
    for path in ("data/__init__.py", "tasks/table.csv", "bert/model.ckpt"):
        (work / path).parent.mkdir(parents=True)
        (work / path).touch()
    done = run(python, "-c", PROGRAM, cwd=work)
    assert done.returncode == 0, done.stderr
    assert str(ROOT / "data") in done.stdout
    assert done.stderr.count("Warning") == 1
    assert str(work / "data") in done.stderr
    done = run(python, "-c", "import data, bert", cwd=work)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ")
    assert str(work / "data") in last
