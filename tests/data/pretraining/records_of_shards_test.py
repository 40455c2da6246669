"""Proves what the records of shards hold: packed ones, first ones.

pytest tests/data/pretraining/records_of_shards_test.py
"""

import logging
import pathlib

import pytest

from data.pretraining import generation
from tests.data.pretraining import recipes
from tests.data.pretraining.recipes import make, parsed, recipe_for

pytestmark = pytest.mark.usefixtures("small_tasks")


def unmasked(rows):
    """Returns each instance's tokens, segments and label, as sorted tuples."""
    found = []
    packed = "position_ids" in rows
    for row in range(len(rows["input_ids"])):
        ids = rows["input_ids"][row].copy()
        used = rows["masked_lm_weights"][row] > 0
        at = rows["masked_lm_positions"][row][used]
        ids[at] = rows["masked_lm_ids"][row][used]
        for number in range(1, rows["input_mask"][row].max() + 1):
            here = rows["input_mask"][row] == number
            found.append(
                (
                    ids[here].tolist(),
                    rows["segment_ids"][row][here].tolist(),
                    int(rows["next_sentence_labels"][row][number - 1]),
                    int(here[at].sum()),
                )
            )
            if packed:
                positions = rows["position_ids"][row][here]
                assert positions.tolist() == list(range(len(positions)))
                start = rows["next_sentence_positions"][row][number - 1]
                assert start == here.argmax()
    return sorted(found)


def test_packed_shards_hold_the_same_instances_in_fewer_rows(text, tmp_path):
    all_recipes = []
    for name, packed in (("alone", False), ("packed", True)):
        (tmp_path / name).mkdir()
        recipe = recipe_for(
            text, tmp_path / name, pack_sequences=packed, short_seq_prob=0.3
        )
        all_recipes.append((recipe, make(recipe), parsed(recipe)))
    (_, alone, rows), (recipe, made, packed_rows) = all_recipes
    assert unmasked(packed_rows) == unmasked(rows)
    assert made.record_count < 0.9 * alone.record_count
    assert made.record_count == len(packed_rows["input_ids"])
    assert made.kind == "packed_pretraining" and made.schema == recipe.schema
    count = alone.record_count
    assert made.packing["packing_factor"] == count / made.record_count
    real = (packed_rows["input_mask"] > 0).mean()
    assert made.packing["efficiency"] == pytest.approx(real)
    real = (rows["input_mask"] > 0).mean()
    assert made.packing["efficiency_unpacked"] == pytest.approx(real)


@pytest.mark.parametrize("packed", [False, True])
def test_the_first_records_are_shown_before_the_shards_are_written(
    text, tmp_path, monkeypatch, caplog, packed
):
    recipe = recipe_for(text, tmp_path, pack_sequences=packed)
    shown_before = []
    original = generation.write_slice

    def write_slice(recipe, task):
        shown_before.append(caplog.text.count("*** Example ***"))
        return original(recipe, task)

    monkeypatch.setattr(generation, "write_slice", write_slice)
    with caplog.at_level(logging.INFO, logger="absl"):
        make(recipe)
    assert shown_before[0] == generation._EXAMPLES_SHOWN == 3
    first = parsed(recipe)
    ids = first["input_ids"][0][first["input_mask"][0] > 0]
    tokens = " ".join(recipe.vocabulary.tokens[i] for i in ids)
    assert f"tokens: {tokens}" in caplog.text
    ids = first["masked_lm_ids"][0][first["masked_lm_weights"][0] > 0]
    tokens = " ".join(recipe.vocabulary.tokens[i] for i in ids)
    assert f"to predict: {tokens}" in caplog.text


def test_recipes_of_one_seed_draw_other_masks_from_other_text(text, tmp_path):
    """Training and held-out shards of one seed have nothing in common."""
    other = tmp_path / "other.txt"
    other.write_text(recipes.random_documents(1))
    same = tmp_path / "renamed.txt"
    same.write_text(pathlib.Path(text).read_text())
    all_recipes = [recipe_for(str(x), tmp_path) for x in (text, other, same)]
    draws = [
        recipe.rng("masking", 0).random(8).tolist() for recipe in all_recipes
    ]
    assert draws[0] == draws[2]
    assert not set(draws[0]) & set(draws[1])
    purposes = [
        all_recipes[0].rng(x, 0).random() for x in ("masking", "pairing")
    ]
    assert purposes[0] != purposes[1]
