"""Running a pre-training data job from end to end, or on from where it stood.

    tokenize -> pair -> show the first records -> write shards -> manifest

Several runs may share a job (see `Group`): one of them tokenizes while the
others wait; each pairs its plans and then whatever the others have not, so
that none depends on another being alive; each writes its own shards; the last
one writes the manifest.
"""

import collections
import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from data import corpus, manifest, records, workers
from data.pretraining import data_job, token_store
from data.pretraining.data_job import Job
from data.tokenization import vocabulary
from foundation import errors, file_system

# ----------------------------------------------------------------------
# What lies at the output place of a job, and whether the job may go on there.
#
# A manifest of the same job means finished, one of another job is refused; a
# working directory of the same job is gone on with. Same job means: same bytes
# of text, vocabulary and flags.

# As file_system names them, and data.pretraining.data_job names parts.
_PARTIAL = re.compile(
    r"\.(?:part-\d+-of-)?(?P<shard>.+)\.[0-9a-f]{12}"
    + re.escape(file_system.INCOMPLETE)
)
_JOB = "job.json"
FORMAT_VERSION = 2  # Raised whenever the same job would give other bytes.


def describe(job: Job) -> dict:
    """Returns everything that the shards are a function of, as JSON."""
    packing = {}
    if job.packing is not None:
        packing = {"pack_sequences": dataclasses.asdict(job.packing)}
    return {
        "format_version": FORMAT_VERSION,
        "input_format": job.input_format,
        "input_files": [
            {"file": os.path.basename(path), "blake2b": digest}
            for path, digest in zip(
                job.input_files, job.input_digests, strict=True
            )
        ],
        "output_files": [os.path.basename(path) for path in job.output_files],
        "vocabulary": job.vocabulary.sha256,
        **job.tokenizer.settings,
        **dataclasses.asdict(job.pairing),
        **dataclasses.asdict(job.masking),
        **packing,
        "random_seed": job.random_seed,
    }


def finished(manifest_path: str, description: dict) -> manifest.Manifest | None:
    """Returns the manifest of the same job if its shards all stand."""
    if not tf.io.gfile.exists(manifest_path):
        return None
    found = manifest.read(manifest_path)
    _refuse_changes(manifest_path, found.job, description)
    folder = os.path.dirname(manifest_path)
    for shard in found.shards:
        path = os.path.join(folder, shard.file)
        if not tf.io.gfile.exists(path):
            raise errors.InputError(
                f"{manifest_path}: its shard {path} is gone; remove the "
                "manifest and the other shards to make them again"
            )
        if tf.io.gfile.stat(path).length != shard.bytes:
            raise errors.InputError(
                f"{path}: not the {shard.bytes} bytes that {manifest_path} "
                "says; remove both to make the shards again"
            )
    return found


def _refuse_changes(place, before, now) -> None:
    for name in [*now, *before]:
        then, given = before.get(name), now.get(name)
        if then != given:
            if name == "output_files":
                change = "--output_file, --output_prefix or --num_shards"
            elif isinstance(then or given, list):
                change = f"--{name}: other files or other contents"
            else:
                change = f"--{name}: {then} then, {given} now"
            raise errors.InputError(
                f"{place}: belongs to shards of another run ({change}); "
                "choose another place or remove what lies there"
            )


@contextlib.contextmanager
def claimed(
    job: Job, description: dict, own: Sequence[str], role: str = ""
) -> Iterator[None]:
    """Holds the working directory, which this job alone may go on with.

    Args:
      job: the job.
      description: by `describe`.
      own: the shards that this run makes, of the job's.
      role: tells runs apart that share the job; each role is held once.
    """
    before = _begun(job)
    if before is not None:
        _refuse_changes(job.work_dir, before, description)
        logging.info("Going on with what stands in %s.", job.work_dir)
    else:
        _refuse_other_shards(job.output_files)
        _refuse_other_files(job.work_dir)
    os.makedirs(job.work_dir, exist_ok=True)
    with open(os.path.join(job.work_dir, f"lock{role}"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.InputError(
                f"{job.work_dir}: another run is at work there"
            ) from None
        # Another run may have begun meanwhile.
        _refuse_changes(job.work_dir, _begun(job) or description, description)
        file_system.write_json(_path(job), description, indent=1)
        _remove_partial_files(job, own)
        yield


@contextlib.contextmanager
def alone(job: Job, purpose: str) -> Iterator[None]:
    """Waits until no other run of this job is at the same purpose."""
    with open(os.path.join(job.work_dir, f"lock-{purpose}"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("Waiting for another run's %s.", purpose)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(job: Job, description: dict) -> None:
    """Removes the working directory, unless it is of another job."""
    if _begun(job) == description:
        shutil.rmtree(job.work_dir, ignore_errors=True)


def _path(job) -> str:
    return os.path.join(job.work_dir, _JOB)


def _begun(job) -> dict | None:
    """Returns what the job in the working directory is, if one is there."""
    try:
        with open(_path(job), "rb") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def _refuse_other_files(work_dir) -> None:
    """Keeps what is not a job's from being removed at the job's end."""
    names = os.listdir(work_dir) if os.path.isdir(work_dir) else []
    # What a run of this job writes first, which may be at work by now.
    own = ("lock", _JOB, f".{_JOB}.")
    others = [name for name in names if not name.startswith(own)]
    if others and _JOB not in names:
        raise errors.InputError(
            f"{work_dir}: holds {min(others)} and is to be removed when the "
            "shards stand; choose another --work_dir or move it"
        )


def _refuse_other_shards(paths) -> None:
    for folder, names in _by_folder(paths).items():
        try:
            tf.io.gfile.makedirs(folder)
        except tf.errors.OpError as error:
            raise errors.InputError(
                f"{os.path.join(folder, min(names))}: its folder cannot be "
                f"made: {error.message}"
            ) from None
        others = names.intersection(tf.io.gfile.listdir(folder))
        if others:
            raise errors.InputError(
                f"{os.path.join(folder, min(others))}: exists and is not of "
                "this run; choose another place or remove it"
            )


def _remove_partial_files(job, own) -> None:
    """Removes what a killed run was writing of the shards of this one.

    A folder is listed once, however many shards it is to hold.
    """
    if len(own) == len(job.output_files):  # No other run is at work there.
        for folder, _, names in os.walk(job.work_dir):
            for name in names:
                if name.endswith(file_system.INCOMPLETE):
                    os.remove(os.path.join(folder, name))
    own_names = {os.path.basename(path) for path in own}
    for folder in filter(tf.io.gfile.isdir, {*_by_folder(own), job.work_dir}):
        for name in tf.io.gfile.listdir(folder):
            partial = _PARTIAL.fullmatch(name)
            if partial and partial["shard"] in own_names:
                tf.io.gfile.remove(os.path.join(folder, name))


def _by_folder(paths) -> dict[str, set[str]]:
    """Returns the names of files by the folders that hold them."""
    names: dict[str, set[str]] = collections.defaultdict(set)
    for path in paths:
        folder, name = os.path.split(path)
        names[folder or "."].add(name)
    return names


# ----------------------------------------------------------------------
# What a pre-training data job shows: its first records, its totals.


def show_first(job: Job, part: data_job.Part, count: int) -> None:
    """Logs the first records of a part, before hours go into writing."""
    columns = data_job.first_records(job, part, count)
    for row in range(len(columns["input_ids"])):
        logging.info("%s", "\n".join(render(job, columns, row)))


def render(job: Job, columns: dict, row: int) -> list[str]:
    """Returns a record as lines: its tokens, then every feature."""
    tokens = job.vocabulary.tokens
    is_real = columns["input_mask"][row] > 0
    ids = columns["input_ids"][row][is_real].tolist()
    lines = ["*** Example ***", "tokens: " + " ".join(tokens[i] for i in ids)]
    for feature in job.schema.features:
        values = columns[feature.name][row].ravel().tolist()
        lines.append(f"{feature.name}: {_compact(values)}")
    return lines


def _compact(values: Iterable) -> str:
    """Joins numbers, 0 0 0 0 as 0*4."""
    result = []
    for value, run in itertools.groupby(values):
        count = len(list(run))
        short = [f"{value:g}"] * count
        result.extend([f"{value:g}*{count}"] if count > 3 else short)
    return " ".join(result)


def log_totals(made: manifest.Manifest) -> None:
    """Logs what was read, what was dropped and why, and what was written."""
    counts = made.totals
    passes = counts["pieces"] * made.job["dupe_factor"]
    logging.info(
        "Read %d documents, %d sentences, %d pieces (%.2f %% unknown).",
        counts["documents"],
        counts["sentences"],
        counts["pieces"],
        100 * counts["unknown_pieces"] / counts["pieces"],
    )
    logging.info(
        "Dropped: %d sentences without pieces, %d bytes that are not UTF-8, "
        "%.2f %% of the pieces by truncation.",
        counts["sentences_without_pieces"],
        counts["invalid_bytes"],
        100 * counts["lost_pieces"] / passes,
    )
    if made.packing is not None:
        logging.info(
            "Packed %.2f instances a row: %.1f %% padding instead of %.1f %%.",
            made.packing["packing_factor"],
            100 - 100 * made.packing["efficiency"],
            100 - 100 * made.packing["efficiency_unpacked"],
        )
    logging.info(
        "Wrote %d total instances, %.1f %% with a random next sentence.",
        counts["instances"],
        100 * counts["random_next"] / counts["instances"],
    )


# ----------------------------------------------------------------------
# One progress bar over a job of several phases, each with a rate of its own.
#
#     writing: 61%|######    | 00:42<00:27, 58,301 instances/s
#
# A phase takes as much of the bar as its expected share of the time, so that
# the remaining time is that of the whole job.

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


class Progress:
    """Shows a job's progress; a context manager that ends the bar."""

    def __init__(self, costs: Mapping[str, float]):
        """Shows an empty bar.

        Args:
          costs: for each phase, in order, its expected part of the time, in
            any unit.
        """
        total = sum(costs.values())
        self.shares = {name: cost / total for name, cost in costs.items()}
        self._bar = tqdm.tqdm(
            total=1.0, bar_format=_FORMAT, smoothing=0, desc=next(iter(costs))
        )
        self._ended = 0.0  # Share of the phases that are over.

    def __enter__(self) -> "Progress":
        """Returns itself."""
        return self

    def __exit__(self, *exception) -> None:
        """Ends the bar."""
        self._bar.close()

    def clear(self) -> None:
        """Makes room for lines of text, until the next step."""
        self._bar.clear()

    @contextlib.contextmanager
    def phase(
        self, name: str, total: int, unit: str, scale: float = 1
    ) -> Iterator[Callable[..., None]]:
        """Shows one phase.

        Args:
          name: one of the costs.
          total: how much there is to do.
          unit: of what.
          scale: what the displayed rate is divided by, e.g. 1e6 for "MB".

        Yields:
          A function of how much more is done and whether it `stood` before,
          which says nothing about the speed.
        """
        bar, begin = self._bar, time.monotonic()
        bar.set_description_str(name, refresh=False)
        fraction = self.shares[name] / max(total, 1)
        fresh = 0

        def update(count: int, stood: bool = False) -> None:
            nonlocal fresh
            if stood:
                bar.initial += count * fraction
            else:
                fresh += count
                rate = fresh / max(time.monotonic() - begin, 1e-3) / scale
                bar.set_postfix_str(f"{rate:,.0f} {unit}/s", refresh=False)
            # Rounding must not make the bar overflow.
            bar.update(min(count * fraction, bar.total - bar.n))

        yield update
        self._ended += self.shares[name]
        rest = self._ended - bar.n
        if not fresh:  # All of it stood, or nothing had to be done.
            bar.initial += rest
        bar.update(min(rest, bar.total - bar.n))


_EXAMPLES_SHOWN = 3
# Seconds of one core per MB of text, and per MB and pass over it; measured.
_TOKENIZING, _PAIRING, _WRITING = 0.10, 0.005, 0.06


class Group(NamedTuple):
    """Which of `count` runs of the same job this one is."""

    index: int = 0
    count: int = 1

    def own(self, values) -> list:
        """Returns this run's share of shards or tasks."""
        return list(values)[self.index :: self.count]

    def own_first(self, values) -> list:
        """Returns all, beginning with this run's share."""
        values = list(values)
        turns = [(self.index + n) % self.count for n in range(self.count)]
        return [x for turn in turns for x in values[turn :: self.count]]


ALONE = Group()


def make(
    job: Job,
    *,
    manifest_path: str,
    pool: workers.Workers,
    group: Group = ALONE,
    allow_single_document: bool = False,
) -> manifest.Manifest | None:
    """Makes the shards of a job and their manifest.

    Args:
      job: what to make.
      manifest_path: where the manifest goes, beside the shards.
      pool: who does the tasks; it changes the time, not the result.
      group: which shards this run makes.
      allow_single_document: accept text in which no sentence is from another
        document.

    Returns:
      The manifest, also of a job that was finished before; None while shards
      of other groups are missing.
    """
    data_job.map_store.cache_clear()  # Of an earlier run's text.
    description = describe(job)
    prefix = manifest_path.removesuffix(manifest.SUFFIX)
    words_path = prefix + manifest.VOCABULARY_SUFFIX
    found = finished(manifest_path, description)
    _check_vocabulary(job, words_path)
    if found is not None:
        logging.info(
            "%s: these %d records were made before; nothing to do.",
            manifest_path,
            found.record_count,
        )
        _finish(job, description, words_path)
        return found
    own = group.own(job.output_files)
    role = "" if group.count == 1 else f"-{group.index}"
    with claimed(job, description, own, role):
        counts, shards = _run(job, pool, group, allow_single_document)
        if shards is None:
            logging.info("The manifest follows the other groups' shards.")
            return None
        result = _manifest(job, description, counts, shards, words_path)
        job.vocabulary.to_file(words_path)
        manifest.write(manifest_path, result)
    _finish(job, description, words_path)
    return result


def _finish(job, description, words_path) -> None:
    if not tf.io.gfile.exists(words_path):
        job.vocabulary.to_file(words_path)
    # A removed file takes room for as long as it is mapped.
    data_job.map_store.cache_clear()
    remove(job, description)


def _check_vocabulary(job, path) -> None:
    if not tf.io.gfile.exists(path):
        return
    if vocabulary.Vocabulary.from_file(path).sha256 != job.vocabulary.sha256:
        raise errors.InputError(
            f"{path}: another vocabulary lies where a copy of "
            f"{job.vocabulary.path} belongs; choose another place or remove it"
        )


def _run(job, pool, group, allow_single_document):
    """Does all phases; returns the counts and each shard's number of records.

    Instead of the shards there is None as long as other groups lack theirs.
    """
    passes = job.pairing.dupe_factor
    costs = {
        "tokenizing": _TOKENIZING,
        "pairing": _PAIRING * passes,
        "writing": _WRITING * passes,
    }
    with Progress(costs) as bar:
        try:
            with alone(job, "tokenizing"):
                counts = _tokenize(job, pool, bar)
            _check_documents(job, counts, allow_single_document)
            counts |= _plan(job, pool, group, bar)
        except errors.InputError:
            if group.count == 1:  # Text or shards must change: start afresh.
                shutil.rmtree(job.work_dir)
            raise
        parts = data_job.parts_of_shards(
            job, counts["instances"], counts["plans"]
        )
        mine = group.own(parts)
        bar.clear()
        show_first(job, mine[0][0], _EXAMPLES_SHOWN)
        _write_shards(job, pool, mine, bar)
    if not all(map(tf.io.gfile.exists, job.output_files)):
        return counts, None
    if job.packing is None:
        sizes = [sum(len(part.ranks) for part in x) for x in parts]
    else:
        sizes = records.counts(job.output_files)
    return counts, sizes


def _tokenize(job, pool, bar) -> dict[str, int]:
    """Fills the token store; blocks that it holds already are passed over."""
    writer = token_store.Writer(job.store_dir, job.dtype)
    if not writer.done:
        standing = writer.blocks
        total = sum(tf.io.gfile.stat(path).length for path in job.input_files)
        with bar.phase("tokenizing", total, "MB", 1e6) as update:
            sizes = []

            def blocks():
                for number, block in enumerate(
                    corpus.read_blocks(list(job.input_files))
                ):
                    if number < standing:
                        update(block.file_bytes, stood=True)
                        continue
                    sizes.append(block.file_bytes)
                    yield block

            for encoded in pool.map(data_job.encode_block, blocks()):
                writer.append(encoded)
                update(sizes.pop(0))
        writer.finish()
    writer.close()
    return dict(writer.counts)


def _check_documents(job, counts, allow_single_document) -> None:
    if not counts.get("pieces"):
        raise errors.InputError(
            f"--input_file={','.join(job.input_files)}: holds no text"
        )
    documents = len(data_job.open_store(job).corpus.document_starts) - 1
    counts["documents"] = documents
    if documents == 1 and not allow_single_document:
        raise errors.InputError(
            f"--input_file={','.join(job.input_files)}: holds one document "
            "only, so that no next sentence can come from another; put blank "
            "lines between documents, or say --allow_single_document"
        )


def _plan(job, pool, group, bar) -> dict[str, int]:
    """Plans all instances; returns their totals."""
    groups = data_job.document_groups(job)
    tasks = group.own_first(enumerate(groups))
    totals = []
    with bar.phase("pairing", len(tasks), "plans") as update:
        for found in pool.map_standing(data_job.make_plan, tasks):
            totals.append(found)
            update(1)
    data_job.merge_indexes(job.order_dir, len(groups))
    sums = np.sum(totals, axis=0).tolist()
    counts = dict(zip(data_job.Totals._fields, sums, strict=True))
    if counts["instances"] < len(job.output_files):
        raise errors.InputError(
            f"only {counts['instances']} instances for "
            f"{len(job.output_files)} shards: make fewer (--num_shards)"
        )
    return counts | {"plans": len(groups)}


def _write_shards(job, pool, shards, bar) -> None:
    """Writes the shards that do not stand yet."""
    missing = []
    total = sum(len(part.ranks) for parts in shards for part in parts)
    with bar.phase("writing", total, "instances") as update:
        for parts in shards:
            if tf.io.gfile.exists(parts[0].shard):
                update(sum(len(part.ranks) for part in parts), stood=True)
            else:
                missing.append(parts)
        tasks = [part for parts in missing for part in parts]
        written = pool.map_standing(data_job.write_part, tasks)
        for parts in missing:
            for part in parts:
                next(written)
                update(len(part.ranks))
            data_job.join_parts(parts)


def _manifest(job, description, counts, sizes, words_path) -> manifest.Manifest:
    return manifest.Manifest(
        kind=job.schema.kind,
        max_seq_length=job.pairing.max_seq_length,
        max_predictions_per_seq=job.masking.max_predictions_per_seq,
        vocabulary={
            "file": os.path.basename(words_path),
            "size": len(job.vocabulary),
            "sha256": job.vocabulary.sha256,
        },
        tokenizer=job.tokenizer.settings,
        shards=tuple(
            manifest.Shard(
                file=os.path.basename(path),
                records=size,
                bytes=tf.io.gfile.stat(path).length,
            )
            for path, size in zip(job.output_files, sizes, strict=True)
        ),
        job=description,
        totals=dict(sorted(counts.items())),
        packing=_packing(job, counts, sum(sizes)),
    )


def _packing(job, counts, rows: int) -> dict | None:
    """Says how full the rows are and how much that gains."""
    if job.packing is None:
        return None
    places = counts["kept_pieces"] / job.pairing.max_seq_length
    return {
        "predictions_per_row": job.packing.predictions_per_row,
        "instances_per_row": job.packing.instances_per_row,
        "packing_factor": counts["instances"] / rows,
        "efficiency": places / rows,
        "efficiency_unpacked": places / counts["instances"],
    }
