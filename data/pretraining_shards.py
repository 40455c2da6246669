"""Running a pre-training data job from end to end, or on from where it stood.

    tokenize -> pair -> show the first records -> write shards -> manifest

Several runs may share a job (see `Group`): one of them tokenizes while the
others wait; each pairs its plans and then whatever the others have not, so
that none depends on another being alive; each writes its own shards; the last
one writes the manifest.
"""

import os
import shutil
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import errors
from data import (
    corpus,
    instance_order,
    manifest,
    pretraining_job,
    pretraining_parts,
    pretraining_place,
    pretraining_report,
    progress,
    shard_reading,
    token_store,
    vocabulary,
    workers,
)
from data.pretraining_job import Job

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
    pretraining_job.map_store.cache_clear()  # Of an earlier run's text.
    description = pretraining_place.describe(job)
    prefix = manifest_path.removesuffix(manifest.SUFFIX)
    words_path = prefix + manifest.VOCABULARY_SUFFIX
    found = pretraining_place.finished(manifest_path, description)
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
    with pretraining_place.claimed(job, description, own, role):
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
    pretraining_job.map_store.cache_clear()
    pretraining_place.remove(job, description)


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
    with progress.Progress(costs) as bar:
        try:
            with pretraining_place.alone(job, "tokenizing"):
                counts = _tokenize(job, pool, bar)
            _check_documents(job, counts, allow_single_document)
            counts |= _plan(job, pool, group, bar)
        except errors.InputError:
            if group.count == 1:  # Text or shards must change: start afresh.
                shutil.rmtree(job.work_dir)
            raise
        parts = pretraining_parts.parts_of_shards(
            job, counts["instances"], counts["plans"]
        )
        mine = group.own(parts)
        bar.clear()
        pretraining_report.show_first(job, mine[0][0], _EXAMPLES_SHOWN)
        _write_shards(job, pool, mine, bar)
    if not all(map(tf.io.gfile.exists, job.output_files)):
        return counts, None
    if job.packing is None:
        sizes = [sum(len(part.ranks) for part in x) for x in parts]
    else:
        sizes = shard_reading.counts(job.output_files)
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

            for encoded in pool.map(pretraining_job.encode_block, blocks()):
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
    documents = len(pretraining_job.open_store(job).corpus.document_starts) - 1
    counts["documents"] = documents
    if documents == 1 and not allow_single_document:
        raise errors.InputError(
            f"--input_file={','.join(job.input_files)}: holds one document "
            "only, so that no next sentence can come from another; put blank "
            "lines between documents, or say --allow_single_document"
        )


def _plan(job, pool, group, bar) -> dict[str, int]:
    """Plans all instances; returns their totals."""
    groups = pretraining_job.document_groups(job)
    tasks = group.own_first(enumerate(groups))
    totals = []
    with bar.phase("pairing", len(tasks), "plans") as update:
        for found in pool.map_standing(pretraining_job.make_plan, tasks):
            totals.append(found)
            update(1)
    instance_order.merge_indexes(job.order_dir, len(groups))
    sums = np.sum(totals, axis=0).tolist()
    counts = dict(zip(instance_order.Totals._fields, sums, strict=True))
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
        written = pool.map_standing(pretraining_parts.write_part, tasks)
        for parts in missing:
            for part in parts:
                next(written)
                update(len(part.ranks))
            pretraining_parts.join_parts(parts)


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
