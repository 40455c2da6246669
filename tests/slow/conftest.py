"""Fixtures of this folder: data and a warm process that its tests share."""

import pytest

from tests.slow import scenarios, warm


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    with warm.Warm(tmp_path_factory.mktemp("warm")) as started:
        yield started


@pytest.fixture(scope="session")
def data(tmp_path_factory, process):
    """The directory of the toy data."""
    return scenarios.make(tmp_path_factory.mktemp("toy"), process)
