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
    for request in ({"instances": rows}, {"inputs": columns}):
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
        ("{bad", TEXT, "not JSON"),
        ("[" * 100000, TEXT, "not JSON"),
        ("1" * 10000, TEXT, "not JSON"),
        ([1], TEXT, "not a JSON object"),
        ({}, TEXT, 'either "instances" or "inputs"'),
        ({"instances": [], "inputs": []}, TEXT, "either"),
        ({"instances": ["a"], "more": 1}, TEXT, "'more' is unknown"),
        ({"text": ["a"]}, TEXT, "'text' .* inputs, instances, signature_name"),
        ({"instances": "a"}, TEXT, "not a list"),
        ({"instances": []}, TEXT, "no rows"),
        ({"instances": [1]}, TEXT, "text: row 0: 1 is no text"),
        ({"instances": ["a", None]}, TEXT, "text: row 1: null is no text"),
        ({"instances": [["a"]]}, TEXT, "a list is no text"),
        ({"instances": ["\ud800"]}, TEXT, "surrogate"),
        ({"instances": [{"b64": "%"}]}, TEXT, "base64"),
        ({"inputs": "a"}, TEXT, "text: must be a list of rows"),
        ({"instances": ["a"]}, PAIR, r"instances\[0\]: .*text_pair"),
        ({"instances": [{"text": "a"}]}, PAIR, "text_pair"),
        ({"inputs": ["a"]}, PAIR, "text_pair"),
        ({"inputs": {"text": ["a"], "text_pair": []}}, PAIR, "differ"),
        (
            {"inputs": {"context": ["a"], "endings": ["x"]}},
            ENDINGS,
            "endings: needs lists nested 2 deep",
        ),
        (
            {"inputs": {"context": ["a"] * 2, "endings": [["x"], []]}},
            ENDINGS,
            "endings: row 1: the lists differ in length",
        ),
        (
            {"inputs": {"a": [[1, 2.5]], "b": [1]}},
            NUMBERS,
            "a: row 0: 2.5 is no int32",
        ),
        ({"inputs": {"a": [[1, True]], "b": [1]}}, NUMBERS, "true is no int32"),
        (
            {"inputs": {"a": [[1, 2], [1, 2**31]], "b": [1, 1]}},
            NUMBERS,
            "a: row 1: 2147483648 is too large for int32, .* to 2147483647",
        ),
        (
            {"inputs": {"a": [[1, 2]], "b": [10**400]}},
            NUMBERS,
            "b: row 0: .*too large",
        ),
        (
            {"signature_name": 0, "instances": ["a"]},
            TEXT,
            "signature_name must be",
        ),
        ({"inputs": {"a": [[1, 2, 3]], "b": [1]}}, NUMBERS, "shape"),
        ({"inputs": {"a": [[1, 2]], "b": ["1"]}}, NUMBERS, "is no float32"),
    ],
)
def test_a_request_that_does_not_fit_gets_one_line(request_, inputs, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        parse(request_, inputs)
    assert "\n" not in str(caught.value)


def answer(rows, **options):
    return json.loads(rest_format.response(rows, **options))


def objects(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_one_output_has_no_name():
    rows = {"score": [np.float32(0.5), np.float32(2)]}
    assert answer(rows, by_row=True) == {"predictions": [0.5, 2]}
    assert answer(rows, by_row=False) == {"outputs": [0.5, 2]}


@pytest.mark.parametrize("task", ["token_classification", "fill_mask"])
def test_other_signatures_have_no_padding(task):
    rows = {"logits": [np.ones([3, 2])]}
    found = answer(rows, by_row=True, task=task)
    assert found == {"predictions": [[[1, 1]] * 3]}


def test_padding_depends_only_on_the_request():
    rows = {
        "entity": [objects(b"Jim", b""), objects(b"", b"")],
        "start": [np.array([3, -1]), np.array([-1, -1])],
    }
    task = "token_classification"
    assert answer(rows, by_row=True, task=task)["predictions"] == [
        {"entity": ["Jim"], "start": [3]},
        {"entity": [], "start": []},
    ]
    assert answer(rows, by_row=False, task=task)["outputs"] == {
        "entity": [["Jim"], [""]],
        "start": [[3], [-1]],
    }


def test_answers_do_not_depend_on_the_longest_list_of_a_batch():
    rows = {
        "answer": [np.array(b"", object), np.array(b"red", object)],
        "answers": [objects(b"a", b"", b"b"), objects(b"red", b"", b"")],
        "scores": [np.array([0.5, 0.3, 0.2]), np.array([0.75, 0.25, 0])],
    }
    task = "question_answering"
    # The second "" is padding.
    assert answer(rows, by_row=True, task=task)["predictions"] == [
        {"answer": "", "answers": ["a", "", "b"], "scores": [0.5, 0.3, 0.2]},
        {"answer": "red", "answers": ["red", ""], "scores": [0.75, 0.25]},
    ]
    logits = [np.array([0.5, 0, 0.5, 0]), np.array([0.25, 0, 0, 0])]
    rows = {"start_logits": logits, "end_logits": logits[::-1]}
    found = answer(rows, by_row=True, task=task)["predictions"]
    assert [len(row["start_logits"]) for row in found] == [3, 3]


def test_rows_of_different_batches_are_padded_to_the_longest():
    words = [objects(b"a", b"b")[None], np.empty([0, 2], object)]
    probabilities = [np.array([[0.75, 0.25]]), np.zeros([0, 2])]
    rows = {"words": words, "probabilities": probabilities}
    assert answer(rows, by_row=False, task="fill_mask")["outputs"] == {
        "words": [[["a", "b"]], [["", ""]]],
        "probabilities": [[[0.75, 0.25]], [[0, 0]]],
    }


def test_texts_by_column_are_texts():
    rows = {
        "label": [np.array(b"good", object), np.array(b"", object)],
        "score": [np.float32(0.5), np.float32(2)],
    }
    found = answer(rows, by_row=False, task="classification")
    assert found == {"outputs": {"label": ["good", ""], "score": [0.5, 2]}}


def test_a_value_of_many_lists_is_refused():
    # As deep as the parser reads, which differs between versions of Python.
    for depth in range(900, 1000, 5):
        body = '{"instances": [%s]}' % ("[" * depth + "]" * depth)
        with pytest.raises(errors.InputError):
            parse(body, TEXT)


def test_bytes_that_are_not_utf8_are_base64():
    rows = {"text": [np.array(b"\xff", object)]}
    assert answer(rows, by_row=True) == {"predictions": [{"b64": "/w=="}]}
