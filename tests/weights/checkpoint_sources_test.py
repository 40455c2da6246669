"""Proves that every kind of checkpoint is loaded, or refused in one line.

python -m pytest tests/weights/checkpoint_sources_test.py
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from foundation import config_flags, errors, tensor_files
from modeling import models
from modeling.config import BertConfig
from serving import opened_model, settings
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
WORDS = "bert/embeddings/word_embeddings"


@pytest.fixture
def directory(tmp_path):
    """A copy of the pre-trained model directory."""
    return pathlib.Path(shutil.copytree(PRETRAINED, tmp_path / "model"))


@pytest.fixture(scope="module")
def tf1(tmp_path_factory):
    """The same as a TF1 checkpoint with slots and a step."""
    root = tmp_path_factory.mktemp("tf1")
    return write_tf1(root, lambda path: path, name="bert_model.ckpt")


def write_tf1(directory, rename, dtype=tf.float32, name="model.ckpt-7"):
    """Writes the pre-trained weights, slots and a step under other names."""
    values = {"global_step": tf.constant(7, tf.int64)}
    for path, tensor in read(PRETRAINED).tensors.items():
        values[rename(path)] = tf.cast(tensor.read(), dtype)
        values[f"{rename(path)}/adam_m"] = tf.zeros(tensor.shape, dtype)
    tensor_files.write(str(directory / name), values)
    for file in ("bert_config.json", "vocab.txt"):
        shutil.copy(PRETRAINED / file, directory)
    return str(directory / name)


def read(path):
    return checkpoint_sources.read(str(path))


def edit(directory, change):
    """Changes the tensors of a model directory, which are renamed in place."""
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(change(tensors), path)
    return directory


def scoped(separator, scope, of_heads):
    """Returns a function that moves the encoder and the heads to scopes."""
    encoder = f"bert{separator}"

    def rename(name):
        if name.startswith(encoder):
            return scope + name.removeprefix(encoder)
        return of_heads + name

    return rename


def renamed(rename):
    return lambda tensors: {rename(name): x for name, x in tensors.items()}


def in_tf1(scope, of_heads):
    return lambda _, to: write_tf1(to, scoped("/", scope, of_heads))


def in_safetensors(rename):
    return lambda _, to: edit(
        pathlib.Path(shutil.copytree(PRETRAINED, to / "x")), renamed(rename)
    )


def keras_checkpoint(source, to, scope=""):
    prefix = str(to / "cp.ckpt")
    other_forms.keras_checkpoint(source.tensors, prefix, scope=scope)
    return to


def part(ending):
    return lambda _, to: write_tf1(to, lambda path: path) + ending


FORMS = {
    "directory": lambda source, to: PRETRAINED,
    "prefix": part(""),
    "index": part(".index"),
    "data": part(".data-00000-of-00001"),
    "tf1 directory": lambda source, to: pathlib.Path(part("")(0, to)).parent,
    "sharded": other_forms.sharded,
    "hub cache": other_forms.hub_cache,
    "old names": other_forms.old_names,
    "garden": other_forms.model_garden,
    "garden 2": functools.partial(other_forms.model_garden, numbered=False),
    "hdf5": lambda source, to: other_forms.keras_hdf5(
        source.tensors, to / "tf_model.h5"
    ),
    "keras": keras_checkpoint,
    "keras model": functools.partial(keras_checkpoint, scope="model/"),
    "bias": in_safetensors(
        lambda name: name.replace(
            "predictions.bias", "predictions.decoder.bias"
        )
    ),
    # Of torch's DataParallel, torch.compile, sentence-transformers.
    "parallel": in_safetensors(scoped(".", "module.bert.", "module.")),
    "auto model": in_safetensors(scoped(".", "0.auto_model.", "")),
    "bare": in_safetensors(scoped(".", "", "")),
    "module/bert": in_tf1("module/bert/", "module/"),
    "bert/bert, bert": in_tf1("bert/bert/", "bert/"),
    "albert": in_tf1("albert/", "albert/"),
    "no scope": in_tf1("", ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_checkpoint(form, tmp_path):
    original = read(PRETRAINED)
    path = str(FORMS[form](original, tmp_path))
    found = read(path)
    lines, _ = checkpoint_sources.compare(original, found, tolerance=0.0)
    assert lines == ["equal: 46 variables in both, max |difference| 0"]
    assert not found.others
    digest = checkpoint_sources.digest(str(PRETRAINED))
    assert checkpoint_sources.digest(path) == digest
    state = found.matched.training_state.keys()
    if found.matched.kind == checkpoint_sources.TENSORFLOW:
        slots = {f"{name}/adam_m" for name in found.tensors}
        assert state == slots | {"global_step"}
    if form.startswith("keras"):  # The objects, a slot and the counter.
        assert len(state) == 3
    kept = conversion.load(found, config=CONFIG, keep_training_state=True)
    assert kept.values.keys() == original.tensors.keys()


def test_other_weights_have_another_digest(directory):
    before = checkpoint_sources.digest(str(directory))

    def change(tensors):
        tensors["bert.pooler.dense.bias"][0] += 1e-3
        return tensors

    edit(directory, change)
    assert checkpoint_sources.digest(str(directory)) != before


def test_checkpoints_without_common_variables_are_not_equal(tmp_path):
    sources = []
    for number in range(2):
        path = tmp_path / f"{number}.safetensors"
        tensors = {"electra.weight": np.full(3, number, np.float32)}
        safetensors.numpy.save_file(tensors, path)
        sources.append(read(path))
    lines, is_equal = checkpoint_sources.compare(*sources, tolerance=0.0)
    assert not is_equal and lines[-1].startswith("DIFFERENT: 1 variables")


@pytest.mark.parametrize("marks", [{}, {"architectures": ["BertModel"]}])
def test_a_released_config_may_be_named_config_json(tf1, tmp_path, marks):
    """Beside TF1 weights, "gelu" is the tanh form; transformers' is not."""
    for path in pathlib.Path(tf1).parent.glob("bert_model.ckpt*"):
        shutil.copy(path, tmp_path)
    values = CONFIG.to_dict() | marks
    (tmp_path / "config.json").write_text(json.dumps(values))
    released = "gelu_erf" if marks else "gelu"
    assert read(tmp_path).config.hidden_act == released
    shutil.copy(PRETRAINED / "model.safetensors", tmp_path)
    assert read(tmp_path).config.hidden_act == "gelu_erf"


def test_a_checkpoint_of_tensorflow_1_is_read(tmp_path):
    """Its embeddings are partitioned, and it has optimizer slots."""
    v1, prefix = tf.compat.v1, str(tmp_path / "model.ckpt-7")
    with v1.Graph().as_default(), v1.Session() as session:
        for path, tensor in read(PRETRAINED).tensors.items():
            is_table = path.endswith("_embeddings")
            v1.get_variable(
                path,
                initializer=tf.constant(tensor.read()),
                partitioner=v1.fixed_size_partitioner(2) if is_table else None,
            )
            v1.get_variable(f"{path}/adam_v", tensor.shape)
        v1.train.get_or_create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, prefix)
    lines, _ = checkpoint_sources.compare(
        read(PRETRAINED), read(tmp_path), tolerance=0.0
    )
    assert lines == ["equal: 46 variables in both, max |difference| 0"]
    assert len(read(prefix).matched.training_state) == 46 + 1


def test_the_checkpoint_file_chooses_among_several(tf1, tmp_path):
    for step in (1, 2):
        for file in pathlib.Path(tf1).parent.glob("bert_model.ckpt.*"):
            suffix = file.name.removeprefix("bert_model.ckpt")
            shutil.copy(file, tmp_path / f"model.ckpt-{step}{suffix}")
    with pytest.raises(errors.InputError, match="2 checkpoints there"):
        read(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/elsewhere/model.ckpt-1"\n'
    )
    assert read(tmp_path).path.endswith("ckpt-1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda name: name.replace("bert.", "roberta.", 1),
            "none of its weights belongs",
        ),
        (
            lambda name: name.replace(
                "bert.encoder.layer.1.output.dense.w", "lost.w"
            ),
            "lacks 1 of .*layer_1/output/dense/kernel; it has lost.weight",
        ),
        (
            lambda name: name.replace("query.bias", "query.lora_A.weight"),
            "query.lora_A.weight.* another encoder; merge",
        ),
        (
            lambda name: name.replace("token_type_", "task_type_"),
            "task_type_embeddings.* another encoder$",
        ),
    ],
)
def test_other_encoders_are_refused(change, message, directory):
    edit(directory, renamed(change))
    with pytest.raises(errors.InputError, match=message):
        pretrained.assign(models.PretrainingModel(CONFIG), str(directory))
    with pytest.raises(errors.InputError, match=message):
        conversion.load(read(directory))


def test_two_encoders_are_refused_and_named(tmp_path):
    names = [f"{x}/{WORDS}" for x in "ab"]
    values = dict.fromkeys(names, np.ones((3, 2), np.float32))
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, values)
    with pytest.raises(errors.InputError, match="a/bert/ and b/bert/ have"):
        _ = read(prefix).matched
    # A model with the released names may have other scopes beside it.
    tensor_files.write(prefix, values | {WORDS: values[names[0]]})
    assert list(read(prefix).others) == names


def test_half_precision_of_a_tf1_checkpoint_is_read_exactly(tmp_path):
    dtype = tf.bfloat16
    prefix = write_tf1(tmp_path, lambda path: f"module/{path}", dtype)
    expected = read(PRETRAINED).tensors
    model = models.PretrainingModel(CONFIG)
    assert len(pretrained.assign(model, prefix).loaded) == 46
    for variable in model.weights:
        rounded = tf.cast(expected[variable.path].read(), dtype)
        np.testing.assert_array_equal(
            variable.numpy(), tf.cast(rounded, tf.float32).numpy()
        )
    line = "bert/pooler/dense/bias  " + dtype.name
    lines = checkpoint_sources.contents(read(prefix))
    assert any(text.startswith(line) for text in lines)


HEADS = {
    "classifier": functools.partial(models.ClassificationModel, num_classes=3),
    "choice": models.MultipleChoiceModel,
    "span": models.QuestionAnsweringModel,
    "tagger": functools.partial(models.TaggingModel, num_classes=5),
    "lm": functools.partial(models.PretrainingModel, next_sentence=False),
    "both": models.PretrainingModel,
}


@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_the_same_from_every_form(head, tmp_path):
    model = HEADS[head](CONFIG, seed=3)
    tokenizer = tokenizer_files.load(str(PRETRAINED))
    model_directory.save(model, tmp_path / "ours", tokenizer)
    source = read(tmp_path / "ours")
    settings = source.settings
    paths = [
        other_forms.keras_hdf5(
            source.tensors, tmp_path / "h5" / "tf_model.h5", model="tf_bert_1"
        )
    ]
    if head in ("span", "both"):
        paths.append(other_forms.model_garden(source, tmp_path / "garden"))
    values = other_forms.keras_values(source.tensors)
    paths.append(tmp_path / "keras.safetensors")
    safetensors.numpy.save_file(values, paths[-1], {"format": "tf"})
    for number, path in enumerate(paths):
        found = dataclasses.replace(read(path), settings=settings)
        written = conversion.write(
            conversion.load(found, config=CONFIG),
            str(tmp_path / f"new{number}"),
            conversion.MODEL_DIRECTORY,
        )
        data = pathlib.Path(written, "model.safetensors").read_bytes()
        assert data == (tmp_path / "ours/model.safetensors").read_bytes(), path


def test_the_checkpoints_of_an_unfinished_run_can_be_read(tmp_path):
    model = models.PretrainingModel(CONFIG, seed=4)
    variables = {v.path: tf.Variable(v.numpy()) for v in model.weights}
    slots = {f"{name}/adam_v": v for name, v in variables.items()}
    saver = checkpoints.Checkpoints(str(tmp_path))
    for step in (1, 2):
        saver.save(step, variables | slots, {"best": 0.5})
    saver.wait()
    source = read(tmp_path)
    assert source.path.endswith("model.ckpt-2") and source.config is None
    assert not source.others
    state = source.matched.training_state.keys()
    assert {"global_step", "training_state"} <= state
    for path, tensor in source.tensors.items():
        np.testing.assert_array_equal(tensor.read(), variables[path])


@pytest.mark.parametrize(
    ("change", "has_config", "message"),
    [
        ({"hidden_act": "gelu_erf"}, True, 'Hugging Face calls "gelu"'),
        ({"num_attention_heads": 4}, True, "is 2, but --bert_config_file"),
        ({"num_hidden_layers": 1}, False, "16 variables are not part"),
        ({"num_hidden_layers": 3}, False, "lacks 16 of the encoder's 53"),
        ({"vocab_size": 60}, False, "which does not fit bert/embeddings/word"),
    ],
)
def test_weights_of_another_model_are_refused(
    change, has_config, message, directory
):
    for name in () if has_config else ("config.json", "bert_config.json"):
        (directory / name).unlink()
    model = models.PretrainingModel(dataclasses.replace(CONFIG, **change))
    with pytest.raises(errors.InputError, match=f"^--init_ch.*{message}"):
        pretrained.assign(model, str(directory))


def test_without_a_checkpoint_a_line_says_what_is_there(tmp_path):
    prefix = f"{tmp_path}/model.ckpt"
    tensor_files.write(prefix, {"x": np.ones(1, np.float32)})
    os.rename(f"{prefix}.index", f"{prefix}.lost")
    (tmp_path / "vocab.txt").touch()
    for name, message in {
        "": "tf_model.h5 or pytorch_model.bin there; .*vocab.txt",
        "vocab.txt": "a file, but not of weights",
        "model.ckpt": "has model.ckpt.data-00000",
        "x.safetensors": "no such file, or a link to none",
    }.items():
        path = str(tmp_path / name)
        with pytest.raises(errors.InputError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(path.rstrip("/"))


class Tensor(np.ndarray):
    """A tensor of torch, with the methods that are used."""

    def is_floating_point(self):
        return True

    def to(self, dtype):
        return self

    def numpy(self):
        return np.asarray(self)


@pytest.mark.parametrize("form", ["nested", "sharded", "other"])
def test_a_pickle_is_only_read_by_torch_with_weights_only(
    form, directory, monkeypatch
):
    weights = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(weights)
    state = {name: x.view(Tensor) for name, x in tensors.items()}
    file = "part.bin" if form == "sharded" else "pytorch_model.bin"
    weights.rename(directory / file)
    if form == "sharded":
        index = {"weight_map": dict.fromkeys(tensors, file)}
        path = directory / "pytorch_model.bin.index.json"
        path.write_text(json.dumps(index))

    def load(path, *, map_location, weights_only):
        assert weights_only is True and map_location == "cpu"
        if form == "other":
            raise RuntimeError("no such class\nmore")
        return {"epoch": 3, "model": state} if form == "nested" else state

    torch = types.SimpleNamespace(load=load, Tensor=Tensor, float32="f")
    find = types.SimpleNamespace(find_spec=lambda _: 1)
    monkeypatch.setattr(model_directory.importlib, "util", find)
    monkeypatch.setitem(sys.modules, "torch", torch)
    if form == "other":
        with pytest.raises(errors.InputError, match="refuses it: .*such class"):
            _ = read(directory).matched
        return
    lines, _ = checkpoint_sources.compare(
        read(PRETRAINED), read(directory), tolerance=0.0
    )
    assert lines == ["equal: 46 variables in both, max |difference| 0"]


def masked_lm(directory):
    options = config_flags.build(settings.ModelOptions, task="fill_mask")
    return opened_model.OpenedModel(str(directory), options)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_decoder_of_its_own_is_left_over(directory, is_tied, caplog):
    decoder = "cls.predictions.decoder.weight"

    def add(tensors):
        words = tensors["bert.embeddings.word_embeddings.weight"]
        return {**tensors, decoder: words + (not is_tied)}

    edit(directory, add)
    assert list(read(directory).others) == ([] if is_tied else [decoder])
    pretrained.assign(models.PretrainingModel(CONFIG), str(directory))
    assert ("decoder.weight differs from" in caplog.text) == (not is_tied)
    if is_tied:
        opened = masked_lm(directory)
        assert opened.model.config == CONFIG
        return
    with pytest.raises(errors.InputError, match="differs from the word embed"):
        masked_lm(directory)


def test_masks_are_not_filled_without_a_head(tmp_path):
    tokenizer = tokenizer_files.load(str(PRETRAINED))
    model_directory.save(
        models.QuestionAnsweringModel(CONFIG), str(tmp_path), tokenizer
    )
    with pytest.raises(errors.InputError, match="another task, question_ans"):
        masked_lm(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("BertForQuestionAn", "BertModel"))
    with pytest.raises(errors.InputError, match="no masked-LM head.*run_pretr"):
        masked_lm(tmp_path)


def test_an_adapter_beside_the_weights_is_named(directory, caplog):
    (directory / "adapter_model.safetensors").write_bytes(b"")
    read(directory)
    assert "adapter_model.safetensors is not used" in caplog.text
