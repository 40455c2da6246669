"""Marks the tests of this folder; they share data and a warm process."""

import pathlib

import pytest

from tests.slow import scenarios, warm


def pytest_collection_modifyitems(items):
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.all)


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    with warm.Warm(tmp_path_factory.mktemp("warm")) as started:
        yield started


@pytest.fixture(scope="session")
def data(tmp_path_factory, process):
    """The directory of the toy data."""
    return scenarios.make(tmp_path_factory.mktemp("toy"), process)
