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
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import corpus, records, schema
from data.pretraining import instances, masking, packing, token_store
from data.tokenization import wordpiece
from foundation import file_system

# ----------------------------------------------------------------------
# The global shuffle: every instance of the corpus, in the order of its key.
#
# Each plan (the instances of some documents) lies on disk sorted by its random
# keys, with an index of how many keys lie below each of 65,536 marks. So the
# instances of any range of ranks of the whole are found by reading a small
# slice of every plan: shards are cut from one uniform shuffle of everything,
# and no process ever holds more than a slice.

_BITS = 16


class Totals(NamedTuple):
    """What one plan holds."""

    instances: int
    random_next: int
    lost_pieces: int
    kept_pieces: int  # With [CLS] and [SEP].


def write_plan(folder: str, number: int, plan: instances.Plan) -> Totals:
    """Sorts a plan and writes it; its totals, written last, say it stands."""
    os.makedirs(folder, exist_ok=True)
    order = np.argsort(plan.places["key"], kind="stable")
    places = plan.places[order]
    marks = np.arange(1, 1 << _BITS, dtype=np.uint64) << np.uint64(64 - _BITS)
    below = np.searchsorted(places["key"], marks)
    index = np.concatenate([[0], below, [len(places)]]).astype("<i8")
    totals = Totals(
        instances=len(places),
        random_next=int(places["is_random"].sum()),
        lost_pieces=plan.lost_pieces,
        kept_pieces=int(
            places["a_length"].sum(dtype=np.int64)
            + places["b_length"].sum(dtype=np.int64)
            + 3 * len(places)
        ),
    )
    file_system.write_bytes(_path(folder, number, "places"), places.tobytes())
    file_system.write_bytes(_path(folder, number, "index"), index.tobytes())
    file_system.write_bytes(
        _path(folder, number, "json"), json.dumps(totals._asdict()).encode()
    )
    return totals


def standing_plan(folder: str, number: int) -> Totals | None:
    """Returns the totals of a plan that was written before, or None."""
    path = _path(folder, number, "json")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return Totals(**json.load(file))


def merge_indexes(folder: str, count: int) -> None:
    """Adds up the indexes of all plans, for `Order` to read."""
    total = np.zeros((1 << _BITS) + 1, np.int64)
    for number in range(count):
        total += np.fromfile(_path(folder, number, "index"), "<i8")
    file_system.write_bytes(
        os.path.join(folder, "order.index"), total.tobytes()
    )


def read_ranks(folder: str, plans: int, ranks: range) -> np.ndarray:
    """Returns the instances of these ranks of the global order: PLACE [N]."""
    below = np.fromfile(os.path.join(folder, "order.index"), "<i8")
    first = int(np.searchsorted(below, ranks.start, "right")) - 1
    last = int(np.searchsorted(below, ranks.stop, "left"))
    slices = [
        _read_slice(folder, number, first, last) for number in range(plans)
    ]
    places = np.concatenate(slices)
    places = places[np.argsort(places["key"], kind="stable")]
    begin = ranks.start - int(below[first])
    return places[begin : begin + len(ranks)]


def _read_slice(folder, number, first, last):
    with open(_path(folder, number, "index"), "rb") as file:
        file.seek(8 * first)
        index = np.frombuffer(file.read(8 * (last - first + 1)), "<i8")
    with open(_path(folder, number, "places"), "rb") as file:
        size = instances.PLACE.itemsize
        file.seek(size * int(index[0]))
        data = file.read(size * int(index[-1] - index[0]))
    return np.frombuffer(data, instances.PLACE)


def _path(folder, number, suffix):
    return os.path.join(folder, f"plan-{number:05d}.{suffix}")


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
    tokenizer: wordpiece.Tokenizer
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


def make_plan(job: Job, task: tuple[int, range]) -> Totals:
    """Pairs the segments of some documents, unless that was done before."""
    number, documents = task
    totals = standing_plan(job.order_dir, number)
    if totals is None:
        store = open_store(job)
        plan = instances.plan(
            store.corpus,
            documents,
            rule=job.pairing,
            rng=job.rng("pairing", number),
            touched=store.touched,
        )
        totals = write_plan(job.order_dir, number, plan)
    return totals


# ----------------------------------------------------------------------
# The shards of a pre-training data job, and the parts they are written in.
#
#     global order  0 ......... 40000 ......... 80000      ranks of instances
#     shards        |     shard 0     |     shard 1     |
#     parts         |  0  |  1  |  2  |  0  |  1  |  2  |  16,384 ranks at most
#
# A part is one task: its instances are looked up, masked, packed if so asked,
# encoded and written under a name that it gets when it is whole.

PART_INSTANCES = 1 << 14  # A larger shard is written in parts, then joined.
_BATCH_PIECES = 1 << 17  # Pieces that are masked at once.


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
        pieces = -(-(end - begin) // PART_INSTANCES)
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


def write_part(job: Job, part: Part) -> None:
    """Writes the records of one part under its name, unless it stands."""
    if tf.io.gfile.exists(part.path):
        return
    with records.ShardWriter(part.path) as writer:
        for columns in _batches(job, part):
            writer.write(records.encode(job.schema, columns))


def first_records(job: Job, part: Part, count: int) -> dict[str, np.ndarray]:
    """Returns the features of the first records that a part will hold."""
    columns = next(_batches(job, part))
    return {name: values[:count] for name, values in columns.items()}


def _batches(job: Job, part: Part) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of a part's records, some at a time."""
    places = read_ranks(job.order_dir, part.plans, part.ranks)
    rng = job.rng("masking", part.ranks.start)
    step = max(1, _BATCH_PIECES // job.pairing.max_seq_length)
    if job.packing is None:
        for start in range(0, len(places), step):
            yield _columns(job, places[start : start + step], rng)
        return
    rows = _rows(job, places, job.rng("packing", part.ranks.start))
    order = np.argsort(rows, kind="stable")
    places, rows = places[order], rows[order]
    for first in range(0, int(rows[-1]) + 1, step):
        last = min(first + step, int(rows[-1]) + 1)
        begin, end = np.searchsorted(rows, (first, last))
        columns = _columns(job, places[begin:end], rng)
        own = rows[begin:end] - first
        yield packing.lay_out(columns, own, last - first, job.packing)


def _rows(job, places, rng) -> np.ndarray:
    """Packs the instances of a part: int64 [N], the row of each."""
    lengths = places["a_length"].astype(np.int64) + places["b_length"] + 3
    predictions = masking.prediction_counts(lengths, job.masking)
    return packing.pack(lengths, predictions, job.packing, rng)


def _columns(job, places, rng) -> dict[str, np.ndarray]:
    """Builds the features of a batch of instances."""
    assembled = instances.assemble(
        open_store(job).take,
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
        file_system.replacing(shard) as hidden,
        tf.io.gfile.GFile(hidden, "wb") as file,
    ):
        for part in parts:
            with open(part.path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
    for part in parts:
        os.remove(part.path)
