"""Proves what is refused and what is predicted in a directory with a model.

python -m pytest tests/run_classifier_folder_test.py
"""

import hashlib
import io
import pathlib
import shutil
import sys

import classifier_runs
import ner_runs
import numpy as np
import pytest
import safetensors.numpy
import tiny_runs

import run_ner
from training import checkpoints
from weights import model_directory

TRAIN = ("--do_train", "--do_eval")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("folder")
    classifier_runs.make_data(root, dropout=0.0)
    classifier_runs.run_csv(root, "done", *TRAIN)
    return root


def refusal(capsys, run, *arguments, **flags):
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        run(*arguments, **flags)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_finished_run_refuses_other_settings(root, capsys):
    flags_before = (root / "done" / "run_config.json").read_bytes()
    for flags, message in (
        ({"learning_rate": 1e-3}, "--learning_rate was 0.005, is 0.001"),
        ({"random_seed": 7}, "--random_seed was 12345, is 7"),
        ({"init_checkpoint": root / "done"}, "--init_checkpoint was "),
        ({"layer_decay": 0.9}, "--layer_decay was 1.0, is 0.9"),
        (
            {"problem_type": "multi_label"},
            "--problem_type was classification, is multi_label",
        ),
    ):
        error = refusal(
            capsys, classifier_runs.run_csv, root, "done", *TRAIN, **flags
        )
        assert message in error
        assert "has ended already; take another --output_dir" in error
    assert (root / "done" / "run_config.json").read_bytes() == flags_before
    before = tiny_runs.eval_results(root / "done")
    classifier_runs.run_csv(root, "done", *TRAIN)
    assert tiny_runs.eval_results(root / "done") == before


def test_a_run_without_its_checkpoints_is_finished(root, capsys, caplog):
    """Whether --keep_optimizer=false or the user has removed them."""
    caplog.set_level("INFO", logger="absl")
    flags = {"keep_optimizer": False, "num_train_epochs": 1}
    folder = classifier_runs.run_csv(root, "bare", *TRAIN, **flags)
    values = tiny_runs.eval_results(folder)
    assert not list(folder.glob("model.ckpt-*"))
    assert not (folder / "checkpoint").exists()
    assert "may be deleted" not in caplog.text
    model = (folder / "model.safetensors").read_bytes()
    metrics = (folder / "metrics.jsonl").read_bytes()
    classifier_runs.run_csv(root, "bare", *TRAIN, **flags)
    step = int(values["global_step"])
    assert f"already finished: {folder} is at step {step}" in caplog.text
    assert tiny_runs.eval_results(folder) == values
    assert (folder / "model.safetensors").read_bytes() == model
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    error = refusal(
        capsys,
        classifier_runs.run_csv,
        root,
        "bare",
        *TRAIN,
        **{**flags, "learning_rate": 1e-3},
    )
    assert "has ended already; take another --output_dir" in error


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_kill_left_of_the_checkpoints_is_removed(
    root, monkeypatch, whole
):
    """A kill among those of the last steps, or before those of best/."""
    flags = {
        "keep_optimizer": False,
        "early_stopping_patience": 1,
        "eval_every_steps": 3,
        "keep_checkpoint_max": 3,
        "save_checkpoints_steps": 2,
        "num_train_epochs": 3,
        "learning_rate": 5e-3,
    }
    remove = checkpoints.remove_all

    def killed(folder):
        if whole:
            remove(folder)
        else:
            next(pathlib.Path(folder).glob("model.ckpt-*.index")).unlink()
        raise KeyboardInterrupt

    name = f"killed_{whole}"
    with monkeypatch.context() as context, pytest.raises(SystemExit):
        context.setattr(checkpoints, "remove_all", killed)
        classifier_runs.run_csv(root, name, *TRAIN, **flags)
    folder = root / name
    assert list(folder.glob("best/model.ckpt-*"))
    assert bool(list(folder.glob("model.ckpt-*"))) != whole
    model = (folder / "model.safetensors").read_bytes()
    metrics = (folder / "metrics.jsonl").read_bytes()
    classifier_runs.run_csv(root, name, *TRAIN, **flags)
    left = [*folder.rglob("model.ckpt-*"), *folder.rglob("checkpoint")]
    assert not left
    assert (folder / "model.safetensors").read_bytes() == model
    assert (folder / "metrics.jsonl").read_bytes() == metrics


def test_an_own_table_finds_its_labels_and_predicts_without_them(root, caplog):
    folder = root / "done"
    assert model_directory.read_settings(str(folder)).labels == ["no", "yes"]
    values = tiny_runs.eval_results(folder)
    assert values["eval_accuracy"] > 0.9
    assert "eval_f1_macro" in values
    (root / "new.csv").write_text("id,review\nfirst,good w1\nsecond,bad w2\n")
    classifier_runs.run_csv(
        root,
        "done",
        "--do_predict",
        train_file=None,
        dev_file=None,
        # As the README of google-research/bert has it.
        init_checkpoint=f"{folder}/model.ckpt-{values['global_step']:.0f}",
        test_file=root / "new.csv",
        id_column="id",
    )
    assert "not --init_checkpoint" not in caplog.text
    rows = (folder / "predictions.tsv").read_text().splitlines()
    assert rows[0] == "id\tlabel\tno\tyes\treview"
    assert [row.split("\t")[:2] for row in rows[1:]] == [
        ["first", "yes"],
        ["second", "no"],
    ]


def test_a_model_predicts_its_own_labels(root):
    """Not those of the model that its training started from."""
    for name in ("train", "dev"):
        text = (root / f"{name}.csv").read_text()
        text = text.replace(",no\n", ",bad\n").replace(",yes\n", ",good\n")
        text = text.replace(",no\r\n", ",bad\r\n")
        text = text.replace(",yes\r\n", ",good\r\n")
        (root / f"named_{name}.csv").write_text(text)
    start = {"init_checkpoint": root / "done", "num_train_epochs": 1}
    classifier_runs.run_csv(
        root,
        "named",
        *TRAIN,
        train_file=root / "named_train.csv",
        dev_file=root / "named_dev.csv",
        **start,
    )
    folder = classifier_runs.run_csv(
        root,
        "named",
        "--do_predict",
        train_file=None,
        dev_file=None,
        test_file=root / "dev.csv",
        **start,
    )
    predicted = (folder / "predictions.tsv").read_text()
    header, *rows = predicted.splitlines()
    assert header.split("\t") == ["id", "label", "bad", "good", "review"]
    assert {row.split("\t")[1] for row in rows} <= {"bad", "good"}
    # Nor does its checkpoint if the training was killed.
    killed = tiny_runs.killed(folder, root / "killed")
    classifier_runs.run_csv(
        root,
        "killed",
        "--do_predict",
        train_file=None,
        dev_file=None,
        test_file=root / "dev.csv",
        **start,
    )
    assert (killed / "predictions.tsv").read_text() == predicted


def test_training_may_give_the_labels_of_its_start_another_order(root, caplog):
    with caplog.at_level("INFO", logger="absl"):
        folder = classifier_runs.run_csv(
            root,
            "reordered",
            "--do_train",
            init_checkpoint=root / "done",
            label_names="yes,no",
            num_train_epochs=1,
        )
    assert "a new output layer is trained for yes, no" in caplog.text
    labels = model_directory.read_settings(str(folder)).labels
    assert list(labels) == ["yes", "no"]


def test_the_output_layer_of_other_labels_is_not_used(root):
    heads = []
    for name in ("done", "encoder"):
        folder = classifier_runs.run_csv(
            root,
            f"other_{name}",
            "--do_train",
            train_file=root / "named_train.csv",
            dev_file=None,
            init_checkpoint=root / name,
            learning_rate=1e-9,
            num_train_epochs=0.2,
        )
        tensors = safetensors.numpy.load_file(folder / "model.safetensors")
        heads.append(tensors["classifier.weight"])
    np.testing.assert_allclose(*heads, atol=1e-6)


def test_a_classifier_is_no_tagger(root, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a good w1\n"))
    error = refusal(
        capsys,
        tiny_runs.run,
        run_ner,
        run_ner.NerConfig,
        "--interactive",
        output_dir=root / "done",
        max_seq_length=32,
    )
    assert "has been trained for another task" in error
    assert "BertForSequenceClassification, not a BertForTokenClassif" in error


def test_a_model_is_not_trained_in_its_own_directory(root, capsys):
    """A directory as others publish it: no bert_config.json, no run."""
    folder = shutil.copytree(root / "encoder", root / "published")
    (folder / "bert_config.json").unlink()
    weights = folder / "model.safetensors"
    before = hashlib.sha256(weights.read_bytes()).digest()
    error = refusal(
        capsys,
        classifier_runs.run_csv,
        root,
        "published",
        *TRAIN,
        init_checkpoint=root / "." / "published",
    )
    assert "contains --init_checkpoint" in error
    assert hashlib.sha256(weights.read_bytes()).digest() == before


def test_a_grid_is_not_trained_over_the_run_that_it_starts_from(root, capsys):
    weights = root / "done" / "model.safetensors"
    before = hashlib.sha256(weights.read_bytes()).digest()
    flags = {"init_checkpoint": root / "done", "learning_rate": "1e-3,1e-4"}
    run = classifier_runs.run_csv
    error = refusal(capsys, run, root, "done", "--do_train", **flags)
    assert "contains --init_checkpoint" in error
    assert hashlib.sha256(weights.read_bytes()).digest() == before


def test_a_folder_without_a_model_is_named(tmp_path, capsys):
    run = {"init_checkpoint": None, "data_dir": None}
    command = (ner_runs.run, tmp_path, "nothing", "--interactive")
    error = refusal(capsys, *command, **run)
    assert f"no trained model in --output_dir={tmp_path}/nothing" in error
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "checkpoint").write_text("")
    error = refusal(
        capsys, ner_runs.run, tmp_path, "begun", "--interactive", **run
    )
    assert "its training has not ended" in error
