"""Fixtures of the tests of export: toy models, made once."""

import pathlib

import pytest

from tests.export import toy_models


@pytest.fixture(scope="session")
def toys(tmp_path_factory) -> pathlib.Path:
    """A folder with one SavedModel for each function of toy_models."""
    folder = tmp_path_factory.mktemp("toys")
    toy_models.save_all(folder)
    return folder
