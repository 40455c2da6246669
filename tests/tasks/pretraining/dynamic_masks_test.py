"""Proves that masks of stored records are drawn anew as their shards say.

pytest tests/tasks/pretraining/dynamic_masks_test.py
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from data import manifest
from foundation import errors
from tasks.pretraining import dynamic_masks, objectives
from tests.data.pretraining import recipes


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Packed and other records, by the name of their kind."""
    found = {}
    for name in ("alone", "packed", "words", "packed words"):
        folder = tmp_path_factory.mktemp(name.replace(" ", "_"))
        text = folder / "text.txt"
        text.write_text(recipes.random_documents(1))
        found[name] = recipes.recipe_for(
            str(text),
            folder,
            pack_sequences=name.startswith("packed"),
            do_whole_word_mask=name.endswith("words"),
            mask_token_prob=0.7,
        )
        recipes.make(found[name])
    return found


def masks_of(recipe):
    most = manifest.find(recipe.output_files)
    (most,) = {x.max_predictions_per_seq for x in most.values()}
    return dynamic_masks.of_shards(recipe.output_files, most, recipe.tokenizer)


def redraw(masks, stored, seed=5):
    return stored | masks.redraw(stored, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["alone", "packed", "words", "packed words"])
def test_stored_records_get_other_masks_of_the_same_tokens(made, kind):
    stored = {k: np.array(v) for k, v in recipes.parsed(made[kind]).items()}
    masks = masks_of(made[kind])
    found = redraw(masks, stored)
    for name, value in stored.items():
        assert found[name].shape == value.shape
        assert found[name].dtype == value.dtype
        if name not in dynamic_masks._CHANGED:
            assert found[name] is value
    originals = objectives.unmasked_ids(stored)
    np.testing.assert_array_equal(objectives.unmasked_ids(found), originals)
    used, weights = (x["masked_lm_weights"] > 0 for x in (found, stored))
    if "words" not in kind:
        # As many predictions for each row, also of each instance.
        np.testing.assert_array_equal(used, weights)
    assert used.sum() == pytest.approx(weights.sum(), rel=0.05)
    at = [
        np.where(u, x["masked_lm_positions"], 99)
        for u, x in ((used, found), (weights, stored))
    ]
    assert (np.diff(at[0], axis=1) >= 0).all()
    assert (at[0] != at[1]).any(axis=1).mean() > 0.9
    rows, places = np.nonzero(used)
    shown = found["input_ids"][rows, found["masked_lm_positions"][used]]
    is_mask = shown == masks.vocabulary.mask_id
    assert is_mask.mean() == pytest.approx(0.7, abs=0.1)
    labels = found["masked_lm_ids"][used]
    special = (masks.vocabulary.cls_id, masks.vocabulary.sep_id)
    assert not np.isin(labels, special).any()
    if "words" in kind:  # A continuation is predicted with its word's start.
        continues = masks.vocabulary.is_continuation[np.array(originals)]
        is_predicted = np.zeros(continues.shape, bool)
        is_predicted[rows, found["masked_lm_positions"][used]] = True
        inside = is_predicted[:, 1:] & continues[:, 1:]
        before = is_predicted | np.isin(np.array(originals), special)
        assert inside.any() and before[:, :-1][inside].all()


def test_each_instance_of_a_packed_row_keeps_its_number(made):
    stored = {k: np.array(v) for k, v in recipes.parsed(made["packed"]).items()}
    counts = []
    for features in (stored, redraw(masks_of(made["packed"]), stored)):
        rows, places = np.nonzero(features["masked_lm_weights"])
        at = features["masked_lm_positions"][rows, places]
        counts.append(
            np.unique(
                np.stack([rows, stored["input_mask"][rows, at]]),
                axis=1,
                return_counts=True,
            )
        )
    for found, expected in zip(*counts, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_rows_without_room_predict_and_mask_fewer(made):
    stored = {k: np.array(v) for k, v in recipes.parsed(made["packed"]).items()}
    masks = masks_of(made["packed"])
    many = dataclasses.replace(
        masks.rule, masked_lm_prob=0.9, max_predictions_per_seq=40
    )
    found = redraw(dataclasses.replace(masks, rule=many), stored)
    np.testing.assert_array_equal(
        objectives.unmasked_ids(found), objectives.unmasked_ids(stored)
    )
    assert found["masked_lm_weights"].mean() > 0.9


def test_batches_are_functions_of_seed_and_number(made):
    recipe, masks = made["alone"], masks_of(made["alone"])
    stored = recipes.parsed(recipe)

    def make(*, first_batch, part, num_parts):
        one = tf.data.Dataset.from_tensors(
            {k: v[part::num_parts][:4] for k, v in stored.items()}
        )
        return one.repeat()

    def drawn(first_batch=0, part=0, num_parts=1, seed=-3):
        batches = masks.batches(make, seed)(
            first_batch=first_batch, part=part, num_parts=num_parts
        )
        for name, spec in batches.element_spec.items():
            assert spec.shape == (4, *stored[name].shape[1:])
        return [
            x["input_ids"].tobytes()
            for x in batches.take(3).as_numpy_iterator()
        ]

    first = drawn()
    assert len(set(first)) == 3
    assert drawn(first_batch=1)[:2] == first[1:] == drawn()[1:]
    assert drawn(seed=4)[0] != first[0]


def test_the_manifest_says_how_masks_are_drawn(made, tmp_path):
    rule = masks_of(made["words"]).rule
    assert rule.do_whole_word_mask and rule.mask_token_prob == 0.7
    plain = dynamic_masks.of_shards(
        [str(tmp_path / "a.tfrecord")], 7, made["words"].tokenizer
    ).rule
    assert plain.max_predictions_per_seq == 7
    assert (plain.masked_lm_prob, plain.mask_token_prob) == (0.15, 0.8)


def test_shards_of_different_rules_are_refused(made, tmp_path):
    paths = [*made["alone"].output_files, str(tmp_path / "a.tfrecord")]
    with pytest.raises(errors.InputError, match="a.tfrecord.*mask_token_prob"):
        dynamic_masks.of_shards(paths, 20, made["alone"].tokenizer)


def test_shards_without_a_vocabulary_are_refused():
    with pytest.raises(errors.InputError, match="--dynamic_masking.*--vocab"):
        dynamic_masks.of_shards(["a.tfrecord"], 20, None)
