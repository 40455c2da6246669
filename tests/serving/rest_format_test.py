"""Tests that requests are parsed and answered as TensorFlow Serving does.

python -m pytest tests/serving/rest_format_test.py
"""

import json
import types

import numpy as np
import pytest

from foundation import errors
from serving import rest_format, served_model

_TEXT = served_model.Spec((), np.dtype(object))
TEXT = {"text": _TEXT}
PAIR = {**TEXT, "text_pair": _TEXT}
ENDINGS = {
    "context": _TEXT,
    "endings": served_model.Spec((None,), np.dtype(object)),
}
NUMBERS = {
    "a": served_model.Spec((2,), np.dtype(np.int32)),
    "b": served_model.Spec((), np.dtype(np.float32)),
}


def parse(request, inputs, name="serving_default"):
    body = request if isinstance(request, str) else json.dumps(request)
    signature = types.SimpleNamespace(inputs=inputs)
    return rest_format.parse(body.encode(), {name: signature})


@pytest.mark.parametrize(
    "request_, inputs",
    [
        ({"instances": ["a", "b\u00e9"]}, TEXT),
        ({"instances": [{"text": "a"}, {"text": "b\u00e9"}]}, TEXT),
        ({"inputs": ["a", "b\u00e9"]}, TEXT),
        ({"inputs": {"text": ["a", "b\u00e9"]}}, TEXT),
        ({"inputs": ["a", {"b64": "YsOp"}]}, TEXT),
        ({"instances": ["a", {"b64": "YsOp"}]}, TEXT),
    ],
)
def test_one_input_has_a_name_or_none(request_, inputs):
    parsed = parse(request_, inputs)
    assert parsed.inputs["text"].tolist() == [b"a", b"b\xc3\xa9"]
    assert parsed.by_row == ("instances" in request_)


def test_several_inputs_are_given_by_row_or_by_column():
    rows = [{"context": "c", "endings": ["x", "y"]}] * 3
    columns = {"context": ["c"] * 3, "endings": [["x", "y"]] * 3}
    lists = [["c", ["x", "y"]]] * 3
    for request in (
        {"instances": rows},
        {"instances": lists},
        {"inputs": columns},
    ):
        inputs = parse(request, ENDINGS).inputs
        assert inputs["context"].tolist() == [b"c"] * 3
        assert inputs["endings"].tolist() == [[b"x", b"y"]] * 3
    row = {"a": [1, 2], "b": 0.5}
    inputs = parse({"instances": [row]}, NUMBERS).inputs
    assert inputs["a"].dtype == np.int32 and inputs["b"].dtype == np.float32


def test_another_signature_is_called_by_its_name():
    request = {"signature_name": "serve", "instances": ["a"]}
    assert parse(request, TEXT, "serve").signature_name == "serve"
    with pytest.raises(errors.InputError, match="signature_name"):
        parse(request, TEXT)


@pytest.mark.parametrize(
    "request_, inputs, message",
    [
        ("{bad", TEXT, "JSON is malformed"),
        ("[" * 100000, TEXT, "the request: "),
        ("1" * 10000, TEXT, "out of range"),
        ([1], TEXT, "Expected `object`, got `array`"),
        ({}, TEXT, 'either "instances" or "inputs"'),
        ({"instances": [], "inputs": []}, TEXT, "either"),
        ({"instances": ["a"], "more": 1}, TEXT, "unknown field `more`"),
        ({"instances": "a"}, TEXT, r"got `str` - at `\$.instances`"),
        ({"instances": []}, TEXT, "no rows"),
        ('{"instances": [NaN]}', TEXT, "malformed"),
        ({"instances": [1]}, TEXT, "text: row 0: .*`str.*got `int`"),
        ({"instances": ["a", None]}, TEXT, "text: row 1: .*got `null`"),
        ({"instances": [["a"]]}, TEXT, "got `array`"),
        ({"instances": ["\ud800"]}, TEXT, "the request: "),
        ({"instances": [{"b64": "%"}]}, TEXT, "row 0: .*base64"),
        ({"inputs": "a"}, TEXT, "text: .*`array`, got `str`"),
        ({"instances": ["a"]}, PAIR, r"instances\[0\]: .*text_pair"),
        ({"instances": [{"text": "a"}]}, PAIR, "text_pair"),
        (
            {"instances": [["a", "b", "c"]]},
            PAIR,
            r"instances\[0\]: .*text_pair",
        ),
        ({"inputs": ["a"]}, PAIR, "text_pair"),
        ({"inputs": {"text": ["a"], "text_pair": []}}, PAIR, "differ"),
        (
            {"inputs": {"context": ["a"], "endings": ["x"]}},
            ENDINGS,
            "endings: row 0: Expected `array`, got `str`",
        ),
        (
            {"inputs": {"context": ["a"] * 2, "endings": [["x"], []]}},
            ENDINGS,
            "endings: row 1: the lists differ in length",
        ),
        (
            {"inputs": {"a": [[1, 2.5]], "b": [1]}},
            NUMBERS,
            "a: row 0: .*`int`, got `float`",
        ),
        ({"inputs": {"a": [[1, True]], "b": [1]}}, NUMBERS, "got `bool`"),
        (
            {"inputs": {"a": [[1, 2], [1, 2**31]], "b": [1, 1]}},
            NUMBERS,
            "a: row 1: .* <= 2147483647",
        ),
        ({"inputs": {"a": [[1, 2]], "b": [10**400]}}, NUMBERS, "out of range"),
        ({"signature_name": 0, "instances": ["a"]}, TEXT, "signature_name"),
        ({"inputs": {"a": [[1, 2, 3]], "b": [1]}}, NUMBERS, "shape"),
        ({"inputs": {"a": [[1, 2]], "b": ["1"]}}, NUMBERS, "b: row 0: "),
    ],
)
def test_a_request_that_does_not_fit_gets_one_line(request_, inputs, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        parse(request_, inputs)
    assert "\n" not in str(caught.value)


FORMS = {
    "entity": served_model.TEXTS,
    "start": served_model.PLACES,
    "words": served_model.Spec((None, None), np.dtype(object)),
    "text": served_model.TEXTS,
    "score": served_model.FLOAT,
    "logits": served_model.Spec((None, 2), np.dtype(np.float32)),
}


def answer(rows, **options):
    return json.loads(rest_format.response(rows, FORMS, **options))


def objects(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_one_output_has_no_name():
    rows = [{"score": 0.5}, {"score": np.float32(2)}]
    assert answer(rows, by_row=True) == {"predictions": [0.5, 2]}
    assert answer(rows, by_row=False) == {"outputs": [0.5, 2]}


def test_rows_have_no_padding_and_columns_do():
    rows = [
        {"entity": ["Jim"], "start": [3], "words": [["a", "b"]], "score": 1.5},
        {"entity": [], "start": [], "words": [], "score": 2.0},
        {"entity": ["A", "B"], "start": [0, 5], "words": [], "score": 0.5},
    ]
    assert answer(rows, by_row=True) == {"predictions": rows}
    assert answer(rows, by_row=False)["outputs"] == {
        "entity": [["Jim", ""], ["", ""], ["A", "B"]],
        "start": [[3, -1], [-1, -1], [0, 5]],
        "words": [[["a", "b"]], [["", ""]], [["", ""]]],
        "score": [1.5, 2.0, 0.5],
    }


def test_arrays_of_other_batches_are_padded_to_the_longest():
    rows = [
        {"text": objects(b"a", b"b"), "logits": np.ones([1, 2], np.float32)},
        {"text": objects(b"c"), "logits": np.ones([2, 2], np.float32)},
    ]
    assert answer(rows, by_row=False)["outputs"] == {
        "text": [["a", "b"], ["c", ""]],
        "logits": [[[1, 1], [0, 0]], [[1, 1], [1, 1]]],
    }


def test_bytes_that_are_not_utf8_are_base64():
    rows = [{"text": np.array(b"\xff", object)}]
    assert answer(rows, by_row=True) == {"predictions": [{"b64": "/w=="}]}
