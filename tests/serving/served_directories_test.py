"""Tests what serve.py says of directories and ports that it cannot serve.

python -m pytest tests/serving/served_directories_test.py
"""

import subprocess
import sys

import pytest

from foundation import errors
from serving import served_directories


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (
        *("trained/config.json", "all/a/saved_model.pb", "all/c/x", "file"),
        *("all/b/saved_model.pb", "onnx/model.onnx"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")


@pytest.mark.parametrize(
    ("models", "engine", "message"),
    [
        ("trained", "tensorflow", "no saved_model.pb in trained; export_mode"),
        ("all/a", "onnxruntime", "writes it with --format=onnx"),
        ("all/c", "tensorflow", "export_model.py writes it"),
        ("missing", "tensorflow", "--models: missing: no such directory"),
        ("file", "tensorflow", "file: is a file, not a directory"),
        ("all/a,nowhere", "tensorflow", "nowhere: no such directory"),
    ],
)
def test_what_cannot_be_served_is_named(folder, models, engine, message):
    with pytest.raises(errors.InputError) as caught:
        served_directories.check(models, engine)
    assert message in str(caught.value)


def test_what_can_be_served_or_is_elsewhere_is_not_refused(folder):
    served_directories.check("all/a,y=all/b,gs://bucket/model", "tensorflow")
    served_directories.check("onnx", "onnxruntime")


def test_they_are_checked_before_the_import_of_tensorflow(tmp_path, repository):
    for name in ("tensorflow", "onnxruntime"):
        stub = f"raise SystemExit('{name} is imported')"
        (tmp_path / f"{name}.py").write_text(stub)
    found = subprocess.run(
        [sys.executable, repository / "serve.py", "--models=missing"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stderr) == (
        2,
        "serve.py: --models: missing: no such directory\n",
    )
