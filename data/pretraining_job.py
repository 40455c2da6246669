"""Making pre-training shards: a pure function of text, vocabulary and flags.

    text --blocks--> token store --documents--> plans --ranks--> shards
          tokenize                 pair                mask, write

Each arrow is a list of tasks for any number of worker processes; what a task
gives depends on the job and its own number alone, so that shards do not
depend on the workers or on how often the run was killed. Everything between
text and shards lies in a working directory, where a run that was cut off
finds what is done; it is removed once the manifest stands. This file holds
the job and the first two arrows, pretraining_parts.py the third.

How far things are mixed: the shuffle is one uniform permutation of all
instances of all passes, cut into shards; a random next sentence comes from
any other document of the whole corpus, each as likely as another. No worker
holds more than a block of text, one plan or a slice of the order; the store
is mapped, and looked at in bounded portions.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import zlib
from collections.abc import Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

from data import (
    corpus,
    instance_order,
    instances,
    masking,
    packing,
    schema,
    token_store,
    tokenization,
)

_TEXTS_AT_ONCE = 1000  # Few enough for the tokenizer to stay in one thread.
_PLAN_PIECES = (1 << 19, 1 << 24)  # At least and at most, per plan.
_PLANS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """All that the shards depend on, and where they go."""

    input_files: tuple[str, ...]
    input_digests: tuple[str, ...]  # By `digest_files`.
    input_format: str
    output_files: tuple[str, ...]
    work_dir: str
    tokenizer: tokenization.Tokenizer
    pairing: instances.PairingRule
    masking: masking.MaskingRule
    packing: packing.PackingRule | None
    random_seed: int

    @property
    def vocabulary(self):
        """The vocabulary of the tokenizer."""
        return self.tokenizer.vocabulary

    @property
    def dtype(self) -> np.dtype:
        """How the store keeps a piece."""
        small = len(self.vocabulary) <= 1 << 16
        return np.dtype("<u2" if small else "<i4")

    @property
    def schema(self) -> schema.Schema:
        """What a record holds."""
        if self.packing is not None:
            return schema.packed_pretraining(**dataclasses.asdict(self.packing))
        return schema.pretraining(
            self.pairing.max_seq_length, self.masking.max_predictions_per_seq
        )

    @property
    def store_dir(self) -> str:
        """Where the tokenized corpus lies."""
        return os.path.join(self.work_dir, "store")

    @property
    def order_dir(self) -> str:
        """Where the plans lie."""
        return os.path.join(self.work_dir, "order")

    def rng(self, purpose: str, number: int) -> np.random.Generator:
        """Returns the source of the draws of one task.

        The text is a key too, or jobs of one seed, as for training and
        held-out text, would draw the same masks place by place.
        """
        text = hashlib.blake2b(digest_size=8)
        text.update("".join(self.input_digests).encode())
        seed = self.random_seed % (1 << 64)
        keys = [seed, int(text.hexdigest(), 16)]
        keys += [zlib.crc32(purpose.encode()), number]
        return np.random.Generator(
            np.random.SFC64(np.random.SeedSequence(keys))
        )


def digest_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Returns what identifies the contents of each file."""
    with futures.ThreadPoolExecutor() as pool:
        return tuple(pool.map(_digest, paths))


def _digest(path: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    with tf.io.gfile.GFile(path, "rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest()


@functools.lru_cache(maxsize=1)
def map_store(folder: str, dtype: np.dtype) -> token_store.Store:
    """Maps a tokenized corpus, once in each process."""
    return token_store.Store(folder, dtype)


def open_store(job: Job) -> token_store.Store:
    """Returns the tokenized corpus of a job."""
    return map_store(job.store_dir, job.dtype)


def encode_block(job: Job, block: corpus.Block) -> token_store.EncodedBlock:
    """Tokenizes one block of text; sentences without pieces are dropped."""
    parsed = corpus.parse(block, job.input_format)
    texts = parsed.texts
    encoded = [
        job.tokenizer.encode(texts[start : start + _TEXTS_AT_ONCE])
        for start in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    pieces = np.concatenate([x.ids for x in encoded] or [np.zeros(0, int)])
    lengths = np.concatenate(
        [np.diff(x.row_splits) for x in encoded] or [np.zeros(0, int)]
    )
    kept = lengths > 0
    before = np.concatenate([[0], np.cumsum(kept)])
    counts = collections.Counter(
        **parsed.counts,
        sentences=int(kept.sum()),
        sentences_without_pieces=int((~kept).sum()),
        pieces=len(pieces),
        unknown_pieces=int((pieces == job.vocabulary.unk_id).sum()),
    )
    return token_store.EncodedBlock(
        pieces.astype(job.dtype),
        lengths[kept],
        before[np.unique(np.array(parsed.starts, np.int64))],
        counts,
    )


def document_groups(job: Job) -> list[range]:
    """Returns the documents of each plan."""
    store = open_store(job)
    least, most = _PLAN_PIECES
    size = -(-len(store.corpus.pieces) // _PLANS)
    return store.document_groups(min(max(size, least), most))


def make_plan(job: Job, task: tuple[int, range]) -> instance_order.Totals:
    """Pairs the segments of some documents, unless that was done before."""
    number, documents = task
    totals = instance_order.standing_plan(job.order_dir, number)
    if totals is None:
        store = open_store(job)
        plan = instances.plan(
            store.corpus,
            documents,
            rule=job.pairing,
            rng=job.rng("pairing", number),
            touched=store.touched,
        )
        totals = instance_order.write_plan(job.order_dir, number, plan)
    return totals
