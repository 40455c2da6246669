"""Fixtures for the tests of jobs: a small text, and small tasks of it."""

import pytest

from data import corpus
from data.pretraining import data_job, shard_files
from tests.data.pretraining import shard_jobs


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of forty documents."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(shard_jobs.random_documents(0))
    return str(path)


@pytest.fixture
def small_tasks(monkeypatch):
    """Several blocks, plans and parts even of a small text."""
    monkeypatch.setattr(data_job, "PART_INSTANCES", 100)
    monkeypatch.setattr(data_job, "_PLAN_PIECES", (500, 500))
    blocks = corpus.read_blocks
    monkeypatch.setattr(
        shard_files.corpus,
        "read_blocks",
        lambda paths: blocks(paths, 2000),
    )
