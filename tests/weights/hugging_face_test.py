"""Proves that damaged files and indexes of safetensors are refused.

python -m pytest tests/weights/hugging_face_test.py
"""

import json

import numpy as np
import pytest
import safetensors.numpy

from foundation import errors
from tests.weights import other_forms
from weights import hugging_face, stored_weights


def _file(path, header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


def _entry(shape=(2,), dtype="F32", offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_the_librarys_files_are_read_bit_by_bit(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.normal(size=(3, 5)).astype(np.float32),
        "b": rng.normal(size=(7,)).astype(np.float16),
        "c": rng.normal(size=(2, 1, 2)),
        "empty": np.zeros((0, 4), np.float32),
    }
    path = str(tmp_path / "x.safetensors")
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    found = hugging_face.read_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in found.items():
        assert tensor.shape == tensors[name].shape
        np.testing.assert_array_equal(tensor.read(), tensors[name])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": _entry(offsets=(0, 80))}, "invalid shape, data type, or offset"),
        ({"a": _entry(shape=(10**15,))}, "invalid shape, data type"),
        ({"a": _entry(shape=(2**62, 4))}, "overflow computing"),
        ({"a": _entry(shape=(-2,))}, "integer `-2`"),
        ({"a": _entry(shape=(True, 2))}, "boolean `true`"),
        ({"a": _entry(shape=[1] * 9)}, "invalid shape|not fully covered"),
        ({"a": _entry(offsets=(8, 0))}, "invalid offset for tensor `a`"),
        ({"a": _entry(offsets=(-8, 0))}, "integer `-8`"),
        ({"a": _entry(offsets=(0, 8.0))}, "floating point"),
        ({"a": _entry(dtype="OBJECT")}, "unknown variant `OBJECT`"),
        ({"a": _entry(dtype=["F32"])}, "invalid type: sequence"),
        ({"a": 7}, "invalid type: integer `7`"),
        ({"a": _entry(), "b": _entry()}, "invalid offset for tensor `[ab]`"),
        ([1, 2], "invalid type: sequence"),
        (b"{" * 5000, "invalid JSON"),
        (b'{"a":' * 100_000, "invalid JSON"),
        (b"\xff\xfe{}", "invalid UTF-8"),
        (b'{"a": {}, "a": {}}', "missing field `dtype`"),
    ],
)
def test_a_damaged_header_gets_one_line(header, message, tmp_path):
    path = _file(tmp_path / "x.safetensors", header)
    with pytest.raises(errors.InputError, match=message) as caught:
        hugging_face.read_file(path)
    assert path in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("size", [0, 3, 8, 20])
def test_a_truncated_file_gets_one_line(size, tmp_path):
    path = tmp_path / "x.safetensors"
    _file(path, {"a": _entry()})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(errors.InputError, match="truncated"):
        hugging_face.read_file(str(path))


def test_a_header_longer_than_the_file_is_not_allocated(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(errors.InputError, match="header too large"):
        hugging_face.read_file(str(path))


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../../secret"}, "no file name"),
        ({"a": "/etc/passwd"}, "no file name"),
        ({"a": 3}, "no file name"),
        ({"a": "missing.safetensors"}, "missing.safetensors is missing"),
        ({"b": "one.safetensors"}, "one.safetensors has no b"),
        (None, "no weight_map"),
    ],
)
def test_an_index_names_files_in_its_directory_only(
    weight_map, message, tmp_path
):
    _file(tmp_path / "one.safetensors", {"a": _entry()})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(errors.InputError, match=message):
        hugging_face.read_index(str(index))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(bad, tmp_path):
    path = tmp_path / "x.safetensors"
    data = np.array([1, bad], np.float32).tobytes()
    found = hugging_face.read_file(_file(path, {"a": _entry()}, data))
    with pytest.raises(errors.InputError, match="a holds NaN or infinite"):
        stored_weights.values(str(path), found["a"])


def test_large_finite_values_are_accepted(tmp_path):
    path = tmp_path / "x.safetensors"
    data = np.array([3e38, 3e38], np.float32).tobytes()
    found = hugging_face.read_file(_file(path, {"a": _entry()}, data))
    assert (
        stored_weights.values("", found["a"]).tolist() == [np.float32(3e38)] * 2
    )


def test_both_half_precisions_become_floats(tmp_path):
    table = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
    path = other_forms.half_precision({"a": table}, tmp_path / "x.safetensors")
    found = hugging_face.read_file(str(path))
    assert {name: t.shape for name, t in found.items()} == {
        "F16.a": (4, 6),
        "BF16.a": (4, 6),
    }
    short = stored_weights.values("", found["F16.a"])
    np.testing.assert_array_equal(short, table.astype(np.float16))
    brain = stored_weights.values("", found["BF16.a"])
    np.testing.assert_allclose(brain, table, rtol=2**-8)
    assert np.all(brain.view(np.uint32) & 0xFFFF == 0)


def test_quantized_weights_are_refused(tmp_path):
    header = {"a": _entry(dtype="I8", offsets=(0, 2))}
    found = hugging_face.read_file(_file(tmp_path / "x", header, b"\0" * 2))
    with pytest.raises(errors.InputError, match="weights must be floats"):
        stored_weights.values("x", found["a"])
