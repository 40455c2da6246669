"""Proves what the report shows of a model's predictions for masked tokens.

python -m pytest tests/tasks/pretraining/pretraining_report_test.py
"""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from data import records, schema
from data.tokenization import vocabulary
from finetuning import report
from tasks.pretraining import pretraining_data, pretraining_report
from training import metric_writer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "a"]
PLAY, ING, A = 5, 6, 7


@pytest.fixture(scope="module", autouse=True)
def charts():
    """Here they are drawn."""


@pytest.fixture
def words():
    return vocabulary.Vocabulary.from_tokens(TOKENS)


@pytest.fixture
def train(tmp_path):
    """A shard of [CLS] [MASK] [MASK] [MASK] [SEP], which was play ##ing a."""
    kind = schema.pretraining(6, 4)
    columns = {
        "input_ids": np.array([[2, 4, 4, 4, 3, 0]]),
        "input_mask": np.array([[1, 1, 1, 1, 1, 0]]),
        "segment_ids": np.zeros((1, 6), int),
        "masked_lm_positions": np.array([[1, 2, 3, 0]]),
        "masked_lm_ids": np.array([[PLAY, ING, A, 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 1.0, 0.0]]),
        "next_sentence_labels": np.zeros((1, 1), int),
    }
    path = str(tmp_path / "a.tfrecord")
    records.write(path, [records.encode(kind, columns)])
    return pretraining_data.ShardSet(paths=[path], schema=kind, counts=[1])


def rows(body):
    found = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [re.findall(r"<td.*?>(.*?)</td>", row) for row in found[1:]]


def test_only_tokens_of_the_vocabulary_are_predicted(train, words):
    """The embeddings may be padded to a multiple of 64."""

    class Task:
        def outputs(self, model, features):
            shape = [*features["masked_lm_ids"].shape, 1]
            best_last = tf.range(len(TOKENS) + 9, dtype=tf.float32)
            return types.SimpleNamespace(
                masked_lm_logits=tf.tile(best_last[None, None], shape)
            )

    predict = pretraining_report.make_predict(Task(), None, len(TOKENS))
    (sample,) = pretraining_report.samples(predict, train, words)
    assert sample["masks"][0]["predicted"][0][0] == TOKENS[-1]


def test_the_baseline_predicts_the_most_frequent_label(train):
    found = pretraining_data.baseline(train)
    # Three different tokens, and one pair with the label 0.
    assert found == {
        "masked_lm_accuracy": pytest.approx(1 / 3),
        "masked_lm_loss": pytest.approx(np.log(3)),
        "masked_lm_perplexity": pytest.approx(3.0),
        "next_sentence_accuracy": 1.0,
        "next_sentence_loss": 0.0,
    }


def test_results_are_beside_those_of_the_constant_answer(tmp_path):
    pretraining_report.write(
        str(tmp_path),
        flags=report.flags({}, {}),
        values={"masked_lm_accuracy": 0.5, "loss": 2.0, "global_step": 9},
        constant={"masked_lm_accuracy": 0.125},
    )
    page = (tmp_path / "report.html").read_text()
    assert page.index("<h2>Results") < page.index("<h2>Learning curves")
    assert rows(page)[:2] == [
        ["masked-LM accuracy", "0.500", "0.125"],
        ["loss", "2.000", ""],
    ]


@pytest.mark.parametrize(("loss", "is_on"), [(9.0, 1), (1.9, 1), (1.89, 0)])
def test_a_loss_near_that_of_the_frequencies_is_the_plateau(
    tmp_path, loss, is_on
):
    """By the metrics of the last evaluation during the training."""
    line = f'{{"step": 1, "eval/loss": 3.0, "eval/masked_lm_loss": {loss}}}\n'
    (tmp_path / "metrics.jsonl").write_text(line)
    constant = {"masked_lm_loss": 2.0}
    warning = pretraining_report.write(
        str(tmp_path), flags=report.flags({}, {}), constant=constant
    )
    assert (warning is not None) == is_on
    page = (tmp_path / "report.html").read_text()
    assert ("on the plateau" in page) == is_on
    assert page.count("<svg") == 2
    assert pretraining_report.plateau({}, constant) is None
    assert pretraining_report.plateau({"masked_lm_loss": 9.0}, {}) is None


def test_a_sample_shows_the_predictions_in_the_sentence(tmp_path, train, words):
    def predict(features):
        ids = [[PLAY, A, ING], [A, ING, PLAY], [A, PLAY, ING], [0] * 3]
        row = [int(x) for x in features["is_real_example"]].index(1)
        found = np.zeros((len(features["input_ids"]), 4, 3), int)
        found[row] = ids
        return tf.fill(found.shape, 0.25), tf.constant(found)

    (sample,) = pretraining_report.samples(predict, train, words)
    assert sample["text"] == (
        "[CLS] **play** **a** **a** [SEP]\n\n(correct: play, ##ing, a)"
    )
    assert sample["masks"][1] == {
        "position": 2,
        "correct": "##ing",
        "predicted": [["a", 0.25], ["##ing", 0.25], ["play", 0.25]],
    }
    writer = metric_writer.MetricWriter(str(tmp_path))
    for step in (5, 10):
        writer.write_samples(step, [sample])
    writer.close()
    pretraining_report.write(str(tmp_path), flags=report.flags({}, {}))
    page = (tmp_path / "report.html").read_text()
    assert '<mark class="good">play</mark>' in page
    assert '<mark class="bad">a<sub>##ing</sub></mark>' in page
    masked = page.partition("Masked sentences")[2]
    best = "a 0.25 | ##ing 0.25 | play 0.25"
    assert rows(masked)[1] == ["##ing", best]
