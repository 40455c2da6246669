"""Proves that a signal is obeyed at once wherever it comes, and costs nothing.

During an evaluation, at the last step of a phase, while it is saved: the run
exits with its code, the next one makes the pending evaluation, and
weights, slots and metrics are those of a run that no signal disturbed.

pytest tests/training/preemption_test.py
"""

import json
import os
import signal
import time

import pytest
import toy_run

from training import (
    checkpoints,
    inference,
    metric_writer,
    preemption,
)

# Evaluations at 2, 4, 6, 7; of two phases, checkpoints at 3, 4, 6, 7.
OPTIONS = {
    "steps": 7,
    "phases": [[4, 6], [3, 6]],
    "log_every": 2,
    "eval_every": 2,
    "save_every": 3,
    "dropout": 0.1,
}


def train(directory):
    go, model, optimizer = toy_run.make(OPTIONS)
    first = go(str(directory))
    return first, toy_run.digest(toy_run.weights(model, optimizer))


def metrics(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    values = map(json.loads, lines)
    return [
        {k: v for k, v in line.items() if k not in metric_writer.TIMINGS}
        for line in values
    ]


def send(monkeypatch, owner, name, call):
    """Sends SIGTERM in the middle of that call of a method."""
    method, left = getattr(owner, name), [call]

    def disturbed(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, disturbed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    first, digest = train(directory)
    assert first == 0
    assert best(directory) == "model.ckpt-7"
    return directory, digest


def best(directory):
    path = checkpoints.Checkpoints(str(directory / "best")).latest()
    return path and os.path.basename(path)


def assert_ends_alike(directory, first, undisturbed):
    expected, digest = undisturbed
    assert train(directory) == (first, digest)
    assert metrics(directory) == metrics(expected)
    assert best(directory) == best(expected)


@pytest.mark.parametrize(
    ("evaluation_call", "stands_at"),
    [pytest.param(3, 6, marks=pytest.mark.all), (4, 7)],
    ids=["with_a_save", "end_of_run"],
)
def test_a_signal_during_an_evaluation_does_not_wait_for_it(
    tmp_path, monkeypatch, undisturbed, evaluation_call, stands_at
):
    with monkeypatch.context() as patch:
        send(patch, inference.Evaluator, "__call__", evaluation_call)
        with pytest.raises(SystemExit) as stopped:
            train(tmp_path)
    assert stopped.value.code == preemption.EXIT_CODE
    evaluated = [m["step"] for m in metrics(tmp_path) if "eval/loss" in m]
    assert len(evaluated) == evaluation_call - 1
    assert checkpoints.steps(str(tmp_path))[-1] == stands_at
    # A second signal at the same step changes nothing.
    with monkeypatch.context() as patch:
        send(patch, inference.Evaluator, "__call__", 1)
        with pytest.raises(SystemExit):
            train(tmp_path)
    assert_ends_alike(tmp_path, stands_at, undisturbed)


@pytest.mark.parametrize(
    ("save_call", "stands_at"),
    [pytest.param(1, 2, marks=pytest.mark.all), (4, 4)],
    ids=["best", "end_of_phase"],
)
def test_a_signal_while_saving_is_not_lost(
    tmp_path, monkeypatch, undisturbed, save_call, stands_at
):
    with monkeypatch.context() as patch:
        send(patch, checkpoints.Checkpoints, "save", save_call)
        with pytest.raises(SystemExit) as stopped:
            train(tmp_path)
    assert stopped.value.code == preemption.EXIT_CODE
    assert_ends_alike(tmp_path, stands_at, undisturbed)


def test_the_second_ctrl_c_does_not_wait():
    with preemption.Preemption() as preempted:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert preempted.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
