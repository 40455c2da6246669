"""A small text and the job that makes shards of it, for the tests of jobs."""

import functools
import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from data import records, workers
from data.pretraining import data_job, instances, masking, packing, shard_files
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


def job_for(
    text, folder, *, suffix="", shards=2, seed=1, packed=False, **rules
):
    """Returns the job of some text, its shards in a folder."""
    pairing = {"max_seq_length": 40, "dupe_factor": 4, "short_seq_prob": 0.1}
    pairing.update((k, rules.pop(k)) for k in list(rules) if k in pairing)
    texts = (text,) if isinstance(text, str) else tuple(text)
    return data_job.Job(
        input_files=texts,
        input_digests=data_job.digest_files(texts),
        input_format="sentences",
        output_files=tuple(
            f"{folder}/a-{n}.tfrecord{suffix}" for n in range(shards)
        ),
        work_dir=f"{folder}/work",
        tokenizer=tokenizer(),
        pairing=instances.PairingRule(**pairing),
        masking=masking.MaskingRule(**{"max_predictions_per_seq": 5} | rules),
        packing=packing.rule_for(40, 5, 0.15, 4) if packed else None,
        random_seed=seed,
    )


def make(job, count=1, **switches):
    """Makes the shards of a job in its folder."""
    path = os.path.join(os.path.dirname(job.work_dir), "a.manifest.json")
    with workers.Workers(count, job, "data.pretraining.data_job") as pool:
        return shard_files.make(job, manifest_path=path, pool=pool, **switches)


def hashes(folder):
    """Returns the hash of every file of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(folder).iterdir())
    }


def hashes_of_shards(folder):
    """Returns the hashes of the shards that stand."""
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("a-*.tfrecord*")
    ]


def parsed(job):
    """Returns all records of a job, as arrays."""
    found = []
    for path in job.output_files:
        found.extend(records.read(path))
    columns = records.parse(tf.constant(found), job.schema)
    return {name: value.numpy() for name, value in columns.items()}
