"""Serves ONNX models, and compares the answers with those of SavedModels.

python -m pytest tests/serving/onnx_engine_test.py
"""

import importlib.util
import json
import os
import subprocess
import sys

import exports
import numpy as np
import pytest
import served_exports_test as over_http
import tensorflow as tf

import serve
from foundation import errors
from modeling import models
from serving import served_model, tensorflow_engine

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from serving import onnx_engine, servable  # noqa: E402

_EMBEDDING = "sentence_embedding"
# Tasks whose models are computed without TensorFlow.
_WITHOUT = (
    *("classification", "regression", "multiple_choice"),
    *("question_answering", _EMBEDDING),
)
_QUICK = "multiple_choice", "question_answering", "fill_mask"
_BAD_UTF8 = b"the cat\xff sat"


@pytest.fixture(scope="module")
def crf_model(tmp_path_factory):
    """A tagger whose CRF changes the tags."""
    folder = tmp_path_factory.mktemp("crf") / "model"
    count, tags = len(exports.TAGS), exports.TAGS
    exports.save_model(
        folder, models.TaggingModel, num_classes=count, labels=tags
    )
    random = np.random.default_rng(3)
    scores = {
        "labels": tags,
        "transitions": random.normal(0, 3, (count, count)).tolist(),
        "start": random.normal(0, 3, count).tolist(),
        "end": random.normal(0, 3, count).tolist(),
    }
    (folder / "crf.json").write_text(json.dumps(scores))
    return folder


def load_onnx(source, folder, **flags):
    """Exports a model as ONNX, and loads it."""
    written = exports.export(source, folder / "onnx", format="onnx", **flags)
    return onnx_engine.make(1).load(str(written))


def predicted(graph, inputs):
    """Returns the outputs of a task's graph for texts."""
    found = graph.predict(
        **{name: tf.constant(x.tolist()) for name, x in inputs.items()}
    )
    return {name: found[name].numpy() for name in sorted(found)}


def same(expected, found):
    """Checks that outputs are equal, and numbers to 1e-4."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        if values.dtype == object:
            assert found[name].tolist() == values.tolist(), name
        else:
            np.testing.assert_allclose(found[name], values, atol=1e-4)


def columns(rows):
    """Returns rows as arrays of bytes."""

    def encoded(value):
        if isinstance(value, list):
            return [encoded(x) for x in value]
        return value if isinstance(value, bytes) else value.encode()

    return {
        name: np.array([encoded(row[name]) for row in rows], object)
        for name in rows[0]
    }


def rows_of(task):
    """Returns hard texts in the form of a task's inputs."""
    rows = over_http.INPUTS[task]
    if task == "fill_mask":
        # Without a mask, with one beyond the cut, and only masks.
        texts = ["the cat", "cat " * 30 + "[MASK]", "[MASK][MASK]x"]
        texts += ["[MASK] " * 60, f"{over_http.CONTEXT} [MASK]"]
        return [*rows, *({"text": text} for text in texts)]
    if task == "question_answering":
        more = [(x, y) for x in ("who?", "") for y in exports.TEXTS]
        more += [("x " * 99, over_http.CONTEXT)]
        return [*rows, *({"question": x, "context": y} for x, y in more)]
    if task == "multiple_choice":
        return rows
    texts = [*exports.TEXTS, _BAD_UTF8]
    return [*rows, *({"text": text} for text in texts)]


@pytest.mark.parametrize(
    "task",
    [
        x if x in _QUICK else pytest.param(x, marks=pytest.mark.all)
        for x in over_http.INPUTS
    ],
)
def test_answers_are_those_of_the_saved_model(task, tiny_models, tmp_path):
    flags = {"task": task, "max_seq_length": over_http.LENGTH}
    is_embedding = task == _EMBEDDING
    source = tiny_models / ("fill_mask" if is_embedding else task)
    graph = exports.task_graph(source, **flags)
    written = load_onnx(source, tmp_path, **flags)
    assert written.signatures.keys() == {"serving_default", "serve"}
    assert written.description["task"] == task
    inputs = columns(rows_of(task))
    same(predicted(graph, inputs), written.predict("serving_default", inputs))
    rank = 3 if task == "multiple_choice" else 2
    shape = (4, 2, 9)[3 - rank :]
    ids = {
        name: np.ones(shape, np.int32) * (name != "input_type_ids")
        for name in over_http.HUB_NAMES
    }
    ids["input_mask"][-1, ..., 4:] = 0
    expected = graph.logits(
        {x: ids[y] for x, y in served_model.HUB_NAMES.items()}
    )
    expected = {k: expected[k].numpy() for k in sorted(expected)}
    same(expected, written.predict("serve", ids))
    for name, outputs in (
        ("serving_default", written.predict("serving_default", inputs)),
        ("serve", expected),
    ):
        for key, spec in written.signatures[name].outputs.items():
            assert outputs[key].dtype == spec.dtype
            assert outputs[key].ndim == len(spec.shape) + 1


@pytest.mark.all
def test_a_crf_finds_the_entities_of_the_saved_model(crf_model, tmp_path):
    flags = {"max_seq_length": 16, "document_context": "maximal"}
    graph = exports.task_graph(crf_model, **flags)
    written = load_onnx(crf_model, tmp_path, **flags)
    inputs = columns(rows_of("token_classification"))
    same(predicted(graph, inputs), written.predict("serving_default", inputs))


@pytest.mark.all
def test_questions_without_answer(tiny_models, tmp_path):
    flags = {"version_2_with_negative": True, "n_best_size": 3}
    flags |= {"null_score_diff_threshold": 0.5, "max_seq_length": 20}
    source = tiny_models / "question_answering"
    graph = exports.task_graph(source, **flags)
    written = load_onnx(source, tmp_path, **flags)
    inputs = columns(rows_of("question_answering"))
    expected = predicted(graph, inputs)
    assert {b""} < set(expected["answer"])
    same(expected, written.predict("serving_default", inputs))


@pytest.fixture(scope="module")
def classifier(tiny_models, tmp_path_factory):
    """A loaded model of classification in both forms."""
    folder = tmp_path_factory.mktemp("classifier")
    source = tiny_models / "classification"
    saved = exports.export(source, folder / "saved", text_pair=True)
    return (
        tensorflow_engine.ENGINE.load(str(saved)),
        load_onnx(source, folder, text_pair=True),
    )


def test_the_signatures_are_those_of_the_saved_model(classifier):
    saved, written = classifier
    for name, found in written.signatures.items():
        assert found.inputs == saved.signatures[name].inputs
        shown, expected = written.metadata[name], saved.metadata[name]
        for side in ("inputs", "outputs"):
            assert shown[side].keys() == expected[side].keys()
            for key, info in expected[side].items():
                assert shown[side][key]["dtype"] == info["dtype"]
        assert (
            shown["inputs"].items()
            == {
                key: info | {"name": key}
                for key, info in expected["inputs"].items()
            }.items()
        )


def test_pairs_of_texts(classifier):
    pairs = zip(exports.TEXTS, reversed(exports.TEXTS), strict=True)
    inputs = columns([{"text": x, "text_pair": y} for x, y in pairs])
    saved, written = classifier
    same(
        saved.predict("serving_default", inputs),
        written.predict("serving_default", inputs),
    )


def test_ids_that_the_model_does_not_have_are_refused(classifier):
    ones = np.ones((3, 5), np.int32)
    bad = ones.copy()
    bad[1, 3] = 1000
    for changed in (
        {0: bad},
        {0: -bad},
        {1: bad},
        {2: bad},
        {1: ones[:, :4]},
        dict.fromkeys(range(3), np.ones((2, 600), np.int32)),
        dict.fromkeys(range(3), np.ones((2, 0), np.int32)),
    ):
        inputs = {
            name: changed.get(i, ones)
            for i, name in enumerate(over_http.HUB_NAMES)
        }
        lines = []
        for model in classifier:
            with pytest.raises(errors.InputError) as error:
                model.predict("serve", inputs)
            lines.append(str(error.value))
        assert lines[0] == lines[1]


def test_requests_over_http_get_answers_or_status_400(classifier):
    model = servable.Servable("m", classifier[1])
    model.warm_up()
    row = {"text": over_http.CONTEXT, "text_pair": "the cat"}
    example = {"examples": [over_http.example(row)]}
    found = over_http.post(
        model,
        {"instances": [row, row]},
        {"signature_name": "serve_examples", "inputs": example},
    )
    assert [status for status, _ in found] == [200, 400]
    first, second = found[0][1]["predictions"]
    assert first == second and first["label"] in exports.LABELS
    assert "serve, serving_default" in found[1][1]["error"]


def test_a_damaged_model_is_refused(classifier, tiny_models, tmp_path):
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
    assert serve._engine(config).name == "onnxruntime"
    threads = []
    monkeypatch.setattr(tensorflow_engine, "set_threads", threads.append)
    config = serve.ServeConfig(models="m", threads_per_batch=3)
    assert serve._engine(config) is tensorflow_engine.ENGINE
    for cores in (None, 2, 7, 16):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        serve._engine(serve.ServeConfig(models="m"))
    assert threads == [3, 1, 1, 1, 4]
    assert isinstance(serve._engine(config), served_model.Engine)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    config = serve.ServeConfig(models="m", engine="onnxruntime")
    with pytest.raises(errors.InputError, match="requirements-onnx.txt"):
        serve._engine(config)


_WITHOUT_TENSORFLOW = """
import sys
import serve
from serving import onnx_engine, servable
config = serve.ServeConfig(models=sys.argv[1], engine="onnxruntime")
servables = servable.open_all(config.models, serve._engine(config))
for model in servables.values():
    model.warm_up()
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
