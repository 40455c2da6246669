"""Records of a fine-tuning run: made once, and again when something changed.

    output_dir/train.tf_record        as google-research/bert writes them
    output_dir/train.tf_record.json   what they were made from

The second file names the texts' digest, the vocabulary, the flags; where all of
it is as now, and the records are whole, nothing is tokenized.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from data import features as features_lib
from data import records, tokenization
from data import schema as schemas
from data.features import Features

FORMAT_VERSION = 1
SUFFIX = ".json"


def prepare(
    path: str,
    schema: schemas.Schema,
    job: Mapping[str, Any],
    make: Callable[[], Features],
) -> Features:
    """Returns the features of a set, from its records if they are current.

    Args:
      path: of the records.
      schema: what they hold.
      job: JSON values that decide what they hold.
      make: makes the features.
    """
    job = _complete(job, schema)
    if _is_current(path, job):
        features = features_lib.read(path, schema)
        logging.info("%s: %d records, as they stand", path, len(features))
        return features
    features = make()
    _write(path, schema, job, features)
    return features


def read_note(path: str) -> dict[str, Any]:
    """Reads what a file was made from; {} where nothing tells."""
    try:
        with tf.io.gfile.GFile(path + SUFFIX) as file:
            note = json.loads(file.read())
    except (tf.errors.NotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(path: str, note: Mapping[str, Any]) -> None:
    """Notes beside a file what it was made from."""
    with records.hidden_name(path + SUFFIX) as hidden:
        with tf.io.gfile.GFile(hidden, "w") as file:
            file.write(json.dumps(note, indent=1) + "\n")


def remove_note(path: str) -> None:
    """Makes a file that is about to change count as unfinished."""
    # There may be none, or another worker has just removed it.
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(path + SUFFIX)


def digest(path: str) -> str:
    """Returns the SHA-256 of a file."""
    sha = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 22):
            sha.update(block)
    return sha.hexdigest()


def tokenizer_job(tokenizer: tokenization.Tokenizer) -> dict[str, Any]:
    """Returns the part of a job that says how text becomes pieces."""
    return {"vocabulary": tokenizer.vocabulary.sha256, **tokenizer.settings}


def _complete(job, schema: schemas.Schema) -> dict[str, Any]:
    """Adds the schema; what is read again from JSON is compared with it."""
    described = {
        feature.name: [feature.dtype, *feature.shape]
        for feature in schema.features
    }
    return json.loads(json.dumps({**job, "schema": described}))


def _write(path, schema, job, features) -> None:
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    remove_note(path)
    features_lib.write(path, schema, features)
    note = {
        "format_version": FORMAT_VERSION,
        "records": len(features),
        "bytes": tf.io.gfile.stat(path).length,
        "job": job,
    }
    write_note(path, note)
    logging.info("%s: %d records written", path, len(features))


def _is_current(path: str, job: Mapping[str, Any]) -> bool:
    note = read_note(path)
    return (
        note.get("format_version") == FORMAT_VERSION
        and note.get("job") == job
        and tf.io.gfile.exists(path)
        and note.get("bytes") == tf.io.gfile.stat(path).length
    )
