"""Running a pre-training data job from end to end, or on from where it stood.

What lies at the output place decides: a manifest of the same job means
finished, one of another job is refused, a working directory of the same job
is gone on with. Same job means: same bytes of text, vocabulary and flags.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent import futures

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

import errors
from data import (
    corpus,
    instance_order,
    manifest,
    pretraining_job,
    records,
    token_store,
    workers,
)
from data.pretraining_job import Job

FORMAT_VERSION = 1  # Raised whenever the same job would give other bytes.
_EXAMPLES_SHOWN = 3


def make(
    job: Job,
    *,
    manifest_path: str,
    pool: workers.Workers,
    allow_single_document: bool = False,
) -> manifest.Manifest:
    """Makes all shards of a job and their manifest.

    Args:
      job: what to make.
      manifest_path: where the manifest goes, beside the shards.
      pool: who does the tasks; it changes the time, not the result.
      allow_single_document: accept text in which no sentence is from another
        document.

    Returns:
      The manifest, also of a job that was finished before.
    """
    pretraining_job.map_store.cache_clear()  # Of an earlier run's text.
    description = describe(job)
    finished = _finished(job, manifest_path, description)
    if finished is not None:
        logging.info(
            "%s: these %d instances were made before; nothing to do.",
            manifest_path,
            finished.record_count,
        )
        shutil.rmtree(job.work_dir, ignore_errors=True)
        return finished
    with _claimed(job, description):
        try:
            counts = _tokenize(job, pool)
            _check_documents(job, counts, allow_single_document)
        except errors.InputError:
            shutil.rmtree(job.work_dir)  # The text must change: start afresh.
            raise
        counts |= _plan(job, pool)
        parts = _write_shards(job, pool, counts["instances"])
        result = _manifest(job, description, counts, parts)
        manifest.write(manifest_path, result)
    shutil.rmtree(job.work_dir)
    _show_examples(job)
    _log_totals(job, counts)
    return result


def describe(job: Job) -> dict:
    """Returns everything that the shards are a function of, as JSON."""
    with futures.ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, job.input_files))
    return {
        "format_version": FORMAT_VERSION,
        "input_format": job.input_format,
        "input_files": digests,
        "output_files": [os.path.basename(path) for path in job.output_files],
        "vocabulary": job.vocabulary.sha256,
        **job.tokenizer.settings,
        **dataclasses.asdict(job.pairing),
        **dataclasses.asdict(job.masking),
        "random_seed": job.random_seed,
    }


def _digest(path: str) -> dict:
    hashed, size = hashlib.blake2b(digest_size=16), 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
            size += len(data)
    name = os.path.basename(path)
    return {"file": name, "bytes": size, "blake2b": hashed.hexdigest()}


def _finished(job, manifest_path, description) -> manifest.Manifest | None:
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
    for name in now:
        if before.get(name) != now[name]:
            if isinstance(now[name], list):
                change = f"--{name}: other files or other contents"
            else:
                change = f"--{name}: {before.get(name)} then, {now[name]} now"
            raise errors.InputError(
                f"{place}: belongs to shards of another run ({change}); "
                "choose another place or remove what lies there"
            )


@contextlib.contextmanager
def _claimed(job, description) -> Iterator[None]:
    """Holds the working directory, which this job alone may go on with."""
    path = os.path.join(job.work_dir, "job.json")
    if os.path.exists(path):
        with open(path, "rb") as file:
            _refuse_changes(job.work_dir, json.load(file), description)
        logging.info("Going on with what stands in %s.", job.work_dir)
    else:
        _refuse_other_shards(job.output_files)
    os.makedirs(job.work_dir, exist_ok=True)
    with open(os.path.join(job.work_dir, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.InputError(
                f"{job.work_dir}: another run is at work there"
            ) from None
        text = json.dumps(description, indent=1)
        instance_order.replace(path, text.encode())
        _remove_partial_files(job)
        yield


def _refuse_other_shards(paths) -> None:
    for path in paths:
        folder = os.path.dirname(path) or "."
        try:
            tf.io.gfile.makedirs(folder)
        except tf.errors.OpError as error:
            raise errors.InputError(
                f"{path}: its folder cannot be made: {error.message}"
            ) from None
        if tf.io.gfile.exists(path):
            raise errors.InputError(
                f"{path}: exists and is not of this run; choose another place "
                "or remove it"
            )


def _remove_partial_files(job) -> None:
    """Removes what a killed run was writing."""
    for path in job.output_files:
        folder, name = os.path.split(path)
        pattern = os.path.join(folder, f".{name}.*.incomplete")
        for partial in tf.io.gfile.glob(pattern):
            tf.io.gfile.remove(partial)
    pattern = os.path.join(job.work_dir, "**", "*.incomplete")
    for partial in tf.io.gfile.glob(pattern):
        tf.io.gfile.remove(partial)


def _tokenize(job, pool) -> dict[str, int]:
    """Fills the token store; blocks that it holds already are passed over."""
    writer = token_store.Writer(job.store_dir, job.dtype)
    if not writer.done:
        standing = writer.blocks
        total = sum(tf.io.gfile.stat(path).length for path in job.input_files)
        with tqdm.tqdm(
            desc="tokenizing", total=total, unit="B", unit_scale=True
        ) as bar:
            sizes = []

            def blocks():
                for number, block in enumerate(
                    corpus.read_blocks(list(job.input_files))
                ):
                    if number < standing:
                        bar.update(block.file_bytes)
                        continue
                    sizes.append(block.file_bytes)
                    yield block

            for encoded in pool.map(pretraining_job.encode_block, blocks()):
                writer.append(encoded)
                bar.update(sizes.pop(0))
        writer.finish()
    writer.close()
    return dict(writer.counts)


def _check_documents(job, counts, allow_single_document) -> None:
    if not counts.get("pieces"):
        raise errors.InputError(
            f"--input_file={','.join(job.input_files)}: holds no text"
        )
    documents = len(pretraining_job.open_store(job).corpus.document_starts) - 1
    counts["documents"] = documents
    if documents == 1 and not allow_single_document:
        raise errors.InputError(
            f"--input_file={','.join(job.input_files)}: holds one document "
            "only, so that no next sentence can come from another; put blank "
            "lines between documents, or say --allow_single_document"
        )


def _plan(job, pool) -> dict[str, int]:
    """Plans all instances; returns their totals."""
    groups = pretraining_job.document_groups(job)
    tasks = list(enumerate(groups))
    results = pool.map(pretraining_job.make_plan, tasks)
    totals = list(
        tqdm.tqdm(results, desc="pairing", total=len(tasks), unit="plan")
    )
    instance_order.merge_indexes(job.order_dir, len(groups))
    sums = np.sum(totals, axis=0).tolist()
    return dict(zip(instance_order.Totals._fields, sums, strict=True)) | {
        "plans": len(groups)
    }


def _write_shards(job, pool, total: int) -> list:
    """Writes the shards that do not stand yet; returns all their parts."""
    if total < len(job.output_files):
        raise errors.InputError(
            f"only {total} instances for {len(job.output_files)} shards: "
            "make fewer shards"
        )
    plans = len(pretraining_job.document_groups(job))
    shards = pretraining_job.parts_of_shards(job, total, plans)
    missing, standing = [], 0
    for parts in shards:
        size = sum(len(part.ranks) for part in parts)
        if tf.io.gfile.exists(parts[0].shard):
            standing += size
        else:
            missing.append(parts)
    with tqdm.tqdm(
        desc="writing", total=total, initial=standing, unit=" instances"
    ) as bar:
        tasks = [part for parts in missing for part in parts]
        written = pool.map(pretraining_job.write_part, tasks)
        for parts in missing:
            for part in parts:
                next(written)
                bar.update(len(part.ranks))
            pretraining_job.join_parts(parts)
    return shards


def _manifest(job, description, counts, shards) -> manifest.Manifest:
    return manifest.Manifest(
        kind=job.schema.kind,
        max_seq_length=job.pairing.max_seq_length,
        max_predictions_per_seq=job.masking.max_predictions_per_seq,
        vocabulary={
            "file": os.path.basename(job.vocabulary.path),
            "size": len(job.vocabulary),
            "sha256": job.vocabulary.sha256,
        },
        tokenizer=job.tokenizer.settings,
        shards=tuple(
            manifest.Shard(
                file=os.path.basename(parts[0].shard),
                records=sum(len(part.ranks) for part in parts),
                bytes=tf.io.gfile.stat(parts[0].shard).length,
            )
            for parts in shards
        ),
        job=description,
        totals=dict(sorted(counts.items())),
    )


def _show_examples(job) -> None:
    """Logs the first instances as tokens, as the released script does."""
    tokens = job.vocabulary.tokens
    shown = zip(
        range(_EXAMPLES_SHOWN), records.read(job.output_files[0]), strict=False
    )
    for _, record in shown:
        columns = records.parse(tf.constant([record]), job.schema)
        values = {name: x.numpy()[0].tolist() for name, x in columns.items()}
        logging.info("*** Example ***")
        length = sum(values["input_mask"])
        ids = values["input_ids"][:length]
        logging.info("tokens: %s", " ".join(tokens[i] for i in ids))
        for name, value in values.items():
            logging.info("%s: %s", name, " ".join(map(str, value)))


def _log_totals(job, counts) -> None:
    made = counts["pieces"] * job.pairing.dupe_factor
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
        100 * counts["lost_pieces"] / made,
    )
    logging.info(
        "Wrote %d total instances, %.1f %% with a random next sentence.",
        counts["instances"],
        100 * counts["random_next"] / counts["instances"],
    )
