"""Proves what report.html shows of each kind of sentence task.

python -m pytest tests/tasks/classification/sentence_report_test.py
"""

import re

import numpy as np
import pytest

from data import examples
from tasks.classification import sentence_outputs, sentence_tasks


def evaluated(kind, metrics, labels, label_ids, logits, second=()):
    label_ids = np.array(label_ids)
    texts = [
        examples.Example(
            "dir/dev.tsv",
            2 + i,
            str(i),
            "begins" if second else f"text {i} <b>",
            second,
            str(x),
        )
        for i, x in enumerate(label_ids[:, 0])
    ]
    return sentence_outputs.Evaluation(
        values={},
        task=sentence_tasks.SentenceTask(
            name="csv", kind=kind, metrics=metrics, labels=labels, read=None
        ),
        texts=texts,
        label_ids=label_ids,
        logits=np.array(logits, np.float32),
        lengths=np.arange(1, len(label_ids) + 1),
    )


def section(title, made):
    (body,) = [
        x.body for x in sentence_outputs.sections(made) if x.title == title
    ]
    return body


def rows(table):
    """The cells of a table of HTML, without its header."""
    found = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    found = [re.findall(r"<td.*?>(.*?)</td>", row) for row in found]
    return [row for row in found if row]


def test_classes_and_what_they_are_called():
    made = evaluated(
        "classification",
        ["accuracy"],
        ["no", "yes"],
        [[0], [0], [1]],
        [[1, 0], [0, 3], [0, 1]],
    )
    assert rows(section("Confusions", made)) == [
        ["no", "1", "1"],
        ["yes", "0", "1"],
    ]
    (mistake,) = rows(section("Worst mistakes", made))
    assert mistake[:3] == ["dev.tsv:3", "0", "yes"]
    assert float(mistake[3]) == pytest.approx(np.log1p(np.exp(3)), rel=1e-3)
    assert mistake[4] == "text 1 &lt;b&gt;"


def test_f1_by_length_is_of_label_1_wherever_the_model_has_it():
    made = evaluated(
        "classification",
        ["f1"],
        ["1", "0"],
        [[0], [0], [1]],
        [[1, 0], [1, 0], [1, 0]],
    )
    found = rows(section("By length", made))
    assert [float(row[-1]) for row in found] == [1.0, 1.0, 0.0]


def test_a_single_label_of_many_is_scored_by_itself():
    made = evaluated(
        "multi_label",
        ["f1_micro"],
        ["toxic"],
        [[1], [0], [1]],
        [[2], [1], [-1]],
    )
    assert rows(section("By label", made)) == [
        ["toxic", "2", "2", "0.500", "0.500", "0.500"]
    ]


def test_places_of_choices_are_confused_too():
    made = evaluated(
        "multiple_choice",
        ["accuracy"],
        ["0", "1"],
        [[0], [1]],
        [[0, 1], [0, 1]],
        second=("a", "b"),
    )
    assert rows(section("Confusions", made)) == [
        ["0", "0", "1"],
        ["1", "0", "1"],
    ]
    (mistake,) = rows(section("Worst mistakes", made))
    assert mistake[-1] == "begins | a | b"


def test_every_label_of_several_is_scored():
    made = evaluated(
        "multi_label",
        ["f1_micro"],
        ["red", "round", "never"],
        [[1, 0, 0], [1, 1, 0], [0, 1, 0]],
        [[2, 2, -1], [-2, 2, -1], [-2, 2, -1]],
    )
    assert rows(section("By label", made)) == [
        ["red", "2", "1", "1.000", "0.500", "0.667"],
        ["round", "2", "3", "0.667", "1.000", "0.800"],
        ["never", "0", "0", "0.000", "0.000", "0.000"],
    ]
    mistakes = rows(section("Worst mistakes", made))
    assert [row[1:3] for row in mistakes] == [
        ["red", "red, round"],
        ["red, round", "round"],
    ]


def test_every_class_is_scored_beside_the_most_frequent_one():
    made = evaluated(
        "classification",
        ["accuracy"],
        ["good", "bad"],
        [[0], [0], [1]],
        [[1, 0], [0, 1], [0, 1]],
    )
    assert rows(section("By label", made)) == [
        ["good", "2", "1", "1.000", "0.500", "0.667"],
        ["bad", "1", "2", "0.500", "1.000", "0.667"],
    ]
    fact, note = sentence_outputs.baseline(made)
    assert fact == {"accuracy of always \u201cgood\u201d": pytest.approx(2 / 3)}
    assert "`good`" in note and "0.6667" in note


@pytest.mark.parametrize(
    ("label_ids", "logits", "is_warned"),
    [
        ([[0], [1], [1]], [[0, 1], [1, 2], [1, 3]], True),
        ([[0], [1], [1]], [[0, 1], [2, 1], [1, 3]], False),
        (
            [[1], [1], [1]],
            [[0, 1], [1, 2], [1, 3]],
            False,
        ),  # All of them are right.
    ],
)
def test_a_model_that_predicts_one_label_is_warned_of(
    label_ids, logits, is_warned, caplog
):
    made = evaluated(
        examples.CLASSIFICATION,
        ["accuracy"],
        ["bad", "good"],
        label_ids,
        logits,
    )
    sentence_outputs.warn_of_one_label(made, "dev.csv")
    expected = "dev.csv: the model predicts 'good' for all 3 examples"
    assert (expected in caplog.text) == is_warned
    assert "--freeze_layers" not in caplog.text
    sentence_outputs.warn_of_one_label(made, "dev.csv", has_windows=True)
    assert ("--freeze_layers" in caplog.text) == is_warned


def test_every_value_of_a_regression_is_drawn():
    count = 7
    values = np.linspace(0, 5, count)[:, None]
    made = evaluated("regression", ["pearson"], [], values, values + 1)
    body = section("True and predicted", made)
    points = re.search(r'<g id="PathCollection_1">.*?</g>\s*</g>', body, re.S)
    assert points[0].count("<use ") == count
    mistakes = rows(section("Worst mistakes", made))
    assert len(mistakes) == count
    assert ["0.833", "1.833"] in [row[1:3] for row in mistakes]


def test_many_classes_do_not_become_a_table_of_all_pairs():
    """A thousand classes would be a million cells."""
    count = 1000
    labels = [f"class {i}" for i in range(count)]
    logits = np.eye(count)
    logits[[5, 6]] = logits[7]
    made = evaluated(
        "classification",
        ["accuracy"],
        labels,
        np.arange(count)[:, None],
        logits,
    )
    assert rows(section("Confusions", made)) == [
        ["class 5", "class 7", "1"],
        ["class 6", "class 7", "1"],
    ]


def test_calibration_compares_probabilities_with_correct_decisions():
    made = evaluated(
        "classification",
        ["accuracy"],
        ["no", "yes"],
        [[0], [1], [1], [0]],
        np.log([[0.95, 0.05], [0.95, 0.05], [0.25, 0.75], [0.75, 0.25]]),
    )
    body = section("Calibration", made)
    assert rows(body[body.index("<table") :]) == [
        ["0.7\u20130.8", "2", "0.750", "1.000"],
        ["0.9\u20131.0", "2", "0.950", "0.500"],
    ]
    # (0.25 + 0.45) / 2, the mean difference.
    assert "error: 0.350," in body
