"""Proves that the hardware split does not change the mathematics.

The same 50 steps on one device, on two replicas in four accumulated parts under
XLA, and on two processes: losses, norms and weights within 1e-5. make test-all
has more replicas, LAMB, XLA alone, and XLA on two processes. Every step is
clipped, examples have different numbers of predictions.

pytest tests/training/split_test.py
"""

import json
import os
import pathlib
import subprocess
import sys

import clusters
import numpy as np
import pytest
import toy_run

HERE = pathlib.Path(__file__).parent
TOLERANCE = 1e-5
BASE = {"batch": 16, "log_every": 1}
MORE = {
    "replicas4": {"replicas": 4},
    "replicas8": {"replicas": 8},
    "xla": {"jit": True},
    "replicas2_accumulation4_lamb": {
        "replicas": 2,
        "accumulation": 4,
        "rule": "lamb",
    },
}


def start(directory, options, **environment):
    paths = [str(HERE), str(HERE.parent.parent)]
    return subprocess.Popen(
        [
            sys.executable,
            str(HERE / "toy_run.py"),
            str(directory),
            json.dumps(options),
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            **environment,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(processes):
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-3000:]


def read(directory, final="final.npz"):
    with np.load(directory / final) as arrays:
        return metrics(directory, "train/loss"), dict(arrays)


def metrics(directory, key):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(s) for s in lines if key in json.loads(s)]


def assert_same(found, expected):
    (lines, weights), (expected_lines, expected_weights) = found, expected
    assert len(lines) == len(expected_lines) == 50
    for line, reference in zip(lines, expected_lines, strict=True):
        for name in ("loss", "words", "sentences", "grad_norm"):
            name = f"train/{name}"
            assert line[name] == pytest.approx(reference[name], rel=TOLERANCE)
    for name, value in weights.items():
        reference = expected_weights[name]
        error = np.abs(value - reference).max() / np.abs(reference).max()
        assert error < TOLERANCE, name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directory of the runs on one device and on two replicas.

    The latter are a process of their own, because a process cannot have two
    mirrored strategies of different sizes.
    """
    directory = tmp_path_factory.mktemp("splits")
    options = {
        "split": {"accumulation": 4, "jit": True},
        "float16": {
            "precision": "float16",
            "overflow": 2,
            "dropout": 0.5,
            "steps": 6,
        },
    }
    process = start(
        directory, {k: {**BASE, "replicas": 2, **v} for k, v in options.items()}
    )
    plain = {**BASE, "eval_every": 25}
    toy_run.run(str(directory / "plain"), plain)
    finish([process])
    return directory


@pytest.mark.slow
def test_replicas_and_parts_give_the_losses_and_weights_of_one_device(runs):
    expected = read(runs / "plain")
    norms = [line["train/grad_norm"] for line in expected[0]]
    assert min(norms) > 0.05, "clipping must be active"
    assert_same(read(runs / "split"), expected)


@pytest.mark.all
@pytest.mark.parametrize("name", MORE)
def test_more_splits_give_the_losses_and_weights_of_one(tmp_path, name):
    split = {**BASE, **MORE[name]}
    process = start(tmp_path, {"split": split})
    plain = {**split, "replicas": 1, "accumulation": 1, "jit": False}
    toy_run.run(str(tmp_path / "plain"), plain)
    finish([process])
    assert_same(read(tmp_path / "split"), read(tmp_path / "plain"))


@pytest.mark.slow
def test_dropout_masks_differ_between_replicas_and_between_steps(runs):
    lines, _ = read(runs / "float16")
    masks = [line["train/mask"] for line in lines]
    assert len(set(masks)) == len(masks)
    for line in lines:
        spread = line["train/mask_squared"] - line["train/mask"] ** 2
        assert spread > 1e-7


@pytest.mark.slow
def test_an_overflow_on_one_replica_skips_the_step_on_all(runs):
    lines = metrics(runs / "float16", "train/skipped_steps")
    skipped = [line["train/skipped_steps"] for line in lines]
    assert skipped == [0, 0, 1, 1, 1, 1]
    # That step has no loss.
    losses, weights = read(runs / "float16")
    assert [line["step"] for line in losses] == [1, 2, 4, 5, 6]
    assert np.isfinite([line["train/loss"] for line in losses]).all()
    for name, value in weights.items():
        assert np.isfinite(value).all(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "jit", [False, pytest.param(True, marks=pytest.mark.all)]
)
def test_two_processes_give_the_losses_and_weights_of_one(runs, tmp_path, jit):
    options = {
        "run": {
            **BASE,
            "strategy": "multi_worker_mirrored",
            "replicas": None,
            "jit": jit,
            "save_every": 20,
            "eval_every": 25,
            # Without waiting, the other process would find step 40.
            "slow_save": 1.0,
        }
    }
    finish(
        [
            start(tmp_path, options, TF_CONFIG=text)
            for text in clusters.tf_configs(2)
        ]
    )
    assert not list((tmp_path / "run").glob(".*"))
    expected = read(runs / "plain")
    for index in range(2):
        name = f"final{index}.npz"
        assert_same(read(tmp_path / "run", name), expected)
        latest = (tmp_path / "run" / f"{name}.latest").read_text()
        assert latest == "model.ckpt-50"
    held_out, expected = (
        [line["eval/loss"] for line in metrics(directory, "eval/loss")]
        for directory in (tmp_path / "run", runs / "plain")
    )
    assert len(held_out) == 2
    assert held_out == pytest.approx(expected, rel=TOLERANCE)
