"""Proves that commands refuse what users mistype before TensorFlow is imported.

python -m pytest tests/jobs/early_checks_test.py
"""

import os
import subprocess
import sys

import pytest

import run_classifier
import run_embeddings
import run_ner
import run_squad
from foundation import config_flags, errors
from tasks.classification import early_checks as classifier_checks
from tasks.embeddings import early_checks as embeddings_checks
from tasks.ner import early_checks as ner_checks
from tasks.squad import early_checks as squad_checks

FILES = "config.json vocab.txt tokenizer_config.json model.safetensors"
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


@pytest.mark.parametrize(("command", "flags", "message"), REFUSED)
def test_what_cannot_be_right_is_refused(folder, command, flags, message):
    with pytest.raises(errors.InputError) as caught:
        check(command, "--do_train", **flags)
    assert message in str(caught.value)


def test_a_prediction_needs_a_model_and_a_set(folder):
    flags = {"test_file": "t.csv", "init_checkpoint": None}
    with pytest.raises(errors.InputError, match="no trained model in --output"):
        check("run_classifier", "--do_predict", **flags)
    # The columns of a trained model are not known here.
    (folder / "out").mkdir()
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
