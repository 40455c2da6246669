"""Tests of predictions in blocks: their names, their parts, buckets.

python -m pytest tests/finetuning/prediction_test.py

TensorFlow's file system in memory, ram://, is the bucket.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from finetuning import prediction
from finetuning import task as tasks
from foundation import file_system


class Line(NamedTuple):
    """A number as text."""

    where: str
    text: str
    label: None = None


class Doubling:
    """Predicts twice the number of each line."""

    predicted = 0

    def size(self, example):
        return 1

    def encode(self, example):
        return [example.text]

    def features(self, encoded, *, with_targets):
        return np.array([int(texts[0]) for _, texts in encoded])

    def predict(self, features, batch_size):
        self.predicted += len(features)
        return {"value": 2 * features}

    def decode(self, encoded, outputs):
        lines = [f"{x}" for x in outputs["value"]]
        return {"lines": ",".join(lines).encode(), "none": b""}


def examples(numbers):
    lines = [Line(f"f:{i}", f"{x}") for i, x in enumerate(numbers)]
    return tasks.Examples("f", lambda: iter(lines))


def run(folder, numbers, made_from=None, batch_size=2):
    task = Doubling()
    paths = prediction.predict_blocks(
        task,
        task,
        examples(numbers),
        f"{folder}/blocks",
        made_from or {},
        batch_size=batch_size,
        most=3,
    )
    layout = tasks.Layout("lines", b"[", b";", b"]")
    prediction.write_file(f"{folder}/out", layout, paths)
    return task.predicted, file_system.read(f"{folder}/out")


@pytest.mark.parametrize("folder", ["disk", "ram://prediction"])
def test_a_file_is_joined_from_blocks(tmp_path, folder):
    folder = str(tmp_path) if folder == "disk" else folder
    expected = b"[0,2,4,6;8,10]"  # Blocks of two batches.
    assert run(folder, range(6)) == (6, expected)
    assert run(folder, range(6)) == (0, expected)


def test_only_blocks_of_the_same_inputs_are_used(tmp_path):
    run(tmp_path, range(6))
    assert run(tmp_path, [0, 1, 2, 3, 9, 5])[0] == 2
    assert run(tmp_path, range(6), {"weights": 1})[0] == 6
    assert run(tmp_path, range(8))[0] == 4


def test_a_damaged_block_is_predicted_again(tmp_path):
    run(tmp_path, range(6))
    (first, *_) = sorted((tmp_path / "blocks").iterdir())
    data = first.read_bytes()
    for damaged in (data[:-1], data[:40] + b"x" + data[41:], b""):
        first.write_bytes(damaged)
        assert run(tmp_path, range(6))[0] == 4


def test_another_form_is_written_from_the_parts_of_all_blocks(tmp_path):
    task = Doubling()
    paths = prediction.predict_blocks(
        task, task, examples(range(5)), f"{tmp_path}/b", {}, batch_size=4
    )

    def write(file, parts):
        file.write(b"|".join([*parts("lines"), *parts("missing")]))

    layout = tasks.Layout("lines", write=write)
    prediction.write_file(f"{tmp_path}/out", layout, paths)
    assert (tmp_path / "out").read_bytes() == b"0,2,4,6,8|"


def test_an_interrupted_file_is_not_there(tmp_path):
    def write(file, parts):
        raise KeyboardInterrupt

    layout = tasks.Layout("lines", write=write)
    for path in (f"{tmp_path}/out", "ram://interrupted/out"):
        with pytest.raises(KeyboardInterrupt):
            prediction.write_file(path, layout, [])
        assert not tf.io.gfile.exists(path)
