"""Proves that files of activations are complete or absent, also in a bucket.

python -m pytest tests/tasks/features/feature_extraction_test.py

TensorFlow's file system in memory, ram://, is the bucket. Files there are the
same as on a disk.
"""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from jobs import streaming
from tasks.features import feature_extraction


def line(number):
    values = np.full((3, 8), number, np.float32)
    ids = np.arange(3, dtype=np.int32)
    return feature_extraction.Line(
        number, ids, list("abc"), {"layer_-1": values}
    )


def write(path, form):
    output = feature_extraction.FeatureFile(path=path, form=form, pooled=False)
    blocks = streaming.Blocks(f"{path}.incomplete", {})
    for number, lines in enumerate([[line(0), line(1)], [line(2)]]):
        blocks.find(number, "")
        blocks.add(number, "", output.parts(lines))
    output.write(blocks, ["layer_-1"], 8)
    blocks.remove()


def names(folder):
    return tf.io.gfile.listdir(folder) if tf.io.gfile.exists(folder) else []


@pytest.fixture(autouse=True)
def no_folder_named_as_a_scheme(tmp_path, monkeypatch):
    """What is taken for a path of this disk would become one here."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert os.listdir(tmp_path / "here") == []


@pytest.mark.parametrize("form", ["jsonl", "tfrecord", "parquet"])
def test_what_is_in_the_bucket_is_what_a_disk_has(tmp_path, form):
    remote = f"ram://features/{form}/out"
    write(remote, form)
    write(str(tmp_path / "out"), form)
    with tf.io.gfile.GFile(remote, "rb") as file:
        assert file.read() == (tmp_path / "out").read_bytes()
    assert names(f"ram://features/{form}") == ["out"]


def test_arrays_come_into_the_bucket_as_a_whole():
    remote = "ram://features/npz/out.npz"
    write(remote, "npz")
    with tf.io.gfile.GFile(remote, "rb") as file, np.load(file) as arrays:
        assert arrays["row_splits"].tolist() == [0, 3, 6, 9]
        assert arrays["layer_-1"][:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert names("ram://features/npz") == ["out.npz"]


@pytest.mark.parametrize("form", feature_extraction.FORMATS)
def test_an_interrupted_file_is_not_there(form, monkeypatch):
    folder = f"ram://features/interrupted_{form}"
    read = streaming.Blocks.parts

    def interrupt(blocks, name):
        yield from itertools.islice(read(blocks, name), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming.Blocks, "parts", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(f"{folder}/out", form)
    assert names(folder) == ["out.incomplete"]
