"""Proves that TensorFlow checkpoints are read, or refused in one line.

python -m pytest tests/weights/tensorflow_checkpoints_test.py
"""

import os

import numpy as np
import pytest

from foundation import errors, tensor_files
from weights import tensorflow_checkpoints


def _read_all(prefix):
    """Reads names and values; an InputError must be one line with the path."""
    try:
        found = tensorflow_checkpoints.read(prefix)
        return {name: tensor.read() for name, tensor in found.items()}
    except errors.InputError as error:
        assert prefix in str(error) and "\n" not in str(error)
        assert len(str(error)) < 400
        raise


def test_the_only_checkpoint_of_a_folder_with_brackets_is_found(tmp_path):
    prefix = str(tmp_path / "a[1]" / "bert[2].ckpt")
    tensor_files.write(prefix, {"a": [1.0]})
    assert tensorflow_checkpoints.find(os.path.dirname(prefix)) == prefix
    stored = tensorflow_checkpoints.read(prefix)
    assert stored["a"].read().tolist() == [1.0]


def test_slots_and_steps_are_no_weights():
    names = (
        "bert/pooler/dense/bias",
        "bert/pooler/dense/bias/adam_m",
        "bert/pooler/dense/bias/adam_v",
        "bert/encoder/layer_0/output/dense/kernel/adam_m",
        "global_step",
        "electra/bias",
    )
    found = tensorflow_checkpoints.match_tf1("x", dict.fromkeys(names))
    assert list(found.tensors) == [names[0]]
    assert list(found.training_state) == list(names[1:5])
    assert list(found.others) == ["electra/bias"]


def test_a_checkpoint_is_listed_without_its_data(tmp_path):
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, {"a": np.ones((3, 2), np.float32)})
    (tmp_path / "x.data-00000-of-00001").unlink()
    found = tensorflow_checkpoints.read(prefix)
    assert found["a"].shape == (3, 2)


def test_every_truncation_of_the_index_gets_one_line(tmp_path):
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, {"a": np.ones(2, np.float32)})
    content = (tmp_path / "x.index").read_bytes()
    for size in range(0, len(content), 3):
        (tmp_path / "x.index").write_bytes(content[:size])
        with pytest.raises(errors.InputError, match="damaged"):
            _read_all(prefix)


@pytest.mark.parametrize("size", [0, 1000, None, "flipped"])
def test_truncated_missing_or_damaged_data_gets_one_line(size, tmp_path):
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, {"a": np.ones(300, np.float32)})
    data = tmp_path / "x.data-00000-of-00001"
    content = data.read_bytes()
    data.unlink()
    if size is not None:
        kept = b"\1" + content[1:] if size == "flipped" else content[:size]
        data.write_bytes(kept)
    with pytest.raises(errors.InputError, match="x: a cannot be read"):
        _read_all(prefix)
