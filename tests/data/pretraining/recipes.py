"""A small text and a recipe for shards of it, for the tests of generation."""

import functools
import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from data import records, workers
from data.pretraining import generation, instances, masking, packing
from data.pretraining.recipe import Recipe, digest_files
from data.tokenization import vocabulary, wordpiece

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
def tokenizer():
    words = vocabulary.Vocabulary.from_tokens(TOKENS, "vocab.txt")
    return wordpiece.Tokenizer(words)


def recipe_for(
    text,
    folder,
    *,
    suffix="",
    shards=2,
    seed=1,
    packed=False,
    words=None,
    **rules,
):
    """Returns the recipe of some text, its shards in a folder."""
    pairing = {"max_seq_length": 40, "dupe_factor": 4, "short_seq_prob": 0.1}
    pairing.update((k, rules.pop(k)) for k in list(rules) if k in pairing)
    texts = (text,) if isinstance(text, str) else tuple(text)
    return Recipe(
        input_files=texts,
        input_digests=digest_files(texts),
        input_format="sentences",
        output_files=tuple(
            f"{folder}/a-{n}.tfrecord{suffix}" for n in range(shards)
        ),
        work_dir=f"{folder}/work",
        tokenizer=tokenizer(),
        pairing=instances.PairingRule(**pairing),
        masking=masking.MaskingRule(**{"max_predictions_per_seq": 5} | rules),
        words=words,
        packing=packing.rule_for(40, 5, 0.15, 4) if packed else None,
        random_seed=seed,
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


def hashes_of_shards(folder):
    """Returns the hashes of the shards that exist."""
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("a-*.tfrecord*")
    ]


def parsed(recipe):
    """Returns all records of a recipe, as arrays."""
    found = []
    for path in recipe.output_files:
        found.extend(records.read(path))
    columns = records.parse(tf.constant(found), recipe.schema)
    return {name: value.numpy() for name, value in columns.items()}
