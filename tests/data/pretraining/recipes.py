"""A small text and a recipe for shards of it, for the tests of generation."""

import functools
import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from data import records, workers
from data.pretraining import generation
from data.pretraining.recipe import Recipe, digest_files
from data.pretraining.settings import Settings
from data.tokenization import vocabulary

LETTERS = "abcdefghij"
TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."),
    *LETTERS,
    *("##" + letter for letter in LETTERS),
]


def random_documents(seed):
    """Returns forty documents of random words over ten letters."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(40):
        for _ in range(rng.integers(1, 12)):
            words = [
                "".join(rng.choice(list(LETTERS), rng.integers(1, 4)))
                for _ in range(rng.integers(1, 9))
            ]
            lines.append(" ".join(words) + ".")
        lines.append("")
    return "\n".join(lines)


@functools.cache
def words_of_text():
    return vocabulary.Vocabulary.from_tokens(TOKENS, "vocab.txt")


def recipe_for(text, folder, *, suffix="", shards=2, seed=1, **settings):
    """Returns the recipe of some text, its shards in a folder."""
    small = {
        "max_seq_length": 40,
        "max_predictions_per_seq": 5,
        "dupe_factor": 4,
        "instances_per_row": 4,
        "random_seed": seed,
    }
    texts = (text,) if isinstance(text, str) else tuple(text)
    return Recipe(
        settings=Settings(**small | settings),
        input_files=texts,
        input_digests=digest_files(texts),
        output_files=tuple(
            f"{folder}/a-{n}.tfrecord{suffix}" for n in range(shards)
        ),
        work_dir=f"{folder}/work",
        vocabulary=words_of_text(),
    )


def make(recipe, count=1, **switches):
    """Makes the shards of a recipe in its folder."""
    path = os.path.join(os.path.dirname(recipe.work_dir), "a.manifest.json")
    with workers.Workers(count, recipe, "data.pretraining.generation") as pool:
        return generation.make(
            recipe, manifest_path=path, pool=pool, **switches
        )


def hashes(folder):
    """Returns the hash of every file of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(folder).iterdir())
    }


def parsed(recipe):
    """Returns all records of a recipe, as arrays."""
    found = []
    for path in recipe.output_files:
        found.extend(records.read(path))
    columns = records.parse(tf.constant(found), recipe.schema)
    return {name: value.numpy() for name, value in columns.items()}
