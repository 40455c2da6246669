"""Tests that exported models are loaded, and computed in correct batches.

python -m pytest tests/export/servable_test.py
"""

import json
import shutil
import types
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from export import servable
from foundation import errors
from tests.export import toy_models

# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
SETTINGS = servable.BatchSettings(max_batch_size=8, timeout_ms=20)


def texts(*values):
    array = np.empty(len(values), object)
    array[:] = [value.encode() for value in values]
    return {"text": array}


def predict(model, inputs):
    parts = model.split(inputs)
    results = [model.run(servable.DEFAULT_SIGNATURE, part) for part in parts]
    return servable.join(parts, results)


def test_results_are_in_the_order_of_the_request(toys):
    model = servable.Servable("x", str(toys / "embedding"), SETTINGS)
    lengths = [3, 5000, 1, 100, 40, 7, 0, 900, *range(30)]
    given = texts(*("\u00e9" * n for n in lengths))
    parts = model.split(given)
    assert max(len(part.rows) for part in parts) == 8
    assert len({part.length_class for part in parts}) > 3
    found = predict(model, given)["embedding"]
    assert np.stack(found).tolist() == [[n, 2 * n] for n in lengths]


def test_concurrent_requests_have_common_batches(toys):
    model = servable.Servable("x", str(toys / "embedding"), SETTINGS)
    model.warm_up()
    before = model.num_batches
    with futures.ThreadPoolExecutor(32) as pool:
        found = pool.map(lambda n: predict(model, texts("a" * n)), range(32))
    assert [int(x["embedding"][0][0]) for x in found] == list(range(32))
    assert 4 <= model.num_batches - before < 20


def test_without_batches_each_request_is_computed_by_itself(toys):
    settings = servable.BatchSettings(max_batch_size=0)
    model = servable.Servable("x", str(toys / "embedding"), settings)
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: predict(model, texts("a" * n)), range(8)))
    assert model.num_batches == 8


@pytest.mark.parametrize(
    "threads, concurrent", [(0, 1), (1, 4), (4, 2), (9, 1)]
)
def test_few_threads_for_a_batch_leave_cores_to_others(
    toys, monkeypatch, threads, concurrent
):
    given = []
    monkeypatch.setattr(
        servable.tf.config.threading,
        "set_intra_op_parallelism_threads",
        given.append,
    )
    monkeypatch.setattr(servable.os, "cpu_count", lambda: 8)
    settings = servable.BatchSettings(
        num_concurrent=servable.set_threads(threads)
    )
    assert given == [threads]
    model = servable.Servable("x", str(toys / "embedding"), settings)
    parts = model.split(texts(*("a" * n for n in (3, 40, 100, 900, 5000))))
    assert len({part.length_class for part in parts}) > 3
    for part in parts:
        function = model._batch_function(servable.DEFAULT_SIGNATURE, part)
        operations = function.graph.get_operations()
        (batch,) = [op for op in operations if op.type == "BatchFunction"]
        assert batch.get_attr("num_batch_threads") == concurrent


def test_axes_of_unknown_length_have_that_of_the_inputs():
    function = types.SimpleNamespace(
        structured_input_signature=((), {"text": tf.TensorSpec([None])}),
        structured_outputs={
            "logits": tf.TensorSpec([None, None, 7]),
            "score": tf.TensorSpec([None]),
        },
    )
    signature = servable.Signature(function)
    ids = {"text": np.zeros([2, 5], np.int32)}
    assert signature.num_values(ids) == 2 * 5 * 7 + 2
    assert signature.num_values(texts("a" * 9, "a" * 6)) == 5 * 7 + 2


def test_a_refused_row_does_not_fail_the_others_of_its_batch(toys):
    model = servable.Servable("x", str(toys / "tagging"), SETTINGS)

    def entities(text):
        try:
            return predict(model, texts(text))["entity"][0].tolist()
        except errors.InputError as error:
            return str(error)

    given = ["Jim is", "refused", "no", "Ann Berg"] * 4
    with futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(entities, given))
    for one, other in zip(given, found, strict=True):
        names = [word for word in one.split() if word[0].isupper()]
        if one == "refused":
            assert other == "a text is refused"
        else:
            # Padding depends on the other rows of the batch.
            assert [x.decode() for x in other if x] == names


def test_models_do_not_get_rows_of_each_other(toys):
    models = servable.open_all(
        f"a={toys / 'embedding'},b={toys / 'classification'}", SETTINGS
    )

    def call(n):
        name = "ab"[n % 2]
        return set(predict(models[name], texts("x")))

    with futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(call, range(16)))
    assert all(x == {"embedding"} for x in found[::2])
    assert all("label" in x for x in found[1::2])


def test_numbers_of_endings_may_differ_between_requests(toys):
    model = servable.Servable("x", str(toys / "multiple_choice"), SETTINGS)

    def choose(count):
        endings = np.array([[b"a" * (i + 1) for i in range(count)]], object)
        inputs = {"endings": endings, "context": texts("c")["text"]}
        return int(predict(model, inputs)["choice"][0])

    counts = [2, 3, 4, 5] * 4 + list(range(2, 40))
    with futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(choose, counts))
    assert found == [count - 1 for count in counts]


def test_the_highest_version_is_served(toys, tmp_path):
    for version in ("1", "12", "9"):
        shutil.copytree(toys / "numbers", tmp_path / "sums" / version)
    (tmp_path / "sums" / "13").mkdir()  # Not complete.
    model = servable.Servable("x", str(tmp_path / "sums"))
    assert (model.version, model.task) == (12, None)
    inputs = model.metadata["serving_default"]["inputs"]
    assert inputs["a"]["dtype"] == "DT_INT32"


def test_the_metadata_is_that_of_the_loaded_model(toys, tmp_path):
    shutil.copytree(toys / "numbers", tmp_path / "model")
    model = servable.Servable("x", str(tmp_path / "model"))
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(toys / "embedding", tmp_path / "model")
    assert model.metadata["serving_default"]["inputs"].keys() == {"a", "b"}


def test_an_export_that_was_moved_aside_by_a_killed_one_is_restored(
    toys, tmp_path
):
    for path in (tmp_path / "sums", tmp_path / "versions" / "2"):
        moved = path.parent / f".{path.name}.0123456789ab.incomplete"
        shutil.copytree(toys / "numbers", moved / "old")
    (tmp_path / "versions" / "1").mkdir()
    servables = servable.open_all(f"{tmp_path}/sums/,{tmp_path}/versions")
    assert [x.version for x in servables.values()] == [1, 2]


@pytest.mark.parametrize("name", ["a[1]", "a\\b", "a*b", "a?b", "a{b,c}"])
def test_the_path_of_a_model_is_no_pattern(toys, tmp_path, name):
    shutil.copytree(toys / "numbers", tmp_path / name / "numbers")
    found = servable.open_all(f"sums={tmp_path}/{name}/numbers")["sums"]
    assert found.metadata["serving_default"]["inputs"].keys() == {"a", "b"}
    found.warm_up()


def test_models_are_named_by_their_directories_or_by_the_flag(toys, tmp_path):
    (tmp_path / "lr=1").symlink_to(toys)
    given = f"{toys}/numbers/, sums={tmp_path}/lr=1/numbers"
    assert list(servable.open_all(given)) == ["numbers", "sums"]


@pytest.mark.parametrize(
    "models, message",
    [
        ("{0}/numbers,{0}/numbers", "two models are named numbers"),
        ("a b={0}/numbers", "'a b' is no name"),
        ("", "no name of a model"),
        ("{0}/missing", "no saved_model.pb in .*missing"),
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
        servable.open_all(models.format(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_savedmodel_of_another_program_may_refuse_the_first_row(
    tmp_path, caplog
):
    spec = tf.TensorSpec([None], tf.string)
    columns = {"x": tf.io.FixedLenFeature([], tf.int64)}
    toy_models.save(
        tmp_path / "examples",
        None,
        lambda x: {"y": tf.io.parse_example(x, columns)["x"]},
        x=spec,
    )
    model = servable.Servable("m", str(tmp_path / "examples"))
    model.warm_up()
    assert "m: not prepared: " in caplog.text


def _keep(path, size):
    path.write_bytes(path.read_bytes()[:size])


def _point(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0")


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("saved_model.pb", lambda path: _keep(path, 100), "cannot be loaded"),
        ("saved_model.pb", _point, "saved_model.pb: .*Git LFS"),
        (
            "variables/variables.data-00000-of-00001",
            lambda path: _keep(path, 1000),
            "cannot be loaded",
        ),
        (
            "variables/variables.data-00000-of-00001",
            _point,
            "variables.data-00000-of-00001: .*Git LFS",
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
        servable.Servable("m", str(tmp_path / "m"))
    assert "\n" not in str(caught.value)


def test_an_input_without_rows_is_refused(tmp_path):
    spec = tf.TensorSpec([], tf.float32)
    toy_models.save(tmp_path / "m", None, lambda x: {"y": x}, x=spec)
    with pytest.raises(errors.InputError, match="whose inputs have rows"):
        servable.Servable("m", str(tmp_path / "m"))


def test_texts_that_the_model_cuts_have_one_class(toys, tmp_path):
    shutil.copytree(toys / "embedding", tmp_path / "short")
    description = {"task": "sentence_embedding", "max_seq_length": 10}
    (tmp_path / "short" / "export.json").write_text(json.dumps(description))
    model = servable.Servable("x", str(tmp_path / "short"), SETTINGS)
    parts = model.split(texts("a", "a" * 60, "a" * 9000))
    assert [part.rows.tolist() for part in parts] == [[0], [1, 2]]
