"""What lies at the output place of a job, and whether the job may go on there.

A manifest of the same job means finished, one of another job is refused; a
working directory of the same job is gone on with. Same job means: same bytes
of text, vocabulary and flags.
"""

import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence

import tensorflow as tf
from absl import logging

import errors
from data import instance_order, manifest
from data.pretraining_job import Job

# As data.records hides them, and data.pretraining_parts names parts.
_PARTIAL = re.compile(
    r"\.(?:part-\d+-of-)?(?P<shard>.+)\.[0-9a-f]{12}\.incomplete"
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
        text = json.dumps(description, indent=1)
        instance_order.replace(_path(job), text.encode())
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
    others = [name for name in names if not name.startswith(("lock", _JOB))]
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
                if name.endswith(".incomplete"):
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
