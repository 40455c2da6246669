"""Tests that exported models give the commands' results over HTTP.

python -m pytest tests/export/served_exports_test.py
"""

import asyncio

import exports
import pytest
from aiohttp import test_utils

from export import api, servable, server

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
}


@pytest.mark.parametrize(
    "task",
    [
        "classification",
        "question_answering",
        "fill_mask",
        pytest.param("token_classification", marks=pytest.mark.all),
    ],
)
def test_answers_are_those_of_the_python_api(task, tiny_models, tmp_path):
    model_dir = str(tiny_models / task)
    length = 24
    exported = exports.export(
        model_dir, tmp_path / "exported", max_seq_length=length
    )
    model = servable.Servable("m", str(exported))
    model.warm_up()
    assert model.task == task

    async def use():
        app = server.Server({"m": model}).app
        async with test_utils.TestClient(test_utils.TestServer(app)) as client:
            path = "/v1/models/m:predict"
            # All together, and at the same time one by one.
            bodies = [INPUTS[task], *([row] for row in INPUTS[task])]
            pending = [client.post(path, json={"instances": x}) for x in bodies]
            found = await asyncio.gather(*pending)
            return [(await x.json())["predictions"] for x in found]

    together, *single = asyncio.run(use())
    loaded = api.load(model_dir, max_seq_length=length)
    rows = [tuple(row.values()) for row in INPUTS[task]]
    if len(rows[0]) == 1:
        rows = [row[0] for row in rows]
    expected = loaded.predict(rows)
    for found in (together, [x for row in single for x in row]):
        check = globals()[f"check_{task}"]
        for one, other in zip(found, expected, strict=True):
            check(one, other)


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
