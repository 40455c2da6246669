"""Exports models of all tasks as ONNX, and compares them with ours.

python -m pytest tests/serving/onnx_model_test.py
"""

import json
import os

import exports
import numpy as np
import pytest

import export_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from modeling import models  # noqa: E402
from serving import onnx_graph, onnx_names  # noqa: E402
from tasks.ner import tagging  # noqa: E402
from weights import kinds, model_directory, tokenizer_files  # noqa: E402

_EMBEDDING = "sentence_embedding"
_FAST_INT8 = "multiple_choice", "fill_mask", _EMBEDDING


def _source(tiny_models, task):
    # The encoder of a model with another head.
    return tiny_models / ("fill_mask" if task == _EMBEDDING else task)


@pytest.mark.parametrize(
    ("task", "precision"),
    [
        *((task, "float32") for task in kinds.EXPORT_NAMES),
        *(
            pytest.param(
                task,
                "int8",
                marks=[] if task in _FAST_INT8 else pytest.mark.all,
            )
            for task in kinds.EXPORT_NAMES
        ),
    ],
)
def test_a_model_of_every_task(tiny_models, tmp_path, caplog, task, precision):
    source, folder = _source(tiny_models, task), tmp_path / "onnx"
    flags = {"task": task} if task == _EMBEDDING else {}
    exports.export(source, folder, format="onnx", precision=precision, **flags)
    assert f"the outputs in {precision} differ" in caplog.text
    description = json.loads((folder / "export.json").read_text())
    assert description["task"] == task and description["format"] == "onnx"
    assert description["precision"] == precision

    session = onnxruntime.InferenceSession(str(folder / onnx_names.MODEL))
    rank = 3 if task == "multiple_choice" else 2
    for info in session.get_inputs():
        assert info.type == "tensor(int64)" and len(info.shape) == rank
        assert all(isinstance(axis, str) for axis in info.shape)
    # Other rows than those of the check in the export.
    shape = (3, 2, 13)[3 - rank :]
    random = np.random.default_rng(7)
    features = {
        "input_ids": random.integers(0, len(exports.WORDS), shape),
        "input_mask": np.ones(shape, np.int64),
        "segment_ids": random.integers(0, 2, shape),
    }
    features["input_mask"][-1, ..., 5:] = 0
    expected = exports.task_graph(source, **flags).logits(
        {name: x.astype(np.int32) for name, x in features.items()}
    )
    inputs = {onnx_names.INPUTS[k]: x for k, x in features.items()}
    for name, values in expected.items():
        name = onnx_names.OUTPUTS.get(name, name)
        (found,) = session.run([name], inputs)
        error, scale = found - values, np.square(values).mean() ** 0.5
        if precision == "float32":
            np.testing.assert_allclose(found, values, atol=1e-4)
        else:
            assert 0 < np.square(error).mean() ** 0.5 < 0.5 * scale

    settings = model_directory.read_settings(str(folder))
    names = ["LABEL_0"] if task == "regression" else description["labels"]
    assert (settings.labels or None) == (names or None)
    config = model_directory.read_config(str(folder))
    assert config == model_directory.read_config(str(source))
    words = tokenizer_files.load(str(folder)).vocabulary
    assert list(words.tokens) == exports.WORDS


def test_the_scores_of_a_crf_are_beside_the_model(tmp_path):
    source, folder = tmp_path / "model", tmp_path / "onnx"
    exports.save_model(
        source,
        models.TaggingModel,
        num_classes=len(exports.TAGS),
        labels=exports.TAGS,
    )
    stored = {"labels": exports.TAGS, "start": [0.5] * 5, "end": [0.25] * 5}
    stored["transitions"] = np.arange(25.0).reshape(5, 5).tolist()
    (source / "crf.json").write_text(json.dumps(stored))
    exports.export(source, folder, format="onnx")
    assert tagging.has_crf(str(folder))
    found = json.loads((folder / "crf.json").read_text())
    assert found["labels"] == exports.TAGS
    assert found["end"] == stored["end"]
    # Those that the scheme of the tags forbids are very low.
    transitions = np.array(found["transitions"])
    is_allowed = transitions > -1000
    assert is_allowed.sum() > 10
    expected = np.array(stored["transitions"])
    np.testing.assert_allclose(transitions[is_allowed], expected[is_allowed])


def test_layers_after_that_of_an_embedding_are_left_out(tiny_models, tmp_path):
    exports.export(
        _source(tiny_models, _EMBEDDING),
        tmp_path / "onnx",
        format="onnx",
        task=_EMBEDDING,
        layer=0,
    )
    config = model_directory.read_config(str(tmp_path / "onnx"))
    assert config.num_hidden_layers == 1
    graph = onnx.load(str(tmp_path / "onnx" / onnx_names.MODEL)).graph
    names = [x.name for x in graph.initializer]
    assert any("layer_0" in name for name in names)
    assert not any("layer_1" in name for name in names)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_other_outputs_are_refused_and_leave_the_earlier_export(
    tiny_models, tmp_path, monkeypatch, capsys, precision
):
    folder, make = tmp_path / "onnx", onnx_graph.make

    def damaged(*arguments, **options):
        model = make(*arguments, **options)
        for weight in model.graph.initializer:
            if weight.name.endswith("/gamma"):
                values = onnx.numpy_helper.to_array(weight)
                other = onnx.numpy_helper.from_array(-values, weight.name)
                weight.CopyFrom(other)
        return model

    exports.export(tiny_models / "regression", folder, format="onnx")
    before = (folder / onnx_names.MODEL).read_bytes()
    monkeypatch.setattr(onnx_graph, "make", damaged)
    with pytest.raises(SystemExit):
        exports.export(
            tiny_models / "classification",
            folder,
            format="onnx",
            precision=precision,
        )
    assert f"--precision={precision}: " in capsys.readouterr().err
    assert (folder / onnx_names.MODEL).read_bytes() == before
    assert os.listdir(tmp_path) == ["onnx"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"precision": "int8"}, "--precision=int8"),
        ({"format": "onnx", "precision": "bfloat16"}, "--precision=bfloat16"),
    ],
)
def test_flags_that_exclude_each_other_are_refused(flags, named):
    with pytest.raises(ValueError, match=named):
        export_model.ExportConfig(model_dir="a", output_dir="b", **flags)
