"""Proves that an index that cannot be true never reaches TensorFlow.

TensorFlow 2.21 aborts the process on a negative or overflowing shape.

python -m pytest tests/weights/bundle_index_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors
from tests.weights import bundle_writer as make
from weights import tensorflow_checkpoints


def _files(directory, content, data=b"\0" * 8):
    (directory / "x.index").write_bytes(content)
    (directory / "x.data-00000-of-00001").write_bytes(data)
    return str(directory / "x")


def test_what_tensorflow_writes_is_understood(tmp_path):
    values = {
        f"scope/{i:03d}/kernel": np.full((i % 5 + 1, 3), i, np.float32)
        for i in range(300)
    }
    prefix = str(tmp_path / "c" / "x")
    tensorflow_checkpoints.write(prefix, values)
    entries = tensorflow_checkpoints.read_index(prefix)
    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    assert {n: list(e.shape) for n, e in entries.items()} == shapes
    found = tensorflow_checkpoints.read(prefix)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name].read(), value)
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [
        "x.data-00000-of-00001",
        "x.index",
    ]


def test_a_release_is_listed_without_its_data(shared_data):
    folder = shared_data / "checkpoints/bert_base_chinese_index"
    prefix = str(folder / "bert_model.ckpt")
    entries = tensorflow_checkpoints.read_index(prefix, needs_data=False)
    assert len(entries) == 206
    assert entries["bert/embeddings/word_embeddings"].shape == (21128, 768)
    with pytest.raises(errors.InputError, match="00000-of-00001 is missing"):
        tensorflow_checkpoints.read_index(prefix)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (make.entry([-5], 8), "has the shape"),
        (make.entry([2**40, 2**40], 8), "has the shape"),
        (make.entry([2**40, 2**40], 8, "string"), "has the shape"),
        (make.entry([1] * 9, 4), "has the shape"),
        (make.entry([2**33], 8), "is float32"),
        (make.entry([2], 80), "is float32"),
        (make.entry([20], 80), "truncated: a ends at byte 80 of 8"),
        (make.entry([2], 8, offset=2**50), "truncated"),
        (make.entry([2], 8) + make.field(3, 7), "data file 7 of 1"),
        (make.field(1, 99), "damaged"),
        (make.field(1, 1) + make.message(2, make.field(3, 1)), "no shape"),
        (b"\x0f", "a field of an unknown kind"),
        (b"\xff" * 12, "a number is too long"),
        (make.field(1, 1) + make.message(2, b"\x12\x7f"), "is cut off"),
        (make.field(1, 1) + make.message(3, b"x"), "a field of another kind"),
        (make.field(1, 1) + make.field(2, 1), "damaged"),
    ],
)
def test_a_lie_about_a_tensor_gets_one_line(entry, message, tmp_path):
    prefix = _files(tmp_path, make.index({"a": entry}))
    with pytest.raises(errors.InputError, match=message) as caught:
        tensorflow_checkpoints.read_index(prefix)
    assert prefix in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (make.field(1, 0), "0 data files"),
        (make.field(1, 10**9), "1000000000 data files"),
        (make.message(1, b"x"), "a field of another kind"),
        (make.field(2, 1), "big-endian"),
    ],
)
def test_a_lie_about_the_files_gets_one_line(header, message, tmp_path):
    prefix = _files(tmp_path, make.index({}, header))
    with pytest.raises(errors.InputError, match=message):
        tensorflow_checkpoints.read_index(prefix)


def test_every_truncation_gets_one_line(tmp_path):
    content = make.index({"a": make.entry([2], 8)})
    tensorflow_checkpoints.read_index(_files(tmp_path, content))
    for size in range(len(content)):
        prefix = _files(tmp_path, content[:size])
        with pytest.raises(errors.InputError, match="damaged"):
            tensorflow_checkpoints.read_index(prefix)


def test_flipped_bytes_never_end_in_anything_but_one_line(tmp_path):
    content = make.index({"a": make.entry([2], 8), "b": make.entry([1], 4)})
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        for at in rng.integers(len(content), size=3):
            damaged[at] = rng.integers(256)
        try:
            tensorflow_checkpoints.read_index(_files(tmp_path, bytes(damaged)))
        except errors.InputError as error:
            assert "\n" not in str(error)


def test_damaged_values_are_found_by_their_checksum(tmp_path):
    prefix = str(tmp_path / "x")
    tensorflow_checkpoints.write(prefix, {"a": np.ones(4, np.float32)})
    data = tmp_path / "x.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    found = tensorflow_checkpoints.read(prefix)
    with pytest.raises(errors.InputError, match="a cannot be read") as caught:
        found["a"].read()
    assert "\n" not in str(caught.value)
