"""Proves --long_texts=windows in small: training, predictions, exports."""

import csv
import random

import classifier_runs
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs
from safetensors.numpy import load_file

import export_model
from serving import api

FLAGS = {
    "task_name": "csv",
    "max_seq_length": 10,
    "text_column": "review",
    "label_column": "verdict",
}


def _documents(seed, count):
    """Returns long texts with four telling words behind the first window."""
    rng = random.Random(seed)
    for _ in range(count):
        label = rng.randrange(2)
        words = rng.choices(classifier_runs.FILLING, k=rng.randrange(14, 26))
        telling = classifier_runs.GOOD if label else classifier_runs.BAD
        start = rng.randrange(8, len(words))
        words[start:start] = rng.choices(telling, k=4)
        yield " ".join(words), ["no", "yes"][label]


def _write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["review", "verdict"], *rows])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root, dropout=0.0)
    _write(root / "long.csv", _documents(1, 600))
    _write(root / "held_out.csv", _documents(2, 60))
    return root


@pytest.fixture(scope="module")
def trained(root):
    return classifier_runs.run(
        root,
        "windows",
        "--do_train",
        "--do_eval",
        "--do_predict",
        train_file=root / "long.csv",
        dev_file=root / "held_out.csv",
        test_file=root / "held_out.csv",
        long_texts="windows",
        window_pooling="attention",
        doc_stride=6,
        num_train_epochs=20,
        learning_rate=1e-3,
        eval_every_epoch="false",
        **FLAGS,
    )


def test_it_learns_what_is_behind_the_first_window(trained):
    assert tiny_runs.eval_results(trained)["eval_accuracy"] > 0.9


def test_python_and_exports_divide_as_the_command_did(root, trained, tmp_path):
    rows = list(csv.reader((root / "held_out.csv").open()))[1:]
    texts = [text for text, _ in rows] + ["w1", ""]
    lines = (trained / "predictions.tsv").read_text().splitlines()
    header, *lines = [line.split("\t") for line in lines]
    labels = [line[header.index("label")] for line in lines]
    model = api.load(str(trained))
    found = model.predict(texts)
    assert [x.label for x in found[:-2]] == labels
    assert model.encode(texts)["input_ids"].ndim == 3
    tiny_runs.run(
        export_model,
        export_model.ExportConfig,
        model_dir=trained,
        output_dir=tmp_path / "export",
    )
    graph = tf.saved_model.load(str(tmp_path / "export"))
    served = graph.signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_allclose(
        [x.score for x in found], served["score"], atol=1e-5
    )
    names = served["label"].numpy().astype(str).tolist()
    assert names == [x.label for x in found]


def test_another_command_predicts_as_the_model_was_trained(root, trained):
    again = classifier_runs.run(
        root,
        "again",
        "--do_predict",
        init_checkpoint=trained,
        test_file=root / "held_out.csv",
        max_seq_length=10,
        learning_rate=None,
    )
    name = "test_results.tsv"
    np.testing.assert_allclose(
        np.loadtxt(again / name), np.loadtxt(trained / name), atol=1e-6
    )


def test_flags_without_effect_are_refused(root, capsys):
    flags = {"train_file": root / "long.csv", "doc_stride": 4}
    with pytest.raises(SystemExit, match="2"):
        classifier_runs.run(root, "refused", "--do_train", **flags, **FLAGS)
    error = capsys.readouterr().err
    assert "--doc_stride" in error and "--long_texts=windows" in error


@pytest.mark.all
def test_texts_that_fit_are_trained_as_without_windows(root):
    """The batches, the dropout masks and the steps are the same."""
    flags = {
        "init_checkpoint": tiny_runs.save_encoder(
            root / "with_dropout", classifier_runs.WORDS
        ),
        "num_train_epochs": 2,
        "eval_every_epoch": "false",
    }
    weights = [
        load_file(
            classifier_runs.run_csv(root, name, "--do_train", **flags, **more)
            / "model.safetensors"
        )
        for name, more in (("cut", {}), ("fit", {"long_texts": "windows"}))
    ]
    assert list(weights[0]) == list(weights[1])
    for name, expected in weights[0].items():
        np.testing.assert_allclose(
            weights[1][name], expected, atol=1e-6, err_msg=name
        )
