"""Proves that a model's own labels decide what its outputs mean.

python -m pytest tests/weights/model_labels_test.py
"""

import pytest

from data import examples
from foundation import errors
from weights import task_files

NLI = ("contradiction", "entailment", "neutral")


def known(labels, problem_type=None):
    return task_files.Known(labels=labels, problem_type=problem_type)


@pytest.mark.parametrize(
    ("labels", "task", "found"),
    [
        (["ENTAILMENT", "NEUTRAL", "CONTRADICTION"], NLI, [1, 2, 0]),
        (["LABEL_0", "LABEL_1", "LABEL_2"], NLI, [0, 1, 2]),
        (None, NLI, [0, 1, 2]),
        (["not_equivalent", "equivalent"], ("0", "1"), [0, 1]),
        (["1", "0"], ("0", "1"), [1, 0]),
    ],
    ids=["other order", "numbered", "none", "places", "digits"],
)
def test_the_task_takes_over_the_models_order(labels, task, found):
    ordered = known(labels).in_order(task)
    assert list(ordered) == [task[i] for i in found]


def test_labels_of_another_task_are_refused():
    with pytest.raises(errors.InputError, match="but the model's a, b, c"):
        known(["a", "b", "c"]).in_order(NLI)


def test_training_takes_over_the_order_of_a_head_of_the_same_classes():
    swapped = ["NEUTRAL", "ENTAILMENT", "CONTRADICTION"]
    found = known(swapped).in_order_if_its_own(NLI)
    assert list(found) == [NLI[i] for i in (2, 1, 0)]
    assert known(["a", "b", "c"]).in_order_if_its_own(NLI) == NLI
    assert known(["a", "b"]).in_order_if_its_own(NLI) == NLI
    assert known(None).in_order_if_its_own(()) == ()


def test_the_kind_is_the_models_unless_it_is_told():
    several = known(None, "multi_label_classification")
    assert task_files.kind(None, several) == examples.MULTI_LABEL
    assert task_files.kind(None, known(None)) == examples.CLASSIFICATION
    assert task_files.kind("regression", None) == examples.REGRESSION
    assert task_files.kind(None, known(["LABEL_0"])) == examples.REGRESSION
    with pytest.raises(errors.InputError, match="trained for multi_label"):
        task_files.kind("regression", several)
