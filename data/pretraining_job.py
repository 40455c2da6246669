"""Making pre-training shards: a pure function of text, vocabulary and flags.

    text --blocks--> token store --documents--> plans --ranks--> shards
          tokenize                 pair                mask, write

Each arrow is a list of tasks for any number of worker processes; what a task
gives depends on the job and its own number alone, so that shards do not
depend on the workers or on how often the run was killed. Everything between
text and shards lies in a working directory, where a run that was cut off
finds what is done; it is removed once the manifest stands.

How far things are mixed: the shuffle is one uniform permutation of all
instances of all passes, cut into shards; a random next sentence comes from
any other document of the whole corpus, each as likely as another. No worker
holds more than a block of text, one plan or a slice of the order; the store
is mapped, and looked at in bounded portions.
"""

import collections
import dataclasses
import functools
import os
import shutil
import zlib

import numpy as np
import tensorflow as tf

from data import (
    corpus,
    instance_order,
    instances,
    masking,
    records,
    schema,
    token_store,
    tokenization,
)

PART_RECORDS = 1 << 14  # A longer shard is written in parts, then joined.
_BATCH_PIECES = 1 << 17  # Pieces that are masked at once.
_TEXTS_AT_ONCE = 1000  # Few enough for the tokenizer to stay in one thread.
_PLAN_PIECES = (1 << 19, 1 << 24)  # At least and at most, per plan.
_PLANS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """All that the shards depend on, and where they go."""

    input_files: tuple[str, ...]
    input_format: str
    output_files: tuple[str, ...]
    work_dir: str
    tokenizer: tokenization.Tokenizer
    pairing: instances.PairingRule
    masking: masking.MaskingRule
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
        """Returns the source of the draws of one task."""
        seed = self.random_seed % (1 << 64)
        keys = [seed, zlib.crc32(purpose.encode()), number]
        return np.random.Generator(
            np.random.SFC64(np.random.SeedSequence(keys))
        )


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A range of ranks of the global order, and the file that gets it."""

    shard: str
    path: str  # The shard itself if it has one part only.
    ranks: range
    plans: int


def parts_of_shards(job: Job, total: int, plans: int) -> list[list[Part]]:
    """Cuts the global order into shards of equal size, these into parts."""
    result, count = [], len(job.output_files)
    for number, shard in enumerate(job.output_files):
        begin, end = (total * n // count for n in (number, number + 1))
        pieces = -(-(end - begin) // PART_RECORDS)
        bounds = [begin + (end - begin) * n // pieces for n in range(pieces)]
        paths = [shard]
        if pieces > 1:
            name = os.path.basename(shard)
            paths = [
                os.path.join(job.work_dir, f"part-{n:05d}-of-{name}")
                for n in range(pieces)
            ]
        result.append(
            [
                Part(shard=shard, path=path, ranks=range(a, b), plans=plans)
                for path, a, b in zip(
                    paths, bounds, [*bounds[1:], end], strict=True
                )
            ]
        )
    return result


def write_part(job: Job, part: Part) -> Part:
    """Writes the records of one part under its final name."""
    store = open_store(job)
    places = instance_order.read_ranks(job.order_dir, part.plans, part.ranks)
    rng = job.rng("masking", part.ranks.start)
    length = job.pairing.max_seq_length
    step = max(1, _BATCH_PIECES // length)
    with records.ShardWriter(part.path) as writer:
        for start in range(0, len(places), step):
            columns = _columns(job, store, places[start : start + step], rng)
            writer.write(records.encode(job.schema, columns))
    return part


def _columns(job, store, places, rng) -> dict[str, np.ndarray]:
    """Builds the features of a batch of instances."""
    assembled = instances.assemble(
        store.take,
        places,
        max_seq_length=job.pairing.max_seq_length,
        vocabulary=job.vocabulary,
    )
    masked = masking.mask(
        assembled.input_ids,
        assembled.is_candidate,
        assembled.lengths,
        rule=job.masking,
        vocabulary=job.vocabulary,
        rng=rng,
    )
    return {
        **masked._asdict(),
        "input_mask": assembled.input_mask,
        "segment_ids": assembled.segment_ids,
        "next_sentence_labels": places["is_random"][:, None],
    }


def join_parts(parts: list[Part]) -> None:
    """Puts the parts of a shard end to end under its final name.

    Records, and likewise members of a .gz file, may simply follow each other.
    """
    shard = parts[0].shard
    if parts[0].path == shard:
        return
    with (
        records.hidden_name(shard) as hidden,
        tf.io.gfile.GFile(hidden, "wb") as file,
    ):
        for part in parts:
            with open(part.path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
    for part in parts:
        os.remove(part.path)
