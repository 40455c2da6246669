"""Proves that a model's own labels decide the meaning of its outputs.

python -m pytest tests/weights/task_files_test.py
"""

import pytest

from data import examples
from foundation import errors
from weights import task_files

NLI = ("contradiction", "entailment", "neutral")


def known(labels, problem_type=None, num_outputs=None):
    return task_files.ModelClasses(
        labels=labels, problem_type=problem_type, num_outputs=num_outputs
    )


@pytest.mark.parametrize(
    ("labels", "task", "found"),
    [
        (["ENTAILMENT", "NEUTRAL", "CONTRADICTION"], NLI, [1, 2, 0]),
        (["LABEL_0", "LABEL_1", "LABEL_2"], NLI, [0, 1, 2]),
        (None, NLI, [0, 1, 2]),
        (["not_equivalent", "equivalent"], ("0", "1"), [0, 1]),
        (["1", "0"], ("0", "1"), [1, 0]),
    ],
    ids=["other order", "numbered", "none", "positions", "digits"],
)
def test_the_task_has_the_models_order(labels, task, found):
    ordered = known(labels).in_order(task)
    assert list(ordered) == [task[i] for i in found]


def test_an_assumed_order_is_logged(caplog):
    numbered = known(["LABEL_0", "LABEL_1", "LABEL_2"])
    assert numbered.in_order(NLI) == NLI
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    message = "google-research/bert: LABEL_0 is contradiction, LABEL_1 is entai"
    assert message in caplog.text and "--label_names" in caplog.text
    caplog.clear()
    # No order is assumed of numbers, of names, or without any classes.
    numbered.in_order(("0", "1", "2"))
    numbered.in_order(numbered.labels)
    known(["neutral", "contradiction", "entailment"]).in_order(NLI)
    known(None).in_order(NLI)
    numbered.in_model_order_if_same(NLI)
    assert not caplog.records


def test_classes_can_be_named(caplog):
    order = ["entailment", "neutral", "contradiction"]
    for labels in (None, ["LABEL_0", "LABEL_1", "LABEL_2"], order):
        named = known(labels).with_names(order)
        assert named.names == order
        assert list(named.in_order(NLI)) == order
    assert known(order).with_names(None).labels == order
    assert not caplog.records
    cases = {
        "the model has 2 classes": ["LABEL_0", "LABEL_1"],
        "the model's classes are a, b, c": ["a", "b", "c"],
    }
    for message, labels in cases.items():
        with pytest.raises(errors.InputError, match=message):
            known(labels).with_names(order)
    for names in (["a", "a"], ["a", "b", ""]):
        with pytest.raises(errors.InputError, match="empty or occurs twice"):
            known(None).with_names(names)


def test_labels_of_another_task_are_refused():
    with pytest.raises(errors.InputError, match="but the model's a, b, c"):
        known(["a", "b", "c"]).in_order(NLI)


def test_training_keeps_the_order_of_a_head_of_the_same_classes():
    swapped = ["NEUTRAL", "ENTAILMENT", "CONTRADICTION"]
    found = known(swapped).in_model_order_if_same(NLI)
    assert list(found) == [NLI[i] for i in (2, 1, 0)]
    assert known(["a", "b", "c"]).in_model_order_if_same(NLI) == NLI
    assert known(["a", "b"]).in_model_order_if_same(NLI) == NLI
    assert known(None).in_model_order_if_same(()) == ()


def test_training_has_the_given_labels_in_their_order():
    given = known(None).with_names(["c", "b", "a"])
    assert given.in_model_order_if_same(["a", "b", "c"]) == ["c", "b", "a"]
    assert given.in_model_order_if_same(["a", "b"]) == ["c", "b", "a"]
    with pytest.raises(errors.InputError, match="=c,b,a lacks .* task: d, e"):
        given.in_model_order_if_same(["a", "d", "e"])


def test_training_has_the_given_labels_whatever_the_start_was_trained_for():
    names = ["neg", "pos"]
    for start in (list(NLI), ["pos", "neg"], ["LABEL_0"], None):
        assert known(start).with_names(names, trains=True).names == names
    with pytest.raises(errors.InputError, match="empty or occurs twice"):
        known(None).with_names(["a", "a"], trains=True)


@pytest.mark.parametrize(
    ("labels", "others"),
    [
        (["b", "a"], True),
        (["a", "b"], False),
        (["A", "B"], False),
        (["B", "A"], True),
        (["0", "1"], False),
        (["a"], True),
        ([], False),
    ],
)
def test_outputs_in_another_order_are_others(labels, others):
    assert known(["a", "b"]).has_other_outputs(labels) == others
    assert not known(None).has_other_outputs(labels)
    assert not known(["LABEL_0", "LABEL_1"]).has_other_outputs(labels)


def test_the_kind_is_the_models_unless_it_is_given():
    several = known(None, "multi_label_classification")
    assert task_files.kind(None, several) == examples.MULTI_LABEL
    assert task_files.kind(None, known(None)) == examples.CLASSIFICATION
    assert task_files.kind("regression", None) == examples.REGRESSION
    with pytest.raises(errors.InputError, match="trained for multi_label"):
        task_files.kind("regression", several)
    with pytest.raises(errors.InputError, match="problem_type.*'ranking'"):
        task_files.kind(None, known(None, "ranking"))


def test_one_output_is_the_logit_of_a_label_or_a_value():
    for one in (known(["LABEL_0"]), known(None, num_outputs=1)):
        assert task_files.kind(None, one) == examples.MULTI_LABEL
        assert task_files.kind("regression", one) == examples.REGRESSION
        with pytest.raises(errors.InputError, match="one output"):
            task_files.kind("classification", one)
    value = known(["LABEL_0"], "regression", 1)
    assert task_files.kind(None, value) == examples.REGRESSION
    with pytest.raises(errors.InputError, match="one output"):
        task_files.kind(None, known(["a"], "single_label_classification"))


def test_a_regression_has_one_output():
    several = known(None, "regression", num_outputs=3)
    with pytest.raises(errors.InputError, match="regression with 3 outputs"):
        task_files.kind(None, several)


def test_labels_must_be_those_of_the_outputs():
    known(["a", "b"], num_outputs=2).check()
    known(None, num_outputs=2).check()
    faults = {
        "a, b, but the head has 3 outputs": known(["a", "b"], num_outputs=3),
        "'a' is the name of several": known(["a", "b", "a"], num_outputs=3),
    }
    for message, classes in faults.items():
        with pytest.raises(errors.InputError, match=message) as caught:
            classes.check(can_be_named=False)
        assert "--label_names" not in str(caught.value)
        with pytest.raises(errors.InputError, match="id2label.*--label_names"):
            classes.check()
        named = classes.with_names(["x", "y", "z"])
        named.check()
        assert named.names == ["x", "y", "z"]
        with pytest.raises(errors.InputError, match="model has 3 classes"):
            classes.with_names(["x", "y"])
