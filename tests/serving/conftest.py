"""Fixtures of the tests of serving: toy and tiny models, made once."""

import pathlib

import exports
import pytest

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
    return exports.save_all(tmp_path_factory.mktemp("models"))
