"""Proves that model directories are complete, and replaced atomically.

python -m pytest tests/weights/model_directory_test.py
"""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tiny_runs

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from modeling import models
from weights import checkpoint_sources, model_directory, stored_weights


def _load(model, directory):
    """Assigns the weights of a directory without a look at its config."""
    source = checkpoint_sources.read(str(directory))
    return stored_weights.assign(
        model, source.tensors, where=source.path, others=source.others
    )


@pytest.fixture(scope="module")
def model(tiny_config):
    return models.PretrainingModel(tiny_config, seed=1)


@pytest.fixture
def saved(model, tmp_path):
    model_directory.save(model, tmp_path)
    return tmp_path


def test_save_and_load_is_bit_exact(model, saved, tiny_config):
    other = models.PretrainingModel(tiny_config, seed=2)
    report = _load(other, saved)
    assert sorted(report.loaded) == sorted(v.path for v in model.weights)
    assert not report.initialized and not report.left_over
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_all_files_may_be_read_by_the_same_users(saved):
    assert len({path.stat().st_mode for path in saved.iterdir()}) == 1


def test_weights_never_exist_without_the_other_files(
    model, tmp_path, monkeypatch
):
    def fail(*args, **kwargs):
        raise OSError("killed")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    tokenizer = wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens(tiny_runs.SPECIAL)
    )
    with pytest.raises(OSError, match="killed"):
        model_directory.save(model, tmp_path, tokenizer)
    assert {path.name for path in tmp_path.iterdir()} == {
        "bert_config.json",
        "config.json",
        "tokenizer_config.json",
        "vocab.txt",
    }


def test_the_file_has_transposed_kernels_under_hugging_face_names(model, saved):
    tensors = safetensors.numpy.load_file(saved / "model.safetensors")
    kernel = model.bert.blocks[1].intermediate.kernel.numpy()
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(tensors[name], kernel.T)
    assert tensors["cls.seq_relationship.weight"].shape == (2, 8)
    assert "cls.predictions.decoder.weight" not in tensors


def test_both_configs_contain_the_same_in_their_dialect(saved, tiny_config):
    theirs = json.loads((saved / "config.json").read_text())
    released = json.loads((saved / "bert_config.json").read_text())
    assert theirs["architectures"] == ["BertForPreTraining"]
    assert theirs["model_type"] == "bert"
    assert (theirs["hidden_act"], released["hidden_act"]) == (
        "gelu_new",
        "gelu",
    )
    assert model_directory.read_config(saved) == tiny_config
    (saved / "config.json").unlink()
    assert model_directory.read_config(saved) == tiny_config


def test_the_error_function_form_survives(tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, hidden_act="gelu_erf")
    model_directory.save(models.PretrainingModel(config), tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["hidden_act"] == "gelu"
    assert model_directory.read_config(tmp_path) == config


@pytest.mark.parametrize(
    "names", [{"1": "a", "2": "b"}, {"0": "a", "2": "b"}, {"x": "a"}, ["a"]]
)
def test_labels_are_numbered_from_0_without_gaps(tmp_path, names):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"id2label": {"1": "b", "0": "a"}}))
    assert model_directory.read_settings(str(tmp_path)).labels == ["a", "b"]
    path.write_text(json.dumps({"id2label": names}))
    with pytest.raises(errors.InputError, match="map the numbers 0, 1, ... to"):
        model_directory.read_settings(str(tmp_path))


def test_loading_reports_what_was_loaded(saved, tiny_config):
    tagger = models.TaggingModel(tiny_config, num_classes=3)
    report = _load(tagger, saved)
    assert report.initialized == ["output_weights", "output_bias"]
    assert "bert.pooler.dense.weight" in report.left_over
    assert len(report.loaded) == len(tagger.weights) - 2
    assert "37 variables loaded; initialized: output_w" in report.summary()


@pytest.mark.parametrize(
    ("model_class", "options", "architecture"),
    [
        (
            models.ClassificationModel,
            {"num_classes": 2},
            "BertForSequenceClassification",
        ),
        (
            models.ClassificationModel,
            {"num_classes": 2, "bilstm_size": 5},
            "BertModel",
        ),
        (models.MultipleChoiceModel, {}, "BertForMultipleChoice"),
        (models.QuestionAnsweringModel, {}, "BertForQuestionAnswering"),
        (models.TaggingModel, {"num_classes": 2}, "BertForTokenClassification"),
        (
            models.PretrainingModel,
            {"next_sentence": False},
            "BertForMaskedLM",
        ),
        (
            models.PretrainingModel,
            {"next_sentence": False, "attention": "left_to_right"},
            "BertLMHeadModel",
        ),
    ],
)
def test_every_model_round_trips(
    model_class, options, architecture, tiny_config, tmp_path
):
    model = model_class(tiny_config, seed=1, **options)
    labels = ["no", "yes"] if "num_classes" in options else None
    model_directory.save(model, tmp_path, labels=labels)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert model_directory.read_settings(tmp_path).labels == labels
    assert model_directory.read_settings(tmp_path).attention == options.get(
        "attention", "bidirectional"
    )
    size = model_directory.read_settings(tmp_path).bilstm_size
    assert size == options.get("bilstm_size", 0)
    other = model_class(tiny_config, seed=2, **options)
    report = _load(other, tmp_path)
    assert not report.initialized and not report.left_over


def test_an_interrupted_save_leaves_the_old_file(
    saved, tiny_config, monkeypatch
):
    before = (saved / "model.safetensors").read_bytes()

    def fail(tensors, path, metadata):
        with open(path, "wb") as file:
            file.write(b"half")
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        model_directory.save(
            models.PretrainingModel(tiny_config, seed=9), saved
        )
    assert (saved / "model.safetensors").read_bytes() == before
    assert len(list(saved.iterdir())) == 3


def test_weights_of_another_shape_get_one_line(saved, tiny_config):
    wider = dataclasses.replace(tiny_config, vocab_size=31)
    with pytest.raises(errors.InputError, match=r"is \[30, 8\], which does no"):
        _load(models.PretrainingModel(wider), saved)


def test_broken_files_get_one_line(model, saved):
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(errors.InputError, match="model.safetensors: "):
        _load(model, saved)
    weights.unlink()
    with pytest.raises(errors.InputError, match="no model.safetensors"):
        _load(model, saved)
    (saved / "config.json").write_text("{")
    with pytest.raises(
        errors.InputError, match="config.json:1: malformed JSON"
    ):
        model_directory.read_config(saved)
    assert model_directory.read_config(saved / "elsewhere") is None
