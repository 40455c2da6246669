"""Tests the functional Keras models of the Python API.

python -m pytest tests/serving/keras_layers_test.py
"""

import json
import runpy
import sys

import exports
import keras
import numpy as np
import pytest
import tensorflow as tf

import bert
from foundation import errors
from modeling import crf, models
from serving import keras_layers
from tasks.ner import tagging
from tests.weights import sentence_models

TEXTS = ["the cat", "dogs sat on the mat"]
CHOICES = [("the", ["cat", "dogs"]), ("a", ["mat", "b c x"])]
CASES = ["fill_mask", "multiple_choice"]
SLOW_CASES = [
    *("classification", "regression", "question_answering"),
    *("token_classification", "sentence_embedding"),
    *("left_to_right", "bilstm", "bilstm_tagger"),
]
CASES += [pytest.param(name, marks=pytest.mark.all) for name in SLOW_CASES]


@pytest.fixture(scope="module")
def load(tiny_models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    classes = {"num_classes": len(exports.LABELS), "labels": exports.LABELS}
    classifier = models.ClassificationModel
    for name, make, options in (
        (
            "left_to_right",
            classifier,
            {**classes, "attention": "left_to_right"},
        ),
        ("bilstm", classifier, {**classes, "bilstm_size": 4}),
        (
            "bilstm_tagger",
            models.TaggingModel,
            {
                "num_classes": len(exports.TAGS),
                "labels": exports.TAGS,
                "bilstm_size": 4,
            },
        ),
    ):
        exports.save_model(folder / name, make, **options)

    def load(case, **options):
        root = tiny_models if (tiny_models / case).exists() else folder
        task = {
            "bilstm": "classification",
            "bilstm_tagger": "token_classification",
        }.get(case)
        if case == "sentence_embedding":
            root, case, task = tiny_models, "fill_mask", case
        return bert.load(root / case, task=task, **options)

    return load


def inputs_of(model):
    choices = model.task == "multiple_choice"
    return model.encode(CHOICES if choices else TEXTS)


def own_outputs(model, inputs):
    """The outputs of the model of modeling/, as a flat list."""
    arguments = [inputs]
    if model.task == "sentence_embedding":
        arguments = [inputs[name] for name in keras_layers.INPUTS]
    outputs = model._opened.model(*arguments)
    if model.task == "sentence_embedding":
        return [outputs.sequence_output]
    return [x for x in tf.nest.flatten(outputs) if x is not None]


def assert_same(found, expected):
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, atol=2e-6),
        dict(found),
        dict(expected),
    )


@pytest.mark.parametrize("case", CASES)
def test_keras_saves_loads_and_clones_it(case, load, tmp_path):
    model = load(case)
    inputs = inputs_of(model)
    keras_model = model.make_keras_model(hidden_states=True)
    outputs = keras_model(inputs)
    own = own_outputs(model, inputs)
    for (name, x), y in zip(outputs.items(), own, strict=False):
        np.testing.assert_allclose(x, y, atol=2e-6, err_msg=name)
    variables = {id(x): x for x in model._opened.model.weights}
    extra = [x for x in keras_model.weights if id(x) not in variables]
    beside = ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"]
    scope = "cls/seq_relationship"
    assert [x.path for x in extra] == {
        "sentence_embedding": beside,
        "fill_mask": [
            *beside,
            *(f"{scope}/output_weights", f"{scope}/output_bias"),
        ],
    }.get(case, [])
    keras_model.save(tmp_path / "x.keras")
    assert_same(keras.models.load_model(tmp_path / "x.keras")(inputs), outputs)
    clone = keras.models.clone_model(keras_model)
    clone.set_weights(keras_model.get_weights())
    assert not {id(x) for x in clone.weights} & {*variables}
    assert_same(clone(inputs), outputs)
    one, two = (keras_model(inputs, training=True) for _ in range(2))
    lists = {"hidden_states", "next_sentence_logits"}
    for name in {*outputs} - lists:
        assert np.abs(one[name] - two[name]).max() > 1e-3, name


def compiled(keras_model, count):
    keras_model.compile(
        keras.optimizers.Adam(0.01),
        loss={"logits": keras.losses.SparseCategoricalCrossentropy(True)},
        metrics={"logits": ["accuracy"]},
    )
    return {"logits": np.arange(count) % 2}


@pytest.mark.all
def test_frozen_layers_stay_and_the_others_are_trained(load, tmp_path):
    model = load("classification")
    before = model.predict(TEXTS)
    frozen = ("embeddings", "layer_0")
    for name in frozen:
        model.keras_model.get_layer(name).trainable = False
    weights = {x.path: x.numpy() for x in model.keras_model.weights}
    keras_model, path = model.keras_model, tmp_path / "best.keras"
    targets = compiled(keras_model, len(TEXTS))
    keras_model.fit(
        inputs_of(model),
        targets,
        epochs=2,
        verbose=0,
        callbacks=[keras.callbacks.ModelCheckpoint(str(path))],
    )
    for variable in keras_model.weights:
        changed = np.any(variable.numpy() != weights[variable.path])
        scopes = ("bert/embeddings/", "bert/encoder/layer_0/")
        # The bias of the keys has no effect on a softmax.
        if not variable.path.endswith("self/key/bias"):
            assert changed != variable.path.startswith(scopes), variable.path
    lines = []
    keras_model.summary(print_fn=lambda text, **_: lines.append(text))
    text = "".join(lines)
    for name in ("embeddings", "layer_0", "pooler", "classifier"):
        assert name in text
    # The API, the checkpoint and a model directory have the trained weights.
    trained = model.predict(TEXTS)
    assert trained != before
    inputs = inputs_of(model)
    read = keras.models.load_model(path)
    assert_same(read(inputs), keras_model(inputs))
    model.save(tmp_path / "saved")
    assert bert.load(tmp_path / "saved").predict(TEXTS) == trained


def test_a_saved_model_is_replaced_unless_that_is_excluded(
    load, tmp_path, caplog
):
    model = load("fill_mask")
    model.save(tmp_path / "saved", overwrite=False)
    assert "is replaced" not in caplog.text
    with pytest.raises(errors.InputError, match="saved: a model is there"):
        model.save(tmp_path / "saved", overwrite=False)
    model.save(tmp_path / "saved")
    assert f"{tmp_path}/saved: the model there is replaced" in caplog.text


def test_words_and_the_head_of_a_loaded_model_have_one_table(load, tmp_path):
    model = load("fill_mask")
    model.keras_model.save(tmp_path / "x.keras")
    read = keras.models.load_model(tmp_path / "x.keras")
    tables = [x for x in read.weights if x.shape[0] == len(exports.WORDS)]
    assert {x.path.rpartition("/")[2] for x in tables} == {
        *("word_embeddings", "output_bias")
    }
    inputs = inputs_of(model)
    with tf.GradientTape() as tape:
        scores = tf.reduce_sum(read(inputs)["masked_lm_logits"][..., 11])
    (table,) = (x for x in tables if len(x.shape) == 2)
    gradient = tape.gradient(scores, table.value)
    unused = set(range(len(exports.WORDS))) - {*inputs["input_ids"].flat}
    # The embeddings of a word are used by the head, without being in the text.
    assert 11 in unused and np.any(tf.convert_to_tensor(gradient)[11])


def test_the_scores_of_a_crf_and_of_squad_are_saved(load, tmp_path):
    model = load("token_classification")
    model.save(tmp_path / "plain")
    tagger = crf.CrfTaggingModel(
        model._opened.model.config,
        num_classes=len(exports.TAGS),
        forbidden=crf.Scores(**tagging.forbidden(exports.TAGS, "bio2")),
    )
    tagging.save_crf(tagger, exports.TAGS, str(tmp_path / "plain"))
    bert.load(tmp_path / "plain").save(tmp_path / "crf")
    assert (tmp_path / "crf" / "crf.json").exists()
    squad = {"version_2_with_negative": True, "null_score_diff_threshold": -2.0}
    load("question_answering", squad=squad).save(tmp_path / "squad")
    stored = json.loads(
        (tmp_path / "squad" / "question_answering.json").read_text()
    )
    assert stored == squad


def test_a_model_without_a_head_is_not_saved(load, tmp_path):
    with pytest.raises(bert.InputError, match="convert_checkpoint.py"):
        load("sentence_embedding").save(tmp_path / "new")


@pytest.mark.parametrize(
    "task, labels",
    [
        ("classification", ["x", "y"]),
        ("question_answering", None),
    ],
)
def test_a_model_gets_a_new_head(task, labels, tiny_models):
    path = tiny_models / "fill_mask"
    squad = {"max_query_length": 8} if task == "question_answering" else {}
    model = bert.load(
        path, task=task, labels=labels, new_head=True, squad=squad
    )
    assert (model.task, model.labels) == (task, labels)
    start = bert.load(path, task="sentence_embedding")
    for name in ("embeddings", "layer_1"):
        for x, y in zip(
            model.keras_model.get_layer(name).weights,
            start.keras_model.get_layer(name).weights,
            strict=True,
        ):
            np.testing.assert_array_equal(x, y)


def test_the_pooled_output_is_that_of_the_pooler(tiny_models, tmp_path):
    path = tiny_models / "classification"
    classifier = bert.load(path)
    pooled = keras.Model(
        classifier.keras_model.inputs,
        classifier.keras_model.get_layer("pooler").output,
    )
    inputs = classifier.encode(TEXTS)
    outputs = bert.load(path, task="sentence_embedding").keras_model(inputs)
    np.testing.assert_allclose(
        outputs["pooled_output"], pooled(inputs), atol=2e-6
    )
    name = next(iter(sentence_models.CASES))
    path = sentence_models.save(tmp_path / "m", **sentence_models.CASES[name])
    outputs = bert.load(path, task="sentence_embedding").keras_model.output
    assert "sequence_output" in outputs


@pytest.mark.all
def test_the_example_learns_a_table(repository, tiny_models, tmp_path, capsys):
    words = ["cat", "mat"] * 20
    rows = [f"{' '.join([word] * 6)},{i % 2}" for i, word in enumerate(words)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    path = str(repository / "examples" / "finetune.py")
    arguments = [f"--model_dir={tiny_models / 'fill_mask'}", "--epochs=30"]
    arguments += [f"--table={tmp_path / 'train.csv'}", "--frozen_layers=1"]
    arguments += [f"--output_dir={tmp_path / 'new'}", "--learning_rate=0.01"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
    assert "cat cat" in capsys.readouterr().out
    model = bert.load(tmp_path / "new")
    found = [x.label for x in model.predict(["cat " * 6, "mat " * 6])]
    assert found == ["0", "1"]
    inputs = model.encode(["the mat"])
    read = keras.models.load_model(tmp_path / "new" / "model.keras")
    assert_same(read(inputs), model.keras_model(inputs))
