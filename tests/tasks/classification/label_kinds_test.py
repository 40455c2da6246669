"""Tests of what labels are, and that heads learn the losses of NumPy.

python -m pytest tests/tasks/classification/label_kinds_test.py
"""

import numpy as np
import pytest
from keras import ops

from tasks.classification import heads, label_kinds
from tasks.classification.label_kinds import AnyLabels, Choice, OneLabel, Value

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 0.0, 1.0]])
# A kind, two labels, their targets, its logits, the decisions as text.
KINDS = [
    (OneLabel("abc"), ["a", "b"], [[0], [1]], LOGITS, ["a", "c"]),
    (Choice("012"), ["0", "1"], [[0], [1]], LOGITS, ["0", "2"]),
    (
        AnyLabels("abc"),
        [("b", "a"), ()],
        [[1, 1, 0], [0, 0, 0]],
        LOGITS,
        ["a,c", "c"],
    ),
    (
        Value(),
        ["1.5", "-2"],
        [[1.5], [-2.0]],
        LOGITS[:, :1],
        ["2.0000", "-3.0000"],
    ),
]


@pytest.mark.parametrize(
    ("kind", "labels", "targets", "logits", "texts"), KINDS
)
def test_labels_become_targets_and_logits_become_labels(
    kind, labels, targets, logits, texts
):
    assert [kind.target(label) for label in labels] == targets
    assert [kind.text(x) for x in kind.decide(logits)] == texts
    assert kind.decide(logits).shape == np.shape(targets)


@pytest.mark.parametrize(
    ("kind", "labels", "targets", "logits", "texts"), KINDS
)
def test_a_head_learns_the_loss_of_its_kind(
    kind, labels, targets, logits, texts
):
    """The mean over examples of NumPy's losses in float64."""
    features = {"label_ids": ops.convert_to_tensor(np.array(targets, "f4"))}
    if kind.record.dtype != "float32":
        features["label_ids"] = ops.cast(features["label_ids"], "int32")
    loss, _ = heads.head_of(kind).loss(logits.astype(np.float32), features)
    expected = kind.losses(logits, np.array(targets)).mean()
    assert float(loss.sum / loss.weight) == pytest.approx(expected, rel=1e-6)


def test_probabilities():
    soft = OneLabel("abc").probabilities(LOGITS)
    np.testing.assert_allclose(soft.sum(axis=1), 1)
    np.testing.assert_allclose(soft[0, 0] / soft[0, 1], np.exp(3))
    several = AnyLabels("abc").probabilities(LOGITS)
    np.testing.assert_allclose(several, 1 / (1 + np.exp(-LOGITS)))
    far = AnyLabels("ab").probabilities(np.array([[-800.0, 800.0]]))
    assert far.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (OneLabel("ab"), "c"),
        (OneLabel("ab"), None),
        (OneLabel("ab"), ("a", "b")),
        (AnyLabels("ab"), ("a", "c")),
        (AnyLabels("ab"), None),
        (Value(), None),
        (Value(), "x"),
        (Value(), "nan"),
        (Value(), "1e39"),
        (Value(), "1_000"),
    ],
)
def test_labels_of_another_kind_are_refused(kind, label):
    with pytest.raises(ValueError):
        kind.target(label)


def test_unnamed_classes_have_numbers():
    kind = OneLabel(["LABEL_0", "LABEL_1"])
    assert kind.target("1") == kind.target("LABEL_1") == [1]


def test_examples_of_weighted_classes_count_as_much():
    head = heads.head_of(OneLabel("ab"), class_weights=[1.0, 3.0])
    features = {"label_ids": ops.convert_to_tensor([[0], [1]])}
    logits = np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)
    losses = OneLabel("ab").losses(logits, np.array([[0], [1]]))
    loss, _ = head.loss(logits, features)
    assert float(loss.sum) == pytest.approx(losses @ [1, 3], rel=1e-6)
    assert float(loss.weight) == float(head.weight(features)) == 4


def test_labels_are_sorted_by_value_or_as_text():
    find = label_kinds.find_labels
    assert find("t", OneLabel, {"10": 1, "9.5": 1, "-1": 2}) == [
        "-1",
        "9.5",
        "10",
    ]
    assert find("t", OneLabel, {"b": 1, "10": 1}) == ["10", "b"]
    assert find("t", OneLabel, {"nan": 1, "10": 1, "9": 1}) == [
        "10",
        "9",
        "nan",
    ]
    assert find("t", AnyLabels, {"a": 1, None: 3}) == ["a"]
