"""Proves that the files of sentence-transformers are read, or refused.

python -m pytest tests/weights/sentence_modules_test.py
"""

import dataclasses
import json
import os

import pytest

from foundation import errors
from tests.weights import sentence_models
from weights import checkpoint_sources, sentence_modules, tokenizer_files

TANH = "torch.nn.modules.activation.Tanh"


@pytest.fixture
def folder(tmp_path):
    return sentence_models.save(
        tmp_path / "model",
        pooling=["cls", "mean"],
        dense=[(32, 4, TANH)],
        normalize=True,
        max_seq_length=20,
    )


def open_modules(folder, **given):
    flags = {"pooling": None, "normalize": None, "max_seq_length": None}
    return sentence_modules.open_modules(str(folder), **(flags | given))


def test_the_modules_are_the_defaults(folder, caplog):
    found = open_modules(folder)
    assert found.pooling == "cls,mean" and found.normalize
    assert found.max_seq_length == 20
    (dense,) = found.dense
    assert dense.kernel.shape == (32, 4) and dense.activation == "Tanh"
    assert found.vector_size(16) == 4
    same = open_modules(folder, pooling="cls,mean", normalize=True)
    assert same.pooling == found.pooling
    assert not caplog.records


def test_written_files_are_read_back(tmp_path):
    folder = sentence_models.save_written(tmp_path / "model")
    found = sentence_modules.read(str(folder))
    wanted = sentence_modules.SentenceModules(
        folder=str(folder), **sentence_models.WRITTEN
    )
    assert found == wanted
    other = dataclasses.replace(wanted, pooling="cls", normalize=False)
    sentence_modules.write(str(folder), other, hidden_size=16)
    assert sentence_modules.read(str(folder)) == other


def test_flags_win_with_a_warning(folder, caplog):
    found = open_modules(folder, normalize=False, max_seq_length=30)
    assert (found.normalize, found.max_seq_length) == (False, 30)
    for text in ("--normalize=False", "True", "--max_seq_length=30", "20"):
        assert text in caplog.text
    with pytest.raises(errors.InputError, match="32 numbers.*pooling=max.*16"):
        open_modules(folder, pooling="max").vector_size(16)


def test_a_directory_without_modules_has_the_mean(folder):
    (folder / "modules.json").unlink()
    found = open_modules(folder)
    assert found == sentence_modules.SentenceModules()
    assert found.pooling == "mean" and not found.normalize


@pytest.mark.parametrize("length", [None, 48, 10**30, float("inf")])
def test_the_tokenizer_has_a_maximum_length(folder, length):
    sentence_models.edit(
        folder / "sentence_bert_config.json", max_seq_length=None
    )
    sentence_models.edit(
        folder / "tokenizer_config.json", model_max_length=length
    )
    assert open_modules(folder).max_seq_length >= 48


def test_the_encoder_may_have_a_folder(tmp_path):
    root = sentence_models.save(
        tmp_path / "model",
        pooling=["max"],
        encoder="0_Transformer",
        max_seq_length=9,
        do_lower_case=True,
    )
    for path in (root, root / "0_Transformer"):
        source = checkpoint_sources.read(str(path))
        found = open_modules(source.folder)
        assert (found.pooling, found.max_seq_length) == ("max", 9)
        # The cased tokenizer is lower-cased, and keeps its accents.
        settings = tokenizer_files.load(source.directory).settings
        assert settings["do_lower_case"] and settings["strip_accents"] is False


@pytest.mark.parametrize("dim", [3, 99])
def test_vectors_are_truncated(folder, dim):
    sentence_models.write(
        folder / "config_sentence_transformers.json", {"truncate_dim": dim}
    )
    assert open_modules(folder).vector_size(16) == min(dim, 4)


def change_modules(folder, **values):
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    modules[-1] |= values
    path.write_text(json.dumps(modules))


POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
BAD = [
    ("modules.json", {"type": "sentence_transformers.models.CNN"}, "CNN"),
    ("modules.json", {"type": "custom.Normalize"}, "custom.Normalize"),
    ("modules.json", {"type": "sentence_transformers.models.Pooling"}, "order"),
    ("modules.json", {"path": "../x"}, "path"),
    (POOLING, {"pooling_mode": "attention"}, "weightedmean"),
    (POOLING, {"pooling_mode": ["cls", ["mean"]]}, "pooling_mode"),
    (POOLING, {"pooling_mode_other": True}, "pooling_mode_other"),
    (DENSE, {"activation_function": "torch.nn.PReLU"}, "Tanh"),
    (DENSE, {"use_residual": True}, "use_residual"),
    ("sentence_bert_config.json", {"max_seq_length": "20"}, "max_seq_length"),
    ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim"),
]


@pytest.mark.parametrize(("file", "values", "named"), BAD)
def test_what_is_not_computed_is_refused(file, values, named, folder):
    if file == "modules.json":
        change_modules(folder, **values)
    else:
        sentence_models.edit(folder / file, **values)
    with pytest.raises(errors.InputError, match=named) as caught:
        open_modules(folder)
    assert os.path.dirname(file) in str(caught.value)
    if "without its entry" in str(caught.value):
        modules = json.loads((folder / file).read_text())
        sentence_models.write(folder / file, modules[:-1])
        open_modules(folder)


@pytest.mark.parametrize(
    ("name", "values", "problem_type"),
    [
        ("config.json", {}, None),
        (
            "config.json",
            {"sbert_ce_default_activation_function": "torch.nn.Identity"},
            "regression",
        ),
        (
            "config.json",
            {"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}},
            None,
        ),
        (
            "config_sentence_transformers.json",
            {"activation_fn": "torch.nn.modules.linear.Identity"},
            "regression",
        ),
    ],
)
def test_a_cross_encoder_may_keep_its_logit(name, values, problem_type, folder):
    sentence_models.edit(folder / name, **values)
    for count in (1, 2):
        labels = {str(i): f"LABEL_{i}" for i in range(count)}
        sentence_models.edit(folder / "config.json", id2label=labels)
        found = checkpoint_sources.read(str(folder)).settings.problem_type
        assert found == (problem_type if count == 1 else None)
