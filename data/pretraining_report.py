"""What a pre-training data job shows: its first records, its totals."""

import itertools
from collections.abc import Iterable

from absl import logging

from data import manifest, pretraining_parts
from data.pretraining_job import Job


def show_first(job: Job, part: pretraining_parts.Part, count: int) -> None:
    """Logs the first records of a part, before hours go into writing."""
    columns = pretraining_parts.first_records(job, part, count)
    for row in range(len(columns["input_ids"])):
        logging.info("%s", "\n".join(render(job, columns, row)))


def render(job: Job, columns: dict, row: int) -> list[str]:
    """Returns a record as lines: its tokens, then every feature."""
    tokens = job.vocabulary.tokens
    is_real = columns["input_mask"][row] > 0
    ids = columns["input_ids"][row][is_real].tolist()
    lines = ["*** Example ***", "tokens: " + " ".join(tokens[i] for i in ids)]
    for feature in job.schema.features:
        values = columns[feature.name][row].ravel().tolist()
        lines.append(f"{feature.name}: {_compact(values)}")
    return lines


def _compact(values: Iterable) -> str:
    """Joins numbers, 0 0 0 0 as 0*4."""
    result = []
    for value, run in itertools.groupby(values):
        count = len(list(run))
        short = [f"{value:g}"] * count
        result.extend([f"{value:g}*{count}"] if count > 3 else short)
    return " ".join(result)


def log_totals(made: manifest.Manifest) -> None:
    """Logs what was read, what was dropped and why, and what was written."""
    counts = made.totals
    passes = counts["pieces"] * made.job["dupe_factor"]
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
        100 * counts["lost_pieces"] / passes,
    )
    if made.packing is not None:
        logging.info(
            "Packed %.2f instances a row: %.1f %% padding instead of %.1f %%.",
            made.packing["packing_factor"],
            100 - 100 * made.packing["efficiency"],
            100 - 100 * made.packing["efficiency_unpacked"],
        )
    logging.info(
        "Wrote %d total instances, %.1f %% with a random next sentence.",
        counts["instances"],
        100 * counts["random_next"] / counts["instances"],
    )
