"""Proves that checkpoints are read from paths with special characters.

python -m pytest tests/foundation/tensor_files_test.py

TensorFlow's own reader takes such a path for a pattern.
"""

import os
import tempfile

import pytest
import tensorflow as tf

from foundation import errors, tensor_files

NAMES = ["a[1]", "a\\b", "a*b", "a?b", "a{b,c}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_is_no_pattern(folder, name, monkeypatch, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    paths = [f"{folder}/{name}/x", f"{folder}/y/{name}"]
    for number, path in enumerate(paths):
        tensor_files.write(path, {"a": [number]})
        reader = tensor_files.open_reader(path)
        assert reader.get_variable_to_shape_map() == {"a": [1]}
        assert reader.get_tensor("a").tolist() == [number]
        del reader
    assert not os.listdir(scratch)
    # Files that the patterns match.
    for other in ("a1", "ab", "axb"):
        for path in (f"{folder}/{other}/x", f"{folder}/y/{other}"):
            tensor_files.write(path, {"a": [-1]})
    for number, path in enumerate(paths):
        reader = tensor_files.open_reader(path)
        assert reader.get_tensor("a").tolist() == [number]


def test_a_relative_prefix_is_no_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensor_files.write("x[1]", {"a": [1.0]})
    assert tensor_files.open_reader("x[1]").get_tensor("a").tolist() == [1.0]


def test_a_missing_checkpoint_with_brackets_is_named(tmp_path):
    (tmp_path / "a[1]").mkdir()
    with pytest.raises(errors.InputError, match="^it cannot be read"):
        with tensor_files.reading("it", "advice"):
            tensor_files.open_reader(f"{tmp_path}/a[1]/x")


def test_a_savedmodel_in_a_bucket_with_brackets_is_refused():
    with pytest.raises(errors.InputError, match=r"gs://a/b\[1\]: .*rename"):
        tensor_files.without_pattern("gs://a/b[1]", tf.Module())
    assert tensor_files.without_pattern("gs://a/b", tf.Module()) == "gs://a/b"
