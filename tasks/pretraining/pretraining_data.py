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
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from data import corpus, manifest, pipelines, records, schema
from data.tokenization import vocabulary, wordpiece
from foundation import errors
from modeling.config import BertConfig
from weights import checkpoint_sources, tokenizer_files

# ----------------------------------------------------------------------
# The paper's two phases: short sequences first, then long ones.
#
#     --phases="128:900000,512:100000"
#
# trains 900,000 steps on the shards of sequence length 128 and then 100,000 on
# those of 512. All shards are named by one flag; each goes to the phase of its
# own length, which its manifest or its first record says.


class PhaseSpec(NamedTuple):
    """One element of --phases."""

    max_seq_length: int
    num_steps: int


class Lengths(NamedTuple):
    """How long the records of a shard are."""

    max_seq_length: int
    max_predictions_per_seq: int


def parse(text: str) -> list[PhaseSpec]:
    """Reads the value of --phases.

    Raises:
        ValueError: it cannot be read, or a length occurs twice.
    """
    phases = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d*):([1-9]\d*)\s*", part)
        if not match:
            raise ValueError(
                f"--phases={text}: {part!r} is not LENGTH:STEPS, as in "
                "128:900000,512:100000"
            )
        phases.append(PhaseSpec(int(match[1]), int(match[2])))
    if len({phase.max_seq_length for phase in phases}) < len(phases):
        raise ValueError(f"--phases={text}: a length occurs twice")
    return phases


def select(
    flag: str, paths: Sequence[str], max_seq_length: int
) -> tuple[list[str], Lengths]:
    """Picks the shards of one length; returns them and their lengths.

    Raises:
        InputError: there is none, or they differ in their predictions.
    """
    found = lengths(list(paths))
    picked = [p for p in paths if found[p].max_seq_length == max_seq_length]
    if not picked:
        known = sorted({f.max_seq_length for f in found.values()})
        raise errors.InputError(
            f"--{flag}: no shard of sequence length {max_seq_length}, which "
            f"--phases asks for; those found have {known}"
        )
    kinds = {found[p] for p in picked}
    if len(kinds) > 1:
        numbers = sorted(kind.max_predictions_per_seq for kind in kinds)
        raise errors.InputError(
            f"--{flag}: shards of sequence length {max_seq_length} differ in "
            f"their predictions per sequence: {numbers}"
        )
    return picked, kinds.pop()


def lengths(paths: list[str]) -> dict[str, Lengths]:
    """Returns the lengths of each shard's records."""
    manifests = manifest.find(paths)
    foreign = [path for path in paths if path not in manifests]
    firsts = records.first_examples(foreign)
    found = dict(zip(foreign, map(_lengths, firsts), strict=True))
    for path, made in manifests.items():
        found[path] = Lengths(made.max_seq_length, made.max_predictions_per_seq)
    return found


def _lengths(features: dict[str, list]) -> Lengths:
    name = "input_ids"
    ids = features.get(name, features.get(schema.ALIASES[name], []))
    return Lengths(len(ids), len(features.get("masked_lm_positions", [])))


# ----------------------------------------------------------------------
# Which tokenizer made the shards that a pre-training run reads.


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
      vocab_file: overrules the manifest's vocabulary.
      do_lower_case: how text was read, where no manifest says it.
      init_checkpoint: is asked then, before the vocabulary itself.

    Returns:
      None where no vocabulary is known, as beside google-research/bert's
      shards.

    Raises:
      InputError: the manifest says another do_lower_case.
    """
    found = manifest.find(paths)
    if found:
        return _of_manifest(min(found), found, vocab_file, do_lower_case)
    if vocab_file is not None:
        return tokenizer_files.with_vocabulary(
            vocab_file,
            init_checkpoint=init_checkpoint,
            directory=_directory(init_checkpoint),
            do_lower_case=do_lower_case,
        )
    if do_lower_case is not None:
        raise errors.InputError(
            "--do_lower_case: nothing without a manifest beside the shards or "
            "--vocab_file"
        )
    return None


def _directory(init_checkpoint: str | None) -> str | None:
    """Returns where the settings of a checkpoint's tokenizer may lie."""
    if init_checkpoint is None:
        return None
    try:
        found = checkpoint_sources.read(init_checkpoint, needs_data=False)
    except errors.InputError as error:
        raise errors.InputError(f"--init_checkpoint: {error}") from error
    return found.directory


def _of_manifest(path, found, vocab_file, do_lower_case):
    made_with = found[path]
    made_lower = made_with.tokenizer.get("do_lower_case")
    if do_lower_case not in (None, made_lower):
        raise errors.InputError(
            f"--do_lower_case={do_lower_case}: {path} was made with "
            f"--do_lower_case={made_lower}"
        )
    if vocab_file is None:
        folder = os.path.dirname(path)
        vocab_file = os.path.join(folder, made_with.vocabulary["file"])
        if not tf.io.gfile.exists(vocab_file):
            return None
    return wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_file(vocab_file), **made_with.tokenizer
    )


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
    lengths: Lengths
    train: PretrainingData
    held_out: PretrainingData


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingInputs:
    """All that a run reads; the tokenizer is None where nobody names it."""

    phases: list[PretrainingPhase]
    tokenizer: wordpiece.Tokenizer | None

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
    tokenizer = find_tokenizer(
        paths["input_file"], vocab_file, do_lower_case, init_checkpoint
    )
    specs = [PhaseSpec(max_seq_length, num_train_steps)]
    if phases:
        specs = parse(phases)
    lengths = Lengths(max_seq_length, max_predictions_per_seq)
    opened = [
        _open_phase(spec, paths, lengths, bool(phases), config, tokenizer)
        for spec in specs
    ]
    return PretrainingInputs(phases=opened, tokenizer=tokenizer)


def _open_phase(
    spec: PhaseSpec,
    paths: dict[str, list[str]],
    lengths: Lengths,
    is_one_of_several: bool,
    config: BertConfig,
    tokenizer: wordpiece.Tokenizer | None,
) -> PretrainingPhase:
    """Checks what a phase reads: all shards, or those of its length."""
    sets = {}
    for flag, found in paths.items():
        if is_one_of_several:
            found, lengths = select(flag, found, spec[0])
        sets[flag] = _open(flag, found, lengths, config, tokenizer)
    held_out = sets.get("eval_file", sets["input_file"])
    return PretrainingPhase(
        spec.num_steps, lengths, sets["input_file"], held_out
    )


def _open(
    flag: str,
    paths: list[str],
    lengths: Lengths,
    config: BertConfig,
    tokenizer: wordpiece.Tokenizer | None,
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
    tokenizer: wordpiece.Tokenizer | None,
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
