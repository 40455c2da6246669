"""Proves what labels there are, in which order, and what each example has.

python -m pytest tests/data/examples_test.py
"""

import itertools

import pytest

from data import examples
from foundation import errors

CLASSIFICATION, MULTI_LABEL = examples.CLASSIFICATION, examples.MULTI_LABEL


def labeled(*labels):
    """Examples on lines 2, 3, ... of the file t.csv."""
    rows = [
        examples.Example("t.csv", i, str(i), "x", (), label)
        for i, label in enumerate(labels, 2)
    ]
    return examples.Examples(lambda: rows, "t.csv")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "2"], ["2", "9", "10"]),
        (["1.50", "-1e3", "1.5"], ["-1e3", "1.5", "1.50"]),
        (["10", "9", "nan"], ["10", "9", "nan"]),
        (["10", "inf", "9"], ["10", "9", "inf"]),
        (["1e999", "9", "10"], ["10", "1e999", "9"]),
        (["10", "9", "other"], ["10", "9", "other"]),
        (["nan", "NaN", "1"], ["1", "NaN", "nan"]),
    ],
    ids=str,
)
def test_only_finite_numbers_are_sorted_as_numbers(labels, expected):
    for order in itertools.permutations(labels):
        found = examples.find_labels(labeled(*order), CLASSIFICATION)
        assert found == expected


def test_an_example_is_the_same_wherever_it_is():
    """So that a killed prediction of new.csv is continued with ./new.csv."""
    row = examples.Example("new.csv", 2, "7", "a", ("b",), "yes")
    assert row._replace(path="./new.csv", line=3).key == row.key
    changes = {"guid": "8", "first": "c", "second": (), "label": "no"}
    for name, value in changes.items():
        assert row._replace(**{name: value}).key != row.key


@pytest.mark.parametrize("empty", ["", " ", "\t"], ids=repr)
def test_an_empty_label_is_no_class(empty):
    texts = labeled("yes", "no", empty)
    with pytest.raises(errors.InputError, match="t.csv:4: the label is empty"):
        examples.find_labels(texts, CLASSIFICATION)
    for kind in (CLASSIFICATION, examples.MULTIPLE_CHOICE):
        with pytest.raises(errors.InputError, match="csv:4: the label is empt"):
            examples.encode_labels(texts, kind, ["no", "yes"])


def test_several_labels_come_as_a_list_or_with_commas():
    texts = labeled(["b", " a "], "b, c", [], "", "a,", " , ", ["", "c "], " a")
    labels = examples.find_labels(texts, MULTI_LABEL)
    assert labels == ["a", "b", "c"]
    rows = examples.encode_labels(texts, MULTI_LABEL, labels)
    assert rows.tolist() == [
        [1, 1, 0],
        [0, 1, 1],
        [0, 0, 0],
        [0, 0, 0],
        [1, 0, 0],
        [0, 0, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]


@pytest.mark.parametrize(
    "given", ["['a', 'b']", '["a"]', "[a, b]", " [] ", "{'a'}", "['a'\n 'b']"]
)
def test_a_list_that_was_written_as_text_is_refused(given):
    with pytest.raises(errors.InputError, match="t.csv:3: .* commas separate"):
        examples.find_labels(labeled("a,b", given), MULTI_LABEL)
    texts = labeled("(c) d, (e)", "[f]", "g(h)")
    found = examples.find_labels(texts, MULTI_LABEL)
    assert found == ["(c) d", "(e)", "[f]", "g(h)"]


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        (["red|round", "", "red"], "red|round"),
        (["red; round", "blue", "round"], "red; round"),
        (["red|round", "blue"], None),
        (["red|round", "red", "red,blue"], None),
        (["red;round", "round;blue"], "red;round"),
        (["red round", "red", "round"], "red round"),
        (["very good", "good", "very bad"], None),
    ],
)
def test_other_separators_than_commas_are_logged(caplog, labels, warned):
    with caplog.at_level("WARNING", logger="absl"):
        examples.find_labels(labeled(*labels * 4), MULTI_LABEL)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"t.csv: {x!r} is taken for one label; commas separate labels"
        for x in [warned]
        if x
    ]


def test_a_file_without_any_label_is_refused():
    with pytest.raises(errors.InputError, match="t.csv: has no labels"):
        examples.find_labels(labeled("", ","), MULTI_LABEL)
    with pytest.raises(errors.InputError, match="t.csv: 1 .*, 'a'"):
        examples.find_labels(labeled("a", "a"), CLASSIFICATION)


def test_a_label_with_a_comma_is_one_label_unless_there_may_be_several():
    texts = labeled("yes, well", "no")
    found = examples.find_labels(texts, CLASSIFICATION)
    assert found == ["no", "yes, well"]
    found = examples.find_labels(texts, MULTI_LABEL)
    assert found == ["no", "well", "yes"]


def test_a_list_of_labels_needs_its_kind():
    texts = labeled("a", ["a", "b"])
    message = "t.csv:3: 2 labels in a list; --problem_type=multi_label"
    with pytest.raises(errors.InputError, match=message):
        examples.find_labels(texts, CLASSIFICATION)
    with pytest.raises(errors.InputError, match=message):
        examples.encode_labels(texts, CLASSIFICATION, ["a", "b"])


@pytest.mark.parametrize("kind", [CLASSIFICATION, MULTI_LABEL])
def test_a_label_that_is_none_of_those_known_is_named(kind):
    with pytest.raises(errors.InputError, match="t.csv:3: label 'c' is none"):
        examples.encode_labels(labeled("a", "c"), kind, ["a", "b"])


@pytest.mark.parametrize(
    "value", ["nan", "inf", "", "three", "1_0", "1e39"], ids=repr
)
def test_a_value_that_is_no_number_is_named(value):
    texts = labeled("1.5", value)
    with pytest.raises(errors.InputError, match=f":3: {value!r} is not a num"):
        examples.encode_labels(texts, examples.REGRESSION, [])


def test_numbers_that_are_equal_are_one_label():
    train = labeled("1", "1.0", "0.0", "2.50", "v1.0")
    found = examples.find_labels(train, CLASSIFICATION)
    assert found == ["0.0", "1", "2.50", "v1.0"]
    dev = labeled("1.00", "0", "-0.0")
    numbers = examples.encode_labels(
        labeled("1.00", "0"), CLASSIFICATION, found
    )
    assert numbers.tolist() == [[1], [0]]
    with pytest.raises(errors.InputError, match="t.csv:4: label '-0.0'"):
        examples.encode_labels(dev, CLASSIFICATION, found)


@pytest.mark.parametrize("given", [["0", "1", "0"], "0,1,0"])
def test_a_number_for_every_label_is_not_taken_for_labels(given):
    texts = labeled(["a", "b"], given)
    with pytest.raises(
        errors.InputError, match="t.csv:3: 0,1,0 is a flag for each label"
    ):
        examples.find_labels(texts, MULTI_LABEL)
    with pytest.raises(errors.InputError, match="t.csv:2: 1,0 is a flag"):
        examples.find_labels(labeled("1,0", "0,1"), MULTI_LABEL)
    with pytest.raises(errors.InputError, match="t.csv:3: 0 1 0 is a flag"):
        examples.find_labels(labeled("1", "0 1 0"), MULTI_LABEL)


def test_a_label_may_be_said_twice():
    texts = labeled("sports,sports", "0", "0,1")
    found = examples.find_labels(texts, MULTI_LABEL)
    numbers = examples.encode_labels(texts, MULTI_LABEL, found)
    assert found == ["0", "1", "sports"]
    assert numbers.tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 0]]


def test_classes_without_names_are_known_by_their_numbers():
    texts = labeled("1", "LABEL_0", "0")
    numbers = examples.encode_labels(
        texts, CLASSIFICATION, ["LABEL_0", "LABEL_1"]
    )
    assert numbers.tolist() == [[1], [0], [0]]


def test_a_label_that_could_not_be_written_among_others_is_refused():
    with pytest.raises(errors.InputError, match="t.csv:3: label 'l,2' has a c"):
        examples.find_labels(labeled(["a"], ["l1", "l,2"]), MULTI_LABEL)


def test_thousands_of_classes_are_allowed_if_they_repeat():
    """Labels that hardly repeat are values, or another column."""
    labels = [f"intent{i}" for i in range(1200)]
    found = examples.find_labels(labeled(*labels * 2), CLASSIFICATION)
    assert found == sorted(labels)
    with pytest.raises(errors.InputError, match="1200 different labels in 12"):
        examples.find_labels(labeled(*labels), CLASSIFICATION)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "nan"] * 9, "t.csv: 'nan' is taken for a label like others"),
        (["Yes", "no", "yes"] * 9, "t.csv: 'Yes' and 'yes' are taken for dif"),
        (["1", "01", "2"] * 9, "t.csv: '01' and '1' are taken for different"),
        (["1", "0", "true"] * 9, "t.csv: '1' and 'true' are taken for diff"),
        (["0.5", "0.50"] * 9, "t.csv: '0.5' and '0.50' are taken for diff"),
        (["a", "a\u200b"] * 9, r"t.csv: 'a' and 'a\u200b' are taken for di"),
        (["\xe9", "e\u0301"] * 9, r"t.csv: 'e\u0301' and '\xe9' are taken f"),
        (["\xe9", "\xc9"] * 9, "t.csv: '\xc9' and '\xe9' are taken for dif"),
        (
            list("abcdefghijklm"),
            "t.csv: 13 different labels in 13 examples: is",
        ),
        (["a", "b", "none"] * 9, ""),
        (["a", "b", r"\N"] * 9, r"t.csv: '\\N' is taken for a label like oth"),
        (["a", "b", "-"] * 9, "t.csv: '-' is taken for a label like others"),
        (["0", "1", "2", "-1"] * 9, "t.csv: '-1' is taken for a label like"),
        (["0", "1", "-1"] * 9, ""),
        (["0.5", "1", "2"] * 9, "t.csv: 0.5 is taken for the name of a class"),
        (["1.0", "2", "3"] * 9, ""),
        (["0.5", "1", "other"] * 9, ""),
        (["nan", "1", "2"] * 9, "t.csv: 'nan' is taken for a label like"),
        (["a", "b", "a,b"] * 9, "t.csv: 'a,b' is taken for the name of one"),
        (["a", "b", "b | a"] * 9, "t.csv: 'b | a' is taken for the name of"),
        (["['a', 'b']", "['a']"] * 9, "t.csv: \"['a', 'b']\" is taken for the"),
        (["Arts, Film", "Arts, Music", "Film"] * 9, ""),
        (["(other)", "a/b", "a"] * 9, ""),
    ],
)
def test_labels_that_are_probably_mistakes_are_logged(caplog, labels, message):
    with caplog.at_level("WARNING", logger="absl"):
        examples.find_labels(labeled(*labels), CLASSIFICATION)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(message)
    assert not message or lines[0].startswith(message)


def table(*texts):
    """Examples of single texts."""
    rows = [
        examples.Example("t.csv", i, str(i), text, (), "a")
        for i, text in enumerate(texts, 2)
    ]
    return examples.Examples(lambda: rows, "t.csv")


def test_equal_texts_are_held_out_together():
    """In the order of the table, and as the seed says."""
    texts = [f"text {i // 2}" for i in range(200)]
    texts[1::2] = [f" Text  {i}" for i in range(100)]
    parts = [examples.divide(table(*texts), 0.1, seed) for seed in (1, 1, 2)]
    found = [[[x.line for x in part] for part in pair] for pair in parts]
    assert found[0] == found[1] != found[2]
    kept, held_out = found[0]
    assert sorted(kept + held_out) == list(range(2, 202))
    assert [kept, held_out] == [sorted(kept), sorted(held_out)]
    assert len(held_out) == 20
    words = [{x.first.split()[1] for x in part} for part in parts[0]]
    assert words[0].isdisjoint(words[1])


def test_a_single_text_cannot_be_divided():
    with pytest.raises(errors.InputError, match=r"t\.csv: 1 different text"):
        examples.divide(table("a", "A", "a "), 0.5, 1)
