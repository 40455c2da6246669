"""Proves the CRF against all sequences of tags, counted one by one.

python -m pytest tests/tasks/tagging_crf_test.py
"""

import itertools

import keras
import numpy as np
import pytest

import errors
from modeling import crf
from modeling.config import BertConfig
from tasks import tagging_crf

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)
LABELS = ["O", "B-X", "I-X"]


@pytest.fixture(scope="module")
def model():
    model = crf.CrfTaggingModel(CONFIG, num_classes=3, seed=1)
    rng = np.random.default_rng(0)
    for name in ("transitions", "start", "end"):
        variable = getattr(model, name)
        variable.assign(rng.standard_normal(variable.shape))
    return model


def parts(model):
    names = ("transitions", "start", "end")
    return [keras.ops.convert_to_numpy(getattr(model, n)) for n in names]


def score(model, logits, tags):
    transitions, start, end = parts(model)
    total = start[tags[0]] + end[tags[-1]]
    total += sum(row[tag] for row, tag in zip(logits, tags, strict=True))
    pairs = zip(tags, tags[1:], strict=False)
    return total + sum(transitions[pair] for pair in pairs)


def test_the_loss_is_that_of_all_sequences(model):
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((3, 6, 3)).astype(np.float32)
    labels = np.array(
        [[-1, 0, -1, 1, 2, -1], [-1, 2, -1, -1, -1, -1], [-1] * 6], np.int32
    )
    expected = 0.0
    for row, tags in zip(logits, labels, strict=True):
        places = np.flatnonzero(tags >= 0)
        if not len(places):
            continue
        everything = [
            score(model, row[places], other)
            for other in itertools.product(range(3), repeat=len(places))
        ]
        normalizer = np.log(np.sum(np.exp(everything)))
        expected += normalizer - score(model, row[places], tags[places])
    loss = model.sequence_loss(logits, labels)
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5)
    assert float(loss.weight) == 4


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_best_sequence_is_found(model, length):
    rng = np.random.default_rng(length)
    for _ in range(20):
        logits = rng.standard_normal((length, 3))
        best = max(
            itertools.product(range(3), repeat=length),
            key=lambda tags: score(model, logits, tags),
        )
        assert tagging_crf.viterbi(logits, *parts(model)) == list(best)


def test_sentences_are_decoded_each_for_itself(model):
    logits = np.random.default_rng(3).standard_normal((5, 3))
    found = tagging_crf.best_tags(model, logits, np.array([0, 2, 5]), LABELS)
    alone = [
        tagging_crf.viterbi(part, *parts(model))
        for part in (logits[:2], logits[2:])
    ]
    assert found == [LABELS[i] for part in alone for i in part]


def test_transitions_are_kept_beside_the_model(model, tmp_path):
    assert not tagging_crf.is_here(str(tmp_path))
    tagging_crf.save(model, LABELS, str(tmp_path))
    assert tagging_crf.is_here(str(tmp_path))
    other = crf.CrfTaggingModel(CONFIG, num_classes=3)
    tagging_crf.load(other, LABELS, str(tmp_path))
    for a, b in zip(parts(model), parts(other), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(errors.InputError, match="other labels"):
        tagging_crf.load(other, LABELS[::-1], str(tmp_path))
