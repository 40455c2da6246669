"""Proves that masks of stored records are drawn again as their shards say.

pytest tests/tasks/pretraining/redrawn_masks_test.py
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from data.pretraining import masking
from data.pretraining.settings import Settings
from foundation import errors
from tasks.pretraining import objectives, redrawn_masks
from tests.data.pretraining import recipes

STEPS = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Packed and other records of whole words, by the name of their kind."""
    found = {}
    for name in ("alone", "packed"):
        folder = tmp_path_factory.mktemp(name)
        text = folder / "text.txt"
        text.write_text(recipes.random_documents(1))
        found[name] = recipes.recipe_for(
            str(text),
            folder,
            pack_sequences=name == "packed",
            do_whole_word_mask=True,
            mask_token_prob=0.7,
        )
        recipes.make(found[name])
    return found


def masks_of(recipe, rates=(0.15, 0.15), do_whole_word_mask=None, seed=5):
    return redrawn_masks.make(
        rates,
        recipe.output_files,
        do_whole_word_mask,
        recipe.tokenizer,
        seed=seed,
    )


def draw(masks, features, step=3, **options):
    """Draws in a compiled function."""

    @tf.function(autograph=False, **options)
    def compiled(features, step):
        zero = tf.constant(0)
        return masks.draw(lambda x: x / STEPS, features, step, zero)

    found = compiled(features, tf.constant(step, tf.int64))
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.parametrize("kind", ["alone", "packed"])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_stored_records_get_other_masks_of_the_same_tokens(made, kind, rate):
    recipe = made[kind]
    stored = recipes.parsed(recipe)
    masks = masks_of(recipe, (rate, rate))
    found = draw(masks, stored)
    assert found.keys() == stored.keys()
    originals = objectives.unmasked_ids(stored)
    np.testing.assert_array_equal(objectives.unmasked_ids(found), originals)
    assert (found["input_ids"] != stored["input_ids"]).any()
    counts = [x["masked_lm_weights"].sum() for x in (stored, found)]
    # The stored number is limited by max_predictions_per_seq.
    assert counts[1] / counts[0] == pytest.approx(rate / 0.15, rel=0.15)
    spec = {k: tf.TensorSpec(x.shape, x.dtype) for k, x in stored.items()}
    expected = masks.example_spec(spec)
    assert {k: x.shape for k, x in found.items()} == {
        k: tuple(x.shape) for k, x in expected.items()
    }
    for name in found.keys() - {"input_ids"}:
        if not name.startswith("masked_lm"):
            np.testing.assert_array_equal(found[name], stored[name])


def test_the_compiler_changes_nothing(made):
    stored = recipes.parsed(made["packed"])
    masks = masks_of(made["packed"], (0.3, 0.1))
    found = draw(masks, stored, jit_compile=True)
    for name, value in draw(masks, stored).items():
        np.testing.assert_array_equal(found[name], value, name)


def test_the_rate_falls_over_the_run(made):
    stored = recipes.parsed(made["alone"])
    masks = masks_of(made["alone"], (0.4, 0.2), do_whole_word_mask=False)
    lengths = stored["input_mask"].sum(1)
    for step, rate in ((0, 0.4), (5, 0.3), (10, 0.2)):
        rule = Settings(masked_lm_prob=rate, max_predictions_per_seq=40)
        counts = masking.prediction_counts(lengths, rule)
        weights = draw(masks, stored, step)["masked_lm_weights"].sum(1)
        np.testing.assert_array_equal(weights, counts)


def test_the_manifest_says_how_masks_are_drawn(made):
    recipe = made["alone"]
    rule = masks_of(recipe).rule
    assert rule.do_whole_word_mask and rule.mask_token_prob == 0.7
    assert not masks_of(
        recipe, do_whole_word_mask=False
    ).rule.do_whole_word_mask
    found = redrawn_masks.find_rule(["/nowhere/a.tfrecord"], None)
    assert found == Settings()


def test_shards_of_different_rules_are_refused(made):
    paths = [*made["alone"].output_files, "/nowhere/a.tfrecord"]
    with pytest.raises(errors.InputError, match="a.tfrecord.*mask_token_prob"):
        redrawn_masks.find_rule(paths, None)


def test_shards_of_words_from_a_segmenter_are_refused(made, tmp_path):
    paths = []
    for path in made["alone"].output_files:
        paths.append(str(tmp_path / path.rsplit("/", 1)[1]))
        tf.io.gfile.copy(path, paths[-1])
    folder = made["alone"].output_files[0].rsplit("/", 1)[0]
    with open(f"{folder}/a.manifest.json") as file:
        changed = json.load(file)
    changed["job"]["words"] = "white_space"
    (tmp_path / "a.manifest.json").write_text(json.dumps(changed))
    with pytest.raises(errors.InputError, match="--words=white_space"):
        redrawn_masks.find_rule(paths, None)


def test_shards_without_a_vocabulary_are_refused():
    with pytest.raises(
        errors.InputError, match="--mask_schedule.*--vocab_file"
    ):
        redrawn_masks.make((0.3, 0.15), ["a.tfrecord"], None, None, 1)
