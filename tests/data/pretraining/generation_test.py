"""Proves that shards are a function of text and flags, whatever happens.

pytest tests/data/pretraining/generation_test.py
"""

import numpy as np
import pytest

from data import manifest, records
from tests.data.pretraining.recipes import (
    hashes,
    make,
    parsed,
    recipe_for,
)

pytestmark = pytest.mark.usefixtures("small_tasks")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_shards_are_complete_and_listed_in_the_manifest(
    text, tmp_path, suffix
):
    recipe = recipe_for(text, tmp_path, suffix=suffix)
    made = make(recipe)
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        f"a-0.tfrecord{suffix}",
        f"a-1.tfrecord{suffix}",
        "a.manifest.json",
        "a.vocab.txt",
    ]
    assert made == manifest.read(f"{tmp_path}/a.manifest.json")
    sizes = [shard.records for shard in made.shards]
    assert sizes == records.counts(recipe.output_files)
    assert max(sizes) - min(sizes) <= 1 and max(sizes) > 100
    assert made.totals["documents"] == 40
    manifest.check(
        list(recipe.output_files),
        max_seq_length=40,
        max_predictions_per_seq=5,
        vocabulary=recipe.vocabulary,
    )


def test_the_records_obey_the_released_conventions(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    make(recipe)
    rows = parsed(recipe)
    ids, mask, segments = (
        rows[x] for x in ("input_ids", "input_mask", "segment_ids")
    )
    lengths = mask.sum(1)
    column = np.arange(40)
    np.testing.assert_array_equal(mask, column < lengths[:, None])
    assert not ids[mask == 0].any() and not segments[mask == 0].any()
    used = rows["masked_lm_weights"] > 0
    restored = ids.copy()
    row, position = np.nonzero(used)
    restored[row, rows["masked_lm_positions"][row, position]] = rows[
        "masked_lm_ids"
    ][row, position]
    words = recipe.vocabulary
    assert (restored[:, 0] == words.cls_id).all()
    assert ((restored == words.sep_id).sum(1) == 2).all()
    first_sep = (restored == words.sep_id).argmax(1)
    np.testing.assert_array_equal(
        segments, (column > first_sep[:, None]) & (mask == 1)
    )
    last = restored[np.arange(len(ids)), lengths - 1]
    assert (last == words.sep_id).all()
    assert not (restored == words.mask_id).any()
    assert set(rows["next_sentence_labels"].ravel()) == {0, 1}


def test_the_seed_and_nothing_else_changes_the_shards(text, tmp_path):
    made = []
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        (tmp_path / name).mkdir()
        make(recipe_for(text, tmp_path / name, seed=seed))
        made.append(hashes(tmp_path / name))
    assert made[0] == made[1]
    for name in ("a-0.tfrecord", "a-1.tfrecord"):
        assert made[0][name] != made[2][name]


@pytest.mark.parametrize("end, is_told", [("", True), ("\n \n", False)])
def test_a_file_without_a_blank_line_at_its_end_is_named(
    text, tmp_path, caplog, end, is_told
):
    first = str(tmp_path / "first.txt")
    (tmp_path / "first.txt").write_text("a bad cab .\na bee ." + end)
    make(recipe_for((first, text), tmp_path))
    assert (f"{first} and 0 other files" in caplog.text) == is_told


def test_dropped_text_is_counted(tmp_path):
    path = tmp_path / "dropped.txt"
    path.write_bytes(b"a b\xff c.\n\xe2\x80\x8b\nq.\n\nd e.\n")
    totals = make(recipe_for(str(path), tmp_path)).totals
    assert totals["invalid_bytes"] == 1
    assert totals["sentences_without_pieces"] == 1
    assert totals["unknown_pieces"] == 1
    assert totals["sentences"] == 3 and totals["lines"] == 5


def test_whole_words_stay_whole_in_the_shards(text, tmp_path):
    recipe = recipe_for(text, tmp_path, do_whole_word_mask=True)
    make(recipe)
    rows = parsed(recipe)
    words = recipe.vocabulary.is_continuation
    used = rows["masked_lm_weights"] > 0
    # Where a continuation is predicted, so is the position before it.
    position = rows["masked_lm_positions"]
    continued = used[:, 1:] & words[rows["masked_lm_ids"][:, 1:]]
    gaps = (position[:, 1:] - position[:, :-1])[continued]
    assert len(gaps) > 50 and np.isin(gaps, (1, 2)).all()
