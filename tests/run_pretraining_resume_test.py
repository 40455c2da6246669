"""Proves that run_pretraining.py, stopped by SIGTERM, ends as if never.

Real processes on real shards of two lengths, whose masks are drawn again in
every step. Weights, slots and metrics are the same to the last bit as of a run
that is left alone. tests/slow kills commands at any operation and moment.

pytest tests/run_pretraining_resume_test.py
"""

import json
import random
import signal

import numpy as np
import pretraining_runs
import pytest
import tensorflow as tf
import tiny_runs

from training import metric_writer, preemption

PHASES = "16:24,32:16"
FLAGS = {
    "bert_config_file": "config.json",
    "vocab_file": "vocab.txt",
    "input_file": "*.tfrecord",
    "do_train": "true",
    "do_eval": "true",
    "phases": PHASES,
    "dynamic_masking": "true",
    "train_batch_size": 4,
    "learning_rate": 1e-3,
    "num_warmup_steps": 4,
    "save_checkpoints_steps": 5,
    "iterations_per_loop": 3,
    "eval_every_steps": 20,
    "max_eval_steps": 2,
    "precision": "float32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("resume")
    pretraining_runs.write_inputs(path)
    words = [*tiny_runs.SPECIAL, *(f"w{i}" for i in range(55))]
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    return path


def tensors(output_dir):
    reader = tf.train.load_checkpoint(str(output_dir))
    names = set(reader.get_variable_to_shape_map()) - {"training_state"}
    return {name: reader.get_tensor(name) for name in names}


def metrics(output_dir):
    lines = (output_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {
            name: value
            for name, value in json.loads(line).items()
            if name not in metric_writer.TIMINGS
        }
        for line in lines
    ]


def train(name):
    """Trains in this process, without a report."""
    flags = FLAGS | {"output_dir": name}
    with pretraining_runs.no_report():
        tiny_runs.start(
            "run_pretraining", *(f"--{k}={v}" for k, v in flags.items())
        )


@pytest.mark.slow
def test_a_stopped_run_of_two_phases_ends_like_one_left_alone(
    folder, caplog, monkeypatch
):
    seed = random.randrange(2**32)
    step = random.Random(seed).randrange(6, 34)
    killed, alone = folder / "killed", folder / "alone"
    monkeypatch.chdir(folder)
    flags = FLAGS | {"output_dir": "killed"}
    process = pretraining_runs.start(folder, **flags)
    code = pretraining_runs.stop_at(process, killed, step, signal.SIGTERM)
    assert code == preemption.EXIT_CODE, seed
    train("killed")
    assert "resuming from" in caplog.text
    train("alone")
    expected, found = tensors(alone), tensors(killed)
    assert expected["global_step"] == 40
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, f"{name} {seed}")
    assert metrics(killed) == metrics(alone)
    for name in (
        "model.safetensors",
        "eval_results.txt",
        "best/model.safetensors",
        "best/config.json",
        "best/vocab.txt",
    ):
        written = [(path / name).read_bytes() for path in (alone, killed)]
        assert written[0] == written[1], name
