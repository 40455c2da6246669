"""Proves when a run continues, and which existing files it refuses.

The corpus on disk is what was appended, also after a kill.

pytest tests/data/pretraining/work_dir_test.py
"""

import os
import pathlib

import numpy as np
import pytest

from data.pretraining import generation, work_dir
from data.tokenization import vocabulary
from foundation import errors
from tests.data.pretraining.recipes import hashes, make, recipe_for

pytestmark = pytest.mark.usefixtures("small_tasks")


def test_a_finished_run_recognizes_itself(text, tmp_path, monkeypatch):
    recipe = recipe_for(text, tmp_path)
    made, before = make(recipe), hashes(tmp_path)
    monkeypatch.setattr(generation, "_tokenize", None)
    assert make(recipe) == made
    assert hashes(tmp_path) == before


def test_other_shards_are_not_overwritten(text, tmp_path):
    (tmp_path / "a-1.tfrecord").write_text("precious")
    with pytest.raises(
        errors.InputError, match="a-1.tfrecord: exists .*/work was lost"
    ):
        make(recipe_for(text, tmp_path))
    assert (tmp_path / "a-1.tfrecord").read_text() == "precious"


def test_two_runs_cannot_use_one_directory(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    with work_dir.locked(recipe):
        with pytest.raises(errors.InputError, match="another run is using it"):
            with work_dir.locked(recipe):
                pass


def test_one_document_is_refused_unless_allowed(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a b c.\nd e f.\n" * 30)
    recipe = recipe_for(str(path), tmp_path)
    with pytest.raises(errors.InputError, match="one document only.*--allow_"):
        make(recipe)
    several = recipe_for([str(path)] * 9, tmp_path)
    with pytest.raises(
        errors.InputError,
        match="--input_file=[^,]*one.txt and 8 more: holds one document only"
        ".*the end of a file does not end one",
    ):
        make(several)
    made = make(recipe, allow_single_document=True)
    assert made.record_count > 2 and made.totals["documents"] == 1


def test_the_vocabulary_lies_beside_the_shards(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    made = make(recipe)
    words = tmp_path / made.vocabulary["file"]
    copy = vocabulary.Vocabulary.from_file(str(words))
    assert copy.sha256 == made.vocabulary["sha256"] == recipe.vocabulary.sha256
    words.unlink()
    make(recipe)
    assert words.exists()
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(errors.InputError, match="a.vocab.txt: differs from"):
        make(recipe)


def test_a_working_directory_with_files_of_others_is_refused(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    theirs = pathlib.Path(recipe.work_dir) / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("x")
    with pytest.raises(errors.InputError, match="holds thesis.txt"):
        make(recipe)
    assert theirs.read_text() == "x"


def test_a_corpus_that_was_moved_is_the_same_corpus(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    made = make(recipe)
    moved = tmp_path / "moved.txt"
    moved.write_text(pathlib.Path(text).read_text())
    assert make(recipe_for(str(moved), tmp_path)) == made


def block(lengths, starts=(), first=0):
    lengths = np.array(lengths, np.int64)
    return work_dir.EncodedBlock(
        np.arange(first, first + lengths.sum(), dtype=np.uint16),
        lengths,
        np.array(starts, np.int64),
    )


# Documents: 2+3 | 4 | 1+5 (over three blocks, one of them empty) | 2.
BLOCKS = [
    block([2, 3, 4], [2, 3]),
    block([1], [0], first=9),
    block([]),
    block([5, 2], [1, 1], first=10),
    block([], [0]),
]


@pytest.fixture
def recipe(text, tmp_path):
    (tmp_path / "work" / "finished").mkdir(parents=True)
    return recipe_for(text, tmp_path)


def store_of(recipe, blocks):
    for number, one in enumerate(blocks):
        path = work_dir.block_path(recipe, number)
        np.savez(path, **one._asdict())
        os.rename(f"{path}.npz", path)
    path = work_dir.path_of(recipe, "store")
    work_dir.join_blocks(recipe, len(blocks), path)
    work_dir.token_store.cache_clear()
    return work_dir.token_store(recipe)


def test_blocks_become_documents_of_sentences(recipe):
    corpus = store_of(recipe, BLOCKS).corpus
    assert corpus.tokens.tolist() == list(range(17))
    assert corpus.sentence_starts.tolist() == [0, 2, 5, 9, 10, 15, 17]
    assert corpus.document_starts.tolist() == [0, 2, 3, 5, 6]


def test_documents_are_grouped_without_a_gap(recipe):
    store = store_of(recipe, BLOCKS)
    for tokens in (1, 3, 6, 9, 100):
        groups = store.document_groups(tokens)
        assert [d for group in groups for d in group] == [0, 1, 2, 3]
        assert all(len(group) for group in groups)
    assert len(store.document_groups(1)) == 4
    assert len(store.document_groups(100)) == 1


def test_tokens_outside_are_the_nearest(recipe):
    where = np.random.default_rng(0).integers(-2, 20, (50, 7))
    found = store_of(recipe, BLOCKS).take(where)
    np.testing.assert_array_equal(found, np.clip(where, 0, 16))
