"""Proves that the source of the tokens does not reveal the label.

pytest tests/data/pretraining/next_sentence_leaks_test.py

In documents of one size and without short sequences, which are drawn for a
document and pass at a time, so that what is left is how partners are drawn.
What lengths and positions in the document say, in the released procedure and
here alike, is measured by benchmarks/data_statistics.py.
"""

import numpy as np
import pytest
import scipy

from data.pretraining import instances
from data.pretraining.settings import Settings

DOCUMENTS, SENTENCES, TOKENS = 60, 20, 10


@pytest.fixture(scope="module")
def found():
    """The instances of equal documents, in the order of the shards."""
    sentences = np.arange(DOCUMENTS * SENTENCES + 1) * TOKENS
    corpus = instances.Corpus(
        tokens=np.zeros(sentences[-1], np.uint16),
        sentence_starts=sentences,
        document_starts=np.arange(DOCUMENTS + 1) * SENTENCES,
    )
    made, _ = instances.pair_segments(
        corpus,
        range(DOCUMENTS),
        rule=Settings(max_seq_length=64, dupe_factor=40, short_seq_prob=0.0),
        rng=np.random.default_rng(5),
    )
    return made[np.argsort(made["key"])]


def document(start):
    return start // (SENTENCES * TOKENS)


def chance(values, labels) -> float:
    """How likely so uneven a table is if labels do not depend on values."""
    table = np.histogram2d(
        values, labels, [np.arange(values.max() + 2), [0, 1, 2]]
    )[0]
    return scipy.stats.chi2_contingency(table).pvalue


def test_labels_do_not_depend_on_the_document_of_a_or_b(found):
    assert len(found) > 10000
    for name in ("a_start", "b_start"):
        assert chance(document(found[name]), found["is_random"]) > 1e-4


def test_labels_do_not_depend_on_the_position_in_the_shards(found):
    part = np.arange(len(found)) * 100 // len(found)
    assert chance(part, found["is_random"]) > 1e-4
    labels = found["is_random"]
    same = (labels[1:] == labels[:-1]).mean()  # Neighbors tell nothing.
    share = labels.mean()
    expected = share**2 + (1 - share) ** 2
    assert abs(same - expected) < 4 * 0.5 / len(labels) ** 0.5


def test_a_random_next_sentence_is_from_any_other_document(found):
    """However far away; none is nearer to its partner than another."""
    chosen = found[found["is_random"] == 1]
    distance = document(chosen["b_start"]) - document(chosen["a_start"])
    counts = np.bincount(distance % DOCUMENTS, minlength=DOCUMENTS)
    assert counts[0] == 0
    assert scipy.stats.chisquare(counts[1:]).pvalue > 1e-4
