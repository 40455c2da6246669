"""Proves that runs in a bucket leave what runs on a disk leave.

python -m pytest tests/remote_output_test.py

TensorFlow's file system in memory, ram://, stands for the bucket.
"""

import os
import pathlib

import classifier_runs
import pretraining_runs
import pytest
import tensorflow as tf
import tiny_runs

import run_pretraining
from finetuning import record
from weights import checkpoint_sources, model_directory

BUCKET = "ram://bucket"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(place)
    send(place / "encoder", f"{BUCKET}/encoder")
    return place


@pytest.fixture(autouse=True)
def no_folder_named_as_a_scheme(tmp_path, monkeypatch):
    """What is taken for a local path would become one here."""
    monkeypatch.chdir(tmp_path)
    yield
    assert os.listdir(tmp_path) == []


def send(folder, remote):
    """Copies a folder's files."""
    tf.io.gfile.makedirs(remote)
    for path in pathlib.Path(folder).iterdir():
        tf.io.gfile.copy(str(path), f"{remote}/{path.name}", overwrite=True)


def read(path):
    with tf.io.gfile.GFile(str(path), "rb") as file:
        return file.read()


def files(folder):
    """The files of a folder and those below, but for TensorBoard's.

    A bucket has no lock.
    """
    names = {
        os.path.join(parent, name).removeprefix(f"{folder}/")
        for parent, _, names in tf.io.gfile.walk(str(folder))
        for name in names
    }
    return {name for name in names - {record.LOCK} if "events.out" not in name}


def same(ours, theirs, *names):
    for name in names:
        assert read(f"{ours}/{name}") == read(f"{theirs}/{name}"), name


def run(place, output_dir, *switches, **flags):
    remote = str(output_dir).startswith(BUCKET)
    classifier_runs.run(
        place,
        "unused",
        *switches,
        task_name="SST-2",
        data_dir=place,
        output_dir=output_dir,
        **{"init_checkpoint": f"{BUCKET}/encoder" if remote else None, **flags},
    )


@pytest.mark.all
def test_a_classifier_lies_in_the_bucket_with_all_that_it_needs(place):
    everything = ("--do_train", "--do_eval", "--do_predict")
    ours, theirs = f"{BUCKET}/sst", place / "sst"
    remote = f"{BUCKET}/encoder"
    flags = {
        "glue_submission": f"{BUCKET}/glue",
        "init_checkpoint": f"{remote}/model.safetensors",
        "bert_config_file": f"{remote}/bert_config.json",
        "vocab_file": f"{remote}/vocab.txt",
    }
    run(place, ours, *everything, **flags)
    finished = read(f"{ours}/run.json")
    run(place, ours, *everything, **flags)
    assert read(f"{ours}/run.json") == finished
    encoder = place / "encoder"
    run(place, theirs, *everything, init_checkpoint=encoder)
    assert files(ours) == files(theirs)
    predicted = ("test_results.tsv", "predictions.tsv")
    same(
        ours,
        theirs,
        "model.safetensors",
        "config.json",
        "bert_config.json",
        "vocab.txt",
        "tokenizer_config.json",
        "eval_results.txt",
        *predicted,
    )
    assert b"<svg" in read(f"{ours}/report.html")
    assert files(f"{BUCKET}/glue") == {"SST-2.tsv"}
    before = {name: read(f"{ours}/{name}") for name in predicted}
    for name in files(ours):
        if name in predicted or name.startswith("model.ckpt"):
            tf.io.gfile.remove(f"{ours}/{name}")
    run(place, ours, "--do_predict", init_checkpoint=None)
    assert {name: read(f"{ours}/{name}") for name in predicted} == before
    model_directory.check_output_dir(
        ours, tiny_runs.config(classifier_runs.WORDS)
    )


def test_pre_training_leaves_its_model_in_the_bucket(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    pretraining_runs.write_inputs(folder)
    source, output = f"{BUCKET}/shards", f"{BUCKET}/pretrained"
    send(folder, source)
    tiny_runs.run(
        run_pretraining,
        run_pretraining.PretrainingFlags,
        "--do_train",
        "--do_eval",
        bert_config_file=f"{source}/config.json",
        input_file=f"{source}/16-*.tfrecord",
        output_dir=output,
        max_seq_length=16,
        max_predictions_per_seq=3,
        train_batch_size=4,
        num_train_steps=4,
        num_warmup_steps=1,
        max_eval_steps=2,
        precision="float32",
    )
    made = {"model.safetensors", "eval_results.txt", "report.html", "run.json"}
    assert made | {"model.ckpt-4.index", "metrics.jsonl"} <= files(output)
    assert len(checkpoint_sources.read(output).tensors) > 20
