"""Proves that masks are drawn again in every step of a training only.

A few steps on shards without a manifest, in one batch and in two accumulated
parts.

pytest tests/run_pretraining_split_test.py
"""

import json

import pretraining_runs
import pytest
import tiny_runs

import run_pretraining
from foundation import config_flags

pytestmark = pytest.mark.all
NAMES = ("loss", "masked_lm_loss", "next_sentence_accuracy", "grad_norm")


def flags(folder, name):
    return {
        "bert_config_file": folder / "config.json",
        "input_file": folder / "16-*.tfrecord",
        "output_dir": folder / name,
        "do_train": True,
        "do_eval": False,
        "max_seq_length": 16,
        "max_predictions_per_seq": 3,
        "train_batch_size": 8,
        "eval_batch_size": 4,
        "max_eval_steps": 2,
        "num_train_steps": 5,
        "num_warmup_steps": 1,
        "learning_rate": 1e-2,
        "iterations_per_loop": 1,
        "precision": "float32",
    }


def run(folder, name, **changed):
    """Runs in this process; returns the lines of metrics."""
    given = flags(folder, name) | changed
    argv = [f"--{flag}={value}" for flag, value in given.items()]
    config_flags.run(
        run_pretraining.PretrainingFlags,
        run_pretraining.main,
        ["run_pretraining.py", *argv],
    )
    return metrics(folder / name)


def metrics(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_same(lines, expected, tolerance=1e-4):
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    for line, reference in zip(lines, expected, strict=True):
        for name in (f"train/{name}" for name in NAMES):
            assert line[name] == pytest.approx(reference[name], rel=tolerance)


@pytest.fixture(scope="module", autouse=True)
def without_report():
    """No test here reads a report."""
    with pretraining_runs.no_report():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("split")
    pretraining_runs.write_inputs(
        path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    words = [*tiny_runs.SPECIAL, *(f"w{i}" for i in range(55))]
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    return path


@pytest.fixture(scope="module")
def plain(folder):
    return run(folder, "plain")


@pytest.fixture(scope="module")
def redrawing(folder):
    return {"dynamic_masking": True, "vocab_file": folder / "vocab.txt"}


@pytest.fixture(scope="module")
def redrawn(folder, redrawing):
    """A run whose masks are drawn again in every step."""
    return run(folder, "redrawn", do_eval=True, **redrawing)


def test_masks_are_drawn_again_for_training_only(folder, redrawn, plain):
    name = "train/masked_lm_loss"
    # Before the first step, both models are the same.
    assert redrawn[0][name] != pytest.approx(plain[0][name], rel=1e-4)
    results = folder / "redrawn" / "eval_results.txt"
    before = results.read_text()
    run(folder, "redrawn", do_train=False, do_eval=True)
    assert results.read_text() == before


def test_parts_give_the_same_losses(folder, redrawing, redrawn):
    """Also with masks that are drawn for each row of the global batch."""
    changed = {**redrawing, "gradient_accumulation_steps": 2}
    assert_same(run(folder, "drawn", **changed), redrawn)
