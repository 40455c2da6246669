"""The paper's two phases: short sequences first, then long ones.

    --phases="128:900000,512:100000"

trains 900,000 steps on the shards of sequence length 128 and then 100,000 on
those of 512. All shards are named by one flag; each goes to the phase of its
own length, which its manifest or its first record says.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import errors
from data import manifest, schema, shard_reading


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
    firsts = shard_reading.first_examples(foreign)
    found = dict(zip(foreign, map(_lengths, firsts), strict=True))
    for path, made in manifests.items():
        found[path] = Lengths(made.max_seq_length, made.max_predictions_per_seq)
    return found


def _lengths(features: dict[str, list]) -> Lengths:
    name = "input_ids"
    ids = features.get(name, features.get(schema.ALIASES[name], []))
    return Lengths(len(ids), len(features.get("masked_lm_positions", [])))
