"""Exports models of all tasks as ONNX, and compares them with ours.

python -m pytest tests/serving/onnx_model_test.py
"""

import json
import os

import exports
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from modeling import models  # noqa: E402
from serving import exported, onnx_graph  # noqa: E402
from tasks.ner import tagging  # noqa: E402
from weights import model_directory  # noqa: E402

_EMBEDDING = "sentence_embedding"


def _source(tiny_models, task):
    # The encoder of a model with another head.
    return tiny_models / ("fill_mask" if task == _EMBEDDING else task)


@pytest.mark.parametrize(
    "task",
    [
        "classification",
        *(
            pytest.param(x, marks=pytest.mark.all)
            for x in ("multiple_choice", "fill_mask", _EMBEDDING, "regression")
        ),
    ],
)
def test_weights_of_8_bits_are_near(tiny_models, tmp_path, caplog, task):
    """parity_test.py compares those of 32 bits."""
    caplog.set_level("INFO", logger="absl")  # Commands may have changed it.
    source, folder = _source(tiny_models, task), tmp_path / "onnx"
    flags = {"task": task} if task == _EMBEDDING else {}
    exports.export(source, folder, format="onnx", precision="int8", **flags)
    assert "the outputs in int8 differ" in caplog.text
    description = json.loads((folder / "export.json").read_text())
    assert (description["task"], description["format"]) == (task, "onnx")
    shape = (3, 2, 13) if task == "multiple_choice" else (3, 13)
    random = np.random.default_rng(7)
    features = {
        "input_ids": random.integers(0, len(exports.WORDS), shape),
        "input_mask": np.ones(shape, np.int64),
        "segment_ids": random.integers(0, 2, shape),
    }
    (values,) = (
        exports.opened(source, **flags)
        .logits({name: x.astype(np.int32) for name, x in features.items()})
        .values()
    )
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    inputs = {exported.ONNX_NAMES[k]: x for k, x in features.items()}
    *_, found = session.run(None, inputs)
    error, scale = found - values, np.square(values).mean() ** 0.5
    assert 0 < np.square(error).mean() ** 0.5 < 0.5 * scale
    names = ["LABEL_0"] if task == "regression" else description["labels"]
    settings = model_directory.read_settings(str(folder))
    assert (settings.labels or None) == (names or None)


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
    graph = onnx.load(str(tmp_path / "onnx" / "model.onnx")).graph
    names = [x.name for x in graph.initializer]
    assert any("layer_0" in name for name in names)
    assert not any("layer_1" in name for name in names)


def test_other_outputs_are_refused_and_leave_the_earlier_export(
    tiny_models, tmp_path, monkeypatch, capsys
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
    before = (folder / "model.onnx").read_bytes()
    monkeypatch.setattr(onnx_graph, "make", damaged)
    with pytest.raises(SystemExit):
        exports.export(
            tiny_models / "classification",
            folder,
            format="onnx",
        )
    assert "--precision=float32: " in capsys.readouterr().err
    assert (folder / "model.onnx").read_bytes() == before
    assert os.listdir(tmp_path) == ["onnx"]
