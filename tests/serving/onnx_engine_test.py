"""Tests how ONNX models are loaded; parity_test.py compares their answers.

python -m pytest tests/serving/onnx_engine_test.py
"""

import importlib.util
import os
import subprocess
import sys

import exports
import pytest

import serve
from foundation import config_flags, errors
from serving import tensorflow_engine

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from serving import onnx_engine  # noqa: E402

_EMBEDDING = "sentence_embedding"
# Tasks whose models are computed without TensorFlow.
_WITHOUT = (*("question_answering", _EMBEDDING),)


def test_a_damaged_model_is_refused(tiny_models, tmp_path):
    exports.export(tiny_models / "regression", tmp_path / "onnx", format="onnx")
    path = tmp_path / "onnx" / onnx_engine.make().file
    path.write_bytes(path.read_bytes()[:999])
    with pytest.raises(errors.InputError, match=f"{path}: cannot be loaded"):
        onnx_engine.make().load(str(tmp_path / "onnx"))
    (tmp_path / "onnx" / "config.json").unlink()
    with pytest.raises(errors.InputError, match="config.json is missing"):
        onnx_engine.make().load(str(tmp_path / "onnx"))


def test_the_flag_chooses_the_engine(monkeypatch):
    config = serve.ServeConfig(models="m", engine="onnxruntime")
    assert serve._engine(config).file == "model.onnx"
    threads = []
    monkeypatch.setattr(tensorflow_engine, "set_threads", threads.append)
    for given in ({"threads_per_batch": 3}, {}):
        monkeypatch.setattr(os, "cpu_count", lambda: 16)
        config = config_flags.build(serve.ServeConfig, models="m", **given)
        assert serve._engine(config) is tensorflow_engine.ENGINE
    assert threads == [3, 4]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    config = serve.ServeConfig(models="m", engine="onnxruntime")
    with pytest.raises(errors.InputError, match="requirements-onnx.txt"):
        serve._engine(config)


_WITHOUT_TENSORFLOW = """
import sys
import serve
from serving import onnx_engine, servable
config = serve.ServeConfig(models=sys.argv[1], engine="onnxruntime")
engine = serve._engine(config)
for path in config.models.split(","):
    servable.load("m", path, engine).warm_up()
for name in ("tensorflow", "keras", "torch"):
    assert name not in sys.modules, name
"""


def test_tensorflow_stays_out_of_the_process(tiny_models, tmp_path, repository):
    written = [
        exports.export(
            tiny_models / ("fill_mask" if task == _EMBEDDING else task),
            tmp_path / task,
            format="onnx",
            task=task,
        )
        for task in _WITHOUT
    ]
    subprocess.run(
        [
            sys.executable,
            "-c",
            _WITHOUT_TENSORFLOW,
            ",".join(map(str, written)),
        ],
        cwd=repository,
        check=True,
    )
