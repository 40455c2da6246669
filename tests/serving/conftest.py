"""Fixtures of the tests of serving: toy and tiny models, made once."""

import pathlib

import exports
import pytest

from modeling import models
from tests.serving import toy_models


@pytest.fixture(scope="session")
def toys(tmp_path_factory) -> pathlib.Path:
    """A folder with one SavedModel for each function of toy_models."""
    folder = tmp_path_factory.mktemp("toys")
    toy_models.save_all(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory) -> pathlib.Path:
    """A folder with a model directory of each task, of random weights."""
    folder = tmp_path_factory.mktemp("models")
    names = exports.LABELS
    for task, count, labels, problem_type in (
        ("classification", 3, names, None),
        ("regression", 1, None, "regression"),
        ("multilabel", 3, names, "multi_label_classification"),
    ):
        exports.save_model(
            folder / task,
            exports.CLASSIFIER,
            num_classes=count,
            labels=labels,
            problem_type=problem_type,
        )
    exports.save_model(
        folder / "token_classification",
        models.TaggingModel,
        num_classes=len(exports.TAGS),
        labels=exports.TAGS,
    )
    for task, make in (
        ("multiple_choice", models.MultipleChoiceModel),
        ("question_answering", models.QuestionAnsweringModel),
        ("fill_mask", models.PretrainingModel),
    ):
        exports.save_model(folder / task, make)
    # As a training with this flag leaves it.
    path = folder / "question_answering" / "run.json"
    path.write_text('{"flags": {"max_query_length": 8}}')
    return folder
