"""The manifest: a JSON file beside shards that describes them.

    wiki-00000-of-00008.tfrecord ... wiki-00007-of-00008.tfrecord
    wiki.manifest.json:
      {"format_version": 1, "kind": "pretraining", "max_seq_length": 128,
       "max_predictions_per_seq": 20,
       "vocabulary": {"file": "wiki.vocab.txt", "size": 30522,
                      "sha256": "..."},
       "tokenizer": {"do_lower_case": true, ...},
       "shards": [{"file": "wiki-00000-of-00008.tfrecord",
                   "records": 4711, "bytes": 4321987}, ...],
       "job": {flags, seed, digests of the inputs}, "totals": {...}}

Files are named relative to the manifest. Packed shards also have
"packing": {"instances_per_row": 8, "predictions_per_row": 81, ...}.

`check` compares shards with what a run expects before it starts. Shards without
a manifest (google-research/bert's, NVIDIA's) are checked by their first record.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from typing import Annotated, Literal

import msgspec
from absl import logging

from data import records, schema
from data.pretraining.settings import Settings
from foundation import atomic, errors, file_system, metadata

if typing.TYPE_CHECKING:
    from data.tokenization import vocabulary as vocabularies

SUFFIX = ".manifest.json"
Switch = Literal["do_lower_case", "strip_accents", "tokenize_chinese_chars"]
VOCABULARY_SUFFIX = ".vocab.txt"  # Of the vocabulary's copy.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of records, named relative to its manifest."""

    file: str
    records: metadata.Count
    bytes: metadata.Count
    crc32: metadata.Count = 0


class Vocabulary(typing.TypedDict):
    """The vocabulary that the shards were made with."""

    file: str
    size: metadata.Size
    sha256: str


class Packing(typing.TypedDict):
    """The lengths of packed records, and what packing has saved."""

    predictions_per_row: metadata.Size
    instances_per_row: metadata.Size
    packing_factor: float
    efficiency: float
    efficiency_unpacked: float


# Settings that tell how masks were drawn.
_OF_MASKS = (
    *("masked_lm_prob", "mask_token_prob", "random_token_prob"),
    *("do_whole_word_mask", "words"),
)


@dataclasses.dataclass(frozen=True)
class _Job(Settings):
    """The recipe of shards; what this program does not know is ignored."""

    input_files: list[dict[Literal["file", "blake2b"], str]] = (
        dataclasses.field(default_factory=list)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a set of shards, and what they were made from."""

    kind: str
    max_seq_length: metadata.Size
    max_predictions_per_seq: metadata.Size
    vocabulary: Vocabulary
    tokenizer: dict[Switch, bool | None]
    shards: Annotated[tuple[Shard, ...], msgspec.Meta(min_length=1)]
    job: metadata.Object
    totals: dict[str, metadata.Count]
    packing: Packing | None = None
    format_version: Literal[1] = 1

    def __post_init__(self):
        """Checks what is read of the job."""
        metadata.convert(self.job, _Job, "job")

    @property
    def masking(self) -> Settings:
        """How the masks were drawn, without their largest number."""
        return Settings(**{k: self.job[k] for k in _OF_MASKS if k in self.job})

    @property
    def record_count(self) -> int:
        """The number of records of all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def schema(self) -> schema.Schema:
        """The features of a record."""
        if self.packing is None:
            return schema.pretraining(
                self.max_seq_length, self.max_predictions_per_seq
            )
        return schema.packed_pretraining(
            self.max_seq_length,
            self.packing["predictions_per_row"],
            self.packing["instances_per_row"],
        )


def write(path: str, manifest: Manifest) -> None:
    """Writes the manifest atomically."""
    atomic.write_json(path, dataclasses.asdict(manifest), indent=1)


def read(path: str) -> Manifest:
    """Reads a manifest.

    Raises:
      InputError: the file is not a manifest, or one of another version.
    """
    return metadata.read(path, Manifest)


def find(paths: list[str]) -> dict[str, Manifest]:
    """Maps each shard to the manifest in its directory that lists it.

    Shards that no manifest lists are left out.
    """
    return {path: manifest for path, (manifest, _) in _entries(paths).items()}


def _entries(paths: list[str]) -> dict[str, tuple[Manifest, Shard]]:
    """Returns the manifest of every shard and the shard's entry in it."""
    entry_of = {}
    for folder in sorted({os.path.dirname(path) for path in paths}):
        # No glob: the directory's name may have brackets.
        present = set(file_system.entries(folder or "."))
        for name in sorted(x for x in present if x.endswith(SUFFIX)):
            path = os.path.join(folder, name)
            manifest = read(path)
            entries = {
                os.path.join(folder, shard.file): (manifest, shard)
                for shard in manifest.shards
            }
            missing = [x for x in entries if os.path.basename(x) not in present]
            if missing and not entries.keys().isdisjoint(paths):
                raise errors.InputError(
                    f"{path} lists {missing[0]}, which is missing (one of "
                    f"{len(missing)} of {len(entries)} shards)"
                )
            entry_of.update(entries)
    return {path: entry_of[path] for path in paths if path in entry_of}


def counts(paths: list[str]) -> list[int]:
    """Returns the number of records of each shard.

    From the manifest if there is one; otherwise by reading the shard.
    """
    entries = _entries(paths).items()
    count_of = {path: shard.records for path, (_, shard) in entries}
    unlisted = [path for path in paths if path not in count_of]
    if unlisted:
        logging.info(
            f"Counting the records of {len(unlisted)} shard(s) without a "
            "manifest"
        )
    count_of |= zip(unlisted, records.counts(unlisted), strict=True)
    return [count_of[path] for path in paths]


def record_schema(
    paths: list[str], max_seq_length: int, max_predictions_per_seq: int
) -> schema.Schema:
    """Returns the schema of the records of some shards, packed or not.

    The lengths are those of shards without a manifest, which are not packed.

    Raises:
      InputError: the shards have different schemas.
    """
    manifests = find(paths)
    default = schema.pretraining(max_seq_length, max_predictions_per_seq)
    kinds = {
        path: manifests[path].schema if path in manifests else default
        for path in paths
    }
    result = kinds[paths[0]]
    for path, kind in kinds.items():
        if kind != result:
            raise errors.InputError(
                f"{path}: its records ({kind.kind}) have other features than "
                f"those of {paths[0]} ({result.kind})"
            )
    return result


def check(
    paths: list[str],
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocabulary: vocabularies.Vocabulary | None = None,
    has_pairs: bool = True,
) -> None:
    """Compares shards with what a run expects.

    Without a vocabulary, ids are not checked. Without `has_pairs`, records
    need no next-sentence label.

    Raises:
      InputError: names a shard that does not fit, is missing or truncated.
    """
    entries = _entries(paths)
    lengths = max_seq_length, max_predictions_per_seq
    unlisted = [path for path in paths if path not in entries]
    firsts = records.first_examples(unlisted)
    for path, features in zip(unlisted, firsts, strict=True):
        _check_first_record(path, features, *lengths, vocabulary, has_pairs)
    for path, (manifest, shard) in entries.items():
        _check_lengths(
            path,
            (manifest.max_seq_length, max_seq_length),
            (manifest.max_predictions_per_seq, max_predictions_per_seq),
        )
        made_with = manifest.vocabulary
        if vocabulary is not None and made_with["sha256"] != vocabulary.sha256:
            raise errors.InputError(
                f"{path}: made with another vocabulary "
                f"({made_with['file']}, {made_with['size']} entries) than "
                f"{vocabulary.path} ({len(vocabulary)} entries)"
            )
        actual = file_system.size(path)
        if actual != shard.bytes:
            raise errors.InputError(
                f"{path}: {actual} bytes, its manifest says {shard.bytes}: "
                "the shard is truncated or changed"
            )


def _check_lengths(path, lengths, predictions) -> None:
    for flag, (actual, expected) in (
        ("max_seq_length", lengths),
        ("max_predictions_per_seq", predictions),
    ):
        if actual != expected:
            raise errors.InputError(
                f"--{flag}={expected}: {path} was made with {actual}"
            )


def _check_first_record(
    path, features, length, predictions, vocabulary, has_pairs
) -> None:
    """Checks a shard without a manifest."""
    ids = features.get("input_ids", features.get("input_word_ids"))
    if ids is None or "masked_lm_positions" not in features:
        raise errors.InputError(
            f"{path}: not pre-training records (features: "
            f"{errors.listed(sorted(features)) or 'none'})"
        )
    stored = len(features["masked_lm_positions"])
    _check_lengths(path, (len(ids), length), (stored, predictions))
    expected = schema.pretraining(length, predictions)
    if has_pairs and not features.get("next_sentence_labels"):
        raise errors.InputError(
            f"{path}: has no next_sentence_labels, which --objective=masked_lm "
            "does not need"
        )
    if not has_pairs:
        expected = expected.without("next_sentence_labels")
    records.check_features(path, features, expected)
    if vocabulary is not None and max(ids) >= len(vocabulary):
        raise errors.InputError(
            f"{path}: record 1 holds id {max(ids)}, but {vocabulary.path} "
            f"has {len(vocabulary)} entries: another vocabulary"
        )
