"""Finds and checks the shards of a pre-training run before it starts.

What does not fit together (lengths, vocabulary, model) is said in one line
now instead of becoming a NaN after hours.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from absl import logging

import errors
from data import (
    corpus,
    manifest,
    pipelines,
    schema,
    tokenization,
)
from modeling.config import BertConfig
from tasks import pretraining_phases, shard_tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingData:
    """A set of shards that fit the run.

    Attributes:
      paths: the shards, in order.
      schema: what each record holds.
      counts: the number of records of each shard.
    """

    paths: list[str]
    schema: schema.Schema
    counts: list[int]

    def train_batches(self, batch_size: int, seed: int) -> Callable:
        """Returns what makes the endless, shuffled batches of training."""
        return functools.partial(
            pipelines.train_batches,
            self.paths,
            self.schema,
            counts=self.counts,
            batch_size=batch_size,
            seed=seed,
        )

    def eval_batches(self, batch_size: int) -> Callable:
        """Returns what makes the batches of evaluation, each record once."""

        def make(
            *, first_batch: int, part: int, num_parts: int
        ) -> tf.data.Dataset:
            del first_batch  # An evaluation always begins at the beginning.
            return pipelines.eval_batches(
                self.paths,
                self.schema,
                batch_size=batch_size,
                part=part,
                num_parts=num_parts,
            )

        return make

    def describe_batch(self, batch_size: int, seed: int) -> Callable:
        """Returns what names the records of a batch, for a message."""

        def describe(batch: int) -> str:
            places = pipelines.locate(
                self.paths,
                counts=self.counts,
                batch_size=batch_size,
                seed=seed,
                batch=batch,
            )
            shown = [f"{path} record {n + 1}" for path, n in places[:3]]
            return f"{', '.join(shown)} and {len(places) - len(shown)} more"

        return describe

    def check_records(self) -> None:
        """Reads everything; raises InputError naming the damaged record."""
        pipelines.check_records(self.paths, self.schema)

    @property
    def fingerprint(self) -> str:
        """Tells this set from another, wherever it lies."""
        listed = [
            f"{os.path.basename(path)} {count}"
            for path, count in zip(self.paths, self.counts, strict=True)
        ]
        digest = hashlib.sha256("\n".join(listed).encode()).hexdigest()
        return (
            f"{sum(self.counts)} records in {len(self.paths)} shard(s) "
            f"({digest[:8]})"
        )

    @property
    def contents(self) -> str:
        """Tells this set from one of as many records that was made otherwise.

        By the job in the manifest, which the records are a function of; of
        shards without one only the size is known.
        """
        made = manifest.find(self.paths)
        # A job lists all of its input files, of which there may be many: it
        # is written once, not once for every shard.
        jobs = {
            id(found): json.dumps(found.job, sort_keys=True)
            for found in made.values()
        }
        listed = [
            jobs[id(made[path])]
            if path in made
            else str(tf.io.gfile.stat(path).length)
            for path in self.paths
        ]
        digest = hashlib.sha256()
        for number, text in enumerate(listed):
            digest.update(((", " if number else "[") + text).encode())
        digest.update(b"]")
        return digest.hexdigest()[:16]


class PretrainingPhase(NamedTuple):
    """A stretch of the run and what it reads."""

    num_steps: int
    lengths: pretraining_phases.Lengths
    train: PretrainingData
    held_out: PretrainingData


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingInputs:
    """All that a run reads; the tokenizer is None where nobody names it."""

    phases: list[PretrainingPhase]
    tokenizer: tokenization.Tokenizer | None

    @property
    def train(self) -> PretrainingData:
        """What the last phase trains on, the only one of most runs."""
        return self.phases[-1].train

    @property
    def held_out(self) -> PretrainingData:
        """What the last phase is judged by."""
        return self.phases[-1].held_out

    @property
    def do_lower_case(self) -> bool | None:
        """How the text was read, None where nobody knows."""
        if self.tokenizer is None:
            return None
        return self.tokenizer.settings["do_lower_case"]


def open_inputs(
    *,
    input_file: str,
    eval_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None = None,
    init_checkpoint: str | None = None,
    max_seq_length: int,
    max_predictions_per_seq: int,
    config: BertConfig,
    num_train_steps: int = 1,
    phases: str | None = None,
) -> PretrainingInputs:
    """Finds and checks everything that a run reads.

    Args:
      input_file: comma list of shards or globs.
      eval_file: likewise, held out; None evaluates input_file.
      vocab_file: the vocabulary, where no manifest names it.
      do_lower_case: how text was read, likewise; None asks the checkpoint,
        then the vocabulary.
      init_checkpoint: what the run starts from.
      max_seq_length: of the run.
      max_predictions_per_seq: of the run.
      config: of the model that will read the records.
      num_train_steps: of the run.
      phases: in place of the three numbers; see pretraining_phases.

    Raises:
      InputError: a file is missing, or something does not fit.
    """
    paths = find_shards(input_file, eval_file)
    tokenizer = shard_tokenizer.find(
        paths["input_file"], vocab_file, do_lower_case, init_checkpoint
    )
    specs = [pretraining_phases.PhaseSpec(max_seq_length, num_train_steps)]
    if phases:
        specs = pretraining_phases.parse(phases)
    lengths = pretraining_phases.Lengths(
        max_seq_length, max_predictions_per_seq
    )
    opened = [
        _open_phase(spec, paths, lengths, bool(phases), config, tokenizer)
        for spec in specs
    ]
    return PretrainingInputs(phases=opened, tokenizer=tokenizer)


def _open_phase(
    spec: pretraining_phases.PhaseSpec,
    paths: dict[str, list[str]],
    lengths: pretraining_phases.Lengths,
    is_one_of_several: bool,
    config: BertConfig,
    tokenizer: tokenization.Tokenizer | None,
) -> PretrainingPhase:
    """Checks what a phase reads: all shards, or those of its length."""
    sets = {}
    for flag, found in paths.items():
        if is_one_of_several:
            found, lengths = pretraining_phases.select(flag, found, spec[0])
        sets[flag] = _open(flag, found, lengths, config, tokenizer)
    held_out = sets.get("eval_file", sets["input_file"])
    return PretrainingPhase(
        spec.num_steps, lengths, sets["input_file"], held_out
    )


def _open(
    flag: str,
    paths: list[str],
    lengths: pretraining_phases.Lengths,
    config: BertConfig,
    tokenizer: tokenization.Tokenizer | None,
) -> PretrainingData:
    """Checks one set of shards of the same lengths."""
    if lengths.max_seq_length > config.max_position_embeddings:
        raise errors.InputError(
            f"--max_seq_length={lengths.max_seq_length}: the model has only "
            f"{config.max_position_embeddings} positions"
        )
    manifest.check(
        paths,
        **lengths._asdict(),
        vocabulary=tokenizer.vocabulary if tokenizer else None,
    )
    _check_model(paths, config, tokenizer)
    counts = manifest.counts(paths)
    if not sum(counts):
        raise errors.InputError(f"--{flag}: no records in {paths[0]}")
    logging.info(
        "--%s: %d records in %d shard(s)", flag, sum(counts), len(paths)
    )
    return PretrainingData(
        paths=paths,
        schema=manifest.record_schema(paths, *lengths),
        counts=counts,
    )


def find_shards(input_file: str, eval_file: str | None) -> dict[str, list[str]]:
    """Returns the shards of each flag that is given; touches no device.

    Raises:
      InputError: one of them names no shard.
    """
    flags = {"input_file": input_file}
    if eval_file is not None:
        flags["eval_file"] = eval_file
    return {flag: _expand(flag, value) for flag, value in flags.items()}


def _expand(flag: str, patterns: str) -> list[str]:
    """Finds the shards; what lies beside them, DIR/* may match too."""
    beside = manifest.SUFFIX, manifest.VOCABULARY_SUFFIX
    found = corpus.expand(patterns, flag)
    paths = [path for path in found if not path.endswith(beside)]
    if not paths:
        raise errors.InputError(f"--{flag}={patterns}: names no shard")
    return paths


def _check_model(
    paths: list[str],
    config: BertConfig,
    tokenizer: tokenization.Tokenizer | None,
) -> None:
    """Refuses ids beyond the embeddings, which a GPU would read silently."""
    sizes = {
        path: found.vocabulary["size"]
        for path, found in manifest.find(paths).items()
    }
    if tokenizer is not None:
        sizes[tokenizer.vocabulary.path] = len(tokenizer.vocabulary)
    for path, size in sizes.items():
        if size > config.vocab_size:
            raise errors.InputError(
                f"--bert_config_file: vocab_size is {config.vocab_size}, but "
                f"{path} needs {size}"
            )


class GuessingAccuracies(NamedTuple):
    """What always giving the commonest answer would score."""

    masked_lm: float
    next_sentence: float


def guessing_accuracies(
    patterns: str, max_seq_length: int, max_predictions_per_seq: int
) -> GuessingAccuracies:
    """Returns the floor that a model must rise above, from the labels alone."""
    paths = _expand("input_file", patterns)
    record_schema = manifest.record_schema(
        paths, max_seq_length, max_predictions_per_seq
    )
    pieces: collections.Counter[int] = collections.Counter()
    labels: collections.Counter[int] = collections.Counter()
    for batch in pipelines.eval_batches(
        paths, record_schema, batch_size=256
    ).as_numpy_iterator():
        real = batch["is_real_example"] > 0
        is_prediction = batch["masked_lm_weights"][real] > 0
        pieces.update(batch["masked_lm_ids"][real][is_prediction].tolist())
        pairs = batch["next_sentence_labels"][real]
        if "next_sentence_weights" in batch:
            pairs = pairs[batch["next_sentence_weights"][real] > 0]
        labels.update(pairs.ravel().tolist())
    return GuessingAccuracies(
        *(
            counter.most_common(1)[0][1] / counter.total()
            for counter in (pieces, labels)
        )
    )
