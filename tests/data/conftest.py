"""Fixtures for the tests of jobs: a small text, and small tasks."""

import pytest

from data import corpus
from data.pretraining import generation
from tests.data.pretraining import recipes


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of forty documents."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(recipes.random_documents(0))
    return str(path)


@pytest.fixture(scope="module")
def small_tasks():
    """Several blocks, tables and slices even of a small text."""
    blocks = corpus.read_blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "SLICE_INSTANCES", 100)
        patch.setattr(generation, "_TABLE_TOKENS", (500, 500))
        patch.setattr(
            generation.corpus,
            "read_blocks",
            lambda *options: blocks(*options, 2000),
        )
        yield
