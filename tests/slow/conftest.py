"""Fixtures of this folder: data and a warm process that its tests share."""

import pytest

from tests.slow import scenarios, warm


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    with warm.Warm(tmp_path_factory.mktemp("warm")) as started:
        yield started


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The directory of the toy data, without trained models."""
    return scenarios.make(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def data(files, process):
    """The same with records and a classifier."""
    scenarios.train(files, process)
    return files
