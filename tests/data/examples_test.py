"""Proves what is read of a set of labeled texts.

python -m pytest tests/data/examples_test.py
"""

import pytest

from data import examples
from foundation import errors


def of(*labels):
    rows = [
        examples.Example("a.csv", line, str(line), f"text {line}", (), label)
        for line, label in enumerate(labels, 2)
    ]
    return examples.Examples(lambda: rows, "a.csv")


def test_a_set_is_known_by_its_texts_and_labels():
    assert of("1", "2").count == 2
    assert of("1", "2").digest == of("1", "2").digest != of("1", "3").digest
    with pytest.raises(errors.InputError, match="a.csv: has no examples"):
        of().check()


def test_values_are_numbers():
    assert examples.values(of("1", "-2.5e3")).tolist() == [[1], [-2500]]


@pytest.mark.parametrize("label", ["", "nan", "1e99", "1_000", "x", ["1"]])
def test_what_is_no_number_is_named_by_line(label):
    with pytest.raises(errors.InputError, match="a.csv:3: .* is not a number"):
        examples.values(of("1", label))
