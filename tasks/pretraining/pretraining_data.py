"""Finds and checks the shards of a pre-training run before it starts.

Files that do not fit together (lengths, vocabulary, model) are refused in one
line at the start instead of causing a NaN after hours:

    shards = find_shards("a/*.tfrecord", None)    {"input_file": [paths]}
    tokenizer = find_tokenizer(shards["input_file"], ...)
    phases = open_phases(shards, specs, config, tokenizer)
    phases[0].train.train_batches(batch_size, seed)

A run has one phase, or several with --phases="128:900000,512:100000": 900,000
steps on the shards of sequence length 128, then 100,000 on those of 512, as in
the paper. One flag names all shards. A shard belongs to the phases of its own
sequence length, which its manifest or its first record gives.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from data import manifest, pipelines, records, schema
from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from foundation import errors, file_system
from modeling.config import BertConfig
from tasks.pretraining import dynamic_masks, settings
from weights import checkpoint_sources, pretrained, tokenizer_files


class Lengths(NamedTuple):
    """The lengths of a shard's records."""

    max_seq_length: int
    max_predictions_per_seq: int


def find_shards(input_file: str, eval_file: str | None) -> dict[str, list[str]]:
    """Returns flag -> paths of its shards, without using a device.

    The flags are comma-separated paths or globs.

    Raises:
      InputError: a flag names no shard, or text was tokenized by other rules.
    """
    flags = {"input_file": input_file, "eval_file": eval_file}
    shards = {
        flag: _find_files(value, flag)
        for flag, value in flags.items()
        if value is not None
    }
    _refuse_other_tokenizers([x for paths in shards.values() for x in paths])
    if eval_file is not None:
        _warn_of_overlap(**shards)
    return shards


def _refuse_other_tokenizers(paths: list[str]) -> None:
    """Raises InputError if manifests differ in the tokenizer's settings."""
    made = list(manifest.find(paths).items())
    for path, entry in made:
        first, like = made[0]
        if entry.tokenizer != like.tokenizer:
            raise errors.InputError(
                f"{path}: made with the tokenizer's settings "
                f"{entry.tokenizer}, but {first} with {like.tokenizer}"
            )


def _warn_of_overlap(input_file: list[str], eval_file: list[str]) -> None:
    """Logs a warning if held-out shards or texts are trained on."""
    (shards, texts), (held_out, held_out_texts) = (
        (
            set(map(file_system.real, paths)),
            {
                (text["blake2b"], text["file"])
                for described in manifest.find(paths).values()
                for text in described.job.get("input_files", ())
            },
        )
        for paths in (input_file, eval_file)
    )
    if both := shards & held_out:
        what = f"{len(both)} of {len(eval_file)} shards are also --input_file"
    elif common := texts & held_out_texts:
        what = (
            "some of these shards were made from the same text as --input_file "
            f"({min(common)[1]})"
        )
    else:
        return
    logging.warning(
        "--eval_file: %s, so metrics are not those of held-out text", what
    )


def _find_files(patterns: str, flag: str) -> list[str]:
    """Returns the shards; leaves out other files that DIR/* matches."""
    endings_beside = manifest.SUFFIX, manifest.VOCABULARY_SUFFIX
    files = file_system.find_files(patterns, flag)
    paths = [path for path in files if not path.endswith(endings_beside)]
    if not paths:
        raise errors.InputError(f"--{flag}={patterns}: names no shard")
    return paths


def find_tokenizer(
    paths: list[str],
    vocab_file: str | None,
    do_lower_case: bool | None,
    init_checkpoint: str | None,
) -> wordpiece.Tokenizer | None:
    """Returns the tokenizer that shards were made with.

    Its settings and its vocabulary come from the manifest beside the shards.

    Args:
      paths: the shards.
      vocab_file: path of a vocabulary that replaces the manifest's.
      do_lower_case: how text was tokenized, if there is no manifest.
      init_checkpoint: path of the model whose settings are used if there is
        neither a manifest nor do_lower_case; without such settings, the
        vocabulary decides.

    Returns:
      None if no vocabulary is known, as for google-research/bert's shards.

    Raises:
      InputError: the manifest has another do_lower_case.
    """
    if manifests := manifest.find(paths):
        path = min(manifests)
        made_with = manifests[path]
        manifest_lower = made_with.tokenizer.get("do_lower_case")
        if do_lower_case not in (None, manifest_lower):
            raise errors.InputError(
                f"--do_lower_case={do_lower_case}: {path} was made with "
                f"--do_lower_case={manifest_lower}"
            )
        if vocab_file is None:
            folder = os.path.dirname(path)
            vocab_file = os.path.join(folder, made_with.vocabulary["file"])
            if not file_system.exists(vocab_file):
                return None
        switches: dict[Any, Any] = {**made_with.tokenizer}
        return plain_wordpiece.PlainTokenizer(
            vocabulary.Vocabulary.from_file(vocab_file), **switches
        )
    if vocab_file is None:
        if do_lower_case is not None:
            raise errors.InputError(
                "--do_lower_case: has no effect without a manifest beside the "
                "shards or --vocab_file"
            )
        return None
    directory = None
    if init_checkpoint is not None:
        try:
            directory = checkpoint_sources.read(init_checkpoint).directory
        except errors.InputError as error:
            raise errors.InputError(f"--init_checkpoint: {error}") from error
    return tokenizer_files.load(
        directory,
        vocab_file=vocab_file,
        init_checkpoint=init_checkpoint,
        do_lower_case=do_lower_case,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSet:
    """Shards of the same lengths that fit the run.

    Attributes:
      paths: the shards, in order.
      schema: the features of each record.
      counts: the number of records of each shard.
    """

    paths: list[str]
    schema: schema.Schema
    counts: list[int]

    @property
    def total(self) -> int:
        """The number of records."""
        return sum(self.counts)

    def train_batches(self, batch_size: int, seed: int) -> Callable:
        """Returns the function that makes the endless batches of training."""
        return functools.partial(
            pipelines.train_batches,
            self.paths,
            self.schema,
            counts=self.counts,
            batch_size=batch_size,
            seed=seed,
        )

    def eval_batches(self, batch_size: int) -> Callable:
        """Returns the function that makes batches with each record once."""

        def make(*, first_batch: int, **part: int) -> tf.data.Dataset:
            del first_batch  # An evaluation always starts at the beginning.
            return pipelines.eval_batches(
                self.paths, self.schema, batch_size=batch_size, **part
            )

        return make

    def describe_batch(self, batch_size: int, seed: int, batch: int) -> str:
        """Names the records of a training batch."""
        located = pipelines.locate(
            self.paths,
            counts=self.counts,
            batch_size=batch_size,
            seed=seed,
            batch=batch,
        )
        first = [f"{path} record {n + 1}" for path, n in located[:3]]
        return f"{', '.join(first)} and {len(located) - len(first)} more"

    def check_records(self) -> None:
        """Reads all records; raises InputError that names a corrupt record."""
        pipelines.check_records(self.paths, self.schema, self.counts)

    @functools.cached_property
    def contents(self) -> str:
        """Identifies the contents: a digest of the jobs in the manifests.

        The records are a function of the job. A shard without a manifest is
        identified by its size.
        """
        manifests = manifest.find(self.paths)
        # Jobs list their input files, which may be many: each job is converted
        # to JSON once, not once per shard.
        jobs = {id(x): x.job for x in manifests.values()}
        texts = {k: json.dumps(x, sort_keys=True) for k, x in jobs.items()}
        digest = hashlib.sha256()
        for number, path in enumerate(self.paths):
            text = (
                str(file_system.size(path))
                if path not in manifests
                else (texts[id(manifests[path])])
            )
            digest.update(((", " if number else "[") + text).encode())
        digest.update(b"]")
        return digest.hexdigest()[:16]


class Phase(NamedTuple):
    """A part of the run and the shards that it reads."""

    num_steps: int
    lengths: Lengths
    train: ShardSet
    held_out: ShardSet
    masks: dynamic_masks.DynamicMasks | None = None  # None: those stored.

    @property
    def name(self) -> str:
        """Its sequence length."""
        return f"{self.lengths.max_seq_length}"


def open_phases(
    shards: dict[str, list[str]],
    specs: list[settings.PhaseSpec],
    config: BertConfig,
    tokenizer: wordpiece.Tokenizer | None,
    *,
    has_pairs: bool = True,
    redraws: bool = False,
) -> list[Phase]:
    """Finds and checks the shards of every phase.

    Args:
      shards: flag -> paths. Without "eval_file", evaluations read the training
        shards.
      specs: the phases.
      config: hyperparameters of the model.
      tokenizer: tokenizer of the shards; None if it is not known.
      has_pairs: whether next-sentence labels are required and read.
      redraws: whether masks are drawn anew.

    Raises:
      InputError: shards do not fit each other or the run.
    """
    phases = []
    for spec in specs:
        if spec.max_seq_length > config.max_position_embeddings:
            flag = f"--max_seq_length={spec.max_seq_length}"
            if spec.max_predictions_per_seq is None:
                flag = f"--phases={spec.max_seq_length}:{spec.num_steps}"
            raise errors.InputError(
                f"{flag}: the model has only {config.max_position_embeddings} "
                "positions"
            )
        sets = {}
        for flag, paths in shards.items():
            length, predictions = spec[1:]
            if predictions is None:
                paths, lengths = _of_length(flag, paths, length)
            else:
                lengths = Lengths(length, predictions)
            sets[flag] = _open_set(
                flag, paths, lengths, config, tokenizer, has_pairs
            )
        train, masks = sets["input_file"], None
        if redraws:
            masks = dynamic_masks.of_shards(
                train.paths, lengths.max_predictions_per_seq, tokenizer
            )
        held_out = sets.get("eval_file", train)
        phases.append(Phase(spec.num_steps, lengths, train, held_out, masks))
    return phases


def _of_length(
    flag: str, paths: list[str], max_seq_length: int
) -> tuple[list[str], Lengths]:
    """Returns the shards of one sequence length, and their lengths."""
    lengths = _lengths(paths)
    matching = [p for p in paths if lengths[p].max_seq_length == max_seq_length]
    if not matching:
        existing = sorted({x.max_seq_length for x in lengths.values()})
        raise errors.InputError(
            f"--{flag}: no shard of sequence length {max_seq_length}, which "
            f"--phases requires; the shards have {existing}"
        )
    predictions = {lengths[path].max_predictions_per_seq for path in matching}
    if len(predictions) > 1:
        raise errors.InputError(
            f"--{flag}: shards of sequence length {max_seq_length} differ in "
            f"their predictions per sequence: {sorted(predictions)}"
        )
    logging.info(
        "--%s: %d of %d shards have the sequence length %d",
        flag,
        len(matching),
        len(paths),
        max_seq_length,
    )
    return matching, lengths[matching[0]]


def _lengths(paths: list[str]) -> dict[str, Lengths]:
    """Returns the lengths of each shard, by manifest or first record."""
    lengths = {
        path: Lengths(
            described.max_seq_length, described.max_predictions_per_seq
        )
        for path, described in manifest.find(paths).items()
    }
    unlisted = [path for path in paths if path not in lengths]
    name = "input_ids"
    for path, features in zip(
        unlisted, records.first_examples(unlisted), strict=True
    ):
        ids = features.get(name, features.get(schema.ALIASES[name], []))
        predictions = features.get("masked_lm_positions", [])
        lengths[path] = Lengths(len(ids), len(predictions))
    return lengths


def _open_set(
    flag: str,
    paths: list[str],
    lengths: Lengths,
    config: BertConfig,
    tokenizer: wordpiece.Tokenizer | None,
    has_pairs: bool,
) -> ShardSet:
    """Checks shards that should have the same lengths."""
    manifest.check(
        paths,
        **lengths._asdict(),
        vocabulary=tokenizer.vocabulary if tokenizer else None,
        has_pairs=has_pairs,
    )
    # A GPU would read other memory for ids beyond the embeddings.
    sizes = {
        described.vocabulary["size"]: path
        for path, described in manifest.find(paths).items()
    }
    if tokenizer is not None:
        sizes[len(tokenizer.vocabulary)] = tokenizer.vocabulary.path
    for size, path in sizes.items():
        pretrained.check_vocabulary(config.vocab_size, size, path)
    counts = manifest.counts(paths)
    if not sum(counts):
        raise errors.InputError(f"--{flag}: no records in {paths[0]}")
    logging.info(
        "--%s: %d records in %d shard(s)", flag, sum(counts), len(paths)
    )
    record_schema = manifest.record_schema(paths, *lengths)
    if not has_pairs:
        record_schema = record_schema.without("next_sentence_labels")
    return ShardSet(
        paths=paths,
        schema=record_schema.limited(
            input_ids=config.vocab_size,
            masked_lm_ids=config.vocab_size,
            segment_ids=config.type_vocab_size,
            position_ids=config.max_position_embeddings,
            masked_lm_positions=lengths.max_seq_length,
            next_sentence_positions=lengths.max_seq_length,
            next_sentence_labels=2,
        ),
        counts=counts,
    )


def baseline(
    shards: ShardSet, batch_size: int = 256, most: int = -1
) -> dict[str, float]:
    """Returns the metrics that a model must exceed to have learned.

    The accuracies are those of a model that always predicts the most frequent
    label. The losses are those of a model that predicts every label with its
    frequency.

    Args:
      shards: the records whose labels are counted.
      batch_size: records per batch.
      most: the most batches to read; -1 for all.

    Returns:
      The metrics under the names of an evaluation; none without labels.
    """
    counts: dict[str, collections.Counter[int]] = {
        name: collections.Counter() for name in ("masked_lm", "next_sentence")
    }
    batches = pipelines.eval_batches(
        shards.paths, shards.schema, batch_size=batch_size
    )
    for batch in batches.take(most).as_numpy_iterator():
        is_real = batch["is_real_example"][:, None]
        for name, ids in (
            ("masked_lm", batch["masked_lm_ids"]),
            ("next_sentence", batch.get("next_sentence_labels")),
        ):
            if ids is not None:
                weights = batch.get(f"{name}_weights", 1) * is_real
                counts[name].update(ids[weights > 0].tolist())
    metrics = {}
    for name, counter in counts.items():
        if not counter:
            continue
        frequencies = [x / counter.total() for x in counter.values()]
        metrics[f"{name}_accuracy"] = max(frequencies)
        metrics[f"{name}_loss"] = -sum(x * math.log(x) for x in frequencies)
    if "masked_lm_loss" in metrics:
        metrics["masked_lm_perplexity"] = math.exp(metrics["masked_lm_loss"])
    return metrics
