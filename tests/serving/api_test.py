"""Tests that the Python API gives the results of the commands.

python -m pytest tests/serving/api_test.py
"""

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
from data import length_groups
from foundation import errors
from serving import api
from tests.weights import sentence_models
from weights import task_files

LABELS = exports.LABELS
# The command reads tables, in which these characters have a meaning.
TEXTS = [text.replace("\0", " ") for text in exports.TEXTS]
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


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ("classification", "xy", "3 outputs.*id2label"),
        ("classification", "xyx", "'x'.*id2label"),
        ("token_classification", "OB", "5 outputs.*id2label"),
        ("token_classification", "OBIAA", "'A'.*id2label"),
        ("token_classification", {0: "O", 2: "B"}, "--label_names .*labels="),
    ],
)
def test_labels_that_do_not_fit_the_head_can_be_replaced(
    task, names, message, tiny_models, tmp_path
):
    ids = names if isinstance(names, dict) else dict(enumerate(names))
    path = changed(tiny_models / task, tmp_path, id2label=ids)
    with pytest.raises(errors.InputError, match=message):
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
    is_named = f"its head is unknown ({architecture}, with linear.weight)"
    assert (is_named in caplog.text) == (architecture is not None)


def test_all_files_of_a_cached_model_are_read(tiny_models, tmp_path):
    snapshot = tmp_path / "models--me--tagger" / "snapshots" / "abc"
    shutil.copytree(tiny_models / "token_classification", snapshot)
    (snapshot / "run.json").write_text('{"flags": {"max_seq_length": 20}}')
    assert api.load(str(snapshot.parents[1])).max_seq_length == 20


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


SENTENCES = json.loads(
    (tiny_runs.ROOT / "tests/testdata/sentence_modules.json").read_text()
)


@pytest.mark.parametrize("name", sentence_models.CASES)
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    arguments = sentence_models.CASES[name]
    path = sentence_models.save(tmp_path / "model", **arguments)
    model = api.load(str(path), task="sentence_embedding")
    assert model.max_seq_length == arguments.get("max_seq_length", 48)
    found = model.predict(sentence_models.TEXTS)
    np.testing.assert_allclose(found, SENTENCES[name], atol=5e-6)


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


IMPOSSIBLE = [
    ("a text", {}, "a list is needed"),
    (None, {"task": "translation"}, "none of classification"),
    (None, {"task": "token_classification"}, "another task"),
    (None, {"labels": ["a", "b"]}, "3 classes"),
    (None, {"max_seq_length": 1000}, "positions"),
    (None, {"pooling": "avg"}, "pooling=avg: none of cls, max, mean"),
    (
        None,
        {"batch_size": 0},
        "batch_size=0: must be at least 1",
    ),
    (None, {"max_seq_length": 2}, "max_seq_length=2: .* at least 3"),
    (None, {"top_k": -1}, "top_k=-1: must be at least 1"),
    (None, {"max_seq_length": "64"}, "max_seq_length=64: .* only 48"),
    (None, {"top_k": 3}, "--top_k: only for fill_mask; the task of .*clas"),
    (None, {"document_context": True}, "only for token_classification"),
    (None, {"squad": {"no": 1}}, "'no' is none of doc_stride"),
    (None, {"squad": {"doc_stride": 1}}, "only for question_answering"),
    (None, {"labels": dict.fromkeys(LABELS, 1)}, "be a text"),
    (None, {"labels": "abc"}, "3 classes"),
    (None, {"normalize": "no"}, "normalize=no: must be True or False"),
    (["a", ("a", "b", "c")], {}, "a text or a pair"),
    ([1], {}, "a text or a pair"),
    (1, {}, "a list is needed, not 1"),
    ({"the cat": 0}, {}, "a list is needed"),
    ({"the cat"}, {}, "a list is needed"),
    (np.zeros((2, 2)), {}, "a list is needed"),
]
UNREADABLE = [
    ("multiple_choice", "the cat", r"is not a pair \(beginning, "),
    ("multiple_choice", ("the", "cat"), r"is not a pair \(beginning, "),
    ("question_answering", ("the", 1), r"is not a pair \(question, parag"),
    ("token_classification", ("the", "cat"), "is not a text"),
    ("fill_mask", "the cat", r"no \[MASK\]"),
    ("multiple_choice", ("a", []), "same number of endings"),
]


@pytest.mark.parametrize(
    "task, inputs, options, message",
    [
        *(("classification", *row) for row in IMPOSSIBLE),
        *((task, [item], {}, message) for task, item, message in UNREADABLE),
        (
            "question_answering",
            None,
            {"squad": {"null_score_diff_threshold": 1.0}},
            "--version_2_with_negative",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tiny_models, task, inputs, options, message
):
    with pytest.raises(errors.InputError, match=message) as caught:
        api.load(str(tiny_models / task), **options).predict(inputs)
    assert "\n" not in str(caught.value)


def test_a_path_of_any_kind_is_taken(tiny_models):
    path = tiny_models / "classification"
    assert api.load(pathlib.Path(path)).labels == api.load(str(path)).labels


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


SAVED = [
    ("classification", {"max_seq_length": 12}, TEXTS[:4]),
    ("regression", {}, TEXTS[:4]),
    ("multilabel", {}, TEXTS[:4]),
    ("multiple_choice", {}, [("the", ["cat", "dogs"])]),
    (
        "question_answering",
        {
            "max_seq_length": 24,
            "squad": {"doc_stride": 5, "max_query_length": 8},
        },
        QUESTIONS,
    ),
    (
        "token_classification",
        {"max_seq_length": 24, "document_context": True},
        TEXTS[:4],
    ),
    ("fill_mask", {}, ["the [MASK] sat"]),
]


@pytest.mark.parametrize(
    "task, options, inputs",
    [
        x
        if x[0] in ("classification", "question_answering", "fill_mask")
        else pytest.param(*x, marks=pytest.mark.all)
        for x in SAVED
    ],
)
def test_a_saved_model_reads_and_predicts_as_before(
    tiny_models, tmp_path, task, options, inputs
):
    path = tiny_models / task
    if task == "classification":
        long = {"task_name": "csv", "long_texts": "max", "doc_stride": 4}
        path = with_flags(path, tmp_path, **long)
    model = api.load(path, **options)
    model.save(tmp_path / "saved")
    again = api.load(tmp_path / "saved")
    assert (again.task, again.labels) == (model.task, model.labels)
    assert again.max_seq_length == model.max_seq_length
    assert again.predict(inputs) == model.predict(inputs)


def test_an_empty_list_has_no_results(load, tmp_path):
    for task in TASKS:
        assert load(task).predict([]) == load(task).tokenize([]) == []
    folder = sentence_models.save(
        tmp_path / "dense",
        pooling=["cls", "mean"],
        dense=[(32, 4, "torch.nn.modules.activation.Tanh")],
    )
    model = api.load(folder, task="sentence_embedding")
    assert model.predict([]).shape == (0, 4)


@pytest.mark.parametrize(
    "task, item",
    [
        ("classification", "the cat"),
        ("question_answering", ("Who lives?", "Mary lives in Paris.")),
        ("token_classification", "Mary lives in Paris."),
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
    model = bert.load(tiny_models / task, task=task, max_seq_length=24)
    (one,), (first, *_) = model.predict([item]), model.predict([item] * 3)
    assert counts == [1, 3]
    assert str(one)[:30] == str(first)[:30]
