"""Proves that a model's own labels decide the meaning of its outputs.

python -m pytest tests/weights/task_files_test.py
"""

import itertools

import pytest

from foundation import errors
from weights import kinds, task_files

NLI = ("contradiction", "entailment", "neutral")
NUMBERED = ["LABEL_0", "LABEL_1", "LABEL_2"]
OTHERS = ["a", "b", "c"]
KINDS = (kinds.CLASSIFICATION, kinds.REGRESSION, kinds.MULTI_LABEL)


def known(labels, problem_type=None, num_outputs=None):
    return task_files.ModelClasses(
        labels=labels, problem_type=problem_type, num_outputs=num_outputs
    )


@pytest.mark.parametrize("order", itertools.permutations(NLI))
@pytest.mark.parametrize("trains", [False, True])
def test_labels_get_the_order_of_the_models_names(order, trains, caplog):
    shouted = known([label.upper() for label in order])
    assert shouted.ordered(NLI, trains=trains) == list(order)
    for labels in (None, NUMBERED, list(order)):  # Names of --label_names.
        named = known(labels).with_names(order)
        assert named.names == named.ordered(NLI, trains=trains) == list(order)
        assert known(labels).with_names(None) == known(labels)
    assert not caplog.records


@pytest.mark.parametrize(
    ("names", "labels", "found"),
    [
        (["not_equivalent", "equivalent"], ["0", "1"], ["0", "1"]),
        (["1", "0"], ["0", "1"], ["1", "0"]),
        (["A", "b"], ["a", "B"], ["a", "B"]),
        (["a", "b"], ["a"], None),
        (["a", "b", "c"], ["0", "1"], None),
        (OTHERS, NLI, None),
    ],
)
def test_names_are_those_of_labels_or_of_others(names, labels, found):
    assert task_files.ordered(names, labels) == found
    classes = known(names)
    assert classes.ordered(labels, trains=True) == (found or labels)
    if found is None:
        with pytest.raises(errors.InputError, match="but the model's"):
            classes.ordered(labels)


def test_an_assumed_order_is_logged(caplog):
    numbered = known(NUMBERED)
    assert numbered.ordered(NLI) == NLI
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    message = "google-research/bert: LABEL_0 is contradiction, LABEL_1 is entai"
    assert message in caplog.text and "--label_names" in caplog.text
    caplog.clear()
    # No order is assumed of numbers, of names, or without any classes.
    for labels in (("0", "1", "2"), NUMBERED):
        assert numbered.ordered(labels) == labels
    assert known(None).ordered(NLI) == numbered.ordered(NLI, trains=True) == NLI
    assert not caplog.records


@pytest.mark.parametrize(
    ("labels", "given", "trains", "message"),
    [
        (NUMBERED[:2], NLI, False, "the model has 2 classes"),
        (OTHERS, NLI, False, "the model's classes are a, b, c"),
        (None, ["a", "a"], False, "empty or occurs twice"),
        (None, ["a", ""], True, "empty or occurs twice"),
        (OTHERS, NLI, True, None),
        (NUMBERED[:1], NLI, True, None),
    ],
)
def test_names_must_fit_a_model_that_is_not_trained(
    labels, given, trains, message
):
    if message is None:
        named = known(labels).with_names(given, trains=trains)
        assert named.ordered(NLI[1:], trains=True) == list(NLI)
        with pytest.raises(errors.InputError, match="lacks .* task: d, e"):
            named.ordered(["d", NLI[0], "e"], trains=True)
        return
    with pytest.raises(errors.InputError, match=message):
        known(labels).with_names(given, trains=trains)


@pytest.mark.parametrize(
    ("given", "labels", "problem_type", "count", "found"),
    [
        (None, None, "multi_label_classification", None, kinds.MULTI_LABEL),
        (None, None, None, None, kinds.CLASSIFICATION),
        (None, ["LABEL_0"], None, None, kinds.MULTI_LABEL),
        (None, None, None, 1, kinds.MULTI_LABEL),
        ("regression", ["LABEL_0"], None, None, kinds.REGRESSION),
        ("regression", None, None, 1, kinds.REGRESSION),
        (None, ["LABEL_0"], "regression", 1, kinds.REGRESSION),
        ("regression", None, "multi_label_classification", None, "trained for"),
        (None, None, "ranking", None, "problem_type.*'ranking'"),
        ("classification", None, None, 1, "one output"),
        (None, ["a"], "single_label_classification", None, "one output"),
        (None, None, "regression", 3, "regression with 3 outputs"),
    ],
)
def test_the_kind_is_given_or_the_models(
    given, labels, problem_type, count, found
):
    classes = known(labels, problem_type, count)
    if found in KINDS:
        assert task_files.kind(given, classes) == found
        return
    with pytest.raises(errors.InputError, match=found):
        task_files.kind(given, classes)


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        (["a", "b"], "a, b, but the head has 3 outputs"),
        (["a", "b", "a"], "'a' names several"),
        (OTHERS, None),
        (None, None),
    ],
)
def test_labels_must_be_those_of_the_outputs(labels, fault):
    classes = known(labels, num_outputs=3)
    if fault is None:
        return classes.check()
    for can_be_named in (False, True):
        with pytest.raises(errors.InputError, match=fault) as caught:
            classes.check(can_be_named=can_be_named)
        assert ("--label_names" in str(caught.value)) == can_be_named
    classes.with_names(["x", "y", "z"]).check()
    return None
