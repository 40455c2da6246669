"""Tests that exported models give the commands' results over HTTP.

python -m pytest tests/serving/served_exports_test.py
"""

import asyncio
import base64
import functools
import itertools
import re

import exports
import pytest
import tensorflow as tf
from aiohttp import test_utils

from serving import api, servable, server, tensorflow_engine

CONTEXT = "Mary lives in Paris. \U0001f600 The cat sat on the mat."
# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
# Texts of different lengths, so that a request becomes several batches.
TEXTS = [CONTEXT, "the cat", "x " * 300, "", f"{CONTEXT} " * 3]
INPUTS = {
    "classification": [{"text": text} for text in TEXTS],
    "token_classification": [{"text": text} for text in TEXTS],
    "question_answering": [
        {"question": "Who lives?", "context": text} for text in TEXTS
    ],
    "fill_mask": [{"text": f"{x}[MASK] a [MASK]"} for x in ("the cat ", "")],
    "regression": [{"text": "the cat"}, {"text": CONTEXT}],
    "multilabel": [{"text": "the cat"}, {"text": CONTEXT}],
    "sentence_embedding": [{"text": "the cat"}, {"text": CONTEXT}],
    "multiple_choice": [
        {"context": "the cat", "endings": ["sat", "mat"]},
        {"context": "", "endings": ["x", "lives in Paris"]},
    ],
}
SLOW = (
    "token_classification",
    "regression",
    "multilabel",
    "sentence_embedding",
    "question_answering",
)
LENGTH = 24
HUB_NAMES = ("input_word_ids", "input_mask", "input_type_ids")
NAMES = ("input_ids", "input_mask", "segment_ids")
SIGNATURES = (
    "serving_default",
    "serve",
    "serve_examples",
    "serve_text_examples",
)
# Those that take ids.
ID_SIGNATURES = (("serve", HUB_NAMES), ("serve_examples", NAMES))
# The other signatures of other tasks are slow proofs.
QUICK = [
    ("fill_mask", "serving_default"),
    *itertools.product(("classification", "multiple_choice"), SIGNATURES),
]


def tasks(*names):
    """Returns parameters of a test."""
    marks = [pytest.mark.all]
    return [
        pytest.param(x, marks=marks) if x in SLOW else x
        for x in names or INPUTS
    ]


@pytest.fixture(scope="module")
def served(tiny_models, tmp_path_factory):
    """A function that exports and loads the model of a task, once."""
    folder = tmp_path_factory.mktemp("exported")

    @functools.cache
    def load(task):
        is_embedding = task == "sentence_embedding"
        exported = exports.export(
            tiny_models / ("fill_mask" if is_embedding else task),
            folder / task,
            max_seq_length=LENGTH,
            task=task if is_embedding else None,
        )
        return servable.load("m", str(exported), tensorflow_engine.ENGINE)

    return load


def post(model, *requests):
    """Sends requests at the same time; returns statuses and bodies."""

    async def use():
        # Enough beside any other load of the machine.
        limits = server.Limits(request_timeout=600)
        running = test_utils.TestServer(server.Server({"m": model}, limits).app)
        async with test_utils.TestClient(running) as client:
            path = "/v1/models/m:predict"
            pending = [client.post(path, json=x) for x in requests]
            found = await asyncio.gather(*pending)
            return [(x.status, await x.json()) for x in found]

    return asyncio.run(use())


@pytest.mark.parametrize(
    "task",
    tasks(
        "classification",
        "question_answering",
        "fill_mask",
        "token_classification",
    ),
)
def test_answers_are_those_of_the_python_api(task, served, tiny_models):
    model = served(task)
    model.warm_up()
    assert model.task == task
    # All together, and at the same time one by one.
    bodies = [INPUTS[task], *([row] for row in INPUTS[task])]
    found = post(model, *({"instances": x} for x in bodies))
    together, *single = (body["predictions"] for _, body in found)
    model_dir = str(tiny_models / task)
    loaded = api.load(model_dir, max_seq_length=LENGTH)
    rows = [tuple(row.values()) for row in INPUTS[task]]
    if len(rows[0]) == 1:
        rows = [row[0] for row in rows]
    expected = loaded.predict(rows)
    for found in (together, [x for row in single for x in row]):
        check = globals()[f"check_{task}"]
        for one, other in zip(found, expected, strict=True):
            check(one, other)


def serialized(values):
    """Returns a tf.Example."""
    features = {}
    for name, found in values.items():
        found = found if isinstance(found, list) else [found]
        if found and isinstance(found[0], str):
            texts = [text.encode() for text in found]
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
        else:
            value = tf.train.Feature(int64_list=tf.train.Int64List(value=found))
        features[name] = value
    features = tf.train.Features(feature=features)
    return tf.train.Example(features=features).SerializeToString()


def example(values):
    """Returns a tf.Example in the form of a request."""
    return {"b64": base64.b64encode(serialized(values)).decode()}


def token_row(task, names, **changed):
    """Returns a row of token ids; of multiple choice, with two choices."""
    row = dict.fromkeys(names, [1] * LENGTH) | changed
    if task == "multiple_choice" and names == HUB_NAMES:
        row = {k: [[1] * len(v), v] for k, v in row.items()}
    elif task == "multiple_choice":
        row = {k: [1] * LENGTH + v for k, v in row.items()}
    return row


def is_prefix(short, long):
    """Returns whether values by column are those by row, and padding."""
    if isinstance(short, list):
        pairs = zip(short, long, strict=False)
        return len(short) <= len(long) and all(is_prefix(*x) for x in pairs)
    return long == (close(short) if isinstance(short, float) else short)


@pytest.mark.parametrize(
    "task, signature",
    [
        pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.all)
        for pair in itertools.product(INPUTS, SIGNATURES)
    ],
)
def test_all_forms_of_a_request_are_answered(task, signature, served):
    rows = INPUTS[task]
    if signature == "serve":
        rows = [token_row(task, HUB_NAMES)] * 2
    elif signature == "serve_examples":
        rows = [{"examples": example(token_row(task, NAMES))}] * 2
    elif signature == "serve_text_examples":
        rows = [{"examples": example(row)} for row in rows]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    requests = [{"instances": rows}, {"inputs": columns}]
    if len(columns) == 1:
        (values,) = columns.values()
        requests += [{"instances": values}, {"inputs": values}]
    requests = [x | {"signature_name": signature} for x in requests]
    found = post(served(task), *requests)
    assert [status for status, _ in found] == [200] * len(requests), found
    expected = found[0][1]["predictions"]
    for request, (_, body) in zip(requests, found, strict=True):
        outputs = body["predictions" if "instances" in request else "outputs"]
        if isinstance(outputs, dict):
            names, values = outputs.keys(), zip(*outputs.values(), strict=True)
            outputs = [dict(zip(names, x, strict=True)) for x in values]
        assert len(outputs) == len(expected) == len(rows)
        for row, by_row in zip(outputs, expected, strict=True):
            if not isinstance(row, dict):
                row, by_row = {"": row}, {"": by_row}
            assert row.keys() == by_row.keys()
            assert all(is_prefix(by_row[name], row[name]) for name in row)


LAST = len(exports.WORDS) - 1
# Changes of the first, second or third input of a row, and the line.
BAD_ROWS = [
    ({0: [-1] * LENGTH}, rf"{{0}}: {{row}}: -1 is not from 0 to {LAST}"),
    ({0: [1, LAST + 1] * 12}, rf"{{0}}: {{row}}: {LAST + 1} is not from 0 to"),
    ({1: [1] * 23 + [2]}, "{1}: {row}: 2 is not from 0 to 1"),
    ({2: [0, -1] * 12}, "{2}: {row}: -1 is not from 0 to 1"),
]
LENGTHS = [
    ({0: [1] * 600, 1: [1] * 600, 2: [1] * 600}, "{0}: row 1: 600 ids, .* 48"),
    ({0: [], 1: [], 2: []}, "{0}: row 1: 0 ids, not from 1 to 48"),
    # Such a row ended the process.
    ({1: []}, "{1}: row 1: 0 values, but {0} has 24"),
    ({2: [1] * 25}, "{2}: row 1: 25 values, but {0} has 24"),
]


@pytest.mark.parametrize("task", ["classification", "multiple_choice"])
def test_ids_that_the_model_does_not_have_are_refused(task, served):
    model, requests, expected = served(task), [], []

    def add(signature, rows, line, names):
        if signature == "serve_examples":
            rows = [{"examples": example(row)} for row in rows]
        requests.append({"signature_name": signature, "instances": rows})
        place = "row 1, choice 1" if task == "multiple_choice" else "row 1"
        expected.append(line.format(*names, row=place))

    for changed, line in BAD_ROWS:
        for signature, names in ID_SIGNATURES:
            changes = {names[i]: values for i, values in changed.items()}
            good, bad = (
                token_row(task, names),
                token_row(task, names, **changes),
            )
            add(signature, [good, bad, good], line, names)
    if task == "classification":
        for changed, line in LENGTHS:
            changes = {NAMES[i]: values for i, values in changed.items()}
            good, bad = (
                token_row(task, NAMES),
                token_row(task, NAMES, **changes),
            )
            add("serve_examples", [good, bad], line, NAMES)
            # Rows of one request are lists of one length.
            changes = {HUB_NAMES[i]: values for i, values in changed.items()}
            row = token_row(task, HUB_NAMES, **changes)
            line = line.replace("row 1", "row 0")
            add("serve", [row], line, HUB_NAMES)
    else:
        empty = dict.fromkeys(HUB_NAMES, [])
        add("serve", [empty], "{0}: row 0: 0 choices, at least 1", HUB_NAMES)
        row = dict.fromkeys(NAMES, [1] * 25)
        add("serve_examples", [row], "{0}: row 0: 25 ids, not 24 for", NAMES)
        row = {"context": "the", "endings": []}
        add("serving_default", [row], "endings: row 0: 0 endings, at", NAMES)
    found = post(model, *requests)
    for (status, body), line in zip(found, expected, strict=True):
        assert status == 400 and re.match(line, body["error"]), (line, body)
        assert "\n" not in body["error"]


def test_the_saved_model_itself_refuses_ids(served):
    model = served("classification")
    row = token_row("classification", HUB_NAMES, input_word_ids=[1000] * LENGTH)
    tensors = {k: tf.constant([[1] * LENGTH, v]) for k, v in row.items()}
    line = rf"\[input_word_ids: row 1: 1000 is not from 0 to {LAST}\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=line):
        model.model.functions["serve"](**tensors)


def rows_of_choices(signature):
    """Returns a row of two choices, and one of one."""
    endings, ids = ["cat", "mat"], [1] * LENGTH
    if signature == "serve_examples":
        return [dict.fromkeys(NAMES, ids * count) for count in (2, 1)]
    return [{"context": "the", "endings": endings[:n]} for n in (2, 1)]


@pytest.mark.parametrize(
    ("signature", "name", "output", "shape"),
    [
        ("serve_text_examples", "endings", "choice", [1]),
        ("serve_examples", "input_ids", "logits", [1, 2]),
    ],
)
def test_each_row_needs_the_same_number_of_choices(
    served, signature, name, output, shape
):
    predict = served("multiple_choice").model.functions[signature]
    rows = tf.constant([serialized(x) for x in rows_of_choices(signature)])
    assert predict(examples=rows[:1])[output].shape == shape
    line = f"{name}: row 1: 1 choices, .* has 2"
    with pytest.raises(tf.errors.InvalidArgumentError, match=line):
        predict(examples=rows)


@pytest.mark.parametrize("task", ["classification", "multiple_choice"])
def test_no_rows_have_no_results(task, served):
    """Also if other axes have no elements."""
    for function in served(task).model.functions.values():
        tensors = {
            name: tf.zeros([0] * spec.shape.rank, spec.dtype)
            for name, spec in function.structured_input_signature[1].items()
        }
        assert all(x.shape[0] == 0 for x in function(**tensors).values())


def test_a_refused_row_has_its_number_and_fails_no_other_request(served):
    model, task = served("classification"), "classification"
    good = token_row(task, NAMES)
    bad = token_row(task, NAMES, input_ids=[-5] * LENGTH)
    # A short record is computed before a longer one.
    short = {name: [1] for name in NAMES}
    rows = [[bad, short], [good] * 40 + [bad], [good, short], [good]] * 2
    requests = [
        {
            "signature_name": "serve_examples",
            "instances": [example(row) for row in request],
        }
        for request in rows
    ]
    found = post(model, *requests)
    assert [status for status, _ in found] == [400, 400, 200, 200] * 2
    lines = [body["error"] for status, body in found if status == 400]
    expected = ["row 0: -5 is", "row 40: -5 is"] * 2
    assert all(x in y for x, y in zip(expected, lines, strict=True)), lines


@pytest.mark.parametrize(
    "signature, record, line",
    [
        ("serve_examples", b"no record \xff\n", "examples: row 1: .*tf.Exam"),
        ("serve_text_examples", b"no record", "examples: row 1: .*tf.Example"),
        ("serve_examples", {"input_ids": ["a"]}, "input_ids: row 1: .*int64"),
        ("serve_examples", {}, "input_ids: row 1: 0 ids"),
        ("serve_text_examples", {}, "text: row 1: 0 texts instead of one"),
        ("serve_text_examples", {"text": [1]}, "text: row 1: .*string"),
        ("serve_text_examples", {"text": ["a", "b"]}, "text: row 1: 2 texts"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(signature, record, line, served):
    good = token_row("classification", NAMES)
    if signature == "serve_text_examples":
        good = {"text": "the cat"}
    if isinstance(record, bytes):
        bad = {"b64": base64.b64encode(record).decode()}
    else:
        bad = example(record)
    request = {"signature_name": signature, "instances": [example(good), bad]}
    ((status, body),) = post(served("classification"), request)
    assert status == 400 and re.match(line, body["error"]), body
    assert "\n" not in body["error"]


@pytest.mark.parametrize("task", tasks())
def test_odd_texts_are_answered(task, served):
    requests = []
    for name, value in INPUTS[task][0].items():
        for text in ("", "   ", "\0", {"b64": "/w=="}, "x" * 3000):
            odd = [text] * len(value) if isinstance(value, list) else text
            rows = [INPUTS[task][0] | {name: odd}]
            requests += [
                {"instances": rows},
                {"instances": INPUTS[task] + rows},
            ]
    found = post(served(task), *requests)
    assert {status for status, _ in found} == {200}, found


def close(values):
    return pytest.approx(values, abs=1e-5)


def check_classification(found, expected):
    assert found["label"] == expected.label
    assert found["score"] == close(expected.score)
    assert found["labels"] == list(expected.probabilities)
    assert found["probabilities"] == close(
        list(expected.probabilities.values())
    )


def check_token_classification(found, expected):
    assert found["entity"] == [x.text for x in expected]
    assert found["entity_type"] == [x.type for x in expected]
    assert found["start"] == [x.start for x in expected]
    assert found["end"] == [x.end for x in expected]
    assert found["score"] == close([x.score for x in expected])


def check_question_answering(found, expected):
    assert found["answer"] == expected.answer
    assert (found["start"], found["end"]) == (expected.start, expected.end)
    assert found["score"] == close(expected.score)
    texts, scores = zip(*expected.answers, strict=True)
    # The released list of a question without a span.
    assert found["answers"] == ([""] if texts == ("empty",) else [*texts])
    assert found["scores"] == close([*scores])


def check_fill_mask(found, expected):
    assert found["words"] == [[x.word for x in mask] for mask in expected]
    for values, mask in zip(found["probabilities"], expected, strict=True):
        assert values == close([x.probability for x in mask])
