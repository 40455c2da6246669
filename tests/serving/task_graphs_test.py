"""Graphs of texts that are one sequence give the results of the commands.

python -m pytest tests/serving/task_graphs_test.py
"""

import csv
import json
import shutil

import exports
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

import extract_features
import run_classifier
from foundation import errors
from modeling import models
from serving import task_graphs
from tasks.fill_mask import masked_words
from weights import model_directory, pretrained

LABELS = exports.LABELS
TOLERANCE = 1e-5


def predict(function, batch_size, **texts):
    """Calls a function of exports.graph in batches; returns all results."""
    count = len(next(iter(texts.values())))
    return [
        function(**{k: v[start : start + batch_size] for k, v in texts.items()})
        for start in range(0, count, batch_size)
    ]


def joined(batches, name):
    return np.concatenate([batch[name] for batch in batches])


def run_command(folder, model_dir, rows, *switches, **flags):
    """Predicts rows with run_classifier.py; returns test_results.tsv."""
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "test.jsonl").write_text("".join(lines))
    flags = {
        "task_name": "jsonl",
        "test_file": folder / "test.jsonl",
        "init_checkpoint": model_dir,
        "output_dir": folder / "predicted",
        "max_seq_length": 24,
        "precision": "float32",
    } | flags
    tiny_runs.run(
        run_classifier,
        run_classifier.ClassifierFlags,
        "--do_predict",
        *switches,
        **flags,
    )
    path = folder / "predicted" / "test_results.tsv"
    return np.loadtxt(path, delimiter="\t", ndmin=2)


@pytest.fixture(scope="module")
def pair_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return exports.save_model(
        folder / "model", exports.CLASSIFIER, num_classes=3, labels=LABELS
    )


@pytest.fixture(scope="module")
def pairs(pair_model):
    """A classifier of pairs, exported."""
    return exports.export(
        pair_model,
        pair_model.parent / "exported",
        text_pair="true",
        max_seq_length=24,
    )


@pytest.fixture(scope="module")
def loaded_pairs(pairs):
    """The SavedModel of the classifier of pairs."""
    return tf.saved_model.load(str(pairs))


def test_labels_of_pairs_are_those_of_the_command(pair_model, tmp_path):
    first, second = exports.TEXTS, exports.TEXTS[3:] + exports.TEXTS[:3]
    expected = run_command(
        tmp_path,
        pair_model,
        [{"a": a, "b": b} for a, b in zip(first, second, strict=True)],
        text_column="a",
        text_pair_column="b",
    )
    assert np.ptp(expected, axis=0).min() > 0.1  # The texts differ.
    function = exports.graph(pair_model, text_pair="true", max_seq_length=24)
    for batch_size in (1, 32):
        found = predict(function, batch_size, text=first, text_pair=second)
        probabilities = joined(found, "probabilities")
        np.testing.assert_allclose(probabilities, expected, atol=TOLERANCE)
        labels = [x.decode() for x in joined(found, "label")]
        assert labels == [LABELS[i] for i in expected.argmax(axis=1)]
        np.testing.assert_allclose(
            joined(found, "score"), expected.max(axis=1), atol=TOLERANCE
        )
        assert [x.decode() for x in joined(found, "labels")[0]] == LABELS


def test_every_batch_size_and_signature(loaded_pairs):
    loaded = loaded_pairs
    empty = tf.constant([], tf.string)
    outputs = loaded.signatures["serving_default"](text=empty, text_pair=empty)
    assert outputs["label"].shape == [0]
    assert outputs["probabilities"].shape == [0, 3]
    first, second = ["The cat", "dogs"], ["sat on the mat", ""]
    expected = loaded.signatures["serving_default"](
        text=tf.constant(first), text_pair=tf.constant(second)
    )
    packed = loaded.bert_pack_inputs(
        [loaded.tokenize(tf.constant(x)) for x in (first, second)],
        seq_length=24,
    )
    assert packed["input_word_ids"].shape == [2, 24]
    logits = loaded.signatures["serve"](**packed)["logits"]
    np.testing.assert_allclose(
        tf.nn.softmax(logits), expected["probabilities"], atol=TOLERANCE
    )
    records = [
        example(
            {
                "input_ids": row[0],
                "input_mask": row[1],
                "segment_ids": row[2],
            }
        )
        for row in zip(
            packed["input_word_ids"].numpy().tolist(),
            packed["input_mask"].numpy().tolist(),
            packed["input_type_ids"].numpy().tolist(),
            strict=True,
        )
    ]
    found = loaded.signatures["serve_examples"](examples=tf.constant(records))
    np.testing.assert_allclose(found["logits"], logits, atol=TOLERANCE)
    texts = [
        example({"text": [a.encode()], "text_pair": [b.encode()]})
        for a, b in zip(first, second, strict=True)
    ]
    found = loaded.signatures["serve_text_examples"](
        examples=tf.constant(texts)
    )
    np.testing.assert_array_equal(found["label"], expected["label"])


def example(values):
    """Serializes lists of ints or bytes as a tf.Example."""
    features = {}
    for name, found in values.items():
        if isinstance(found[0], bytes):
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=found))
        else:
            value = tf.train.Feature(int64_list=tf.train.Int64List(value=found))
        features[name] = value
    features = tf.train.Features(feature=features)
    return tf.train.Example(features=features).SerializeToString()


def test_the_preprocessor_has_the_interface_of_tensorflow_hub(loaded_pairs):
    loaded = loaded_pairs
    special = loaded.tokenize.get_special_tokens_dict()
    assert int(special["vocab_size"]) == len(exports.WORDS)
    assert int(special["start_of_sequence_id"]) == 2
    packed = loaded(tf.constant(["the cat"]))
    assert packed["input_word_ids"].shape == [1, 128]
    assert packed["input_mask"].numpy().sum() == 4
    words = exports.WORDS
    assert packed["input_word_ids"][0, :4].numpy().tolist() == [
        words.index(x) for x in ("[CLS]", "the", "cat", "[SEP]")
    ]
    assert loaded.vocab_file.asset_path.numpy().endswith(b"vocab.txt")
    assert bool(loaded.do_lower_case)


def test_the_description_names_the_task(pairs):
    found = json.loads((pairs / "export.json").read_text())
    assert found["task"] == "classification"
    assert found["inputs"] == ["text", "text_pair"]
    assert found["labels"] == LABELS
    assert (found["max_seq_length"], found["precision"]) == (24, "float32")
    assert "serving_default" in (pairs / "README.md").read_text()


@pytest.mark.parametrize("problem_type", ["regression", "multi_label"])
def test_values_and_several_labels_are_those_of_the_command(
    problem_type, tmp_path
):
    is_regression = problem_type == "regression"
    model_dir = exports.save_model(
        tmp_path / "model",
        exports.CLASSIFIER,
        num_classes=1 if is_regression else 3,
        labels=None if is_regression else LABELS,
        problem_type="regression"
        if is_regression
        else "multi_label_classification",
    )
    rows = [{"text": text} for text in exports.TEXTS]
    expected = run_command(tmp_path, model_dir, rows, problem_type=problem_type)
    function = exports.graph(model_dir, max_seq_length=24)
    found = predict(function, 32, text=exports.TEXTS)
    if is_regression:
        assert list(found[0]) == ["score"]
        score = joined(found, "score")
        np.testing.assert_allclose(score, expected[:, 0], atol=TOLERANCE)
    else:
        assert sorted(found[0]) == ["labels", "probabilities"]
        probabilities = joined(found, "probabilities")
        np.testing.assert_allclose(probabilities, expected, atol=TOLERANCE)


def test_choices_are_those_of_the_command(tmp_path):
    model_dir = exports.save_model(
        tmp_path / "model", models.MultipleChoiceModel
    )
    texts = exports.TEXTS
    endings = [
        [texts[(i + j) % len(texts)] for j in range(4)]
        for i in range(len(texts))
    ]
    # The command joins "sent2" and an ending with a space.
    with open(tmp_path / "swag.csv", "w", newline="") as file:
        names = [f"ending{i}" for i in range(4)]
        writer = csv.DictWriter(file, ["sent1", "sent2", *names, "label"])
        writer.writeheader()
        for text, row in zip(texts, endings, strict=True):
            cells = dict(zip(names, row, strict=True))
            writer.writerow(
                {"sent1": text.replace("\0", ""), "sent2": "the"}
                | {k: v.replace("\0", "") for k, v in cells.items()}
                | {"label": 0}
            )
    expected = run_command(
        tmp_path,
        model_dir,
        [],
        task_name="swag",
        test_file=tmp_path / "swag.csv",
    )
    function = exports.graph(model_dir, max_seq_length=24)
    joined_endings = [[f"the {ending}" for ending in row] for row in endings]
    for batch_size in (1, 32):
        found = predict(
            function, batch_size, context=texts, endings=joined_endings
        )
        probabilities = joined(found, "probabilities")
        np.testing.assert_allclose(probabilities, expected, atol=TOLERANCE)
        choice = joined(found, "choice")
        assert choice.tolist() == expected.argmax(axis=1).tolist()


def test_logits_of_tokens_end_with_the_record(tiny_models, tmp_path):
    exported = exports.export(
        tiny_models / "token_classification", tmp_path / "exported"
    )
    loaded = tf.saved_model.load(str(exported))
    predict = loaded.signatures["serve_examples"]
    names = ("input_ids", "input_mask", "segment_ids")
    rows = [example(dict.fromkeys(names, [1] * n)) for n in (5, 3)]
    both = predict(examples=tf.constant(rows))["logits"].numpy()
    alone = predict(examples=tf.constant(rows[1:]))["logits"].numpy()
    np.testing.assert_allclose(both[1:, :3], alone, atol=TOLERANCE)
    assert both.shape == (2, 5, 5) and not both[1, 3:].any()
    assert both[0].all()
    empty = tf.constant([], tf.string)
    assert predict(examples=empty)["logits"].shape[0] == 0


@pytest.mark.parametrize("signature", ["serve", "serve_examples"])
def test_segments_that_the_model_does_not_have_are_refused(
    loaded_pairs, signature
):
    predict = loaded_pairs.signatures[signature]
    name = "input_type_ids" if signature == "serve" else "segment_ids"
    for segment in (2, -1):
        if signature == "serve":
            ones, ids = tf.ones([1, 3], tf.int32), tf.fill([1, 3], segment)
            inputs = {"input_word_ids": ones, "input_mask": ones}
            inputs["input_type_ids"] = ids
        else:
            features = dict.fromkeys(["input_ids", "input_mask"], [1] * 3)
            row = example(features | {"segment_ids": [segment] * 3})
            inputs = {"examples": tf.constant([row])}
        message = f"{name}: row 0: {segment} is not from 0 to 1"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            predict(**inputs)


def test_pairs_need_a_model_with_two_segments(tmp_path):
    config = tiny_runs.config(exports.WORDS, type_vocab_size=1)
    model = exports.CLASSIFIER(config, num_classes=3)
    model_directory.save(model, str(tmp_path), labels=LABELS)
    (tmp_path / "vocab.txt").write_text("\n".join(exports.WORDS) + "\n")
    assert exports.graph(tmp_path)(text=["the cat"])["label"].shape == (1,)
    with pytest.raises(errors.InputError, match="type_vocab_size of the mod"):
        exports.graph(tmp_path, text_pair="true")


def test_pairs_are_as_in_the_training_or_in_doubt_named(
    pair_model, tmp_path, caplog
):
    exports.graph(pair_model)
    assert f"{pair_model}: no run_config.json tells" in caplog.text
    caplog.clear()
    trained = tmp_path / "trained"
    shutil.copytree(pair_model, trained)
    (trained / "run_config.json").write_text(
        '{"do_train": true, "task_name": "mrpc"}'
    )
    found = exports.graph(trained)(text=["the"], text_pair=["cat"])
    assert found["label"].shape == (1,)
    exports.graph(pair_model, text_pair="false")
    assert "run_config" not in caplog.text


@pytest.mark.parametrize("attention", ["bidirectional", "left_to_right"])
def test_words_of_masks_are_those_of_the_command(
    attention, tmp_path, monkeypatch
):
    monkeypatch.setattr(task_graphs, "_MASKS_AT_ONCE", 2)
    model_dir = exports.save_model(
        tmp_path / "model",
        models.PretrainingModel,
        positions=24,
        attention=attention,
    )
    texts = [
        "the cat [MASK] on the [MASK].",
        "[MASK]",
        "\U0001f600[MASK][MASK] \u05e9\u05dc\u05d5\u05dd",
    ]
    model, tokenizer = pretrained.load_masked_lm(str(model_dir))
    filler = masked_words.MaskFiller(
        model, tokenizer, left_to_right=attention == "left_to_right"
    )
    expected = filler.fill(texts, top_k=4)
    function = exports.graph(model_dir, top_k=4)
    # A text without masks, and one whose second mask is cut off.
    others = ["the cat", "", "[MASK] " + "the " * 30 + "[MASK]"]
    for batch_size in (1, 32):
        found = predict(function, batch_size, text=texts + others)
        words = [row for batch in found for row in batch["words"]]
        values = [row for batch in found for row in batch["probabilities"]]
        for row, value, masks in zip(words, values, expected, strict=False):
            for mask, candidates in enumerate(masks):
                assert [x.decode() for x in row[mask]] == [
                    c.token for c in candidates
                ]
                np.testing.assert_allclose(
                    value[mask],
                    [c.probability for c in candidates],
                    atol=TOLERANCE,
                )
            assert set(row[len(masks) :].ravel()) <= {b""}
        assert set(words[3].ravel()) | set(words[4].ravel()) <= {b""}
        assert words[5].shape[0] >= 2
        assert words[5][0, 0] != b"" and words[5][1, 0] == b""
        assert values[5][1, 0] == 0


@pytest.mark.parametrize(
    "pooling", ["mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_a_row_without_real_tokens_gets_zeros(pooling, tmp_path):
    """Clients fill a batch of constant size with such rows."""
    model_dir = exports.save_model(tmp_path / "model", models.PretrainingModel)
    graph = exports.task_graph(
        model_dir,
        task="sentence_embedding",
        pooling=pooling,
        normalize="true",
        max_seq_length=8,
    )
    ids = tf.ones([2, 8], tf.int32)
    mask = tf.constant([[1] * 8, [0] * 8])
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    real, empty = graph.logits(features)["embedding"]
    assert np.linalg.norm(real) == pytest.approx(1, abs=1e-5)
    assert not np.any(empty)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_embeddings_are_those_of_extract_features(pooling, tmp_path):
    model_dir = exports.save_model(tmp_path / "model", models.PretrainingModel)
    # A zero byte in a text file is refused.
    texts = [" ".join(x.replace("\0", "").split()) for x in exports.TEXTS]
    (tmp_path / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    tiny_runs.run(
        extract_features,
        extract_features.ExtractConfig,
        "--normalize",
        input_file=tmp_path / "texts.txt",
        output_file=tmp_path / "vectors.npz",
        output_format="npz",
        init_checkpoint=model_dir,
        pooling=pooling,
        layers=-2,
        max_seq_length=24,
    )
    function = exports.graph(
        model_dir,
        task="sentence_embedding",
        pooling=pooling,
        normalize="true",
        layer=-2,
        max_seq_length=24,
    )
    with np.load(tmp_path / "vectors.npz") as arrays:
        (expected,) = [x for x in arrays.values() if x.dtype.kind == "f"]
    for batch_size in (1, 32):
        found = predict(function, batch_size, text=texts)
        vectors = joined(found, "embedding")
        np.testing.assert_allclose(vectors, expected, atol=TOLERANCE)
