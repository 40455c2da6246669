"""Proves the CRF against all sequences of tags, counted one by one.

python -m pytest tests/tasks/ner/crf_test.py
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors
from modeling import crf
from modeling.config import BertConfig
from tasks.ner import heads, tag_spans, tagging

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
ALONE = crf.BEGINS + crf.ENDS


@pytest.fixture(scope="module")
def model():
    model = crf.CrfTaggingModel(CONFIG, num_classes=3, seed=1)
    rng = np.random.default_rng(0)
    model.set_scores(
        crf.Scores(*(rng.standard_normal(s) for s in ((3, 3), 3, 3)))
    )
    return model


def score(scores, logits, tags, begins=True, ends=True):
    transitions, start, end = scores
    total = begins * start[tags[0]] + ends * end[tags[-1]]
    total += sum(row[tag] for row, tag in zip(logits, tags, strict=True))
    pairs = zip(tags, tags[1:], strict=False)
    return total + sum(transitions[pair] for pair in pairs)


def cost(model, logits, tags, **ends):
    """Minus the logarithm of the probability of one sequence among all."""
    scores = model.scores
    everything = [
        score(scores, logits, other, **ends)
        for other in itertools.product(range(3), repeat=len(tags))
    ]
    normalizer = np.log(np.sum(np.exp(everything)))
    return normalizer - score(scores, logits, tags, **ends)


def test_the_loss_is_that_of_all_sequences(model):
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((3, 6, 3)).astype(np.float32)
    labels = np.array(
        [[-1, 0, -1, 1, 2, -1], [-1, 2, -1, -1, -1, -1], [-1] * 6], np.int32
    )
    boundaries = np.array(
        [[0, crf.BEGINS, 0, 0, crf.ENDS, 0], [0, ALONE, 0, 0, 0, 0], [0] * 6]
    )
    expected = cost(model, logits[0, [1, 3, 4]], [0, 1, 2])
    expected += cost(model, logits[1, [1]], [2])
    loss = model.sequence_loss(logits, labels, boundaries)
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5)
    assert float(loss.weight) == 4


def test_every_sentence_of_a_row_is_a_chain_of_its_own(model):
    """One of two words, one alone, one that continues in another row."""
    logits = np.random.default_rng(2).standard_normal((1, 6, 3))
    logits = logits.astype(np.float32)
    tags = [1, 2, 0, 2, 1, 0]
    boundaries = [crf.BEGINS, crf.ENDS, ALONE, crf.BEGINS, 0, 0]
    expected = cost(model, logits[0, :2], tags[:2])
    expected += cost(model, logits[0, 2:3], tags[2:3])
    expected += cost(model, logits[0, 3:], tags[3:], ends=False)
    loss = model.sequence_loss(
        logits, np.array([tags], np.int32), np.array([boundaries])
    )
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5)
    # The row that continues: it does not begin there.
    boundaries = [0, 0, crf.ENDS, ALONE, ALONE, ALONE]
    expected = cost(model, logits[0, :3], tags[:3], begins=False)
    for i in (3, 4, 5):
        expected += cost(model, logits[0, [i]], [tags[i]])
    loss = model.sequence_loss(
        logits, np.array([tags], np.int32), np.array([boundaries])
    )
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5)


def test_scores_learn_faster_but_their_gradient_is_their_own():
    """A step of the optimizer moves them RATE times as far as it seems."""
    model = crf.CrfTaggingModel(CONFIG, num_classes=3, seed=1)
    logits = np.random.default_rng(4).standard_normal((1, 4, 3))
    logits = logits.astype(np.float32)
    labels, boundaries = np.array([[0, 1, 2, 0]]), np.array([[1, 0, 0, 2]])

    def loss():
        return model.sequence_loss(logits, labels, boundaries).sum

    with tf.GradientTape() as tape:
        value = loss()
    variables = [variable.value for variable in model.learned]
    gradients = tape.gradient(value, variables)
    zeros, small = model.scores, 1e-2
    for part, gradient in enumerate(gradients):
        index = (0,) * len(gradient.shape)
        values = []
        for sign in (1, -1):
            moved = [np.array(x) for x in zeros]
            moved[part][index] = sign * small
            model.set_scores(crf.Scores(*moved))
            values.append(float(loss()))
        slope = (values[0] - values[1]) / (2 * small)
        assert float(gradient[index]) == pytest.approx(slope, abs=1e-3)
        assert abs(slope) > 0.01
    model.set_scores(zeros)
    model.learned[1].assign([0.01, 0, 0])
    assert model.scores.start.tolist() == pytest.approx([1, 0, 0])


@pytest.mark.parametrize("scheme", ["bio2", "iobes"])
def test_what_a_scheme_forbids_is_never_predicted(scheme):
    labels = tag_spans.labels(["X", "Y"], scheme)
    head = heads.head_of(labels, has_crf=True)
    scores = head.constants(head.build(CONFIG))
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 9, 200)
    logits = rng.standard_normal((lengths.sum(), len(labels))) * 5
    found = tagging.best_tags(logits, lengths, labels, scores)
    single = tagging.best_tags(logits, lengths, labels, None)
    assert found != single
    for part, best in zip(found, single, strict=True):
        assert tag_spans.convert_tags(part, scheme) == part
        if tag_spans.convert_tags(best, scheme) == best:
            assert part == best


def test_everything_a_scheme_allows_may_be_predicted():
    for scheme in ("bio2", "iobes"):
        labels = tag_spans.labels(["X", "Y"], scheme)
        transitions, start, end = tagging.forbidden(labels, scheme).values()
        for tags in itertools.product(range(len(labels)), repeat=3):
            names = [labels[i] for i in tags]
            is_allowed = tag_spans.convert_tags(names, scheme) == names
            pairs = zip(tags, tags[1:], strict=False)
            broken = start[tags[0]] or end[tags[-1]]
            broken |= any(transitions[pair] for pair in pairs)
            assert is_allowed != broken, names
    for scheme in ("plain", "iob1"):
        free = tagging.forbidden(["B-X", "I-X", "O"], scheme)
        assert not any(part.any() for part in free.values())


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_best_sequence_is_found(model, length):
    rng, scores = np.random.default_rng(length), model.scores
    for _ in range(20):
        logits = rng.standard_normal((length, 3))
        best = max(
            itertools.product(range(3), repeat=length),
            key=lambda tags: score(scores, logits, tags),
        )
        assert tagging.viterbi(logits, *scores) == list(best)


def test_transitions_are_kept_beside_the_model(model, tmp_path):
    assert not tagging.has_crf(str(tmp_path))
    tagging.save_crf(model, LABELS, str(tmp_path))
    assert tagging.has_crf(str(tmp_path))
    other = crf.CrfTaggingModel(CONFIG, num_classes=3)
    head = heads.head_of(LABELS, has_crf=True)
    found = head.load_files(other, str(tmp_path))
    assert found == ["crf/transitions", "crf/start", "crf/end"]
    for a, b in zip(model.scores, other.scores, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(errors.InputError, match="other labels"):
        tagging.read_crf(LABELS[::-1], str(tmp_path))
    tagging.save_crf(object(), LABELS, str(tmp_path))
    assert not tagging.has_crf(str(tmp_path))
    assert not head.load_files(other, str(tmp_path))
