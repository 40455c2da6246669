"""Tests that exported models are loaded, and computed in correct batches.

python -m pytest tests/serving/servable_test.py
"""

import asyncio
import os
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors
from serving import (
    servable,
    served_directories,
    served_model,
    tensorflow_engine,
)
from tests.serving import toy_models

# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
ALL_CORES = servable.Batching(threads_per_batch=0)
SETTINGS = servable.Batching(max_batch_size=8, threads_per_batch=0)


def texts(*values):
    array = np.empty(len(values), object)
    array[:] = [value.encode() for value in values]
    return {"text": array}


def load(path, batching=ALL_CORES):
    return servable.load("x", str(path), tensorflow_engine.ENGINE, batching)


def open_all(models):
    directories = served_directories.by_name(models)
    return {name: load(path) for name, path in directories.items()}


def one_thread_for_each(concurrent, monkeypatch, max_batch_size):
    """Returns settings that compute some batches at the same time."""
    monkeypatch.setattr(os, "cpu_count", lambda: concurrent)
    return servable.Batching(max_batch_size=max_batch_size, threads_per_batch=1)


async def call(model, inputs):
    parts = model.split(inputs)
    return await model.predict(served_model.DEFAULT_SIGNATURE, parts)


def predict(*calls):
    """Makes calls, each a model and inputs, at the same time."""

    async def main():
        pending = (call(model, inputs) for model, inputs in calls)
        return await asyncio.gather(*pending, return_exceptions=True)

    return asyncio.run(main())


def test_results_are_in_the_order_of_the_request(toys):
    model = load(toys / "embedding", SETTINGS)
    lengths = [3, 5000, 1, 100, 40, 7, 0, 900, *range(30)]
    given = texts(*("\u00e9" * n for n in lengths))
    parts = model.split(given)
    assert max(len(part.rows) for part in parts) == 8
    assert len({part.length_class for part in parts}) > 3
    (found,) = predict((model, given))
    assert [x["embedding"].tolist() for x in found] == [
        [n, 2 * n] for n in lengths
    ]


@pytest.mark.parametrize(
    "size, concurrent, expected",
    [(8, 1, [8, 2]), (8, 2, [5, 5]), (4, 2, [4, 4, 2])],
)
def test_a_request_uses_all_batches_of_a_time(
    monkeypatch, size, concurrent, expected
):
    batching = one_thread_for_each(concurrent, monkeypatch, size)
    model = servable.Servable("x", Counting(), batching)
    parts = model.split(texts(*"abcdefghij"))
    assert [len(part.rows) for part in parts] == expected
    assert [x for part in parts for x in part.inputs["text"]] == [
        character.encode() for character in "abcdefghij"
    ]


class Counting:
    """A model that counts the calls that it computes at the same time."""

    task = max_seq_length = None
    signatures = {}

    def __init__(self):
        """Has no calls yet."""
        self.sizes, self.most, self._now = [], 0, 0

    def predict(self, signature_name, inputs):
        self._now += 1
        self.most = max(self.most, self._now)
        self.sizes.append(len(inputs["text"]))
        time.sleep(0.02)
        self._now -= 1
        return served_model.rows(inputs)


@pytest.mark.parametrize("concurrent, most", [(1, 1), (3, 3)])
def test_batches_grow_while_others_are_computed(monkeypatch, concurrent, most):
    counting = Counting()
    batching = one_thread_for_each(concurrent, monkeypatch, 8)
    model = servable.Servable("x", counting, batching)
    found = predict(*((model, texts(f"{n}")) for n in range(19)))
    assert [x["text"].item() for (x,) in found] == [
        b"%d" % n for n in range(19)
    ]
    assert counting.most == most
    assert counting.sizes[:most] == [1] * most  # The model is idle.
    assert sum(counting.sizes) == 19 and max(counting.sizes) == 8
    assert not model._waiting and not model._num_running


def test_a_request_that_is_given_up_is_not_computed():
    counting = Counting()
    model = servable.Servable("x", counting, ALL_CORES)

    async def main():
        first = asyncio.create_task(call(model, texts("a")))
        second = asyncio.create_task(call(model, texts("b")))
        await asyncio.sleep(0)
        second.cancel()
        await first
        return await call(model, texts("c"))

    assert asyncio.run(main()) == [{"text": np.array(b"c", object)}]
    assert counting.sizes == [1, 1]


def test_axes_of_unknown_length_have_that_of_the_inputs():
    signature = served_model.Signature(
        {"text": served_model.Spec((), np.dtype(object))},
        {
            "logits": served_model.Spec((None, 7), np.dtype(np.float32)),
            "score": served_model.Spec((), np.dtype(np.float32)),
            "total": served_model.Spec((), np.dtype(np.float32)),
        },
    )
    ids = {"text": np.zeros([2, 5], np.int32)}
    assert signature.num_values(ids) == 2 * 5 * 7 + 2 + 2
    assert signature.num_values(texts("a" * 3, "a" * 2)) == 5 * 7 + 2 + 2


def test_numbers_of_endings_may_differ_between_requests(toys):
    model = load(toys / "multiple_choice", SETTINGS)

    def row(count):
        endings = np.array([[b"a" * (i + 1) for i in range(count)]], object)
        return model, {"endings": endings, "context": texts("c")["text"]}

    counts = [2, 3, 4, 5] * 4 + list(range(2, 40))
    found = predict(*map(row, counts))
    assert [int(x["choice"]) for (x,) in found] == [
        count - 1 for count in counts
    ]


def test_the_highest_version_is_served(toys, tmp_path):
    for version in ("1", "12", "9"):
        shutil.copytree(toys / "numbers", tmp_path / "sums" / version)
    (tmp_path / "sums" / "13").mkdir()  # Not complete.
    model = load(tmp_path / "sums")
    assert (model.version, model.task) == (12, None)
    inputs = model.signatures["serving_default"].metadata["inputs"]
    assert inputs["a"]["dtype"] == "DT_INT32"


def test_an_export_that_was_moved_aside_by_a_killed_one_is_restored(
    toys, tmp_path
):
    for path in (tmp_path / "sums", tmp_path / "versions" / "2"):
        moved = path.parent / f".{path.name}.01234567.incomplete"
        shutil.copytree(toys / "numbers", moved / "files" / "old")
        (moved / "lock").touch()
    (tmp_path / "versions" / "1").mkdir()
    servables = open_all(f"{tmp_path}/sums/,{tmp_path}/versions")
    assert [x.version for x in servables.values()] == [1, 2]


@pytest.mark.parametrize("name", ["a[1]", "a\\b", "a*b", "a?b"])
def test_the_path_of_a_model_is_no_pattern(toys, tmp_path, name):
    shutil.copytree(toys / "numbers", tmp_path / name / "numbers")
    found = open_all(f"sums={tmp_path}/{name}/numbers")["sums"]
    assert found.signatures["serving_default"].inputs.keys() == {"a", "b"}
    found.warm_up()


@pytest.mark.parametrize(
    "models, message",
    [
        ("{0}/numbers,{0}/numbers", "two models are named numbers"),
        ("a b={0}/numbers", "'a b' is no name"),
        ("", "no name of a model"),
        ("{0}/missing", "missing: no such directory"),
        ("{0}/broken", "broken: cannot be loaded"),
        ("{0}/export", "export.json"),
    ],
)
def test_what_cannot_be_served_is_refused(toys, tmp_path, models, message):
    (tmp_path / "numbers").symlink_to(toys / "numbers")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"no model")
    shutil.copytree(toys / "numbers", tmp_path / "export")
    (tmp_path / "export" / "export.json").write_text("[]")
    with pytest.raises(errors.InputError, match=message) as caught:
        open_all(models.format(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_savedmodel_of_another_program_may_refuse_the_first_row(
    tmp_path, caplog
):
    spec = tf.TensorSpec([None], tf.string)
    columns = {"x": tf.io.FixedLenFeature([], tf.int64)}
    toy_models.save(
        tmp_path / "examples",
        lambda x: {"y": tf.io.parse_example(x, columns)["x"]},
        x=spec,
    )
    model = load(tmp_path / "examples")
    model.warm_up()
    assert "x: not prepared: " in caplog.text


def _keep(path, size):
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("saved_model.pb", lambda path: _keep(path, 100), "cannot be loaded"),
        (
            "variables/variables.data-00000-of-00001",
            lambda path: _keep(path, 1000),
            "cannot be loaded",
        ),
        (
            "export.json",
            lambda path: path.write_text('{"max_seq_length": "a"}'),
            "export.json: max_seq_length: ",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, name, damage, message):
    module = tf.Module()
    module.table = tf.Variable(tf.ones([1000]))
    specs = [tf.TensorSpec([None], tf.int32)]
    module.call = tf.function(
        lambda x: {"y": tf.gather(module.table, x)}, input_signature=specs
    )
    tf.saved_model.save(module, str(tmp_path / "m"), module.call)
    damage(tmp_path / "m" / name)
    with pytest.raises(errors.InputError, match=message) as caught:
        load(tmp_path / "m")
    assert "\n" not in str(caught.value)


def test_texts_that_the_model_cuts_have_one_class():
    counting = Counting()
    counting.max_seq_length = 10
    model = servable.Servable("x", counting, SETTINGS)
    parts = model.split(texts("a", "a" * 60, "a" * 9000))
    assert [part.rows.tolist() for part in parts] == [[0], [1, 2]]
