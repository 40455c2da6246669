"""Proves that no half checkpoint is kept or read.

pytest tests/training/checkpoints_test.py
"""

import os

import pytest
import tensorflow as tf

from foundation import errors
from training import checkpoints


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


@pytest.fixture
def failing(monkeypatch):
    """Makes the first writes fail: as many as the value of the list."""
    count, write = [0], checkpoints.tensor_files.write

    def fail(*args):
        if count[0]:
            count[0] -= 1
            raise tf.errors.UnavailableError(None, None, "the bucket is away")
        write(*args)

    monkeypatch.setattr(checkpoints.tensor_files, "write", fail)
    monkeypatch.setattr(checkpoints, "_RETRY_SECONDS", (0, 0))
    return count


def test_a_write_that_fails_is_repeated(tmp_path, failing, caplog):
    failing[0] = 2
    saver = checkpoints.Checkpoints(str(tmp_path))
    saver.save(1, {"weight": tf.Variable([1.0])}, {})
    saver.wait()
    assert checkpoints.steps(str(tmp_path)) == [1]
    assert caplog.text.count("step 1 cannot be written: the bucket is") == 2


def test_a_write_that_always_fails_is_seen_before_the_next_save(
    tmp_path, failing
):
    failing[0] = 3
    saver = checkpoints.Checkpoints(str(tmp_path))
    saver.check()
    saver.save(1, {"weight": tf.Variable([1.0])}, {})
    saver._thread.shutdown()  # Waits.
    with pytest.raises(tf.errors.UnavailableError):
        saver.check()


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


def test_the_path_of_a_run_is_no_pattern(tmp_path):
    saver = checkpoints.Checkpoints(str(tmp_path / "a[1]"))
    saver.save(6, {"weight": tf.Variable(1.0)}, {"name": "a"})
    saver.wait()
    variables = {"weight": tf.Variable(0.0)}
    assert saver.restore(saver.latest(), variables) == (6, {"name": "a"})
    assert variables["weight"].numpy() == 1


def test_an_index_whose_data_is_missing_is_named(saved):
    folder, saver, variables = saved
    (folder / DATA).unlink()
    with pytest.raises(errors.InputError, match=f"{DATA} is missing"):
        saver.latest()
    (folder / "model.ckpt-2.index").unlink()  # As the message says.
    assert saver.restore(saver.latest(), variables) == (1, {})
