"""Proves that scores are those that conlleval prints.

python -m pytest tests/tasks/ner/conlleval_test.py
"""

import gzip
import json

import pytest

from tasks.ner import conll, conlleval

# Worked by hand with conlleval's rules: phrases LOC 2, PER 1, ORG 1; found
# LOC 1 (right), PER 2 (one of them right), MISC 1.
TRUE = ["I-LOC O I-PER I-PER O".split(), "B-LOC O I-ORG".split()]
FOUND = ["I-LOC O I-PER I-PER O".split(), "I-PER O I-MISC".split()]
PRINTED = """\
processed 8 tokens with 4 phrases; found: 4 phrases; correct: 2.
accuracy:  75.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00
              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1
             MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2
"""


def test_the_text_is_conllevals():
    assert conlleval.score(TRUE, FOUND).text() == PRINTED


def test_a_document_counts_as_a_right_word():
    scores = conlleval.score(TRUE, FOUND, boundaries=2)
    assert scores.text().startswith("processed 10 tokens")
    assert scores.accuracy == 0.8


@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_real_predictions_with_planted_errors(shared_data, letter):
    name = f"conll2003/testa.predicted_{letter}.txt.gz"
    expected = json.loads((shared_data / "expected_scores.json").read_text())
    true, found = [[]], [[]]
    with gzip.open(shared_data / name, "rt", encoding="utf-8") as file:
        for line in file:
            cells = line.split()
            if not cells:
                true.append([])
                found.append([])
                continue
            true[-1].append(cells[-2])
            found[-1].append(cells[-1])
    scores = conlleval.score(true, found)
    assert scores.text().splitlines() == expected[name]


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("I-A I-A", {(0, 2, "A")}),
        ("I-A B-A", {(0, 1, "A"), (1, 2, "A")}),
        ("I-A I-B", {(0, 1, "A"), (1, 2, "B")}),
        ("B-A O I-A", {(0, 1, "A"), (2, 3, "A")}),
        ("B-A I-A E-A O", {(0, 3, "A")}),
        ("E-A E-A", {(0, 1, "A"), (1, 2, "A")}),
        ("E-A I-A", {(0, 1, "A"), (1, 2, "A")}),
        ("O O", set()),
        ("I-a-b I-a-b", {(0, 2, "a-b")}),
    ],
    ids=lambda x: x.replace(" ", "_") if isinstance(x, str) else "",
)
def test_phrases_begin_and_end_where_conlleval_says(tags, expected):
    assert set(conll.spans(tags.split())) == expected


def test_nothing_true_and_nothing_found_is_zero():
    scores = conlleval.score([["O"]], [["O"]])
    assert scores.total.f1 == scores.total.precision == 0
    assert scores.accuracy == 1


def test_lengths_must_agree():
    with pytest.raises(ValueError):
        conlleval.score([["O", "O"]], [["O"]])


def test_plain_tags_have_accuracy():
    scores = conlleval.score(
        [["A", "B"], ["A"]], [["A", "A"], ["A"]], is_plain=True
    )
    values = scores.plain_values()
    assert values["accuracy"] == pytest.approx(2 / 3)
    assert values["f1_macro"] == pytest.approx(0.4)


def test_scores_of_parts_add_up():
    """Also of types that only one part has."""
    parts = [
        conlleval.score([true], [found])
        for true, found in zip(TRUE, FOUND, strict=True)
    ]
    assert parts[0] + parts[1] == conlleval.score(TRUE, FOUND)
    assert (conlleval.Scores() + parts[0]).text() == parts[0].text()
