"""Proves that the command converts, lists and compares checkpoints.

python -m pytest tests/convert_checkpoint_test.py
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny_runs

import bert
from modeling import models
from modeling.config import BertConfig
from tests.weights import sentence_models
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    stored_weights,
    task_files,
)

PRETRAINED = pathlib.Path(__file__).parent / "testdata/tiny_pretrained"


@pytest.fixture
def run(capfd):
    """Runs in this process; returns the exit code, output and errors."""

    def call(*flags):
        code = 0
        try:
            tiny_runs.start("convert_checkpoint", *flags)
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_there_and_back_is_bit_exact(run, tmp_path):
    code, out, _ = run(
        f"--input={PRETRAINED}",
        f"--output={tmp_path}/tf1",
        "--output_format=tf1",
    )
    assert code == 0
    assert "46 variables (BertForPreTraining); left over: nothing" in out
    prefix = tmp_path / "tf1/bert_model.ckpt"
    assert run(f"--input={prefix}", f"--output={tmp_path}/back")[0] == 0
    for name in ("model.safetensors", "vocab.txt", "bert_config.json"):
        old, new = PRETRAINED / name, tmp_path / "back" / name
        assert old.read_bytes() == new.read_bytes(), name
    code, out, _ = run(f"--input={prefix}", f"--check={PRETRAINED}")
    assert code == 0 and out.startswith("equal: 46 variables in both")


def test_tensorflow_restores_the_tf1_form_by_the_released_names(run, tmp_path):
    run(f"--input={PRETRAINED}", f"--output={tmp_path}", "--output_format=tf1")
    prefix = str(tmp_path / "bert_model.ckpt")
    config = BertConfig.from_json_file(tmp_path / "bert_config.json")
    shapes = stored_weights.shapes(
        config, stored_weights.MASKED_LM, stored_weights.NEXT_SENTENCE
    )
    listed = {n: tuple(s) for n, s in tf.train.list_variables(prefix)}
    assert listed == shapes  # Slim: neither slots nor a step.
    v1 = tf.compat.v1
    name = "bert/encoder/layer_1/output/dense/kernel"
    with v1.Graph().as_default(), v1.Session() as session:
        for path, shape in shapes.items():
            v1.get_variable(path, shape)
        v1.train.init_from_checkpoint(prefix, {n: n for n in shapes})
        session.run(v1.global_variables_initializer())
        value = session.run(v1.global_variables(name)[0])
    tensors = safetensors.numpy.load_file(PRETRAINED / "model.safetensors")
    expected = tensors["bert.encoder.layer.1.output.dense.weight"].T
    np.testing.assert_array_equal(value, expected)


def test_check_names_what_differs_and_ends_with_1(run, tmp_path):
    run(f"--input={PRETRAINED}", f"--output={tmp_path}")
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["bert.pooler.dense.bias"][0] += 0.5
    del tensors["cls.predictions.bias"]
    safetensors.numpy.save_file(tensors, path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["hidden_act"] = "gelu"
    (tmp_path / "config.json").write_text(json.dumps(values))
    code, out, _ = run(f"--input={PRETRAINED}", f"--check={tmp_path}")
    assert code == 1
    assert "bert/pooler/dense/bias  max |difference| 0.5" in out
    assert f"cls/predictions/output_bias  only in {PRETRAINED}" in out
    assert "config: hidden_act is gelu and gelu_erf" in out
    assert "DIFFERENT: 45 variables in both, max |difference| 0.5" in out
    shutil.copy(PRETRAINED / "config.json", tmp_path)
    tensors = safetensors.numpy.load_file(PRETRAINED / path.name)
    tensors["bert.pooler.dense.bias"][0] += 1e-3
    safetensors.numpy.save_file(tensors, path)
    for tolerance, code in (("1e-4", 1), ("1e-2", 0)):
        flags = (f"--check={tmp_path}", f"--tolerance={tolerance}")
        assert run(f"--input={PRETRAINED}", *flags)[0] == code


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "config.json",
            {"is_decoder": True},
            "attention is bidirectional and left_to_right",
        ),
        (
            "config.json",
            {"id2label": {"0": "b", "1": "a"}},
            "labels is ['a', 'b'] and ['b', 'a']",
        ),
        (
            "config.json",
            {"problem_type": "multi_label_classification"},
            "problem_type is regression and multi_label_classification",
        ),
        (
            "tokenizer_config.json",
            {"do_lower_case": False},
            "tokenizer: do_lower_case is True and False",
        ),
        ("vocab.txt", None, "vocabulary: token 7 is"),
    ],
    ids=["attention", "labels", "problem", "tokenizer", "vocabulary"],
)
def test_what_predicts_differently_is_not_equal(
    run, tmp_path, file, change, message
):
    named = {"id2label": {"0": "a", "1": "b"}, "problem_type": "regression"}
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        shutil.copytree(PRETRAINED, folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | named))
    flags = [f"--input={folders[0]}", f"--check={folders[1]}"]
    assert run(*flags)[0] == 0
    path = folders[1] / file
    if change is None:
        words = path.read_text().splitlines()
        words[7], words[8] = words[8], words[7]
        path.write_text("\n".join(words) + "\n")
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    code, out, _ = run(*flags)
    assert code == 1
    assert message in out and "\nDIFFERENT: 46 variables in both" in out
    (folders[1] / file).unlink()  # What one side lacks is not compared.
    (folders[1] / "tokenizer.json").unlink(missing_ok=True)
    if file == "config.json":
        assert run(*flags)[0] == 0


def test_list_shows_names_shapes_types_and_counts(run):
    code, out, _ = run(f"--input={PRETRAINED}", "--list")
    assert code == 0
    assert (
        "bert/embeddings/token_type_embeddings  F32 [2, 16]  32  <- be" in out
    )
    assert "hidden_size=16" in out
    tensors = safetensors.numpy.load_file(PRETRAINED / "model.safetensors")
    count = sum(tensor.size for tensor in tensors.values())
    assert out.splitlines()[-1] == f"46 variables, {count:,} parameters"


def test_optimizer_slots_are_left_out_without_noslim(run, tmp_path):
    checkpoint = conversion.load(checkpoint_sources.read(str(PRETRAINED)))
    name = "bert/pooler/dense/bias/adam_m"
    checkpoint.training_state = {
        name: np.ones(16, np.float32),
        "global_step": np.int64(5),
    }
    source = conversion.write(checkpoint, str(tmp_path / "a"), "tf1")
    for flags, expected in (((), 46), (("--noslim",), 48)):
        output = tmp_path / f"to{expected}"
        run(
            f"--input={source}",
            f"--output={output}",
            "--output_format=tf1",
            *flags,
        )
        found = tf.train.list_variables(str(output / "bert_model.ckpt"))
        assert len(found) == expected
    reader = tf.train.load_checkpoint(str(output / "bert_model.ckpt"))
    assert reader.get_tensor("global_step") == 5


@pytest.fixture
def finetuned(tmp_path):
    """A model directory with all files of tasks."""
    folder = tmp_path / "finetuned"
    shutil.copytree(PRETRAINED, folder)
    task_files.write_settings(
        str(folder), task_files.SquadSettings(version_2_with_negative=True)
    )
    (folder / "crf.json").write_bytes(b'{"labels": ["O"]}\n')
    for name in ("run.json", "run_config.json"):
        (folder / name).write_bytes(b'{"flags": {"do_train": true}}\n')
    return folder


@pytest.mark.parametrize("form", ["model_directory", "tf1"])
def test_the_files_of_a_task_are_copied(run, finetuned, tmp_path, form):
    output = tmp_path / "out"
    flags = (f"--output={output}", f"--output_format={form}")
    code, out, _ = run(f"--input={finetuned}", *flags)
    assert code == 0
    listed = ", ".join(conversion.TASK_FILES)
    assert f"(BertForPreTraining), {listed}; left over: nothing" in out
    for name in conversion.TASK_FILES:
        assert (output / name).read_bytes() == (finetuned / name).read_bytes()
    assert task_files.read_settings(str(output)).version_2_with_negative


def test_without_heads_they_are_left_over(run, finetuned, tmp_path):
    flags = (f"--output={tmp_path}/out", "--drop_heads")
    code, out, _ = run(f"--input={finetuned}", *flags)
    assert code == 0
    listed = ", ".join(conversion.TASK_FILES)
    assert f"(BertModel); left over: {listed}\n" in out
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert not found & set(conversion.TASK_FILES)
    tensors = safetensors.numpy.load_file(tmp_path / "out/model.safetensors")
    assert len(tensors) == 39 and all(n.startswith("bert.") for n in tensors)


@pytest.mark.parametrize(
    ("name", "form"), [("folder", "model_directory"), ("dense", "tf1")]
)
def test_a_copy_makes_the_vectors_of_sentence_transformers(
    run, tmp_path, name, form
):
    path, output = tmp_path / "embedder", tmp_path / "copy"
    sentence_models.save(path, **sentence_models.CASES[name])
    flags = (f"--output={output}", f"--output_format={form}")
    code, out, _ = run(f"--input={path}", *flags, "--drop_heads")
    assert code == 0 and ", modules.json" in out
    given, copied = (
        bert.load(folder, task="sentence_embedding")
        for folder in (path, output)
    )
    assert copied.max_seq_length == given.max_seq_length
    texts = [*sentence_models.TEXTS, "Caf\u00e9 " * 30]
    np.testing.assert_array_equal(copied.predict(texts), given.predict(texts))


def test_other_modules_are_not_copied_but_named(run, tmp_path, caplog):
    path, output = tmp_path / "embedder", tmp_path / "copy"
    sentence_models.save(path, pooling=["mean"])
    text = (path / "modules.json").read_text()
    (path / "modules.json").write_text(
        text.replace("models.Pooling", "models.Router")
    )
    code, _, _ = run(f"--input={path}", f"--output={output}")
    assert code == 0 and "modules.json is not copied" in caplog.text


@pytest.mark.parametrize("size", [8, 5])
def test_a_bilstm_is_converted(run, tmp_path, size):
    """Also if its outputs have the size of the encoder's."""
    config = BertConfig.from_json_file(PRETRAINED / "bert_config.json")
    assert config.hidden_size == 16
    model = models.ClassificationModel(
        config, num_classes=3, bilstm_size=size, seed=1
    )
    model_directory.save(model, str(tmp_path / "old"))
    flags = (f"--output={tmp_path}/tf1", "--output_format=tf1")
    code, out, _ = run(f"--input={tmp_path}/old", *flags)
    assert code == 0
    assert "(BertForSequenceClassification); left over: nothing" in out
    run(f"--input={tmp_path}/tf1", f"--output={tmp_path}/new")
    for name in ("config.json", "model.safetensors"):
        old, new = tmp_path / "old" / name, tmp_path / "new" / name
        assert old.read_bytes() == new.read_bytes(), name


def test_words_and_positions_are_added_from_the_command_line(run, tmp_path):
    (tmp_path / "words.txt").write_text("slowly\nforgets\n")
    code, _, _ = run(
        f"--input={PRETRAINED}",
        f"--output={tmp_path}/out",
        f"--new_words_file={tmp_path}/words.txt",
        "--max_position_embeddings=100",
    )
    assert code == 0
    old = json.loads((PRETRAINED / "config.json").read_text())
    model = bert.load(tmp_path / "out", task="fill_mask")
    config = model._opened.setup.config
    assert config.vocab_size == old["vocab_size"] + 2
    assert config.max_position_embeddings == 100
    assert model.tokenizer.vocabulary.tokens[-2:] == ("slowly", "forgets")


def test_without_a_config_bert_config_file_is_required(run, tmp_path):
    run(f"--input={PRETRAINED}", f"--output={tmp_path}/a")
    for name in ("config.json", "bert_config.json"):
        (tmp_path / "a" / name).unlink()
    flags = [f"--input={tmp_path}/a", f"--output={tmp_path}/b"]
    code, _, err = run(*flags)
    assert code == 2 and "give --bert_config_file" in err
    flags.append(f"--bert_config_file={PRETRAINED}/bert_config.json")
    assert run(*flags)[0] == 0
