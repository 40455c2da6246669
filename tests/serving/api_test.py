"""Tests that the Python API gives the results of the commands.

python -m pytest tests/serving/api_test.py
"""

import csv
import dataclasses
import inspect
import json
import pathlib
import shutil

import exports
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny_runs

import bert
import convert_checkpoint
import extract_features
import run_classifier
import run_ner
import run_squad
from data import length_groups
from finetuning import record
from foundation import errors
from modeling import crf
from serving import api, opened_model
from tasks.ner import tagging
from tests.serving import keras_layers_test
from tests.weights import sentence_models
from weights import task_files

LABELS = exports.LABELS
# The command reads tables, in which these characters have a meaning.
TEXTS = [text.replace("\0", " ") for text in exports.TEXTS]
PAIRS = list(zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True))
CONTEXT = "Mary lives in Paris. The cat sat on the mat, " * 3 + "(x)"
QUESTIONS = [
    ("Who lives in Paris?", CONTEXT),
    ("where", "The dog  sat\u3000on the Caf\u00e9 mat."),
    ("", "x"),
    ("who", "   "),
]
TASKS = (
    "classification",
    "regression",
    "multilabel",
    "multiple_choice",
    "question_answering",
    "token_classification",
    "fill_mask",
)


@pytest.fixture(scope="module")
def load(tiny_models):
    """A function that loads the model of a task once."""
    loaded = {}

    def load(task):
        if task not in loaded:
            loaded[task] = api.load(
                str(tiny_models / task), max_seq_length=24, batch_size=4
            )
        return loaded[task]

    return load


def run(command, config, *switches, **flags):
    flags = {"max_seq_length": 24, "precision": "float32"} | flags
    tiny_runs.run(command, config, *switches, **flags)


def run_classifier_on(rows, tmp_path, **flags):
    """Returns labels and probabilities in predictions.tsv."""
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "test.jsonl").write_text("".join(lines))
    given = {
        "task_name": "jsonl",
        "test_file": tmp_path / "test.jsonl",
        "output_dir": tmp_path / "predicted",
    } | flags
    run(
        run_classifier,
        run_classifier.ClassifierFlags,
        "--do_predict",
        **given,
    )
    with open(tmp_path / "predicted" / "predictions.tsv", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_labels_are_those_of_the_command(task, load, tiny_models, tmp_path):
    rows = run_classifier_on(
        [{"a": a, "b": b} for a, b in PAIRS],
        tmp_path,
        init_checkpoint=tiny_models / task,
        text_column="a",
        text_pair_column="b",
    )
    model = load(task)
    assert (model.task, model.labels) == (task, LABELS)
    for row, found in zip(rows, model.predict(PAIRS), strict=True):
        for label in LABELS:
            expected = pytest.approx(float(row[label]), abs=1e-5)
            assert found.probabilities[label] == expected
        if task == "classification":
            assert found.label == row["label"]
            assert found.score == max(found.probabilities.values())
        else:
            assert ",".join(found.labels) == row["label"]


def changed(model_dir, tmp_path, **values):
    """Returns a copy of a model directory with other values in its config.

    Those that are None are left out.
    """
    path = tmp_path / "changed"
    shutil.copytree(model_dir, path, dirs_exist_ok=True)
    config = json.loads((path / "config.json").read_text()) | values
    config = {k: x for k, x in config.items() if x is not None}
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_one_output_without_a_problem_type_is_a_probability(
    load, tiny_models, tmp_path
):
    path = changed(tiny_models / "regression", tmp_path, problem_type=None)
    values = load("regression").predict(TEXTS)
    model = api.load(path, max_seq_length=24)
    assert (model.task, model.labels) == ("multilabel", ["LABEL_0"])
    for value, found in zip(values, model.predict(TEXTS), strict=True):
        expected = 1 / (1 + np.exp(-value))
        assert found.probabilities["LABEL_0"] == pytest.approx(
            expected, abs=1e-5
        )
        assert found.labels == (["LABEL_0"] if value > 0 else [])
    as_value = api.load(path, max_seq_length=24, task="regression")
    assert as_value.predict(TEXTS) == pytest.approx(values, abs=1e-5)
    tiny_runs.run(
        convert_checkpoint,
        convert_checkpoint.ConversionConfig,
        input=path,
        output=tmp_path / "converted",
    )
    config = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert "problem_type" not in config


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ("classification", ["x", "y"], "3 outputs"),
        ("classification", ["x", "y", "x"], "'x'"),
        ("token_classification", ["O", "B-X"], "5 outputs"),
        ("token_classification", ["O", "B-X", "I-X", "B-Y", "B-X"], "'B-X'"),
    ],
)
def test_labels_that_do_not_fit_the_head_can_be_replaced(
    task, names, message, tiny_models, tmp_path
):
    ids = dict(enumerate(names))
    path = changed(tiny_models / task, tmp_path, id2label=ids)
    with pytest.raises(errors.InputError, match=f"{message}.*id2label"):
        api.load(path)
    right = exports.LABELS if task == "classification" else exports.TAGS
    assert api.load(path, labels=right).labels == right


def test_masks_are_encoded_as_they_are_filled(load):
    model = load("fill_mask")
    words = model.tokenizer.vocabulary.tokens
    texts = ["[MASK] the[MASK]", ("a cat [MASK]", "[MASK][MASK] sat"), ""]
    ids = model.encode(texts)["input_ids"]
    found = [" ".join(words[i] for i in row if i) for row in ids]
    assert found == [
        "[CLS] [MASK] the [MASK] [SEP]",
        "[CLS] a cat [MASK] [SEP] [MASK] [MASK] sat [SEP]",
        "[CLS] [SEP]",
    ]
    text = "the [MASK]sat,[MASK]"
    (tokens,) = model.tokenize([text])
    assert [x.token for x in tokens] == "the [MASK] sat , [MASK]".split()
    spans = [text[x.start : x.end] for x in tokens]
    assert spans == [x.token for x in tokens]
    logits = model.keras_model(model.encode([text]))["masked_lm_logits"][0]
    scores = tf.nn.softmax(logits).numpy()[[2, 5]]
    best = [[x.probability for x in y] for y in model.predict([text])[0]]
    np.testing.assert_allclose(
        np.sort(scores)[:, : -1 - len(best[0]) : -1], best, atol=1e-6
    )


@pytest.mark.parametrize(
    "task, token, is_warned",
    [
        ("classification", "[SEP]", True),
        ("classification", "[MASK]", True),
        ("fill_mask", "[SEP]", True),
        ("fill_mask", "[MASK]", False),
    ],
)
def test_special_tokens_in_texts_are_warned_of(
    task, token, is_warned, load, caplog
):
    model = load(task)
    assert not warnings_of(caplog, model.encode, ["the cat"])
    found = warnings_of(caplog, model.encode, [f"the {token} cat"])
    assert (f"contains {token}, which is read as a word" in found) == is_warned


@pytest.mark.parametrize("architecture", ["HF_ColBERT", None, "BertModel"])
def test_an_unknown_head_is_named(architecture, tiny_models, tmp_path, caplog):
    path = changed(
        tiny_models / "classification",
        tmp_path,
        architectures=architecture and [architecture],
    )
    weights = pathlib.Path(path) / "model.safetensors"
    tensors = safetensors.numpy.load_file(weights)
    tensors["linear.weight"] = tensors.pop("classifier.weight")
    del tensors["classifier.bias"]
    safetensors.numpy.save_file(tensors, weights, {"format": "pt"})
    assert api.load(path).task == "sentence_embedding"
    is_named = "its head is unknown (HF_ColBERT, with linear.weight)"
    assert (is_named in caplog.text) == (architecture == "HF_ColBERT")


def test_a_regression_of_several_values_is_refused(tiny_models, tmp_path):
    path = changed(
        tiny_models / "classification", tmp_path, problem_type="regression"
    )
    with pytest.raises(errors.InputError, match="regression with 3 outputs"):
        api.load(path)


def test_values_are_those_of_the_command(load, tiny_models, tmp_path):
    rows = run_classifier_on(
        [{"text": text} for text in TEXTS],
        tmp_path,
        init_checkpoint=tiny_models / "regression",
        problem_type="regression",
    )
    model = load("regression")
    assert (model.task, model.labels) == ("regression", None)
    expected = [float(row["label"]) for row in rows]
    assert model.predict(TEXTS) == pytest.approx(expected, abs=1e-4)


def test_choices_are_those_of_the_command(load, tiny_models, tmp_path):
    endings = [["sat", "lives in paris", "x", text[:9]] for text in TEXTS]
    with open(tmp_path / "swag.csv", "w", newline="") as file:
        names = [f"ending{i}" for i in range(4)]
        writer = csv.writer(file)
        writer.writerow(["sent1", "sent2", *names, "label"])
        for text, row in zip(TEXTS, endings, strict=True):
            writer.writerow([text, "the", *row, 0])
    rows = run_classifier_on(
        [],
        tmp_path,
        task_name="swag",
        init_checkpoint=tiny_models / "multiple_choice",
        test_file=tmp_path / "swag.csv",
    )
    model = load("multiple_choice")
    given = [
        (text, [f"the {ending}" for ending in row])
        for text, row in zip(TEXTS, endings, strict=True)
    ]
    for row, found in zip(rows, model.predict(given), strict=True):
        assert str(found.choice) == row["label"]
        expected = [float(row[str(i)]) for i in range(4)]
        assert found.probabilities == pytest.approx(expected, abs=1e-5)
    with pytest.raises(errors.InputError, match="same number of endings"):
        model.predict([("a", ["b"]), ("a", ["b", "c"])])


@pytest.mark.parametrize("version_2", [False, True])
def test_answers_are_those_of_the_command(version_2, tiny_models, tmp_path):
    model_dir = tiny_models / "question_answering"
    settings = {
        "version_2_with_negative": version_2,
        "null_score_diff_threshold": -0.5 if version_2 else None,
    }
    path = model_dir / "question_answering.json"
    path.write_text(json.dumps(settings))
    paragraphs = [
        {"context": context, "qas": [{"id": str(i), "question": question}]}
        for i, (question, context) in enumerate(QUESTIONS)
    ]
    data = {"version": "x", "data": [{"title": "", "paragraphs": paragraphs}]}
    (tmp_path / "test.json").write_text(json.dumps(data))
    run(
        run_squad,
        run_squad.SquadFlags,
        "--do_predict",
        predict_file=tmp_path / "test.json",
        init_checkpoint=model_dir,
        output_dir=tmp_path / "predicted",
        doc_stride=128,
        max_query_length=8,
    )
    model = api.load(str(model_dir), max_seq_length=24)
    path.unlink()
    found = model.predict(QUESTIONS)
    predicted, n_best = (
        json.loads((tmp_path / "predicted" / f"{name}.json").read_text())
        for name in ("predictions", "nbest_predictions")
    )
    for number, answer in enumerate(found):
        expected = predicted[str(number)]
        # The released answer to a question without a span.
        assert answer.answer == ("" if expected == "empty" else expected)
        entries = n_best[str(number)]
        assert [text for text, _ in answer.answers] == [
            entry["text"] * (entry["text"] != "empty") for entry in entries
        ]
        np.testing.assert_allclose(
            [score for _, score in answer.answers],
            [entry["probability"] for entry in entries],
            atol=1e-5,
        )
        context = QUESTIONS[number][1]
        if answer.answer:
            covered = context[answer.start : answer.end]
            assert covered.strip() == covered != ""
        else:
            assert (answer.start, answer.end) == (-1, -1)
    assert any(answer.answer for answer in found)


@pytest.mark.parametrize("has_crf", [False, True])
def test_entities_are_those_of_the_command(has_crf, tiny_models, tmp_path):
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_models / "token_classification", model_dir)
    if has_crf:
        model = crf.CrfTaggingModel(
            tiny_runs.config(exports.WORDS),
            num_classes=len(exports.TAGS),
            forbidden=crf.Scores(**tagging.forbidden(exports.TAGS, "bio2")),
        )
        tagging.save_crf(model, exports.TAGS, str(model_dir))
    texts = [" ".join(text.split()) for text in TEXTS] + [CONTEXT]
    (tmp_path / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    run(
        run_ner,
        run_ner.NerFlags,
        "--do_predict",
        text_file=tmp_path / "texts.txt",
        init_checkpoint=model_dir,
        output_dir=tmp_path / "predicted",
        document_context="maximal" if has_crf else "none",
    )
    lines = (tmp_path / "predicted" / "entities.jsonl").read_text()
    expected = [json.loads(line)["entities"] for line in lines.splitlines()]
    model = api.load(
        str(model_dir), max_seq_length=24, document_context=has_crf
    )
    assert model.labels == exports.TAGS
    found = model.predict(texts)
    assert [len(row) for row in found] == [len(row) for row in expected]
    assert sum(map(len, found)) > 10
    for one, other in zip(sum(found, []), sum(expected, []), strict=True):
        assert one._asdict() == {
            "score": pytest.approx(other.pop("probability"), abs=1e-5),
            **other,
        }


@pytest.fixture
def in_cache(tiny_models, tmp_path):
    """A tagger with a CRF as a folder of the Hugging Face cache."""
    folder = tmp_path / "models--me--tagger"
    snapshot = folder / "snapshots" / "abc"
    shutil.copytree(tiny_models / "token_classification", snapshot)
    model = crf.CrfTaggingModel(
        tiny_runs.config(exports.WORDS),
        num_classes=len(exports.TAGS),
        forbidden=crf.Scores(**tagging.forbidden(exports.TAGS, "bio2")),
    )
    tagging.save_crf(model, exports.TAGS, str(snapshot))
    (snapshot / "run.json").write_text('{"flags": {"max_seq_length": 20}}')
    return folder


def test_all_files_of_a_cached_model_are_read(in_cache, tmp_path):
    model = api.load(str(in_cache))
    assert model.max_seq_length == 20
    found = model.predict([CONTEXT])
    assert found == api.load(str(in_cache / "snapshots/abc")).predict([CONTEXT])
    (tmp_path / "texts.txt").write_text(f"{CONTEXT}\n")
    run(
        run_ner,
        run_ner.NerFlags,
        "--do_predict",
        "--crf",
        text_file=tmp_path / "texts.txt",
        init_checkpoint=in_cache,
        output_dir=tmp_path / "predicted",
        max_seq_length=20,
    )
    text = (tmp_path / "predicted" / "entities.jsonl").read_text()
    starts = [entity["start"] for entity in json.loads(text)["entities"]]
    assert starts == [entity.start for entity in found[0]]
    opened = opened_model.OpenedModel(str(in_cache), opened_model.Options())
    assert opened.load().setup.settings == {"document_context": "none"}
    assert opened.max_seq_length == 20


def test_settings_are_read_in_a_bucket(tiny_models):
    remote = "ram://answers/model"
    tf.io.gfile.makedirs(remote)
    folder = tiny_models / "question_answering"
    for path in folder.iterdir():
        tf.io.gfile.copy(str(path), f"{remote}/{path.name}", overwrite=True)
    assert any(x.answer for x in api.load(remote).predict(QUESTIONS))
    settings = task_files.SquadSettings(
        version_2_with_negative=True, null_score_diff_threshold=-1e6
    )
    task_files.write_settings(remote, settings)
    assert not any(x.answer for x in api.load(remote).predict(QUESTIONS))


def test_words_of_masks_are_ranked(load):
    (first, second), ((best, *others),) = load("fill_mask").predict(
        ["the [MASK] sat on [MASK].", "[MASK]"]
    )
    assert len(first) == len(second) == 5
    assert best.probability >= others[0].probability
    assert best.word in exports.WORDS
    with pytest.raises(errors.InputError, match=r"no \[MASK\]"):
        load("fill_mask").predict(["the cat"])


def test_words_have_the_given_precision(tiny_models):
    exact, rounded = (
        api.load(str(tiny_models / "fill_mask"), precision=precision)
        .predict(["the [MASK]"])[0][0][0]
        .probability
        for precision in ("float32", "bfloat16")
    )
    assert rounded == pytest.approx(exact, rel=0.05) and rounded != exact


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_the_command(pooling, tiny_models, tmp_path):
    texts = [" ".join(text.split()) for text in TEXTS]
    (tmp_path / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    run(
        extract_features,
        extract_features.ExtractFlags,
        "--normalize",
        input_file=tmp_path / "texts.txt",
        output_file=tmp_path / "vectors.npz",
        output_format="npz",
        init_checkpoint=tiny_models / "fill_mask",
        pooling=pooling,
        layers=-2,
    )
    with np.load(tmp_path / "vectors.npz") as arrays:
        (expected,) = [x for x in arrays.values() if x.dtype.kind == "f"]
    model = api.load(
        str(tiny_models / "fill_mask"),
        task="sentence_embedding",
        pooling=pooling,
        layer=-2,
        normalize=True,
        max_seq_length=24,
        batch_size=3,
    )
    np.testing.assert_allclose(model.predict(texts), expected, atol=1e-5)


SENTENCES = pathlib.Path(__file__).parents[1] / "testdata"
SENTENCES = json.loads((SENTENCES / "sentence_modules.json").read_text())


@pytest.mark.parametrize("name", sentence_models.CASES)
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    arguments = sentence_models.CASES[name]
    path = sentence_models.save(tmp_path / "model", **arguments)
    model = api.load(str(path), task="sentence_embedding")
    assert model.max_seq_length == arguments.get("max_seq_length", 48)
    found = model.predict(sentence_models.TEXTS)
    np.testing.assert_allclose(found, SENTENCES[name], atol=5e-6)


def test_sentence_transformers_reads_what_is_written(tmp_path):
    path = sentence_models.save_written(tmp_path / "model")
    found = api.load(str(path), task="sentence_embedding").predict(
        sentence_models.TEXTS
    )
    np.testing.assert_allclose(found, SENTENCES["written"], atol=5e-6)


def test_vectors_are_truncated_as_the_files_say(tmp_path):
    arguments = sentence_models.CASES["joined"]
    path = sentence_models.save(tmp_path / "model", **arguments)
    sentence_models.write(
        path / "config_sentence_transformers.json", {"truncate_dim": 2}
    )
    model = api.load(str(path), task="sentence_embedding")
    found = model.predict(sentence_models.TEXTS)
    expected = np.array(SENTENCES["joined"])[:, :2]
    np.testing.assert_allclose(found, expected, atol=5e-6)


def test_exports_and_files_have_these_vectors(tmp_path):
    path = sentence_models.save(
        tmp_path / "model", **sentence_models.CASES["joined"]
    )
    graph = exports.graph(path, task="sentence_embedding")
    found = graph(text=sentence_models.TEXTS)["embedding"]
    np.testing.assert_allclose(found, SENTENCES["joined"], atol=5e-6)
    lines = "".join(f"{text}\n" for text in sentence_models.TEXTS)
    (tmp_path / "texts.txt").write_text(lines)
    run(
        extract_features,
        extract_features.ExtractFlags,
        input_file=tmp_path / "texts.txt",
        output_file=tmp_path / "vectors.npz",
        output_format="npz",
        init_checkpoint=path,
        pooling="auto",
        max_seq_length=None,
    )
    with np.load(tmp_path / "vectors.npz") as arrays:
        found = arrays["layer_-1"]
    np.testing.assert_allclose(found, SENTENCES["joined"], atol=5e-6)


def test_tokens_have_the_characters_of_the_text(load):
    text = "Mary's CAFE\u0301 \u4e2d x"
    (tokens, none) = load("classification").tokenize([text, ""])
    assert [token.token for token in tokens] == [
        "mary", "'", "s", "cafe", "\u4e2d", "x"
    ]  # fmt: skip
    assert [text[token.start : token.end] for token in tokens] == [
        "Mary", "'", "s", "CAFE\u0301", "\u4e2d", "x"
    ]  # fmt: skip
    assert none == []


@pytest.mark.parametrize("task", [*TASKS, "sentence_embedding"])
def test_a_keras_model_takes_tensors(task, load, tiny_models):
    if task == "sentence_embedding":
        model = api.load(str(tiny_models / "fill_mask"), task=task)
    else:
        model = load(task)
    inputs = ["the cat", "dogs sat on the mat"]
    if task == "multiple_choice":
        inputs = [("the", ["cat", "dogs"]), ("a", ["mat", "b c x"])]
    encoded = model.encode(inputs)
    outputs = model.keras_model(encoded)
    assert all(len(x) == 2 for x in outputs.values())
    own = keras_layers_test.own_outputs(model, encoded)
    for x, y in zip(outputs.values(), own, strict=False):
        np.testing.assert_allclose(x, y, atol=2e-6)
    if task == "classification":
        expected = [
            list(x.probabilities.values()) for x in model.predict(inputs)
        ]
        found = tf.nn.softmax(outputs["logits"])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert model.keras_model.count_params() > 1000
    again = model.keras_model.predict(encoded, verbose=0)
    for name, values in outputs.items():
        np.testing.assert_allclose(again[name], values, atol=1e-5)


def test_a_released_checkpoint_is_loaded(tiny_models, tmp_path):
    """A TensorFlow 1 checkpoint, without the labels' names."""
    model_dir = tiny_models / "classification"
    tiny_runs.run(
        convert_checkpoint,
        convert_checkpoint.ConversionConfig,
        input=model_dir,
        output=tmp_path / "released",
        output_format="tf1",
    )
    (tmp_path / "released" / "config.json").unlink()
    path = str(tmp_path / "released" / "bert_model.ckpt")
    with pytest.raises(errors.InputError, match=r"--task \(in Python: task="):
        api.load(path)
    model = api.load(path, task="classification", labels=LABELS)
    expected = api.load(str(model_dir)).predict(["the cat"])
    assert model.predict(["the cat"])[0].label == expected[0].label


@pytest.mark.parametrize(
    "inputs, options, message",
    [
        ("a text", {}, "a list is needed"),
        (None, {"task": "translation"}, "none of classification"),
        (None, {"task": "token_classification"}, "another task"),
        (None, {"labels": ["a", "b"]}, "3 classes"),
        (None, {"max_seq_length": 1000}, "positions"),
        (None, {"pooling": "avg"}, "pooling='avg': none of cls, max, mean"),
        (
            None,
            {"batch_size": 0},
            "batch_size=0: must be an integer, at least 1",
        ),
        (None, {"max_seq_length": 2}, "max_seq_length=2: .* at least 3"),
        (None, {"top_k": -1}, "top_k=-1: must be an integer, at least 1"),
        (None, {"max_seq_length": "64"}, "max_seq_length='64': must be an in"),
        (None, {"top_k": 3}, "--top_k: only for fill_mask; the task of .*clas"),
        (None, {"document_context": True}, "only for token_classification"),
        (None, {"squad": {"no": 1}}, "--no: only for question_answering"),
        (["a", ("a", "b", "c")], {}, "a text or a pair"),
        ([1], {}, "a text or a pair"),
        (1, {}, "a list is needed, not 1"),
    ],
)
def test_what_cannot_be_done_is_one_line(tiny_models, inputs, options, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        api.load(str(tiny_models / "classification"), **options).predict(inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "task, item, form",
    [
        ("multiple_choice", "the cat", r"a pair \(beginning, "),
        ("multiple_choice", ("the", "cat"), r"a pair \(beginning, "),
        ("question_answering", "the cat", r"a pair \(question, paragraph"),
        ("question_answering", ("the", 1), r"a pair \(question, paragraph"),
        ("token_classification", ("the", "cat"), "a text"),
        ("fill_mask", ("the", "[MASK]"), "a text"),
    ],
)
def test_an_item_of_another_form_is_named(load, task, item, form):
    with pytest.raises(errors.InputError, match=f" is not {form}"):
        load(task).predict([item])


def test_a_threshold_is_for_questions_without_an_answer(tiny_models):
    path = str(tiny_models / "question_answering")
    with pytest.raises(errors.InputError, match="--version_2_with_negative"):
        api.load(path, squad={"null_score_diff_threshold": 1.0})


def test_a_path_of_any_kind_is_taken_and_nothing_else(tiny_models):
    path = tiny_models / "classification"
    assert api.load(pathlib.Path(path)).labels == api.load(str(path)).labels
    for wrong in (None, 7, bytes(path)):
        with pytest.raises(errors.InputError, match="a path "):
            api.load(wrong)


def test_a_missing_vocabulary_is_named(tiny_models, tmp_path):
    shutil.copytree(tiny_models / "classification", tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").unlink()
    with pytest.raises(errors.InputError, match="model: no vocabulary there"):
        api.load(str(tmp_path / "model"))


def test_options_of_answers_are_flags_of_the_command(tiny_models):
    path = str(tiny_models / "question_answering")
    model = api.load(path, max_seq_length=24, squad={"max_query_length": 8})
    assert len(model.predict(QUESTIONS)) == len(QUESTIONS)
    with pytest.raises(errors.InputError, match="'stride' is none of .*doc_"):
        api.load(path, squad={"stride": 8})


class _Table:
    """What numbers of dimensions and iteration are of a pandas.DataFrame."""

    ndim = 2

    def __iter__(self):
        return iter(["text", "label"])


@pytest.mark.parametrize(
    "inputs", [{"the cat": 0}, {"the cat", "the dog"}, _Table()]
)
def test_names_are_not_taken_for_texts(load, inputs):
    for task in ("classification", "token_classification"):
        with pytest.raises(errors.InputError, match="a list is needed"):
            load(task).predict(inputs)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"labels": dict(zip(LABELS, (2, 0, 1), strict=True))}, "a list of"),
        ({"labels": {*LABELS}}, "a list of names"),
        ({"labels": "abc"}, "a list of names"),
        ({"labels": [0, 1, 2]}, "a list of names"),
        ({"new_head": "no"}, "new_head='no': must be True or False"),
        ({"batch_size": True}, "batch_size=True"),
    ],
)
def test_an_option_of_another_type_is_refused(tiny_models, options, message):
    with pytest.raises(errors.InputError, match=message):
        api.load(tiny_models / "classification", **options)


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"exact_answers": "no"}, "'no' is not True or False"),
        ({"max_answer_length": True}, "True is not a whole number"),
        ({"doc_stride": 8.0}, "8.0 is not a whole number"),
        (
            {
                "version_2_with_negative": True,
                "null_score_diff_threshold": "-1",
            },
            "'-1' is not a number",
        ),
    ],
)
def test_an_option_of_answers_has_its_flags_type(tiny_models, flags, message):
    with pytest.raises(errors.InputError, match=message):
        api.load(tiny_models / "question_answering", squad=flags)


def warnings_of(caplog, call, inputs):
    """Returns what a call logs; a message that was logged before included."""
    errors.warn_once.cache_clear()
    caplog.clear()
    call(inputs)
    return " ".join(caplog.messages)


def test_a_text_that_is_cut_is_warned_of(load, tiny_models, caplog):
    beginning = "the cat sat"
    for task, short, cut in (
        ("classification", beginning, TEXTS[3]),
        ("multiple_choice", (beginning, ["a", "b"]), ("", ["a", TEXTS[3]])),
    ):
        model = load(task)
        for call in (model.predict, model.encode):
            assert not warnings_of(caplog, call, [short])
            found = warnings_of(caplog, call, [short, cut])
            assert "more than max_seq_length=24 tokens and is cut" in found
    vectors = api.load(tiny_models / "fill_mask", task="sentence_embedding")
    found = warnings_of(caplog, vectors.predict, TEXTS)
    assert "max_seq_length=48" in found


TRAINED = {"max_seq_length": 20}


def with_flags(path, tmp_path, **flags):
    """Returns a copy of a model with the flags of a training."""
    shutil.copytree(path, tmp_path / "trained")
    text = json.dumps({"flags": TRAINED | flags})
    (tmp_path / "trained" / "run.json").write_text(text)
    return tmp_path / "trained"


@pytest.mark.parametrize("has_pairs", [False, True])
def test_pairs_and_single_texts_are_told_apart(
    has_pairs, tiny_models, tmp_path, caplog
):
    path = with_flags(
        tiny_models / "classification",
        tmp_path,
        task_name="csv",
        text_pair_column="b" if has_pairs else None,
    )
    model = api.load(path)
    single, pair = "the cat", ("the cat", "a dog")
    right, wrong = (pair, single) if has_pairs else (single, pair)
    assert not warnings_of(caplog, model.predict, [right])
    trained = ["single texts", "pairs of texts"][has_pairs]
    for call in (model.predict, model.encode):
        with pytest.raises(bert.InputError, match=f"trained on {trained}") as e:
            call([right, wrong])
        assert repr(wrong) in str(e.value) and "\n" not in str(e.value)
    # A new head may be trained for others.
    options = {"task": "classification", "labels": ["a", "b"]}
    api.load(path, new_head=True, **options).predict([right, wrong])


def test_a_saved_model_reads_long_texts_as_before(tiny_models, tmp_path):
    path = with_flags(
        tiny_models / "classification",
        tmp_path,
        task_name="csv",
        long_texts="max",
        doc_stride=4,
    )
    for name, options in (
        ("same", {"max_seq_length": 12}),
        ("new", {"labels": ["a", "b"], "new_head": True}),
    ):
        task = {"task": "classification"}
        model = api.load(path, **task, **options)
        model.save(tmp_path / name)
        again = api.load(tmp_path / name)
        assert again.max_seq_length == model.max_seq_length != 48
        assert again.predict(TEXTS[:4]) == model.predict(TEXTS[:4])
        flags = record.RunRecord(str(tmp_path / name)).flags
        assert ("task_name" in flags) == (name == "same")


def test_a_saved_model_reads_questions_and_sentences_as_before(
    tiny_models, tmp_path
):
    flags = {"doc_stride": 5, "max_query_length": 8, "max_answer_length": 2}
    model = api.load(
        tiny_models / "question_answering", max_seq_length=24, squad=flags
    )
    model.save(tmp_path / "answers")
    again = api.load(tmp_path / "answers")
    assert again.max_seq_length == 24
    assert again.predict(QUESTIONS) == model.predict(QUESTIONS)
    model = api.load(
        tiny_models / "token_classification",
        max_seq_length=24,
        document_context=True,
    )
    model.save(tmp_path / "tagger")
    flags = record.RunRecord(str(tmp_path / "tagger")).flags
    assert api.load(tmp_path / "tagger").max_seq_length == 24
    assert flags["document_context"] == "maximal"
    api.load(tiny_models / "fill_mask").save(tmp_path / "masks")
    assert not (tmp_path / "masks" / record.NAME).exists()


@pytest.mark.parametrize(
    "task, item",
    [
        ("classification", "the cat"),
        ("question_answering", ("Who lives?", "Mary lives in Paris.")),
        ("token_classification", "Mary lives in Paris."),
        ("sentence_embedding", "the cat"),
    ],
)
def test_a_batch_has_no_more_rows_than_there_are(
    task, item, tiny_models, monkeypatch
):
    counts = []
    arrays = length_groups.OrderedBatches.arrays

    def counted(self):
        for batch in arrays(self):
            counts.append(len(batch["input_mask"]))
            yield batch

    monkeypatch.setattr(length_groups.OrderedBatches, "arrays", counted)
    folder = "fill_mask" if task == "sentence_embedding" else task
    model = bert.load(tiny_models / folder, task=task, max_seq_length=24)
    (one,), (first, *_) = model.predict([item]), model.predict([item] * 3)
    assert counts == [1, 3]
    if task == "sentence_embedding":
        np.testing.assert_allclose(one, first, atol=1e-5)
    else:
        assert str(one)[:30] == str(first)[:30]


def test_an_empty_list_has_no_results(load, tiny_models, tmp_path):
    for task in TASKS:
        assert load(task).predict([]) == []
        assert load(task).tokenize([]) == []
    model = api.load(tiny_models / "fill_mask", task="sentence_embedding")
    found = model.predict([])
    assert found.shape == (0, *model.predict(["the cat"]).shape[1:])
    assert found.dtype == np.float32
    folder = sentence_models.save(
        tmp_path / "dense",
        pooling=["cls", "mean"],
        dense=[(32, 4, "torch.nn.modules.activation.Tanh")],
    )
    model = api.load(folder, task="sentence_embedding")
    assert model.predict([]).shape == (0, 4)
    assert model.predict(["the cat"]).shape == (1, 4)
    with pytest.raises(errors.InputError, match="no inputs"):
        load("classification").encode([])


def test_the_options_of_load_are_spelled_out():
    given = inspect.signature(bert.load).parameters
    found = {x.name: x.default for x in given.values() if x.name != "path"}
    options = opened_model.Options(squad=None)
    expected = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.name != "text_pair"
    }
    assert found == expected
    for name in ("path", *found):
        assert f"\n      {name}: " in bert.load.__doc__


def test_a_model_says_what_it_is(tiny_models):
    model = api.load(tiny_models / "classification", max_seq_length=24)
    for text in ("classification", ", ".join(LABELS), str(tiny_models), "24"):
        assert text in repr(model)
    assert "\n" not in repr(model)
