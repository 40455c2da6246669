"""Proves that TensorFlow checkpoints are read, or refused in one line.

python -m pytest tests/weights/tensorflow_checkpoints_test.py
"""

import os

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors, tensor_files
from tests.weights import bundle_writer as make
from weights import tensorflow_checkpoints


def _files(directory, content, data=b"\0" * 8):
    (directory / "x.index").write_bytes(content)
    (directory / "x.data-00000-of-00001").write_bytes(data)
    return str(directory / "x")


def _read_all(prefix):
    """Reads names and values; an InputError must be one line with the path."""
    try:
        found = tensorflow_checkpoints.read(prefix)
        return {name: tensor.read() for name, tensor in found.items()}
    except errors.InputError as error:
        assert prefix in str(error) and "\n" not in str(error)
        assert len(str(error)) < 400
        raise


def test_written_checkpoints_are_read_again(tmp_path):
    values = {
        f"scope/{i:03d}/kernel": np.full((i % 5 + 1, 3), i, np.float32)
        for i in range(300)
    }
    prefix = str(tmp_path / "c" / "x")
    tensor_files.write(prefix, values)
    found = tensorflow_checkpoints.read(prefix)
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name].shape == value.shape
        assert found[name].dtype == "float32"
        np.testing.assert_array_equal(found[name].read(), value)
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [
        "x.data-00000-of-00001",
        "x.index",
    ]


def test_compressed_blocks_are_read(tmp_path):
    data = np.array([1.5, -2.0], np.float32).tobytes()
    entries = {"bert/pooler/dense/bias": make.entry([2], 8)}
    entries = {k: make.with_checksum(v, data) for k, v in entries.items()}
    content = make.index(entries, is_compressed=True)
    assert content != make.index(entries)
    found = _read_all(_files(tmp_path, content, data))
    np.testing.assert_array_equal(found["bert/pooler/dense/bias"], [1.5, -2.0])


def test_partitioned_variables_are_merged(tmp_path):
    prefix = str(tmp_path / "x")
    v1 = tf.compat.v1
    name, expected = "bert/embeddings/word_embeddings", np.arange(21.0)
    expected = expected.reshape(7, 3).astype(np.float32)
    with v1.Graph().as_default(), v1.Session() as session:
        v1.get_variable(
            name,
            initializer=tf.constant(expected),
            partitioner=v1.fixed_size_partitioner(3),
        )
        v1.get_variable("global_step", initializer=tf.constant(5, tf.int64))
        session.run(v1.global_variables_initializer())
        assert len(v1.global_variables()) == 4
        v1.train.Saver().save(session, prefix)
    found = tensorflow_checkpoints.read(prefix)
    assert {name: t.shape for name, t in found.items()} == {
        name: (7, 3),
        "global_step": (),
    }
    np.testing.assert_array_equal(found[name].read(), expected)


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


def test_a_release_is_listed_without_its_data(shared_data):
    folder = shared_data / "checkpoints/bert_base_chinese_index"
    prefix = str(folder / "bert_model.ckpt")
    found = tensorflow_checkpoints.read(prefix, needs_data=False)
    assert len(found) == 206
    assert found["bert/embeddings/word_embeddings"].shape == (21128, 768)
    with pytest.raises(errors.InputError, match="00000-of-00001 is missing"):
        tensorflow_checkpoints.read(prefix)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (make.entry([1] * 9, 4), "Checksum does not match"),
        (make.entry([2**33], 8), "truncated, or a file is missing"),
        (make.entry([2], 80), "stored size 80; expected size 8"),
        (make.entry([20], 80), "80 bytes of weights, but there are 8"),
        (make.entry([2], 8, offset=2**50), "Read less bytes"),
        (make.entry([2], 8) + make.field(3, 7), "data-00007-of-00001"),
        (make.field(1, 99), "damaged or no checkpoint"),
        (make.field(1, 1) + make.message(2, make.field(3, 1)), "stored size 0"),
        (make.field(1, 1) + make.message(3, b"x"), "stored size 0"),
        (make.field(1, 1) + make.field(2, 1), "stored size 0"),
    ],
)
def test_a_wrong_description_of_a_tensor_gets_one_line(
    entry, message, tmp_path
):
    prefix = _files(tmp_path, make.index({"a": entry}))
    with pytest.raises(errors.InputError, match=message):
        _read_all(prefix)


@pytest.mark.parametrize(
    "header",
    [make.field(1, 0), make.field(1, 10**9), make.message(1, b"x")],
    ids=["none", "many", "type"],
)
def test_a_wrong_number_of_data_files_gets_one_line(header, tmp_path):
    data = b"\0" * 8
    entry = make.with_checksum(make.entry([2], 8), data)
    assert _read_all(_files(tmp_path, make.index({"a": entry}), data))
    prefix = _files(tmp_path, make.index({"a": entry}, header), data)
    with pytest.raises(errors.InputError, match="cannot be read"):
        _read_all(prefix)


def test_every_truncation_of_the_index_gets_one_line(tmp_path):
    content = make.index({"a": make.entry([2], 8)})
    tensorflow_checkpoints.read(_files(tmp_path, content))
    for size in range(len(content)):
        prefix = _files(tmp_path, content[:size])
        with pytest.raises(errors.InputError, match="damaged"):
            _read_all(prefix)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_truncated_or_missing_data_gets_one_line(size, tmp_path):
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, {"a": np.ones(300, np.float32)})
    data = tmp_path / "x.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:size])
    with pytest.raises(errors.InputError, match="truncated"):
        _read_all(prefix)
    data.unlink()
    with pytest.raises(errors.InputError, match="00000-of-00001 is missing"):
        _read_all(prefix)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_flipped_bytes_get_one_line_or_change_nothing(is_compressed, tmp_path):
    data = b"\0" * 12
    content = make.index(
        {
            "a": make.with_checksum(make.entry([2], 8), data[:8]),
            "b": make.with_checksum(make.entry([1], 4, offset=8), data[8:]),
        },
        is_compressed=is_compressed,
    )
    assert len(_read_all(_files(tmp_path, content, data))) == 2
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(300):
        damaged = bytearray(content)
        # A third of the changes are in the footer, which has no checksum.
        first = len(content) - 48 if number % 3 == 0 else 0
        for at in rng.integers(first, len(content), size=3):
            damaged[at] = rng.integers(256)
        try:
            _read_all(_files(tmp_path, bytes(damaged), data))
        except errors.InputError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("ending", [b"", make.index({})[-8:]])
def test_random_bytes_get_one_line(ending, tmp_path):
    rng = np.random.default_rng(0)
    for size in (0, 30, 47, 48, 60, 200, 1000):
        for _ in range(20):
            prefix = _files(tmp_path, rng.bytes(size) + ending)
            with pytest.raises(errors.InputError, match="damaged"):
                _read_all(prefix)


def test_damaged_values_are_found_by_their_checksum(tmp_path):
    prefix = str(tmp_path / "x")
    tensor_files.write(prefix, {"a": np.ones(4, np.float32)})
    data = tmp_path / "x.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    with pytest.raises(errors.InputError, match="x: a cannot be read"):
        _read_all(prefix)
