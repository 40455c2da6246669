"""Proves that checkpoints are read from paths with special characters.

python -m pytest tests/foundation/tensor_files_test.py

TensorFlow's own reader takes such a path for a pattern.
"""

import pytest

from foundation import errors, tensor_files

NAMES = ["a[1]", "a\\b", "a*b", "a?b", "a{b,c}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_no_pattern(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = f"{name}/x"
    tensor_files.write(path, {"a": [1]})
    for other in ("a1", "ab", "axb"):  # The patterns match them.
        tensor_files.write(f"{other}/x", {"a": [-1]})
    reader = tensor_files.open_reader(path)
    assert reader.get_variable_to_shape_map() == {"a": [1]}
    assert reader.get_tensor("a").tolist() == [1]


def test_a_savedmodel_in_a_bucket_with_brackets_is_refused():
    with pytest.raises(errors.InputError, match=r"gs://a/b\[1\]: .*rename"):
        tensor_files.without_pattern("gs://a/b[1]")
    assert tensor_files.without_pattern("gs://a/b") == "gs://a/b"
