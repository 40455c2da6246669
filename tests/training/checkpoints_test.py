"""Proves what is kept: the best by a metric, and no half checkpoint.

pytest tests/training/checkpoints_test.py
"""

import os
import time

import pytest
import tensorflow as tf

from foundation import errors
from training import checkpoints


def offer(best_checkpoint, values):
    """Offers one value a step; returns the best after each."""
    variables = {"weight": tf.Variable([1.0, 2.0])}
    found, best = [], None
    for step, value in enumerate(values, 1):
        best = best_checkpoint.offer(step, {"loss": value}, variables, best)
        found.append(best)
    return found


def test_data_without_an_index_is_swept_by_the_next_save(tmp_path):
    """A process was killed while it removed an old checkpoint."""
    saver = checkpoints.Checkpoints(str(tmp_path), keep_max=2)
    variables = {"weight": tf.Variable([1.0, 2.0])}
    for step in (1, 2):
        saver.save(step, variables, {})
    saver.wait()
    (tmp_path / "model.ckpt-1.index").unlink()
    saver.save(3, variables, {})
    saver.wait()
    found = {p.name for p in tmp_path.iterdir()}
    data = ".data-00000-of-00001"
    names = [f"model.ckpt-{s}{end}" for s in (2, 3) for end in (data, ".index")]
    assert found == {"checkpoint", *names}


def test_a_save_that_names_the_best_comes_after_it(tmp_path, monkeypatch):
    written, write = [], checkpoints.Checkpoints._write

    def slow(self, step, tensors):
        time.sleep(0.2 if self._directory.endswith("best") else 0.0)
        write(self, step, tensors)
        written.append(os.path.basename(self._directory))

    monkeypatch.setattr(checkpoints.Checkpoints, "_write", slow)
    run = checkpoints.Checkpoints(str(tmp_path / "run"))
    best = checkpoints.BestCheckpoint(
        str(tmp_path / "run"), shares_thread_with=run
    )
    variables = {"weight": tf.Variable([1.0, 2.0])}
    assert best.offer(1, {"loss": 3.0}, variables, None) == 3.0
    run.save(1, variables, {"best": 3.0})
    assert written == []
    run.wait()
    assert written == ["best", "run"]
    best.wait()


@pytest.mark.parametrize(
    ("higher", "expected"),
    [(False, [None, 3.0, 3.0, 2.0]), (True, [None, 3.0, 3.0, 3.0])],
    ids=["lower", "higher"],
)
def test_what_is_not_finite_is_never_the_best(tmp_path, higher, expected):
    best = checkpoints.BestCheckpoint(
        str(tmp_path),
        higher_is_better=higher,
        shares_thread_with=checkpoints.Checkpoints(str(tmp_path)),
    )
    values = [float("nan"), 3.0, float("inf"), 2.0]
    assert offer(best, values) == expected
    best.wait()
    step = 2 if higher else 4
    assert checkpoints.steps(str(tmp_path / "best")) == [step]


DATA = "model.ckpt-2.data-00000-of-00001"


@pytest.fixture
def saved(tmp_path):
    """A run's checkpoints of steps 1 and 2, with a variable of 40 kB."""
    saver = checkpoints.Checkpoints(str(tmp_path))
    variables = {"weight": tf.Variable(tf.range(10_000.0))}
    for step in (1, 2):
        saver.save(step, variables, {})
    saver.wait()
    return tmp_path, saver, variables


@pytest.mark.parametrize("name", [DATA, "model.ckpt-2.index"])
@pytest.mark.parametrize("length", [0, 30, 1000])
def test_a_truncated_file_is_named_in_one_line(saved, name, length):
    folder, saver, variables = saved
    os.truncate(folder / name, min(length, (folder / name).stat().st_size - 1))
    with pytest.raises(errors.InputError, match="model.ckpt-2 cannot be read"):
        saver.restore(saver.latest(), variables)


def test_an_index_whose_data_is_missing_is_named(saved):
    folder, saver, variables = saved
    (folder / DATA).unlink()
    with pytest.raises(errors.InputError, match=f"{DATA} is missing"):
        saver.latest()
    (folder / "model.ckpt-2.index").unlink()  # As the message says.
    assert saver.restore(saver.latest(), variables) == (1, {})
