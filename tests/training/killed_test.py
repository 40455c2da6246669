"""Proves that a run that is killed ends as one that never was.

Real processes die by SIGKILL: before the operations on files that saving
consists of, inside of one, and at random moments. Every second operation is
enough for make test: the first one is drawn, so two runs have them all, and
make test-all has them at once. Weights, slots and the best
model are compared by hash, metrics line by line. SIGTERM is in
preemption_test.py and, with processes, in run_pretraining_resume_test.py.

pytest tests/training/killed_test.py
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import toy_run

from training import checkpoints, metric_writer

HERE = pathlib.Path(__file__).parent
DATA = ".data-00000-of-00001"
# Saves, lines of metrics and evaluations fall on different steps.
OPTIONS = {
    "steps": 45,
    "save_every": 2,
    "log_every": 7,
    "eval_every": 5,
    "dropout": 0.1,
}


def start(script, *arguments):
    paths = [str(HERE), str(HERE.parent.parent)]
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err[-3000:]
    return out


def digest(directory):
    with np.load(directory / "final.npz") as arrays:
        return toy_run.digest(dict(arrays))


def metrics(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [
        {
            k: v
            for k, v in json.loads(s).items()
            if k not in metric_writer.TIMINGS
        }
        for s in lines
    ]


def best(directory):
    """Returns name and contents of the best checkpoint."""
    prefix = checkpoints.Checkpoints(str(directory / "best")).latest()
    reader = tf.train.load_checkpoint(prefix)
    names = set(reader.get_variable_to_shape_map()) - {"training_state"}
    tensors = {name: np.asarray(reader.get_tensor(name)) for name in names}
    return os.path.basename(prefix), toy_run.digest(tensors)


def leftovers(directory):
    """Returns what a killed run has left, but for folders without a lock.

    They are empty, and the next writer removes them when they are ten minutes
    old; see atomic_test.py.
    """
    return [
        str(p)
        for p in directory.rglob("*")
        if (p.name.startswith(".") and not (p / "unlocked").exists())
        or p.suffix == ".tmp"
        or (DATA in p.name and not p.with_suffix(".index").exists())
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stride", [2, pytest.param(1, marks=pytest.mark.all)])
def test_killed_before_operations_of_saving_and_at_random_moments(
    tmp_path, stride
):
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    operations = range(2 + draw.randrange(stride), 22, stride)
    moments = [(k, draw.uniform(0.0, 0.005)) for k in (28, 35, 40)]
    points = [*operations, "inside", *moments]
    finish(
        start(
            "killed_runs.py",
            tmp_path,
            json.dumps(OPTIONS),
            json.dumps(points),
        )
    )
    codes = json.loads((tmp_path / "kills.json").read_text())
    assert codes == [0] + [-signal.SIGKILL] * len(points) + [0], seed
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert digest(killed) == digest(undisturbed), seed
    assert metrics(killed) == metrics(undisturbed), seed
    assert best(killed) == best(undisturbed), seed
    assert not leftovers(killed)
