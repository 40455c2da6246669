"""Results of tiny models by every way out, each as rows of `Predictor.row`.

    python    bert.load            command   run_classifier.py and others
    engines   SavedModel, ONNX     http      the server, with either engine
    graph     the SavedModel itself, from texts to results

A case is a kind of task with flags; its items are made of texts. `check`
compares all ways, for many texts here and for a few in tests/serving.
"""

import asyncio
import csv
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tiny_runs
from aiohttp import test_utils

from modeling import models
from serving import api, onnx_engine, servable, server, tensorflow_engine
from tests.serving import exports

LENGTH = 24
ROWS_AT_ONCE = 16  # Of a request.
CONTEXTS = [
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
ENGINES = {"saved_model": tensorflow_engine.ENGINE, "onnx": onnx_engine.make(1)}
Row = Mapping[str, Any]


class Case(NamedTuple):
    """A task with flags.

    Attributes:
      task: a folder of the fixture tiny_models, or of `more_models`.
      items: makes items of texts.
      command: name of a function of this module, or None.
      flags: of export_model.py, and of bert.load by the same names.
      graph: whether a SavedModel gives the same results as Python.
      onnx: whether ONNX has such models.
    """

    task: str
    items: Callable[[Sequence[str]], list]
    command: str | None = None
    flags: Mapping[str, Any] = {}
    graph: bool = True
    onnx: bool = True


def pairs(texts):
    return list(zip(texts, [*texts[3:], *texts[:3]], strict=True))


def questions(texts):
    return [(x[:30], y) for x, y in pairs(texts)]


def endings(texts):
    return [
        (x, ["sat", "lives in paris", y[:40], z[:9]])
        for x, y, z in zip(
            texts, [*texts[1:], texts[0]], [*texts[2:], *texts[:2]], strict=True
        )
    ]


def lines(texts):
    """Returns texts that can be lines of a file."""
    found = (" ".join(x.split()) for x in texts)
    return [x for x in found if x] or ["the cat"]


def masked(texts):
    return [
        f"{x.replace('[', ' ')[:9]} [MASK] the{'[MASK]' * (i % 3)} ."
        for i, x in enumerate(lines(texts))
    ]


EXACT = {
    "version_2_with_negative": True,
    "null_score_diff_threshold": 0.5,
    "exact_answers": True,
    "n_best_size": 3,
    "max_answer_length": 12,
}
CASES = {
    "classification": Case("classification", list),
    "pairs": Case("classification", pairs, "classify", {"text_pair": True}),
    "windows": Case("windows", list, onnx=False),
    "regression": Case("regression", list, "classify"),
    "multilabel": Case("multilabel", pairs, "classify", {"text_pair": True}),
    "multiple_choice": Case("multiple_choice", endings, "choose"),
    "question_answering": Case(
        "question_answering", questions, "answer", {"doc_stride": 8}, False
    ),
    "exact_answers": Case("question_answering", questions, "answer", EXACT),
    "token_classification": Case(
        "token_classification", lines, "tag", graph=False
    ),
    "crf": Case(
        "crf", lines, "tag", {"document_context": "maximal"}, graph=False
    ),
    "fill_mask": Case("fill_mask", masked, "fill", {"top_k": 4}),
    "sentence_embedding": Case(
        "sentence_embedding", lines, "extract", {"pooling": "mean"}
    ),
}


def more_models(tiny_models, folder: pathlib.Path) -> pathlib.Path:
    """Adds a tagger with a CRF, and a classifier that divides long texts."""
    for path in tiny_models.iterdir():
        shutil.copytree(path, folder / path.name)
    shutil.copytree(folder / "fill_mask", folder / "sentence_embedding")
    exports.save_model(
        folder / "crf",
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
    (folder / "crf" / "crf.json").write_text(json.dumps(scores))
    shutil.copytree(folder / "classification", folder / "windows")
    flags = {"task_name": "csv", "long_texts": "max", "max_seq_length": LENGTH}
    (folder / "windows" / "run.json").write_text(json.dumps({"flags": flags}))
    return folder


class Ways:
    """All ways to the results of a case.

    Attributes:
      loaded: the model in Python.
      items: the items.
    """

    def __init__(self, name: str, texts, model_dirs, folder: pathlib.Path):
        """Loads the model in Python."""
        self.case, self._folder = CASES[name], folder
        self._source = model_dirs / self.case.task
        self.items = self.case.items(texts)
        options = dict(self.case.flags)
        options.pop("text_pair", None)
        squad = {}
        if self.case.task == "question_answering":
            squad, options = options | {"max_query_length": 8}, {}
        if "document_context" in options:
            options["document_context"] = True
        if self.case.task == "sentence_embedding":
            options["task"] = self.case.task
        self.loaded = api.load(
            self._source, max_seq_length=LENGTH, squad=squad, **options
        )

    def python(self) -> list[Row]:
        predictor = self.loaded._opened.predictor
        return [predictor.row(x) for x in self.loaded.predict(self.items)]

    def exported(self, form: str) -> str:
        flags = {k: str(x).lower() for k, x in self.case.flags.items()}
        if self.case.task == "sentence_embedding":
            flags["task"] = self.case.task
        if self.case.task == "question_answering":
            flags["max_query_length"] = 8
        out = self._folder / form
        if not out.exists():
            exports.export(
                self._source, out, format=form, max_seq_length=LENGTH, **flags
            )
        return str(out)

    def columns(self, items=None) -> dict[str, list]:
        """Returns the inputs of some items, or of all."""
        items = self.items if items is None else items
        names = list(self.loaded._opened.predictor.inputs)
        if not isinstance(items[0], str) and len(names) == 1:
            names = ["text", "text_pair"]
        rows = [(x,) if isinstance(x, str) else x for x in items]
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    def graph(self) -> list[Row]:
        """Returns the results of the SavedModel itself."""
        loaded = tf.saved_model.load(self.exported("saved_model"))
        function, rows = loaded.signatures["serving_default"], []
        for first in range(0, len(self.items), ROWS_AT_ONCE):
            items = self.items[first : first + ROWS_AT_ONCE]
            columns = self.columns(items)
            found = function(**{k: tf.constant(x) for k, x in columns.items()})
            found = {k: _listed(x.numpy()) for k, x in found.items()}
            rows += [
                {k: x[i] for k, x in found.items()} for i in range(len(items))
            ]
        return rows

    def http(self, form: str) -> list[Row]:
        """Returns the answers of a server to concurrent requests."""
        model = servable.load("m", self.exported(form), ENGINES[form])
        columns = self.columns()
        rows = [
            dict(zip(columns, x, strict=True))
            for x in zip(*columns.values(), strict=True)
        ]
        bodies = [
            {"instances": rows[first : first + ROWS_AT_ONCE]}
            for first in range(0, len(rows), ROWS_AT_ONCE)
        ]
        found = post(model, *bodies, *({"instances": [x]} for x in rows[:20]))
        assert {status for status, _ in found} == {200}, found
        names = list(model.signatures["serving_default"].outputs)
        answers = [
            row if len(names) > 1 else {names[0]: row}
            for _, body in found
            for row in body["predictions"]
        ]
        together, alone = answers[: len(rows)], answers[len(rows) :]
        same(alone, together[: len(alone)])
        return together

    def engine(self, form: str) -> list[Row]:
        model = ENGINES[form].load(self.exported(form))
        inputs = {
            k: np.array(_bytes(x), object) for k, x in self.columns().items()
        }
        return model.predict("serving_default", inputs)

    def command(self) -> list[Row]:
        self._folder.mkdir(exist_ok=True)
        return globals()[self.case.command](self)

    def run(self, name: str, *switches: str, **flags) -> pathlib.Path:
        """Runs a command; returns its --output_dir."""
        out = self._folder / "predicted"
        given = {"max_seq_length": LENGTH, "precision": "float32"} | flags
        weights = {"init_checkpoint": self._source, "output_dir": out}
        given = {k: x for k, x in (weights | given).items() if x is not None}
        arguments = [f"--{k}={x}" for k, x in given.items()]
        tiny_runs.start(name, *arguments, *switches)
        return out

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self._folder / name
        path.write_text(text)
        return path


# The commands.


def classify(ways: Ways) -> list[Row]:
    rows = [[x] if isinstance(x, str) else x for x in ways.items]
    rows = [dict(zip("ab", row, strict=False)) for row in rows]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    is_value = ways.loaded.task == "regression"
    out = ways.run(
        "run_classifier",
        "--do_predict",
        task_name="jsonl",
        test_file=ways.write("test.jsonl", text),
        text_column="a",
        text_pair_column="b" if "b" in rows[0] else None,
        problem_type="regression" if is_value else None,
    )
    found = table(out)
    if is_value:
        return [{"score": float(row["label"])} for row in found]
    labels = ways.loaded.labels
    rows = [{"probabilities": [float(x[k]) for k in labels]} for x in found]
    for row, line, own in zip(
        rows, found, ways.loaded.predict(ways.items), strict=True
    ):
        if ways.loaded.task == "classification":
            row["label"] = line["label"]
        else:
            assert line["label"] == ",".join(own.labels)
    return rows


def choose(ways: Ways) -> list[Row]:
    path = ways.write("swag.csv", "")
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        names = [f"ending{i}" for i in range(4)]
        writer.writerow(["sent1", "sent2", *names, "label"])
        for context, row in ways.items:
            writer.writerow([context, "", *row, 0])
    out = ways.run(
        "run_classifier", "--do_predict", task_name="swag", test_file=path
    )
    return [
        {
            "choice": int(row["label"]),
            "probabilities": [float(row[str(i)]) for i in range(4)],
        }
        for row in table(out)
    ]


def table(out: pathlib.Path) -> list[dict[str, str]]:
    with open(out / "predictions.tsv", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


def answer(ways: Ways) -> list[Row]:
    paragraphs = [
        {"context": context, "qas": [{"id": str(i), "question": question}]}
        for i, (question, context) in enumerate(ways.items)
    ]
    data = {"version": "x", "data": [{"title": "", "paragraphs": paragraphs}]}
    out = ways.run(
        "run_squad",
        "--do_predict",
        predict_file=ways.write("test.json", json.dumps(data)),
        max_query_length=8,
        **ways.case.flags,
    )
    predicted, n_best = (
        json.loads((out / f"{name}.json").read_text())
        for name in ("predictions", "nbest_predictions")
    )
    # "empty" is the released answer to a question without a span.
    return [
        {
            "answer": predicted[i] * (predicted[i] != "empty"),
            "answers": [x["text"] * (x["text"] != "empty") for x in n_best[i]],
            "scores": [x["probability"] for x in n_best[i]],
        }
        for i in map(str, range(len(ways.items)))
    ]


def tag(ways: Ways) -> list[Row]:
    text = "".join(f"{x}\n" for x in ways.items)
    out = ways.run(
        "run_ner",
        "--do_predict",
        text_file=ways.write("texts.txt", text),
        **ways.case.flags,
    )
    found = (out / "entities.jsonl").read_text().splitlines()
    names = {"entity": "text", "entity_type": "type", "score": "probability"}
    names |= {"start": "start", "end": "end"}
    return [
        {
            k: [x[name] for x in json.loads(line)["entities"]]
            for k, name in names.items()
        }
        for line in found
    ]


def fill(ways: Ways) -> list[Row]:
    text = "".join(f"{x}\n" for x in ways.items)
    out = ways._folder / "filled.jsonl"
    tiny_runs.start(
        "fill_mask",
        f"--model_dir={ways._source}",
        f"--input_file={ways.write('texts.txt', text)}",
        f"--output_file={out}",
        "--top_k=4",
    )
    masks = [json.loads(x)["masks"] for x in out.read_text().splitlines()]
    return [
        {
            "words": [[x["token"] for x in mask] for mask in row],
            "probabilities": [[x["probability"] for x in mask] for mask in row],
        }
        for row in masks
    ]


def extract(ways: Ways) -> list[Row]:
    text = "".join(f"{x}\n" for x in ways.items)
    out = ways._folder / "vectors.npz"
    ways.run(
        "extract_features",
        input_file=ways.write("texts.txt", text),
        output_file=out,
        output_format="npz",
        layers=-1,
        precision=None,
        output_dir=None,
        **ways.case.flags,
    )
    with np.load(out) as arrays:
        (found,) = [x for x in arrays.values() if x.dtype.kind == "f"]
    return [{"embedding": x} for x in found]


# The comparison.


def check(name: str, texts, model_dirs, folder: pathlib.Path) -> int:
    """Compares all ways to the results of a case; returns how many ways."""
    ways = Ways(name, texts, model_dirs, folder)
    expected, case = ways.python(), ways.case
    assert len(expected) == len(ways.items) > 0
    for item, row in zip(ways.items, expected, strict=True):
        check_characters(item, row)
    forms = ("saved_model", "onnx") if case.onnx else ("saved_model",)
    found = {}
    for form in forms:
        found[form] = ways.engine(form)
        found[f"http of {form}"] = ways.http(form)
    if case.graph:
        found["graph"] = ways.graph()
    if case.command:
        found["command"] = ways.command()
    for way, rows in found.items():
        assert len(rows) == len(expected), way
        for item, own, row in zip(ways.items, rows, expected, strict=True):
            names = own.keys() & row.keys()
            assert names, way
            try:
                same(
                    {k: _cut(own[k], row[k]) for k in names},
                    {k: row[k] for k in names},
                )
            except AssertionError as error:
                raise AssertionError(f"{way}: {item}: {own} {row}") from error
    return 1 + len(found)


def check_characters(item, row: Row) -> None:
    """Checks that places are those of the answer or of the entities."""
    if "answers" in row and row["answer"]:
        start, end = row["start"], row["end"]
        text = item[1][start:end]
        assert text.split() == row["answer"].split(), (item, row)
    if "entity" in row:
        for entity, start, end in zip(
            row["entity"], row["start"], row["end"], strict=True
        ):
            assert item[start:end] == entity, (item, row)


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


def same(found, expected) -> None:
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


def _cut(value, expected):
    """Returns a value of a graph without the masks of other texts."""
    if isinstance(value, list) and isinstance(expected, list):
        return value[: len(expected)]
    return value


def _listed(value):
    """Returns an array or bytes as JSON values."""
    if isinstance(value, list):
        return [_listed(x) for x in value]
    if isinstance(value, bytes):
        return value.decode()
    return _listed(value.tolist()) if hasattr(value, "tolist") else value


def _bytes(value):
    if isinstance(value, list):
        return [_bytes(x) for x in value]
    return value.encode()
