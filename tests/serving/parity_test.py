"""Every way out gives the same results: Python, SavedModel, ONNX and HTTP.

python -m pytest tests/serving/parity_test.py

api_test.py compares Python with the commands.
"""

import asyncio
import json
import shutil

import exports
import numpy as np
import pytest
import tensorflow as tf
from aiohttp import test_utils

from foundation import errors
from modeling import models
from serving import api, exported, servable, server, tensorflow_engine

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from serving import onnx_engine  # noqa: E402

# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
LENGTH = 24
TEXTS = [text.replace("\0", " ") for text in exports.TEXTS]
CONTEXTS = [
    *TEXTS,
    "Mary  sat\n(in 'Paris'), the cats' mat... \u05e9\u05dc\u05d5\u05dd "
    "bab-b abb xaxa! " * 9,
    "caca\u4e2d\u6587\u4e2d\u6587\u4e2d cabab\u3000aabaab ab\u202fabab " * 6,
    "I\u0307stanbul caf\u00e9 \u00bd the \u200bca\u0301t\u0301 \ufb01 " * 5,
    "bb'bb ab-ab caf\u00e9!?\u00a0 the\u00a0cat \u2192 the\u200bmat.",
    "\u0939\u093f\u0928\u094d\u0926\u0940 the "  # Hindi.
    "\u0e01\u0e33\u0e25\u0e31\u0e07mat "  # Thai.
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd "  # Hebrew, with points.
    "\u1112\u1161\u11ab\ud55c \U0001f600\U0001f3fdcat",
]
# Name -> task, flags of export_model.py, and items of `predict`.
CASES = {
    "classification": ("classification", {}, TEXTS),
    "pairs": (
        "classification",
        {"text_pair": "true"},
        list(zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True)),
    ),
    "windows": ("windows", {}, TEXTS),
    "regression": ("regression", {}, TEXTS[:4]),
    "multilabel": ("multilabel", {}, TEXTS[:4]),
    "multiple_choice": (
        "multiple_choice",
        {},
        [("the cat", TEXTS[:3]), ("", ["x", "lives in Paris", ""])],
    ),
    "question_answering": (
        "question_answering",
        {"doc_stride": 8},
        [(x, y) for x in ("Who sat on the mat?", "") for y in CONTEXTS],
    ),
    "no_answers": (
        "question_answering",
        {
            "version_2_with_negative": "true",
            "null_score_diff_threshold": 0.5,
            "exact_answers": "true",
            "n_best_size": 3,
        },
        [("Who?", y) for y in CONTEXTS],
    ),
    "token_classification": ("token_classification", {}, CONTEXTS),
    "crf": ("crf", {"document_context": "maximal"}, CONTEXTS),
    "fill_mask": (
        "fill_mask",
        {"top_k": 4},
        ["the cat [MASK] on the [MASK].", "[MASK]", "\U0001f600[MASK][MASK]"],
    ),
    "sentence_embedding": ("sentence_embedding", {"pooling": "mean"}, TEXTS),
}
QUICK = ("pairs", "multiple_choice", "question_answering", "fill_mask")
ENGINES = {"saved_model": tensorflow_engine.ENGINE, "onnx": onnx_engine.make(1)}


@pytest.fixture(scope="module")
def model_dirs(tiny_models, tmp_path_factory):
    """A function that returns the model directory of a case's task."""
    folder = tmp_path_factory.mktemp("crf")
    exports.save_model(
        folder,
        models.TaggingModel,
        num_classes=len(exports.TAGS),
        labels=exports.TAGS,
    )
    count, random = len(exports.TAGS), np.random.default_rng(3)
    scores = {
        "labels": exports.TAGS,
        "transitions": random.normal(0, 3, (count, count)).tolist(),
        "start": random.normal(0, 3, count).tolist(),
        "end": random.normal(0, 3, count).tolist(),
    }
    (folder / "crf.json").write_text(json.dumps(scores))

    windows = folder / "windows"
    shutil.copytree(tiny_models / "classification", windows)
    flags = {"do_train": True, "task_name": "csv", "long_texts": "max"}
    (windows / "run_config.json").write_text(json.dumps(flags))

    def of(task):
        if task == "crf":
            return folder
        if task == "windows":
            return windows
        is_encoder = task == "sentence_embedding"
        return tiny_models / ("fill_mask" if is_encoder else task)

    return of


@pytest.fixture(scope="module")
def export(model_dirs, tmp_path_factory):
    """A function that exports a case, once in each form."""
    folder, done = tmp_path_factory.mktemp("exported"), {}

    def export(case, form):
        if (case, form) not in done:
            task, flags, _ = CASES[case]
            if task == "sentence_embedding":
                flags = flags | {"task": task}
            done[case, form] = exports.export(
                model_dirs(task),
                folder / f"{case}-{form}",
                format=form,
                max_seq_length=LENGTH,
                **flags,
            )
        return str(done[case, form])

    return export


def in_python(model_dir, task, flags):
    """Loads the model of a case in Python, with the flags of its export."""
    options = {k: v for k, v in flags.items() if k in ("top_k", "pooling")}
    if task == "question_answering":
        options["squad"] = {k: v == "true" or v for k, v in flags.items()}
    if "document_context" in flags:
        options["document_context"] = True
    task = {"crf": "token_classification", "windows": None}.get(task, task)
    return api.load(model_dir, task=task, max_seq_length=LENGTH, **options)


def columns(names, items):
    """Returns items as arrays of bytes, one for each input."""

    def encoded(value):
        if isinstance(value, list):
            return [encoded(x) for x in value]
        return value.encode()

    rows = [(x,) if isinstance(x, str) else x for x in items]
    return {
        name: np.array([encoded(x) for x in values], object)
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }


def post(model, *requests):
    """Sends requests at the same time; returns statuses and bodies."""

    async def use():
        # Enough beside any other load of the machine.
        limits = server.Limits(request_timeout=600)
        listening = test_utils.TestServer(
            server.Server({"m": model}, limits).app
        )
        async with test_utils.TestClient(listening) as client:
            pending = [
                client.post("/v1/models/m:predict", json=x) for x in requests
            ]
            found = await asyncio.gather(*pending)
            return [(x.status, await x.json()) for x in found]

    return asyncio.run(use())


def same(found, expected):
    """Checks that JSON values or arrays are equal, numbers to 1e-4."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            same(found[name], value)
    elif isinstance(expected, str | int):
        assert found == expected
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)


@pytest.mark.parametrize(
    "case",
    [
        x if x in QUICK else pytest.param(x, marks=pytest.mark.all)
        for x in CASES
    ],
)
def test_engines_and_http_give_the_results_of_python(case, model_dirs, export):
    task, flags, items = CASES[case]
    loaded = in_python(model_dirs(task), task, flags)
    predictor = loaded._predictor
    expected = [predictor.row(x) for x in loaded.predict(items)]
    for form, engine in ENGINES.items():
        if case == "windows" and form == "onnx":
            continue  # It is refused.
        model = servable.load("m", export(case, form), engine)
        model.warm_up()
        signature = model.signatures["serving_default"]
        assert {*signature.outputs} == {*expected[0]}
        inputs = columns(signature.inputs, items)
        same(model.model.predict("serving_default", inputs), expected)
        # Together and one by one, at the same time.
        rows = [
            dict(zip(inputs, (x,) if isinstance(x, str) else x, strict=True))
            for x in items
        ]
        by_column = {name: [row[name] for row in rows] for name in inputs}
        bodies = [{"instances": rows}, {"inputs": by_column}]
        bodies += [{"instances": [row]} for row in rows]
        found = post(model, *bodies)
        assert {status for status, _ in found} == {200}
        together, padded, *single = (body for _, body in found)
        name = next(iter(expected[0]))
        if len(expected[0]) > 1:
            same(together["predictions"], expected)
            lists = [x["predictions"][0] for x in single]
            column = padded["outputs"][name]
        else:
            same(together["predictions"], [row[name] for row in expected])
            lists = [{name: x["predictions"][0]} for x in single]
            column = padded["outputs"]
        same(lists, expected)
        for value, row in zip(column, expected, strict=True):
            size = len(row[name]) if isinstance(row[name], list) else None
            same(value[:size] if size is not None else value, row[name])


@pytest.mark.parametrize(
    "case",
    ["pairs", "windows", "multiple_choice", "fill_mask", "sentence_embedding"],
)
def test_the_graph_of_texts_gives_the_results_of_python(
    case, model_dirs, export
):
    task, flags, items = CASES[case]
    loaded = in_python(model_dirs(task), task, flags)
    expected = [loaded._predictor.row(x) for x in loaded.predict(items)]
    graph = tf.saved_model.load(export(case, "saved_model"))
    inputs = columns(loaded_inputs(loaded, items), items)
    for size in (1, len(items)):
        given = {k: tf.constant(v[:size].tolist()) for k, v in inputs.items()}
        found = graph.signatures["serving_default"](**given)
        assert {*found} == {*expected[0]}
        for number, row in enumerate(expected[:size]):
            for name, value in row.items():
                own = listed(found[name][number].numpy())
                if isinstance(value, list):
                    own = own[: len(value)]  # Without masks of other texts.
                same(own, value)


def listed(value):
    """Returns an array or bytes as JSON values."""
    if isinstance(value, list):
        return [listed(x) for x in value]
    if isinstance(value, bytes):
        return value.decode()
    return listed(value.tolist()) if hasattr(value, "tolist") else value


def loaded_inputs(loaded, items):
    """Returns the names of a case's inputs."""
    names = list(loaded._predictor.inputs)
    if loaded.task == "classification" and not isinstance(items[0], str):
        names = ["text", "text_pair"]
    return names


@pytest.mark.parametrize("version_2", [False, True])
def test_the_graph_gives_the_best_exact_answer(
    version_2, tiny_models, tmp_path
):
    flags = {
        "doc_stride": 8,
        "exact_answers": True,
        "max_answer_length": 12,
        "n_best_size": 5 if version_2 else 20,
        "version_2_with_negative": version_2,
    }
    if version_2:
        flags["null_score_diff_threshold"] = -0.5
    items = [(x, y) for x in ("Who sat on the mat?", "") for y in CONTEXTS]
    source = tiny_models / "question_answering"
    loaded = api.load(source, max_seq_length=32, squad=flags)
    expected = loaded.predict(items)
    function = exports.graph(source, max_seq_length=32, **flags)
    for size in (1, len(items)):
        questions, contexts = zip(*items[:size], strict=True)
        found = function(question=list(questions), context=list(contexts))
        for number, answer in enumerate(expected[:size]):
            own = {name: x[number] for name, x in found.items()}
            assert own["answer"].decode() == answer.answer
            assert (own["start"], own["end"]) == (answer.start, answer.end)
            assert own["score"] == pytest.approx(answer.score, abs=1e-5)
            if answer.answer:
                text = items[number][1][answer.start : answer.end]
                assert text == answer.answer
    assert len({x.answer for x in expected}) > 5
    assert {"" in {x.answer for x in expected}} == {True}


def test_the_graph_gives_the_labels_of_tokens(tiny_models):
    source = tiny_models / "token_classification"
    loaded = api.load(source, max_seq_length=LENGTH)
    texts = ["Mary lives in Paris", "the cat sat on the mat", "", "cafe\u0301"]
    long = "mary lives in paris the cat sat " * 9
    found = exports.graph(source, max_seq_length=LENGTH)(text=[*texts, long])
    tokens = loaded.tokenize([*texts, long])
    logits = loaded.keras_model(loaded.encode(texts[:2]))["logits"].numpy()
    for number, row in enumerate(tokens):
        spans = zip(found["start"][number], found["end"][number], strict=True)
        own = [span for span in spans if span != (-1, -1)]
        assert own == [(token.start, token.end) for token in row]
        labels = found["label"][number]
        assert set(labels[: len(row)]) <= {x.encode() for x in exports.TAGS}
        assert set(labels[len(row) :]) <= {b""}
        if number < 2:
            best = logits[number, 1 : len(row) + 1].argmax(axis=1)
            names = [exports.TAGS[i].encode() for i in best]
            assert labels[: len(row)].tolist() == names


def test_ids_give_the_same_outputs_or_the_same_line(export):
    names = tuple(exported.HUB_NAMES.values())
    ids = {name: np.ones((3, 9), np.int32) for name in names}
    ids["input_mask"][1, 5:] = 0
    found, lines = [], []
    bad = [
        {0: -ids[names[0]]},
        {0: 1000 * ids[names[0]]},
        {1: 2 * ids[names[0]]},
        {2: 2 * ids[names[0]]},
        {1: ids[names[1]][:, :4]},
        dict.fromkeys(range(3), np.ones((2, 600), np.int32)),
        dict.fromkeys(range(3), np.ones((2, 0), np.int32)),
    ]
    for form, engine in ENGINES.items():
        model = engine.load(export("pairs", form))
        found.append([x["logits"] for x in model.predict("serve", ids)])
        for changed in bad:
            inputs = {n: changed.get(i, ids[n]) for i, n in enumerate(names)}
            with pytest.raises(errors.InputError) as error:
                model.predict("serve", inputs)
            assert "\n" not in str(error.value)
            lines.append(str(error.value))
    np.testing.assert_allclose(*found, atol=1e-5)
    assert lines[: len(bad)] == lines[len(bad) :]
    assert lines[1] == "input_word_ids: row 0: 1000 is not from 0 to " + str(
        len(exports.WORDS) - 1
    )
    # The SavedModel itself refuses them, too, for other servers.
    serve = tf.saved_model.load(export("pairs", "saved_model")).signatures
    for changed in bad[:4]:
        inputs = {n: changed.get(i, ids[n]) for i, n in enumerate(names)}
        with pytest.raises(tf.errors.InvalidArgumentError, match="not from 0"):
            serve["serve"](**{k: tf.constant(x) for k, x in inputs.items()})


def test_a_refused_row_fails_no_other_request(export):
    model = servable.load("m", export("fill_mask", "onnx"), ENGINES["onnx"])
    good, bad = {"text": "the [MASK]"}, {"text": "the cat"}
    requests = [[good], [bad, good], [good] * 5, [bad]] * 2
    found = post(model, *({"instances": x} for x in requests))
    assert [status for status, _ in found] == [200, 400, 200, 400] * 2
    assert all("[MASK]" in x["error"] for s, x in found if s == 400)


def test_requests_over_http_get_answers_or_status_400(export):
    model = servable.load("m", export("pairs", "onnx"), ENGINES["onnx"])
    row = {"text": "the cat", "text_pair": "x"}
    found = post(
        model,
        {"instances": [row, row]},
        {"signature_name": "serve_examples", "inputs": ["a"]},
        {"instances": [{"text": "the cat"}]},
        {"instances": [row | {"text": 1}]},
    )
    assert [status for status, _ in found] == [200, 400, 400, 400]
    assert "serve, serving_default" in found[1][1]["error"]
    metadata = model.signatures["serving_default"].metadata
    assert metadata["inputs"]["text_pair"]["dtype"] == "DT_STRING"
    assert metadata["outputs"]["score"]["dtype"] == "DT_FLOAT"


def test_odd_texts_are_answered(export):
    odd = ["", "   ", "\0", {"b64": "/w=="}, "x" * 3000]
    model = servable.load(
        "m",
        export("token_classification", "saved_model"),
        ENGINES["saved_model"],
    )
    found = post(model, *({"instances": [text]} for text in odd))
    assert {status for status, _ in found} == {200}, found
