"""Estimates what making pre-training shards takes, from a sample of the text.

The sample is up to eight blocks: one of each of eight evenly chosen files, or
several from the beginning of each of fewer files. One shard is made of it in
this process, in a temporary directory.
"""

import dataclasses
import itertools
import os
import tempfile
import time
from collections.abc import Iterator

from data import corpus, text_files, workers
from data.pretraining import generation, instances
from data.pretraining.recipe import Recipe
from foundation import errors, file_system, progress

_FILES, _BLOCK_BYTES = 8, 1 << 19


def estimate(recipe: Recipe, num_workers: int) -> list[str]:
    """Makes a shard of a sample of a recipe's text and measures it.

    Returns:
      Lines about all of the text.
    """
    sizes = [file_system.size(path) for path in recipe.input_files]
    # Documents that the sampling cuts off must not be joined.
    blocks = [x._replace(data=x.data + b"\n\n") for x in _sample(recipe)]
    sample_bytes = sum(block.file_bytes for block in blocks)
    if not sample_bytes:
        raise errors.InputError("--input_file: no text to sample")
    paths = tuple(dict.fromkeys(block.path for block in blocks))
    ending = os.path.splitext(recipe.output_files[0])[1]  # .gz compresses.
    with tempfile.TemporaryDirectory() as folder:
        small = dataclasses.replace(
            recipe,
            input_files=paths,
            input_digests=("",) * len(paths),
            output_files=(os.path.join(folder, f"sample{ending}"),),
            work_dir=os.path.join(folder, "work"),
        )
        recipe.tokenizer.encode(["Warm \u00fcp."])
        begin = time.monotonic()
        written = generation.make(
            small,
            manifest_path=os.path.join(folder, "sample.manifest.json"),
            pool=workers.Workers(1, small, ""),
            allow_single_document=True,
            blocks=blocks,
        )
        seconds = time.monotonic() - begin
    text_bytes, shard_bytes = sum(sizes), written.shards[0].bytes
    # The token store, the tables and a shard: its slices are removed after they
    # are joined.
    work_dir_bytes = (
        written.totals["pieces"] * recipe.token_dtype.itemsize
        + written.totals["sentences"] * 8
        + written.totals["instances"] * instances.INSTANCE.itemsize
        + shard_bytes // len(recipe.output_files)
    )
    times = text_bytes / sample_bytes
    totals = {**written.totals, "tokens": written.totals["pieces"]}
    totals["records"] = written.record_count
    counted = ("documents", "sentences", "tokens", "instances", "records")
    duration = progress.duration(seconds * times / num_workers)
    shown = {
        "text": progress.size(text_bytes),
        "sampled": f"{100 / times:.3g} %",
        **{name: f"{totals[name] * times:,.0f}" for name in counted},
        "bytes of shards": progress.size(shard_bytes * times),
        "bytes while working": progress.size(work_dir_bytes * times),
        "time": f"{duration}, {num_workers} worker(s)",
    }
    return [f"{name:22}{value}" for name, value in shown.items()]


def _sample(recipe: Recipe) -> Iterator[text_files.Block]:
    paths = recipe.input_files
    count = min(_FILES, len(paths))
    chosen = [paths[len(paths) * n // count] for n in range(count)]
    for path in chosen:
        blocks = corpus.read_blocks(
            [path],
            recipe.settings.input_format,
            recipe.settings.text_column,
            _BLOCK_BYTES,
        )
        yield from itertools.islice(blocks, _FILES // len(chosen))
