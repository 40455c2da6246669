"""Graphs arrange texts as NumPy does, and give the results of the commands.

python -m pytest tests/serving/text_graphs_test.py

parity_test.py compares the other results with those of Python.
"""

import json
import shutil

import exports
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

from data import sequences
from data.tokenization import plain_wordpiece, vocabulary
from finetuning import task as tasks
from foundation import errors
from modeling import models
from serving import text_graphs
from tasks.fill_mask import masked_words
from weights import model_directory

TOLERANCE = 1e-5
WORDS = "the cat sat on a mat".split()


@pytest.mark.parametrize("second", [None, (1, 0, 20, 9, 40)])
@pytest.mark.parametrize("most", [1, 2, 50])
@pytest.mark.parametrize("length", [5, 11, 30])
def test_the_graph_arranges_texts_in_the_same_way(second, most, length):
    tokenizer = plain_wordpiece.PlainTokenizer(
        vocabulary.Vocabulary.from_tokens([*vocabulary.SPECIAL_TOKENS, *WORDS])
    )

    def text(length, start=0):
        return " ".join(WORDS[(start + i) % 6] for i in range(length))

    first = [text(n) for n in (0, 5, 9, 30, 4)]
    others = second and [text(n, 2) for n in second]
    found = text_graphs.windows(
        tokenizer.vocabulary,
        tokenizer.graph(tf.constant(first)),
        None if others is None else tokenizer.graph(tf.constant(others)),
        length,
        stride=5,
        most=most,
    )
    expected = []
    for i, text in enumerate(first):
        a = tasks.token_ids(tokenizer, text)
        b = tasks.token_ids(tokenizer, others[i]) if others else ()
        rows = tasks.windows(tokenizer, a, b, length, stride=5, most=most)
        if most == 1:
            assert rows == [tasks.sequence(tokenizer, a, b, length)]
        expected += [(i, list(x.ids), list(x.segment_ids)) for x in rows]
    ids, segments = found.ids.to_list(), found.segment_ids.to_list()
    own = [*zip(found.texts.numpy().tolist(), ids, segments, strict=True)]
    assert own == expected


@pytest.mark.parametrize("size_weight", [0.0, 0.01])
def test_the_window_with_most_context_is_the_same(size_weight):
    lengths = np.array([0, 3, 17, 5, 40])
    ids = tf.RaggedTensor.from_row_lengths(np.arange(65), lengths)
    words = vocabulary.Vocabulary.from_tokens(vocabulary.SPECIAL_TOKENS)
    found = text_graphs.windows(
        words, tf.cast(ids, tf.int32), None, 8, stride=3, most=99
    )
    texts, starts, sizes = (x.numpy() for x in found[:3])
    left = sequences.ranges(np.zeros_like(sizes), sizes)
    begin = (np.cumsum(lengths) - lengths)[texts] + starts
    expected = sequences.has_most_context(
        sequences.ranges(begin, sizes),
        left,
        np.repeat(sizes, sizes) - 1 - left,
        size_weight=size_weight,
    )
    found = found.has_most_context(size_weight)
    assert found.numpy().tolist() == expected.tolist()
    assert 0 < expected.sum() < len(expected)


def test_pairs_need_a_model_with_two_segments(tmp_path):
    config = tiny_runs.config(exports.WORDS, type_vocab_size=1)
    model = exports.CLASSIFIER(config, num_classes=3)
    model_directory.save(model, str(tmp_path), labels=exports.LABELS)
    (tmp_path / "vocab.txt").write_text("\n".join(exports.WORDS) + "\n")
    assert exports.graph(tmp_path)(text=["the cat"])["label"].shape == (1,)
    with pytest.raises(errors.InputError, match="type_vocab_size of the mod"):
        exports.opened(tmp_path, text_pair="true")


def test_pairs_are_as_in_the_training_or_in_doubt_named(
    tiny_models, tmp_path, caplog
):
    source = tiny_models / "classification"
    text_graphs.sentences(exports.opened(source), tf.constant(["a"]))
    assert f"{source}: it is not known whether" in caplog.text
    caplog.clear()
    shutil.copytree(source, tmp_path / "trained")
    flags = {"flags": {"task_name": "mrpc"}}
    (tmp_path / "trained" / "run.json").write_text(json.dumps(flags))
    found = exports.graph(tmp_path / "trained")(text=["a"], text_pair=["cat"])
    assert found["label"].shape == (1,)
    single = exports.opened(source, text_pair="false")
    text_graphs.sentences(single, tf.constant(["a"]))
    assert "not known" not in caplog.text


def test_words_of_masks_of_a_left_to_right_model_and_beyond_the_cut(tmp_path):
    """parity_test.py compares those of other models and texts."""
    model_dir = exports.save_model(
        tmp_path / "model",
        models.PretrainingModel,
        positions=24,
        attention="left_to_right",
    )
    opened = exports.opened(model_dir)
    filler = masked_words.MaskFiller(
        opened.model, opened.setup.tokenizer, left_to_right=True
    )
    texts = ["the cat [MASK] on the [MASK].", "[MASK]"]
    expected = filler.fill(texts, top_k=4)
    # A text without masks, and one whose second mask is cut off.
    texts += ["the cat", "[MASK] " + "the " * 30 + "[MASK]"]
    found = exports.graph(model_dir, top_k=4)(text=texts)
    for row, masks in enumerate(expected):
        for mask, candidates in enumerate(masks):
            words = [x.decode() for x in found["words"][row, mask]]
            assert words == [token for token, _ in candidates]
            np.testing.assert_allclose(
                found["probabilities"][row, mask],
                [x for _, x in candidates],
                atol=TOLERANCE,
            )
    assert set(found["words"][2].ravel()) == {b""}
    assert found["words"][3, 0, 0] and not found["words"][3, 1, 0]
    assert not found["probabilities"][3, 1].any()


@pytest.mark.parametrize(
    "pooling", ["mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_a_row_without_real_tokens_gets_zeros(pooling, tmp_path):
    """Clients fill a batch of constant size with such rows."""
    model_dir = exports.save_model(tmp_path / "model", models.PretrainingModel)
    opened = exports.opened(
        model_dir,
        task="sentence_embedding",
        pooling=pooling,
        normalize="true",
        max_seq_length=8,
    )
    ids = tf.ones([2, 8], tf.int32)
    mask = tf.constant([[1] * 8, [0] * 8])
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    real, empty = opened.logits(features)["sentence_embedding"]
    assert np.linalg.norm(real) == pytest.approx(1, abs=1e-5)
    assert not np.any(empty)
