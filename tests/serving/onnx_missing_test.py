"""Proves that ONNX without its packages gets a line with the command.

python -m pytest tests/serving/onnx_missing_test.py
"""

import importlib.util

import exports
import pytest


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, capsys, missing):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name != missing or None
    )
    with pytest.raises(SystemExit):
        exports.export(tmp_path / "model", tmp_path / "out", format="onnx")
    line = f"--format=onnx needs {missing}: pip install -r requirements-onnx"
    assert line in capsys.readouterr().err
