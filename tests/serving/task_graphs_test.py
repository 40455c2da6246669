"""Graphs of texts that are one sequence give the results of the commands.

python -m pytest tests/serving/task_graphs_test.py
"""

import json
import shutil

import exports
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

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


def test_the_description_names_the_task(pairs):
    found = json.loads((pairs / "export.json").read_text())
    assert found["task"] == "classification"
    assert found["inputs"] == ["text", "text_pair"]
    assert found["labels"] == LABELS
    assert (found["max_seq_length"], found["precision"]) == (24, "float32")
    assert "serving_default" in (pairs / "README.md").read_text()


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
    assert f"{pair_model}: it is not known whether" in caplog.text
    caplog.clear()
    trained = tmp_path / "trained"
    shutil.copytree(pair_model, trained)
    (trained / "run.json").write_text('{"flags": {"task_name": "mrpc"}}')
    found = exports.graph(trained)(text=["the"], text_pair=["cat"])
    assert found["label"].shape == (1,)
    exports.graph(pair_model, text_pair="false")
    assert "not known" not in caplog.text


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
