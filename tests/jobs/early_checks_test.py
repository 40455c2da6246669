"""Proves that commands refuse what users mistype before TensorFlow is imported.

python -m pytest tests/jobs/early_checks_test.py
"""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

import export_model
import fill_mask
import run_classifier
import run_embeddings
import run_ner
import run_squad
from foundation import config_flags, errors
from jobs import early_checks
from tasks.classification import early_checks as classifier_checks
from tasks.embeddings import early_checks as embeddings_checks
from tasks.ner import early_checks as ner_checks
from tasks.squad import early_checks as squad_checks

FILES = "config.json vocab.txt tokenizer_config.json model.safetensors"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
COMMANDS = {
    "run_classifier": (run_classifier.ClassifierConfig, classifier_checks),
    "run_embeddings": (run_embeddings.EmbeddingsConfig, embeddings_checks),
    "run_ner": (run_ner.NerConfig, ner_checks),
    "run_squad": (run_squad.SquadConfig, squad_checks),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a model, a table and a compressed one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bert_model.ckpt.index").write_text("")
    for name in ("t.csv", "t.jsonl.gz", "t.json"):
        (tmp_path / name).write_text("text,stars\na,b\n")
    return tmp_path


def check(command, *switches, **flags):
    config_class, checks = COMMANDS[command]
    flags = {"output_dir": "out", "init_checkpoint": "model"} | flags
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    config = config_flags.parse(config_class, [command, *switches, *given])
    checks.check(config)


SST = {"task_name": "SST-2", "data_dir": "."}
CSV = {"task_name": "csv", "train_file": "t.csv", "label_column": "stars"}
TRAINED = [
    ("run_classifier", CSV),
    ("run_classifier", CSV | {"train_file": "[t].csv"}),
    ("run_classifier", CSV | {"init_checkpoint": "model/bert_model.ckpt"}),
    ("run_classifier", CSV | {"init_checkpoint": "gs://bucket/model"}),
    ("run_classifier", {"task_name": "MRPC", "data_dir": "."}),
    ("run_ner", {"train_file": "t.jsonl"}),
    ("run_squad", {"train_file": "t.json,t.csv"}),
]
REFUSED = [
    ("run_classifier", CSV | {"train_file": "a.csv"}, "a.csv: no such file"),
    ("run_classifier", CSV | {"train_file": None}, "--train_file is required"),
    ("run_classifier", {"task_name": "MRPC"}, "--data_dir or --train_file is"),
    (
        "run_classifier",
        CSV | {"label_column": None},
        "t.csv:1: no column 'label' (--label_column",
    ),
    (
        "run_classifier",
        CSV | {"init_checkpoint": "me/bert"},
        "is hf://me/bert (needs the package huggingface_hub), or is downloaded "
        f"first: hf download me/bert {FILES} --local-dir bert",
    ),
    (
        "run_classifier",
        CSV | {"init_checkpoint": "model/bert.ckpt"},
        "--init_checkpoint=model/bert.ckpt: no such checkpoint",
    ),
    (
        "run_squad",
        {"train_file": "t.json", "init_checkpoint": None},
        f"hf download google-bert/bert-base-uncased {FILES}",
    ),
    ("run_squad", {"train_file": "t.json,b.json"}, "--train_file: b.json: no"),
    (
        "run_embeddings",
        {"train_file": "t.csv"},
        "--train_file=t.csv: columns text, stars; wanted: anchor, positive;",
    ),
    (
        "run_embeddings",
        {"train_file": "t.json"},
        "--train_file=t.json: the end",
    ),
    ("run_embeddings", {"do_eval": True}, "--train_file is required"),
    ("run_ner", {"data_dir": "conll"}, "--data_dir=conll: no such directory"),
    ("run_ner", {"data_dir": "t.csv"}, "--data_dir=t.csv: is a file, not a"),
    ("run_ner", {"train_file": "model"}, "--train_file: model: is a directory"),
    ("run_squad", {"train_file": "model"}, "model: is a directory, not a file"),
    ("run_classifier", CSV | {"num_seeds": 2}, "--dev_fraction"),
]


@pytest.mark.parametrize(("command", "flags"), TRAINED)
def test_what_may_be_right_is_not_refused(folder, command, flags):
    check(command, "--do_train", **flags)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run_classifier", CSV),
        ("run_ner", {"train_file": "t.jsonl"}),
        ("run_embeddings", {"train_file": "pairs.csv"}),
    ],
)
def test_evaluation_on_the_training_set_is_warned_of(
    folder, caplog, command, flags
):
    (folder / "pairs.csv").write_text("anchor,positive\na,b\n")
    (folder / "link").symlink_to(folder)
    train = flags["train_file"]
    for name, is_same in (
        (train, True),
        (f"link/{train}", True),
        ("t.json", False),
    ):
        caplog.clear()
        errors.warn_once.cache_clear()
        with contextlib.suppress(errors.InputError):  # Of another format.
            check(
                command, "--do_train", "--do_eval", **flags | {"dev_file": name}
            )
        assert ("is --train_file" in caplog.text) is is_same, name


@pytest.mark.parametrize(("command", "flags", "message"), REFUSED)
def test_what_cannot_be_right_is_refused(folder, command, flags, message):
    with pytest.raises(errors.InputError) as caught:
        check(command, "--do_train", **flags)
    assert message in str(caught.value)


def test_a_prediction_needs_a_model_and_a_set(folder):
    flags = {"test_file": "t.csv", "init_checkpoint": None}
    with pytest.raises(errors.InputError, match="^--output_dir.* no such dir"):
        check("run_classifier", "--do_predict", **flags)
    (folder / "out").mkdir()
    with pytest.raises(errors.InputError, match="no trained model in --output"):
        check("run_classifier", "--do_predict", **flags)
    # The columns of a trained model are not known here.
    (folder / "out" / "model.safetensors").write_text("")
    check("run_classifier", "--do_predict", **flags)
    check("run_classifier", "--do_predict", **{**flags, "test_file": "-"})
    with pytest.raises(errors.InputError, match="^--test_file is required$"):
        check("run_classifier", "--do_predict", init_checkpoint=None)


@pytest.mark.parametrize("command", COMMANDS)
def test_they_run_before_the_import_of_tensorflow(
    tmp_path, repository, command
):
    for name in ("tensorflow", "keras", "matplotlib", "sklearn"):
        stub = f"raise SystemExit('{name} is imported')"
        (tmp_path / f"{name}.py").write_text(stub)
    flags = ["--output_dir=out", "--do_train", "--train_file=nowhere.csv"]
    if command == "run_classifier":
        flags.append("--task_name=csv")
    found = subprocess.run(
        [
            sys.executable,
            repository / f"{command}.py",
            *flags,
            f"--init_checkpoint={tmp_path}",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert found.returncode == 2
    expected = f"{command}.py: --train_file: nowhere.csv: no such file\n"
    assert found.stderr == expected


def write_model(folder, architecture="BertForSequenceClassification", **flags):
    """Leaves what the checks read of a trained model in out/."""
    values = {"architectures": [architecture], "max_position_embeddings": 512}
    (folder / "out").mkdir(exist_ok=True)
    for name, content in (
        ("model.safetensors", ""),
        ("config.json", json.dumps(values)),
        ("run_config.json", json.dumps({"do_train": True, **flags})),
    ):
        (folder / "out" / name).write_text(content)


@pytest.mark.parametrize(
    ("command", "switch", "flags"),
    [
        ("run_squad", "--interactive", {}),
        ("run_ner", "--do_predict", {"test_file": "t.csv"}),
    ],
)
def test_a_model_of_another_kind_is_refused(folder, command, switch, flags):
    write_model(folder)
    with pytest.raises(errors.InputError) as caught:
        check(command, switch, **flags)
    assert "out: the model there is for sentence class" in str(caught.value)
    check(command, switch, **flags, output_dir="new")  # model/ says nothing.
    write_model(folder, "BertForQuestionAnswering")
    with pytest.raises(errors.InputError, match="or multi-label"):
        check("run_classifier", "--do_predict", task_name="csv")


@pytest.mark.parametrize("task", ["csv", "SST-2", "SWAG", "copa", None])
@pytest.mark.parametrize("switch", ["--do_predict", "--do_train"])
def test_texts_and_choices_need_models_of_their_own(folder, task, switch):
    flags = {"task_name": task, "data_dir": "."}
    if task == "csv":
        flags |= CSV | {"test_file": "t.csv", "data_dir": None}
    if task is None:
        if switch == "--do_train":
            return
        flags["test_file"] = "t.csv"
    is_choice = task in ("SWAG", "copa")
    for architecture, is_right in (
        ("BertForMultipleChoice", is_choice or task is None),
        ("BertForSequenceClassification", not is_choice),
    ):
        write_model(folder, architecture)
        if is_right:
            check("run_classifier", switch, **flags)
            continue
        with pytest.raises(errors.InputError, match=architecture):
            check("run_classifier", switch, **flags)
    # The task is that of the training.
    if switch == "--do_predict" and task is None:
        write_model(folder, "BertForMultipleChoice", task_name="swag")
        check("run_classifier", switch, **flags)
        write_model(folder, task_name="swag")
        with pytest.raises(errors.InputError, match="for multiple choice"):
            check("run_classifier", switch, **flags)


def test_the_head_above_a_bilstm_is_known(folder):
    values = {"architectures": ["BertModel"], "bilstm_size": 4}
    path = folder / "model" / "config.json"
    ner = {"test_file": "t.csv"}
    path.write_text(json.dumps(values))  # As earlier versions have written it.
    check("run_ner", "--do_predict", **ner)
    check("run_classifier", "--do_eval", **SST)
    values["bilstm_head"] = "BertForTokenClassification"
    path.write_text(json.dumps(values))
    check("run_ner", "--do_predict", **ner)
    with pytest.raises(errors.InputError, match="for named entities"):
        check("run_classifier", "--do_eval", **SST)


def test_what_cannot_be_exported_is_refused(folder):
    def check_export(**flags):
        config = export_model.ExportConfig(
            model_dir="model", output_dir="new", **flags
        )
        export_model.check(config)

    def write(**values):
        path = folder / "model" / "config.json"
        path.write_text(json.dumps(values))

    write(architectures=["BertForSequenceClassification"])
    for task in ("regression", "multilabel", "sentence_embedding", None):
        check_export(task=task, format="onnx")
    for task in ("multiple_choice", "fill_mask", "question_answering"):
        with pytest.raises(errors.InputError, match="leave out --task"):
            check_export(task=task)
    write(architectures=["BertModel"], bilstm_size=4)
    check_export()
    with pytest.raises(
        errors.InputError, match="--format=onnx: model has a Bi"
    ):
        check_export(format="onnx")


@pytest.mark.parametrize("switch", ["--do_predict", "--do_train"])
def test_other_files_in_the_output_directory_are_no_model(folder, switch):
    (folder / "out").mkdir()
    (folder / "out" / "feature_results.txt").write_text("")
    flags = {"test_file": "t.csv", "train_file": "t.csv"}
    check("run_ner", switch, **flags)
    with pytest.raises(errors.InputError, match="--init_checkpoint"):
        check("run_ner", switch, **flags, init_checkpoint=None)


def save_tensors(path, *heads):
    """Writes an encoder's tensor and those of heads as safetensors."""
    names = ("bert.embeddings.LayerNorm.weight", *heads)
    tensors = {name: np.zeros([2], np.float32) for name in names}
    if path.name.endswith(".safetensors"):
        safetensors.numpy.save_file(tensors, path)
        return
    shards = {name: "model-00001-of-00001.safetensors" for name in tensors}
    path.write_text(json.dumps({"metadata": {}, "weight_map": shards}))


@pytest.mark.parametrize(
    ("command", "switch", "flags", "head"),
    [
        ("run_classifier", "--do_eval", SST, "classifier.weight"),
        (
            "run_squad",
            "--do_predict",
            {"predict_file": "t.json"},
            "qa_outputs.bias",
        ),
        ("run_ner", "--do_predict", {"test_file": "t.csv"}, "classifier.bias"),
    ],
)
@pytest.mark.parametrize("file", WEIGHTS)
def test_weights_without_the_head_are_refused(
    folder, command, switch, flags, head, file
):
    weights = folder / "model" / file
    for heads in ((), ("cls.predictions.bias",)):
        save_tensors(weights, *heads)
        for path in ("model", f"model/{file}"):
            with pytest.raises(
                errors.InputError, match="lacks the head"
            ) as caught:
                check(command, switch, **flags, init_checkpoint=path)
            assert f"model/{file}:" in str(caught.value)
        # The weights are others.
        path = "model/bert_model.ckpt"
        check(command, switch, **flags, init_checkpoint=path)
    save_tensors(weights, head)
    check(command, switch, **flags)
    # The reader of the weights says so.
    weights.write_text('{"weight_map": 1}' if "json" in file else "damaged")
    check(command, switch, **flags)


def test_a_teacher_has_the_head_of_the_task(folder):
    (folder / "old").mkdir()
    flags = CSV | {"teacher_dir": "old"}
    check("run_classifier", "--do_train", **flags)
    for name in reversed(WEIGHTS):  # The file comes first.
        save_tensors(folder / "old" / name)
        with pytest.raises(errors.InputError, match="another --teacher_dir"):
            check("run_classifier", "--do_train", **flags)
        save_tensors(folder / "old" / name, "classifier.bias")
        check("run_classifier", "--do_train", **flags)


def test_masks_are_filled_by_models_with_their_head_only(folder):
    def check_model():
        fill_mask.check(fill_mask.FillMaskConfig(model_dir="model", text="a"))

    for name in reversed(WEIGHTS):  # The file comes first.
        save_tensors(folder / "model" / name)
        with pytest.raises(errors.InputError, match="masked words"):
            check_model()
        save_tensors(folder / "model" / name, "cls.predictions.bias")
        check_model()
    check_model()
    write_model(folder)
    (folder / "out" / "config.json").rename(folder / "model" / "config.json")
    with pytest.raises(errors.InputError, match="sentence classification"):
        check_model()


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run_embeddings", {"train_file": "pairs.csv"}),
        ("run_ner", {"train_file": "t.csv"}),
        ("run_squad", {"train_file": "t.json"}),
        ("run_classifier", CSV),
    ],
)
def test_a_directory_with_a_model_of_another_kind_is_not_trained_in(
    folder, command, flags
):
    (folder / "pairs.csv").write_text("anchor,positive\na,b\n")
    check(command, "--do_train", **flags)
    write_model(folder, "BertForPreTraining")
    with pytest.raises(errors.InputError, match="take another --output_dir"):
        check(command, "--do_train", **flags)


def test_a_development_set_is_that_of_the_training(folder):
    trained = {"task_name": "csv", "text_column": "text", "train_file": "t.csv"}
    trained |= {"label_column": "stars", "dev_fraction": 0.1}
    write_model(folder, **trained)
    check("run_classifier", "--do_eval")
    # A set to predict is always given.
    with pytest.raises(errors.InputError, match="--test_file is required"):
        check("run_classifier", "--do_predict")
    with pytest.raises(errors.InputError, match="--dev_file: a.csv: no such"):
        check("run_classifier", "--do_eval", dev_file="a.csv")
    with pytest.raises(errors.InputError, match="no column 'stars'"):
        (folder / "d.csv").write_text("text\na\n")
        check("run_classifier", "--do_eval", dev_file="d.csv")
    (folder / "t.csv").rename(folder / "moved.csv")
    with pytest.raises(errors.InputError) as caught:
        check("run_classifier", "--do_eval")
    assert "--train_file: t.csv: no such file" in str(caught.value)
    assert "the flags of the model's training" in str(caught.value)
    check("run_classifier", "--do_eval", train_file="moved.csv")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run_ner", {"train_file": "t.csv"}),
        ("run_squad", {"train_file": "t.json"}),
        ("run_classifier", CSV),
    ],
)
def test_a_length_without_positions_is_refused(folder, command, flags):
    config = json.dumps({"max_position_embeddings": 300})
    (folder / "model" / "bert_config.json").write_text(config)
    check(command, "--do_train", **flags, max_seq_length=300)
    with pytest.raises(errors.InputError, match="only 300 positions") as caught:
        check(command, "--do_train", **flags, max_seq_length=301)
    is_hinted = "--long_texts=windows" in str(caught.value)
    assert is_hinted == (command == "run_classifier")


REMEMBERED = [
    ("run_classifier", "--do_predict", {"max_seq_length": 64}),
    ("run_embeddings", "--do_predict", {"max_seq_length": 64}),
    (
        "run_embeddings",
        "--do_eval",
        {"max_seq_length": 64, "dev_file": "t.csv", "max_score": 5.0},
    ),
    (
        "run_ner",
        "--do_eval",
        {
            "max_seq_length": 64,
            "document_context": "maximal",
            "doc_stride": 32,
            "data_dir": "conll",
        },
    ),
    (
        "run_squad",
        "--interactive",
        {
            "max_seq_length": 100,
            "doc_stride": 50,
            "max_query_length": 20,
            "max_answer_length": 10,
            "n_best_size": 3,
            "exact_answers": True,
        },
    ),
]


@pytest.mark.parametrize(("command", "switch", "trained"), REMEMBERED)
def test_the_settings_of_the_training_are_defaults(
    folder, command, switch, trained
):
    write_model(folder, **trained)
    config_class, _ = COMMANDS[command]

    def values(*flags):
        arguments = [command, switch, "--output_dir=out", *flags]
        config = config_flags.parse(config_class, arguments)
        found = config_flags.flat_values(
            early_checks.with_trained_flags(config)
        )
        return {name: found[name] for name in trained}

    assert values() == trained
    length = {"max_seq_length": 128}
    assert values("--max_seq_length=128") == trained | length


def test_taggers_of_activations_remember_their_encoder(folder):
    flags = {"init_checkpoint": None, "test_file": "t.csv"}
    run_config = {"do_train": True, "init_checkpoint": "model"}
    (folder / "out" / "features" / "last").mkdir(parents=True)
    path = folder / "out" / config_flags.RUN_CONFIG
    path.write_text(json.dumps(run_config))
    check("run_ner", "--do_predict", "--features=last", **flags)
    with pytest.raises(errors.InputError, match="has taggers of --features"):
        check("run_ner", "--do_predict", **flags)
    (folder / "out" / "model.ckpt-8.index").touch()
    check("run_ner", "--do_predict", **flags)
    (folder / "out" / "model.ckpt-8.index").unlink()
    path.write_text(json.dumps(run_config | {"init_checkpoint": "gone"}))
    with pytest.raises(errors.InputError, match="=gone: no such"):
        check("run_ner", "--do_predict", "--features=last", **flags)
