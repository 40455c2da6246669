"""Records of a fine-tuning run: made once, and again when something changed.

    output_dir/train.tf_record        as google-research/bert writes them
    output_dir/train.tf_record.json   what they were made from

The second file names the texts' digest, the vocabulary, the flags; where all of
it is as now, and the records are whole, nothing is tokenized.
"""

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
    job = json.loads(json.dumps({**job, "schema": _describe(schema)}))
    if _is_current(path, job):
        features = features_lib.read(path, schema)
        logging.info("%s: %d records, as they stand", path, len(features))
        return features
    features = make()
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    if tf.io.gfile.exists(path + SUFFIX):
        tf.io.gfile.remove(path + SUFFIX)
    features_lib.write(path, schema, features)
    note = {
        "format_version": FORMAT_VERSION,
        "records": len(features),
        "bytes": tf.io.gfile.stat(path).length,
        "job": job,
    }
    with records.hidden_name(path + SUFFIX) as hidden:
        with tf.io.gfile.GFile(hidden, "w") as file:
            file.write(json.dumps(note, indent=1) + "\n")
    logging.info("%s: %d records written", path, len(features))
    return features


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


def _describe(schema: schemas.Schema) -> dict[str, list]:
    return {
        feature.name: [feature.dtype, *feature.shape]
        for feature in schema.features
    }


def _is_current(path: str, job: Mapping[str, Any]) -> bool:
    if not all(tf.io.gfile.exists(p) for p in (path, path + SUFFIX)):
        return False
    with tf.io.gfile.GFile(path + SUFFIX) as file:
        try:
            note = json.loads(file.read())
        except ValueError:
            return False
    if not isinstance(note, dict):
        return False
    return (
        note.get("format_version") == FORMAT_VERSION
        and note.get("job") == job
        and note.get("bytes") == tf.io.gfile.stat(path).length
    )
