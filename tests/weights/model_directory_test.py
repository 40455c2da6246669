"""Proves that model directories are complete, replaced atomically, and checked.

python -m pytest tests/weights/model_directory_test.py
"""

import json

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from modeling import models
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    stored_weights,
)


@pytest.fixture(scope="module")
def model(tiny_config):
    return models.PretrainingModel(tiny_config, seed=1)


@pytest.fixture
def saved(model, tmp_path):
    model_directory.save(model, tmp_path)
    return tmp_path


def test_all_files_may_be_read_by_the_same_users(saved):
    assert len({path.stat().st_mode for path in saved.iterdir()}) == 1


def test_both_configs_contain_the_same_in_their_dialect(saved, tiny_config):
    theirs = json.loads((saved / "config.json").read_text())
    released = json.loads((saved / "bert_config.json").read_text())
    assert theirs["architectures"] == ["BertForPreTraining"]
    assert theirs["model_type"] == "bert"
    assert (theirs["hidden_act"], released["hidden_act"]) == (
        "gelu_new",
        "gelu",
    )
    assert model_directory.read_config(saved) == tiny_config
    (saved / "config.json").unlink()
    assert model_directory.read_config(saved) == tiny_config


def test_the_config_names_the_id_of_padding(model, tmp_path):
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    model_directory.save(
        model,
        tmp_path,
        wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(words)),
    )
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["pad_token_id"] == 3
    source = checkpoint_sources.read(str(tmp_path))
    assert conversion.load(source).settings.pad_token_id == 3


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ({"1": "b", "0": "a"}, ["a", "b"]),
        ({"0": "a", "2": "b"}, None),
        ({"1": "a", "2": "b"}, None),
        (None, ["LABEL_0", "LABEL_1"]),
    ],
)
def test_labels_are_numbered_from_0(tmp_path, names, labels, caplog):
    path = tmp_path / "config.json"
    architectures = ["BertForSequenceClassification"]
    values = {"id2label": names, "architectures": architectures}
    path.write_text(json.dumps(values))
    assert model_directory.read_settings(str(tmp_path)).labels == labels
    assert ("id2label is not used" in caplog.text) == (labels is None)
    path.write_text(json.dumps({"id2label": {"x": "a"}}))
    with pytest.raises(errors.InputError, match="config.json: .*id2label"):
        model_directory.read_settings(str(tmp_path))


def test_broken_files_get_one_line(model, saved):
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(errors.InputError, match="model.safetensors: "):
        _ = checkpoint_sources.read(str(saved)).matched
    weights.unlink()
    with pytest.raises(errors.InputError, match="no model.safetensors"):
        _ = checkpoint_sources.read(str(saved)).matched


def _file(path, header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = header if isinstance(header, int) else len(text)
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return str(path)


def _entry(shape=(2,), dtype="F32", offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": _entry(offsets=(0, 80))}, "invalid shape, data type, or offset"),
        ({"a": 7}, "invalid type: integer `7`"),
        (b"{" * 5000, "invalid JSON"),
        (2**63, "header too large"),
    ],
)
def test_a_damaged_header_gets_one_line(header, message, tmp_path):
    path = _file(tmp_path / "x.safetensors", header)
    with pytest.raises(errors.InputError, match=message) as caught:
        model_directory.read_safetensors(path)
    assert path in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../../secret"}, "weight_map"),
        ({"a": "/etc/passwd"}, "weight_map"),
        ({"a": 3}, "weight_map"),
        ({"a": "missing.safetensors"}, "missing.safetensors is missing"),
        ({"b": "one.safetensors"}, "one.safetensors has no b"),
        (None, "weight_map"),
    ],
)
def test_an_index_names_files_in_its_directory_only(
    weight_map, message, tmp_path
):
    _file(tmp_path / "one.safetensors", {"a": _entry()})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(errors.InputError, match=message):
        model_directory.read_index(str(index))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values", [[1, np.nan], [1, np.inf], [-np.inf, np.inf], [3e38, 3e38]]
)
def test_nan_and_infinity_are_refused(values, tmp_path):
    """The sum of large finite values may be infinite."""
    path, array = tmp_path / "x.safetensors", np.array(values, np.float32)
    entries = {"a": _entry()}
    file = _file(path, entries, array.tobytes())
    found = model_directory.read_safetensors(file)["a"]
    if np.isfinite(array).all():
        np.testing.assert_array_equal(stored_weights.values("", found), array)
        return
    with pytest.raises(errors.InputError, match="a holds NaN or infinite"):
        stored_weights.values(file, found)


def test_both_half_precisions_become_floats(tmp_path):
    header = {
        "brain": _entry(dtype="BF16", offsets=(0, 4)),
        "half": _entry(dtype="F16", offsets=(4, 8)),
        "int": _entry(dtype="I16", offsets=(8, 12)),
    }
    bits = np.array([0x3F80, 0xC049, 0x3E00, 0xC200, 1, 2], np.uint16)
    path = _file(tmp_path / "x.safetensors", header, bits.tobytes())
    found = model_directory.read_safetensors(path)
    for name, expected in {"brain": [1, -3.140625], "half": [1.5, -3]}.items():
        assert found[name].shape == (2,)
        assert stored_weights.values("", found[name]).tolist() == expected
    with pytest.raises(errors.InputError, match="int is I16; weights must be"):
        stored_weights.values("x", found["int"])
