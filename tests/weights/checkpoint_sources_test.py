"""Proves that every kind of checkpoint is loaded, or refused in one line.

python -m pytest tests/weights/checkpoint_sources_test.py
"""

import dataclasses
import json
import logging
import os
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from data.tokenization import wordpiece
from foundation import errors, tensor_files
from modeling import models
from modeling.config import BertConfig
from tests.weights import other_forms
from training import checkpoints
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    pretrained,
    tokenizer_files,
)

PRETRAINED = pathlib.Path(__file__).parent.parent / "testdata/tiny_pretrained"
CONFIG = BertConfig.from_json_file(PRETRAINED / "bert_config.json")


@pytest.fixture
def directory(tmp_path):
    """A copy of the pre-trained model directory."""
    return pathlib.Path(shutil.copytree(PRETRAINED, tmp_path / "model"))


@pytest.fixture(scope="module")
def tf1(tmp_path_factory):
    """The same as a TF1 checkpoint with slots and a step."""
    checkpoint = conversion.load(checkpoint_sources.read(str(PRETRAINED)))
    for path, value in checkpoint.values.items():
        checkpoint.training_state |= {f"{path}/adam_m": value * 0}
    checkpoint.training_state["global_step"] = np.int64(7)
    root = tmp_path_factory.mktemp("tf1")
    return conversion.write(checkpoint, str(root), conversion.TF1)


def _same_as_pretrained(path):
    lines, _ = checkpoint_sources.compare(
        checkpoint_sources.read(str(PRETRAINED)),
        checkpoint_sources.read(str(path)),
        tolerance=0.0,
    )
    return lines == ["equal: 46 variables in both, max |difference| 0"]


def test_checkpoints_without_common_variables_are_not_equal(tmp_path):
    paths = [tmp_path / f"{n}.safetensors" for n in range(2)]
    for number, path in enumerate(paths):
        tensors = {"electra.weight": np.full(3, number, np.float32)}
        safetensors.numpy.save_file(tensors, path)
    sources = [checkpoint_sources.read(str(path)) for path in paths]
    lines, is_equal = checkpoint_sources.compare(*sources, tolerance=0.0)
    assert not is_equal and lines[-1].startswith("DIFFERENT: 1 variables")


@pytest.mark.parametrize("is_tied", [True, False])
def test_an_untied_decoder_is_left_over(directory, is_tied):
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    words = tensors["bert.embeddings.word_embeddings.weight"]
    decoder = "cls.predictions.decoder.weight"
    tensors[decoder] = words.copy() if is_tied else words[::-1].copy()
    safetensors.numpy.save_file(tensors, path)
    source = checkpoint_sources.read(str(directory))
    assert list(source.others) == ([] if is_tied else [decoder])
    if is_tied:
        pretrained.load_masked_lm(str(directory))
        return
    with pytest.raises(
        errors.InputError, match="differs from the word embeddings"
    ):
        pretrained.load_masked_lm(str(directory))


def test_a_prefix_its_files_and_its_directory_are_one_checkpoint(tf1):
    directory = str(pathlib.Path(tf1).parent)
    for path in (tf1, tf1 + ".index", tf1 + ".data-00000-of-00001", directory):
        assert _same_as_pretrained(path), path
    source = checkpoint_sources.read(tf1)
    assert source.kind == checkpoint_sources.TENSORFLOW
    assert not source.others
    assert len(source.matched.training_state) == 46 + 1
    assert source.config == CONFIG


def test_the_digest_is_of_the_weights_in_any_form(tf1, directory):
    digest = checkpoint_sources.digest(tf1)
    assert checkpoint_sources.digest(str(directory)) == digest
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["bert.pooler.dense.bias"][0] += 1e-3
    safetensors.numpy.save_file(tensors, path)
    assert checkpoint_sources.digest(str(directory)) != digest


@pytest.mark.parametrize("marks", [{}, {"architectures": ["BertModel"]}])
def test_a_released_config_may_be_named_config_json(tf1, tmp_path, marks):
    """Beside TF1 weights, "gelu" is the tanh form; transformers' is not."""
    for path in pathlib.Path(tf1).parent.glob("bert_model.ckpt*"):
        shutil.copy(path, tmp_path)
    values = CONFIG.to_dict() | marks
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = checkpoint_sources.read(str(tmp_path)).config
    assert config.hidden_act == ("gelu_erf" if marks else "gelu")
    shutil.copy(PRETRAINED / "model.safetensors", tmp_path)
    config = checkpoint_sources.read(str(tmp_path)).config
    assert config.hidden_act == "gelu_erf"


def test_a_checkpoint_of_tensorflow_1_is_read(tmp_path):
    """Its embeddings are partitioned, and it has optimizer slots."""
    v1, prefix = tf.compat.v1, str(tmp_path / "model.ckpt-7")
    with v1.Graph().as_default(), v1.Session() as session:
        for path, tensor in checkpoint_sources.read(
            str(PRETRAINED)
        ).tensors.items():
            is_table = path.endswith("_embeddings")
            v1.get_variable(
                path,
                initializer=tf.constant(tensor.read()),
                partitioner=v1.fixed_size_partitioner(2) if is_table else None,
            )
            for slot in ("adam_m", "adam_v"):
                v1.get_variable(f"{path}/{slot}", tensor.shape)
        v1.train.get_or_create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, prefix)
    assert _same_as_pretrained(tmp_path)
    source = checkpoint_sources.read(prefix)
    assert not source.others
    assert len(source.matched.training_state) == 2 * 46 + 1


def test_the_checkpoint_file_chooses_among_several(tf1, tmp_path):
    for step in (1, 2):
        for file in pathlib.Path(tf1).parent.glob("bert_model.ckpt.*"):
            suffix = file.name.removeprefix("bert_model.ckpt")
            shutil.copy(file, tmp_path / f"model.ckpt-{step}{suffix}")
    with pytest.raises(errors.InputError, match="2 checkpoints there"):
        _ = checkpoint_sources.read(str(tmp_path)).matched
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/elsewhere/model.ckpt-1"\n'
    )
    assert checkpoint_sources.read(str(tmp_path)).path.endswith("ckpt-1")


def _write_tf1(directory, rename, dtype=tf.float32):
    """Writes the pre-trained weights, slots and a step under other names."""
    tensors = checkpoint_sources.read(str(PRETRAINED)).tensors
    values = {"global_step": tf.constant(7, tf.int64)}
    for path, tensor in tensors.items():
        name = rename(path)
        values[name] = tf.cast(tensor.read(), dtype)
        values[f"{name}/adam_m"] = tf.zeros(tensor.shape, dtype)
    prefix = str(directory / "model.ckpt-7")
    tensor_files.write(prefix, values)
    for file in ("bert_config.json", "vocab.txt"):
        shutil.copy(PRETRAINED / file, directory)
    return prefix


@pytest.mark.parametrize(
    ("scope", "of_heads"),
    [
        ("module/bert/", "module/"),
        ("model/bert/", ""),
        ("model/", "model/"),
        ("bert/bert/", ""),
        ("bert/bert/", "bert/"),
        ("a/bert/bert/", "a/bert/"),
        ("albert/", "albert/"),
        ("", ""),
    ],
)
def test_the_encoder_of_a_tf1_checkpoint_may_be_in_any_scope(
    scope, of_heads, tmp_path
):
    def rename(path):
        if path.startswith("bert/"):
            return scope + path.removeprefix("bert/")
        return of_heads + path

    prefix = _write_tf1(tmp_path, rename)
    assert _same_as_pretrained(prefix)
    source = checkpoint_sources.read(prefix)
    assert not source.others
    slots = {f"{path}/adam_m" for path in source.tensors}
    assert source.matched.training_state.keys() == slots | {"global_step"}
    report = pretrained.assign(models.PretrainingModel(CONFIG), prefix)
    assert len(report.loaded) == 46 and not report.left_over
    kept = conversion.load(source, keep_training_state=True)
    assert kept.training_state.keys() == slots | {"global_step"}


@pytest.mark.parametrize(
    ("scope", "of_heads"),
    [
        ("module.bert.", "module."),  # Of torch's DataParallel.
        ("_orig_mod.bert.", "_orig_mod."),  # Of torch.compile.
        ("0.auto_model.", ""),  # Of a complete sentence-transformers model.
        ("", ""),
    ],
)
def test_the_encoder_of_a_safetensors_file_may_be_in_any_scope(
    scope, of_heads, tmp_path
):
    def rename(tensors):
        for name in list(tensors):
            is_encoder = name.startswith("bert.")
            new = scope if is_encoder else of_heads
            new += name.removeprefix("bert.")
            tensors[new] = tensors.pop(name)

    directory = shutil.copytree(PRETRAINED, tmp_path / "model")
    _edit_safetensors(directory, rename)
    assert _same_as_pretrained(str(directory))
    source = checkpoint_sources.read(str(directory))
    report = pretrained.assign(models.PretrainingModel(CONFIG), source.path)
    assert len(report.loaded) == 46 and not report.left_over


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("encoder.layer.0.attention.self.query.lora_A.weight", "merge"),
        ("embeddings.task_type_embeddings.weight", "another encoder"),
    ],
)
@pytest.mark.parametrize("scope", ["bert.", "module.bert."])
def test_weights_that_berts_encoder_does_not_have_are_refused(
    name, message, scope, tmp_path
):
    def rename(tensors):
        for old in list(tensors):
            tensors[scope + old.removeprefix("bert.")] = tensors.pop(old)
        tensors[scope + name] = np.ones((2, 2), np.float32)

    directory = shutil.copytree(PRETRAINED, tmp_path / "model")
    _edit_safetensors(directory, rename)
    with pytest.raises(errors.InputError, match=f"{scope + name}.*{message}"):
        _ = checkpoint_sources.read(str(directory)).matched


def test_roberta_is_not_taken_for_bert(tmp_path):
    def rename(tensors):
        for name in list(tensors):
            new = name.replace("bert.", "roberta.", 1)
            tensors[new] = tensors.pop(name)

    directory = shutil.copytree(PRETRAINED, tmp_path / "model")
    _edit_safetensors(directory, rename)
    with pytest.raises(errors.InputError, match="none of its weights"):
        conversion.load(checkpoint_sources.read(str(directory)))


def test_heads_in_another_scope_are_found_beside_the_encoder(tmp_path):
    model = models.ClassificationModel(CONFIG, num_classes=3, seed=3)
    values = {f"module/{w.path}": w.numpy() for w in model.weights}
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, values)
    other = models.ClassificationModel(CONFIG, num_classes=3)
    report = pretrained.assign(other, prefix)
    assert not report.initialized and not report.left_over
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("scope", ["", "module/"])
def test_half_precision_of_a_tf1_checkpoint_is_read_exactly(
    dtype, scope, tmp_path
):
    prefix = _write_tf1(tmp_path, lambda path: scope + path, dtype)
    expected = checkpoint_sources.read(str(PRETRAINED)).tensors
    model = models.PretrainingModel(CONFIG)
    assert len(pretrained.assign(model, prefix).loaded) == 46
    for variable in model.weights:
        rounded = tf.cast(expected[variable.path].read(), dtype)
        np.testing.assert_array_equal(
            variable.numpy(), tf.cast(rounded, tf.float32).numpy()
        )
    line = "bert/pooler/dense/bias  " + dtype.name
    lines = checkpoint_sources.contents(checkpoint_sources.read(prefix))
    assert any(text.startswith(line) for text in lines)


def test_two_encoders_are_refused_and_named(tmp_path):
    names = [f"{x}/bert/embeddings/word_embeddings" for x in "ab"]
    prefix = str(tmp_path / "x")
    values = dict.fromkeys(names, np.ones((3, 2), np.float32))
    tensor_files.write(prefix, values)
    with pytest.raises(errors.InputError, match="a/bert/ and b/bert/ have"):
        _ = checkpoint_sources.read(prefix).matched
    # A model with the released names may have other scopes beside it.
    values["bert/embeddings/word_embeddings"] = values[names[0]]
    tensor_files.write(prefix, values)
    source = checkpoint_sources.read(prefix)
    assert list(source.others) == names


@pytest.mark.parametrize("load", ["assign", "convert"])
def test_a_missing_weight_is_named_with_what_is_there(load, tmp_path):
    kernel = "bert/encoder/layer_1/output/dense/kernel"
    prefix = _write_tf1(
        tmp_path, lambda path: path.replace(kernel, f"{kernel}_1")
    )
    message = f"lacks {kernel}, of .*it has {kernel}_1$"
    with pytest.raises(errors.InputError, match=message):
        if load == "assign":
            pretrained.assign(models.PretrainingModel(CONFIG), prefix)
        else:
            conversion.load(checkpoint_sources.read(prefix))


@pytest.mark.parametrize("form", ["sharded", "hub_cache", "old_names"])
def test_the_forms_of_hugging_face_are_one_checkpoint(form, tmp_path):
    source = checkpoint_sources.read(str(PRETRAINED))
    path = getattr(other_forms, form)(source, tmp_path)
    assert _same_as_pretrained(path)


@pytest.mark.parametrize("numbered", [True, False])
def test_model_garden_checkpoints_are_read_with_their_heads(numbered, tmp_path):
    source = checkpoint_sources.read(str(PRETRAINED))
    path = other_forms.model_garden(source, tmp_path, numbered)
    assert _same_as_pretrained(path)
    found = checkpoint_sources.read(str(path))
    assert found.kind == checkpoint_sources.TENSORFLOW_2
    assert found.matched.num_attention_heads == 2
    assert not found.others
    wrong = dataclasses.replace(CONFIG, num_attention_heads=4)
    with pytest.raises(
        errors.InputError, match="heads is 2, but --bert_config_file"
    ):
        checkpoint_sources.check_config(found, wrong)


@pytest.mark.parametrize("head", ["classifier", "span"])
def test_finetuned_heads_are_read_from_every_form(head, tmp_path):
    if head == "classifier":
        model = models.ClassificationModel(CONFIG, num_classes=3, seed=3)
        other = models.ClassificationModel(CONFIG, num_classes=3)
    else:
        model = models.QuestionAnsweringModel(CONFIG, seed=3)
        other = models.QuestionAnsweringModel(CONFIG)
    model_directory.save(model, str(tmp_path / "hf"))
    source = checkpoint_sources.read(str(tmp_path / "hf"))
    checkpoint = conversion.load(source)
    paths = [
        tmp_path / "hf",
        conversion.write(checkpoint, str(tmp_path / "tf1"), conversion.TF1),
    ]
    if head == "span":
        paths.append(other_forms.model_garden(source, tmp_path / "mg"))
    for path in paths:
        for variable in other.weights:
            variable.assign(np.zeros(variable.shape, np.float32))
        pretrained.assign(other, str(path))
        for ours, theirs in zip(model.weights, other.weights, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_the_checkpoints_of_an_unfinished_run_can_be_read(tmp_path):
    model = models.PretrainingModel(CONFIG, seed=4)
    variables = {v.path: tf.Variable(v.numpy()) for v in model.weights}
    slots = {f"{name}/adam_v": v for name, v in variables.items()}
    saver = checkpoints.Checkpoints(str(tmp_path))
    for step in (1, 2):
        saver.save(step, variables | slots, {"best": 0.5})
    saver.wait()
    source = checkpoint_sources.read(str(tmp_path))
    assert source.path.endswith("model.ckpt-2") and source.config is None
    assert not source.others
    assert {
        "global_step",
        "training_state",
    } <= source.matched.training_state.keys()
    other = models.PretrainingModel(CONFIG, seed=5)
    pretrained.assign(other, str(tmp_path))
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_warm_start_logs_what_was_initialized_and_left_over(tf1, caplog):
    model = models.ClassificationModel(CONFIG, num_classes=2)
    with caplog.at_level(logging.INFO, "absl"):
        pretrained.assign(model, tf1)
    assert "39 variables loaded; random at first: output_w" in caplog.text
    assert "not used: cls/predictions/output_bias and 6 more" in caplog.text
    assert "adam_m" not in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu_erf"}, 'Hugging Face calls "gelu"'),
        ({"num_attention_heads": 4}, "num_attention_heads is 2, but --bert_co"),
    ],
)
@pytest.mark.parametrize("form", ["tf1", "directory"])
def test_another_config_is_refused(change, message, form, tf1, directory):
    model = models.PretrainingModel(dataclasses.replace(CONFIG, **change))
    path = tf1 if form == "tf1" else str(directory)
    with pytest.raises(errors.InputError, match=message) as caught:
        pretrained.assign(model, path)
    assert str(caught.value).startswith("--init_checkpoint: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"num_hidden_layers": 1},
            "not part of this model.* and 15 more",
        ),
        ({"num_hidden_layers": 3}, "lacks .* and 15 more, of the encoder"),
        ({"vocab_size": 60}, r"which does not fit bert/embeddings/word_emb"),
    ],
)
def test_without_a_config_the_weights_show_another_model(
    change, message, directory
):
    for name in ("config.json", "bert_config.json"):
        (directory / name).unlink()
    model = models.PretrainingModel(dataclasses.replace(CONFIG, **change))
    with pytest.raises(errors.InputError, match=message):
        pretrained.assign(model, str(directory))


def test_a_classifier_of_other_classes_is_refused_with_a_remedy(tmp_path):
    model = models.ClassificationModel(CONFIG, num_classes=3)
    model_directory.save(model, str(tmp_path))
    with pytest.raises(errors.InputError, match="--drop_heads leaves"):
        pretrained.assign(
            models.ClassificationModel(CONFIG, num_classes=2), str(tmp_path)
        )


def test_a_release_of_the_other_case_is_refused(tf1, tmp_path, directory):
    release = tmp_path / "cased_L-12_H-768_A-12"
    shutil.copytree(pathlib.Path(tf1).parent, release)
    model = models.PretrainingModel(CONFIG)
    prefix = str(release / "bert_model.ckpt")
    uncased = tokenizer_files.load(str(directory), do_lower_case=True)
    cased = tokenizer_files.load(str(directory), do_lower_case=False)
    with pytest.raises(errors.InputError, match="with --do_lower_case=False"):
        pretrained.assign(model, prefix, tokenizer=uncased)
    pretrained.assign(model, prefix, tokenizer=cased)
    # Others say it in their settings.
    with pytest.raises(errors.InputError, match="with --do_lower_case=True"):
        pretrained.assign(model, str(directory), tokenizer=cased)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uncased_L-24_H-1024_A-16", True),
        ("uncased_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-12_H-768_A-12", False),
        ("cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("uncased_L-2_H-128_A-2", True),
        ("my_cased_model", None),
    ],
)
def test_releases_are_known_by_name(name, expected):
    for path in (name, f"/x/{name}/bert_model.ckpt", f"gs://b/{name}"):
        assert tokenizer_files.case_of_release(path) == expected


def test_a_release_is_known_from_within_its_directory(tmp_path, monkeypatch):
    inner = tmp_path / "cased_L-12_H-768_A-12"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert tokenizer_files.case_of_release("bert_model.ckpt") is False
    monkeypatch.chdir(tmp_path)
    assert tokenizer_files.case_of_release("bert_model.ckpt") is None


def _edit_safetensors(directory, edit):
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    edit(tensors)
    safetensors.numpy.save_file(tensors, path)


def test_either_of_the_tied_biases_is_read(directory):
    def rename(tensors):
        bias = tensors.pop("cls.predictions.bias")
        tensors["cls.predictions.decoder.bias"] = bias

    _edit_safetensors(directory, rename)
    assert _same_as_pretrained(directory)


def test_without_a_checkpoint_a_line_says_what_is_there(tmp_path):
    prefix = f"{tmp_path}/my.metadata/model.ckpt"
    tensor_files.write(prefix, {"x": np.ones(1, np.float32)})
    with pytest.raises(errors.InputError, match="none of its weights belongs"):
        pretrained.assign(models.PretrainingModel(CONFIG), prefix)
    for name in ("vocab.txt", "saved/saved_model.pb", "keras/model.weights.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link.safetensors").symlink_to("nowhere")
    there = "has keras, link.safetensors, my.metadata, saved, vocab.txt"
    for name, message in {
        "": f"no TensorFlow checkpoint there; .* {there}$",
        "vocab.txt": f"a file, but not of weights; .* {there}$",
        "nowhere": f"no such checkpoint or directory; .* {there}$",
        "other/x.ckpt": "no such checkpoint or directory$",
        "x.safetensors": "no such file",
        "link.safetensors": "no such file.* link",
        "saved": "SavedModel .*: give the model directory",
        "saved/saved_model.pb": "SavedModel .*: give the model directory",
        "keras": "Keras 3 .*: give the checkpoint that they were made of",
    }.items():
        path = str(tmp_path / name)
        with pytest.raises(errors.InputError, match=message) as caught:
            checkpoint_sources.read(path)
        assert str(caught.value).startswith(f"{path}: ")
    os.rename(f"{prefix}.index", f"{prefix}.lost")
    with pytest.raises(errors.InputError, match="has model.ckpt.data-00000"):
        checkpoint_sources.read(prefix)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("bert-base-uncased", "bert-base-uncased"),
        ("google-bert/bert-base-cased", "bert-base-cased"),
    ],
)
def test_a_name_of_the_hub_gets_the_command_that_downloads_it(name, folder):
    files = "config.json vocab.txt tokenizer_config.json model.safetensors"
    command = f"hf download {name} {files} --local-dir {folder}"
    with pytest.raises(errors.InputError, match=f"hf://{name} .*{command}"):
        _ = checkpoint_sources.read(name).matched
    for path in ("bert/bert_model.ckpt", "/nowhere/bert-base", "a/b/c"):
        with pytest.raises(errors.InputError, match="directory$"):
            _ = checkpoint_sources.read(path).matched


def test_another_architecture_is_refused(directory):
    values = json.loads((directory / "config.json").read_text())
    values["model_type"] = "roberta"
    (directory / "config.json").write_text(json.dumps(values))
    with pytest.raises(errors.InputError, match="model_type is 'roberta'"):
        _ = checkpoint_sources.read(str(directory)).matched


def test_a_pickle_is_only_read_by_torch_with_weights_only(
    directory, monkeypatch
):
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(b"\x80\x02evil")
    monkeypatch.setattr(
        model_directory.importlib.util, "find_spec", lambda _: None
    )
    with pytest.raises(errors.InputError, match="pip install torch") as caught:
        _ = checkpoint_sources.read(str(directory)).matched
    assert "\n" not in str(caught.value)

    is_nested = False

    class Tensor:
        def __init__(self, value):
            self.value, self.shape = value, value.shape
            self.dtype = "torch.float32"

        def is_floating_point(self):
            return True

        def to(self, dtype):
            return self

        def numpy(self):
            return self.value

    def load(path, *, map_location, weights_only):
        assert weights_only is True and map_location == "cpu"
        state = {name: Tensor(value) for name, value in tensors.items()}
        return {"epoch": 3, "state_dict": state} if is_nested else state

    fake = types.SimpleNamespace(load=load, Tensor=Tensor, float32="float32")
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(
        model_directory.importlib.util, "find_spec", lambda _: 1
    )
    assert _same_as_pretrained(directory)
    is_nested = True  # As a training saves it.
    assert _same_as_pretrained(directory)
    (directory / "pytorch_model.bin").rename(directory / "part.bin")
    index = {"weight_map": dict.fromkeys(tensors, "part.bin")}
    path = directory / "pytorch_model.bin.index.json"
    path.write_text(json.dumps(index))
    assert _same_as_pretrained(directory)
    (directory / "part.bin").rename(directory / "pytorch_model.bin")

    def refuse(path, **options):
        raise RuntimeError("  \n\x1b[1m" + "no such class " * 99 + "\nmore")

    fake.load = refuse
    with pytest.raises(
        errors.InputError, match="refuses it: .*such class"
    ) as e:
        _ = checkpoint_sources.read(str(directory)).matched
    assert str(e.value).isprintable() and len(str(e.value)) < 1000


def test_a_tokenizer_json_alone_is_enough(directory):
    expected = tokenizer_files.load(str(directory))
    tokens = expected.vocabulary.tokens
    values = {
        "added_tokens": [{"id": len(tokens), "content": "[NEW]"}],
        "normalizer": {
            "type": "BertNormalizer",
            "lowercase": False,
            "strip_accents": True,
            "handle_chinese_chars": False,
        },
        "model": {
            "type": "WordPiece",
            "vocab": {token: i for i, token in enumerate(tokens)},
        },
    }
    (directory / "tokenizer.json").write_text(json.dumps(values))
    (directory / "vocab.txt").unlink()
    found = tokenizer_files.load(str(directory))
    assert found.vocabulary.tokens == (*tokens, "[NEW]")
    # tokenizer_config.json has the last word.
    assert found.settings["do_lower_case"] is True
    (directory / "tokenizer_config.json").unlink()
    assert tokenizer_files.load(str(directory)).settings == {
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    }
    values["model"]["type"] = "BPE"
    (directory / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(errors.InputError, match="not BERT's WordPiece"):
        tokenizer_files.load(str(directory))


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("tokenizer.json", {"normalizer": None}, "normalizer is None"),
        (
            "tokenizer.json",
            {"normalizer": {"type": "Lowercase"}},
            "normalizer is Lowercase",
        ),
        (
            "tokenizer.json",
            {"normalizer": {"type": "BertNormalizer", "clean_text": False}},
            "clean_text is false",
        ),
        (
            "tokenizer.json",
            {"pre_tokenizer": {"type": "WhitespaceSplit"}},
            "pre_tokenizer is WhitespaceSplit",
        ),
        (
            "tokenizer_config.json",
            {"do_basic_tokenize": False},
            "do_basic_tokenize is False",
        ),
        (
            "tokenizer_config.json",
            {"never_split": ["a"]},
            r"set never_split to \[\] in tokenizer_config.json",
        ),
    ],
)
def test_other_tokenizers_than_berts_are_refused(
    directory, name, values, message
):
    tokens = tokenizer_files.load(str(directory)).vocabulary.tokens
    vocab = {token: i for i, token in enumerate(tokens)}
    values = {"model": {"type": "WordPiece", "vocab": vocab}, **values}
    (directory / name).write_text(json.dumps(values))
    with pytest.raises(errors.InputError, match=message):
        tokenizer_files.load(str(directory))


def test_added_tokens_have_the_ids_of_the_files(directory):
    with (directory / "vocab.txt").open("a") as file:
        file.write("\u2028\n##\u2028\n")  # As in the Chinese release.
    lines = (directory / "vocab.txt").read_text().removesuffix("\n").split("\n")
    tokens = tokenizer_files.load(str(directory)).vocabulary.tokens
    assert tokens[-2:] == ("", "##")
    count = len(tokens)
    # As older transformers writes them, whose vocab.txt lacks them.
    (directory / "added_tokens.json").write_text(
        json.dumps({"<url>": count + 1, "[E1]": count, "[PAD]": 0})
    )
    (directory / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": [{"content": "[E1]"}]})
    )
    found = tokenizer_files.load(str(directory))
    assert found.vocabulary.tokens == (*tokens, "[E1]", "<url>")
    assert {*found.vocabulary.added} == {"[E1]", "<url>"}
    encoding = found.encode(["a <url>[E1]"])
    assert encoding.ids[-2:].tolist() == [count + 1, count]
    # As newer ones do, with a tokenizer.json or without.
    (directory / "added_tokens.json").unlink()
    (directory / "special_tokens_map.json").unlink()
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    entries = {"0": {"content": "[PAD]"}, count: {"content": "<user>"}}
    (directory / "tokenizer_config.json").write_text(
        json.dumps(settings | {"added_tokens_decoder": entries})
    )
    found = tokenizer_files.load(str(directory))
    assert found.vocabulary.tokens == (*tokens, "<user>")
    assert found.vocabulary.added == ("<user>",)
    vocab = {token: i for i, token in enumerate(lines)}
    values = {
        "added_tokens": [{"id": count + 1, "content": "[E1]"}],
        "model": {"type": "WordPiece", "vocab": vocab},
    }
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(values))
    found = tokenizer_files.load(str(directory))
    assert found.vocabulary.added == ("<user>", "[E1]")
    tokenizer_files.save(found, str(directory), max_length=9)
    path.unlink()
    again = tokenizer_files.load(str(directory)).vocabulary
    assert (again.tokens, again.added) == (
        found.vocabulary.tokens,
        found.vocabulary.added,
    )


def test_the_files_of_a_vocabulary_must_agree(directory):
    tokens = tokenizer_files.load(str(directory)).vocabulary.tokens
    vocab = {token: i for i, token in enumerate(tokens)}
    vocab[tokens[5]], vocab[tokens[6]] = 6, 5
    path = directory / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": vocab}}))
    with pytest.raises(errors.InputError, match="remove the wrong file"):
        tokenizer_files.load(str(directory))
    path.unlink()
    path = directory / "added_tokens.json"
    path.write_text(json.dumps({"[E1]": len(tokens) + 1}))
    with pytest.raises(errors.InputError, match=r"\[E1\].*added_tokens.json"):
        tokenizer_files.load(str(directory))


def test_an_adapter_beside_the_weights_is_named(directory, caplog):
    (directory / "adapter_model.safetensors").write_bytes(b"")
    _ = checkpoint_sources.read(str(directory)).matched
    assert "adapter_model.safetensors is not used" in caplog.text


def test_capital_letters_show_a_cased_vocabulary(directory):
    (directory / "tokenizer_config.json").unlink()
    with (directory / "vocab.txt").open("a") as file:
        file.write("<S>\n<T>\n")  # As in the Chinese release.
    assert tokenizer_files.load(str(directory)).settings["do_lower_case"]
    with (directory / "vocab.txt").open("a") as file:
        file.write("London\n")
    assert tokenizer_files.load(str(directory)).settings["do_lower_case"]
    with (directory / "vocab.txt").open("a") as file:
        file.write("Paris\nThe\nRome\n")
    found = tokenizer_files.load(str(directory))
    assert not found.settings["do_lower_case"]


@pytest.mark.parametrize("lower", [True, False])
def test_what_is_known_beats_the_capitals(directory, tmp_path, lower):
    """The file of settings, the name of a release, and the flag."""
    words = (directory / "vocab.txt").read_text()
    words += "" if lower is False else "London\nParis\nThe\nRome\n"
    settings = json.dumps({"do_lower_case": lower})
    (directory / "tokenizer_config.json").write_text(settings)
    (directory / "vocab.txt").write_text(words)
    found = tokenizer_files.load(str(directory))
    assert found.settings["do_lower_case"] is lower
    other = tokenizer_files.load(str(directory), do_lower_case=not lower)
    assert other.settings["do_lower_case"] is not lower
    release = tmp_path / f"{'un' * lower}cased_L-2_H-16_A-2"
    release.mkdir()
    (release / "vocab.txt").write_text(words)
    found = tokenizer_files.load(str(release))
    assert found.settings["do_lower_case"] is lower


def test_accents_show_that_text_keeps_them(directory):
    """A vocabulary learned with --strip_accents=False, with no settings."""
    added = ["\u00e9", "##\u00e9", "##t\u00e9", "caf\u00e9"]
    added += ["\uac00", "##\uac00", "\u0915", "##\u0941"]
    with (directory / "vocab.txt").open("a") as file:
        file.write("\n".join(added) + "\n")
    given = directory / "tokenizer_config.json"
    given.write_text('{"do_lower_case": true}')
    found = tokenizer_files.load(str(directory))
    assert found.tokenize(["Caf\u00e9"]) != [["caf\u00e9"]]
    given.unlink()
    texts = ["Caf\u00e9 \u00e9t\u00e9", "\uac00\uac00", "\u0915\u0941"]
    vocab_file = str(directory / "vocab.txt")
    for found in (
        tokenizer_files.load(str(directory)),
        tokenizer_files.with_vocabulary(vocab_file),
    ):
        assert found.settings["do_lower_case"]
        assert found.tokenize(texts) == [
            ["caf\u00e9", "\u00e9", "##t\u00e9"],
            ["\uac00", "##\uac00"],
            ["\u0915", "##\u0941"],
        ]
    given.write_text('{"strip_accents": true}')
    assert tokenizer_files.load(str(directory)).settings["strip_accents"]


def test_masks_are_filled_from_any_form(tf1, tmp_path):
    for path in (str(PRETRAINED), tf1):
        model, tokenizer = pretrained.load_masked_lm(path)
        assert isinstance(tokenizer, wordpiece.Tokenizer)
        assert model.config == CONFIG
    model_directory.save(
        models.QuestionAnsweringModel(CONFIG), str(tmp_path), tokenizer
    )
    with pytest.raises(errors.InputError, match="no masked-LM head") as caught:
        pretrained.load_masked_lm(str(tmp_path))
    assert "run_pretraining.py" in str(caught.value)
