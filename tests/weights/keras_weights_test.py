"""Proves that weights of transformers' TensorFlow models are read.

Two of them were written, and computed, by transformers itself; see
tests/testdata/make_tensorflow_models.py.

python -m pytest tests/weights/keras_weights_test.py
"""

import json
import pathlib
import shutil

import h5py
import numpy as np
import pytest

from foundation import errors
from modeling import models
from modeling.config import BertConfig
from tests.weights import other_forms
from weights import (
    checkpoint_sources,
    pretrained,
    stored_weights,
)

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"
PRETRAINED = TESTDATA / "tiny_pretrained"
CONFIG = BertConfig.from_json_file(PRETRAINED / "bert_config.json")
WORDS = "bert/embeddings/word_embeddings/weight:0"
QUERY = "bert/encoder/layer_._1/attention/self/query/kernel:0"


@pytest.fixture(scope="module")
def source():
    return checkpoint_sources.read(str(PRETRAINED))


@pytest.fixture
def directory(tmp_path):
    """A copy of the model directory without weights."""
    folder = pathlib.Path(shutil.copytree(PRETRAINED, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    return folder


def assert_equal(source, path, *, others=()):
    found = checkpoint_sources.read(str(path))
    assert found.tensors.keys() == source.tensors.keys()
    for name, tensor in found.tensors.items():
        expected = source.tensors[name]
        assert tensor.shape == expected.shape, name
        values = stored_weights.values(str(path), tensor)
        np.testing.assert_array_equal(values, expected.read(), name)
    assert [*found.others] == [*others]
    return found


def test_models_of_transformers_compute_the_same():
    golden = json.loads(
        (TESTDATA / "tensorflow_models/outputs.json").read_text()
    )
    features = {
        ours: np.array(golden[theirs], np.int32)
        for ours, theirs in (
            ("input_ids", "input_ids"),
            ("input_mask", "attention_mask"),
            ("segment_ids", "token_type_ids"),
        )
    }
    for name, make, outputs in (
        (
            "pretraining",
            models.PretrainingModel,
            ["prediction_logits", "seq_relationship_logits"],
        ),
        (
            "classifier",
            lambda config: models.ClassificationModel(config, num_classes=3),
            ["logits"],
        ),
    ):
        source = checkpoint_sources.read(
            str(TESTDATA / "tensorflow_models" / name)
        )
        model = make(source.config)
        report = pretrained.assign(model, source.path)
        assert not report.initialized and not report.left_over
        if name == "pretraining":  # The same, as a callback of Keras saves it.
            callback = TESTDATA / "tensorflow_models/callback"
            assert_equal(source, callback)
            assert_equal(source, callback / "cp.ckpt")
        found = model(features)
        for output, value in zip(
            outputs, found if isinstance(found, tuple) else [found], strict=True
        ):
            expected = golden[name][output]
            np.testing.assert_allclose(value, expected, atol=1e-6, rtol=0)


def test_it_is_read_before_a_pickle_and_after_safetensors(directory, source):
    other_forms.keras_hdf5(source.tensors, directory / "tf_model.h5")
    (directory / "pytorch_model.bin").write_bytes(b"needs torch")
    assert_equal(source, directory)
    (directory / "tf_model.h5").write_bytes(b"not looked at")
    shutil.copy(PRETRAINED / "model.safetensors", directory)
    assert_equal(source, directory)


@pytest.mark.parametrize("root", ["", "model_weights"])
def test_the_encoder_of_a_keras_model_is_read(root, tmp_path, source):
    """Of save_weights, and of save with the optimizer."""
    encoder = {
        name: tensor
        for name, tensor in source.tensors.items()
        if name.startswith("bert/")
    }
    path = other_forms.keras_hdf5(
        encoder,
        tmp_path / "film.h5",
        model="tf_bert_model_1",
        root=root,
        is_nested=True,
    )
    with h5py.File(path, "a") as file:
        group = file[root] if root else file
        group["dense/dense/kernel:0"] = np.ones([CONFIG.hidden_size, 3])
        if root:
            slot = f"optimizer_weights/Adam/m/tf_bert_model_1/{WORDS}"
            file[slot] = np.ones(3)
    found = checkpoint_sources.read(str(path))
    assert found.tensors.keys() == encoder.keys()
    assert list(found.others) == ["dense.weight"]
    model = models.ClassificationModel(CONFIG, num_classes=3)
    report = pretrained.assign(model, str(path))
    assert report.initialized == ["output_weights", "output_bias"]
    pooler = model.bert.pooler.kernel.numpy()
    expected = source.tensors["bert/pooler/dense/kernel"].read()
    np.testing.assert_array_equal(pooler, expected)


def test_a_truncated_file_is_refused(tmp_path, source):
    path = other_forms.keras_hdf5(source.tensors, tmp_path / "tf_model.h5")
    data = path.read_bytes()
    for size in (0, 7, 100, 2048, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(errors.InputError, match="truncated, or not"):
            _ = checkpoint_sources.read(str(path)).matched


def test_other_files_of_keras_are_refused(tmp_path):
    path = tmp_path / "model.weights.h5"
    with h5py.File(path, "w") as file:  # Of Keras 3.
        file["layers/dense/vars/0"] = np.ones(3)
    with pytest.raises(errors.InputError, match="without variables as Keras 2"):
        _ = checkpoint_sources.read(str(path)).matched


def test_values_in_other_files_are_never_read(tmp_path, source):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(4 * 16))
    outside = [(str(secret), 0, 4 * 16)]
    path = other_forms.keras_hdf5(source.tensors, tmp_path / "tf_model.h5")
    name = "bert/tf_bert_for_pre_training/bert/stolen:0"
    layout = h5py.VirtualLayout(shape=(16,), dtype="f4")
    layout[:] = h5py.VirtualSource(str(secret), "x", shape=(16,))
    for add in (
        lambda group: group.create_dataset(
            "stolen:0", (16,), "f4", external=outside
        ),
        lambda group: group.create_virtual_dataset("stolen:0", layout),
    ):
        with h5py.File(path, "a") as file:
            if name in file:
                del file[name]
            add(file["bert/tf_bert_for_pre_training/bert"])
        with pytest.raises(errors.InputError, match="stolen:0 are in another"):
            _ = checkpoint_sources.read(str(path)).matched
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = h5py.ExternalLink(str(secret), "/x")
    assert_equal(source, path)  # A link to another file is not followed.
