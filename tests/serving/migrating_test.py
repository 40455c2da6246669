"""Runs the code of docs/migrating.md for each class of transformers.

python -m pytest tests/serving/migrating_test.py
"""

import pathlib
import re

import numpy as np
import pytest

import bert
from modeling import models
from weights import model_directory

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migrating.md"
NAMES = [
    *(f"TFBert{x}" for x in ("Model", "ForPreTraining", "ForMaskedLM")),
    *("TFBertLMHeadModel", "TFBertForNextSentencePrediction"),
    *("TFBertForSequenceClassification", "TFBertForMultipleChoice"),
    *("TFBertForTokenClassification", "TFBertForQuestionAnswering"),
    *("BertTokenizer", "TFBertTokenizer"),
]
# Pipeline -> the tiny model that it is run with.
PIPELINES = {
    "text-classification": "classification",
    "token-classification": "token_classification",
    "question-answering": "question_answering",
    "fill-mask": "fill_mask",
    "feature-extraction": "fill_mask",
}


def rows():
    """The names and the lines of code of each row of the table."""
    text = PAGE.read_text().partition("### Classes and pipelines")[2]
    text = text.partition("\n### ")[0]
    found = {}
    for names, code in re.findall(r"^\| (`.*?) \| (`.*`) \|$", text, re.M):
        assert code.count("<br>") == 2, names
        found[names] = [x.strip("`") for x in code.split("<br>")]
    return found


ROWS = rows()


def test_every_class_and_pipeline_has_a_row():
    shown = {x for names in ROWS for x in re.findall(r"`([^`]*)`", names)}
    pipelines = {f'pipeline("{name}")' for name in PIPELINES}
    assert shown == {*NAMES, *pipelines}


@pytest.mark.parametrize("names", ROWS)
def test_the_code_runs(names, tiny_models):
    pipeline = re.search(r'"(.*)"', names)
    folder = PIPELINES[pipeline[1]] if pipeline else "fill_mask"
    path = tiny_models / folder
    context = {"bert": bert, "path": path}
    *lines, last = ROWS[names]
    # The tiny models have 48 positions, the usual questions 64.
    lines = [
        line.replace(
            'task="question_answering"',
            'task="question_answering", squad={"max_query_length": 8}',
        )
        for line in lines
    ]
    exec("\n".join(lines), context)
    if " = " in last:
        exec(last, context)
        assert context["inputs"]["input_ids"].shape[0] == 1
        assert len(context["tokens"][0]) > 2
        return
    found = eval(last, context)
    if pipeline and pipeline[1] != "feature-extraction":
        assert found is not None and (folder != "fill_mask" or len(found) == 3)
        return
    for tensor in found if isinstance(found, tuple) else [found]:
        assert np.all(np.isfinite(tensor))


def test_next_sentences_are_scored_as_in_pre_training(tiny_models):
    model = bert.load(tiny_models / "fill_mask")
    inputs = model.encode([("the cat", "sat on"), ("a dog", "lives in paris")])
    found = model.keras_model(inputs)["next_sentence_logits"]
    own = models.PretrainingModel(model._opened.setup.config)
    tensors = model_directory.read_safetensors(
        str(tiny_models / "fill_mask" / "model.safetensors")
    )
    names = {
        "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
        "bert/pooler/dense/bias": "bert.pooler.dense.bias",
    }
    for variable in model.keras_model.weights:
        for other in own.weights:
            if other.path == variable.path:
                other.assign(variable)
        if variable.path in names:
            np.testing.assert_array_equal(
                variable, tensors[names[variable.path]].read()
            )
    np.testing.assert_allclose(
        found, own(inputs).next_sentence_logits, atol=2e-6
    )
