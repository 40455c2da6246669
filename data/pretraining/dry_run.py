"""Estimates what making pre-training shards takes, from a sample of the text.

The sample is up to eight blocks: one of each of eight evenly chosen files, or
several from the beginning of each of fewer files. One shard is made of it in
this process, in a temporary directory.
"""

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from data import corpus, manifest, text_files, workers
from data.pretraining import generation, instances
from data.pretraining.recipe import Recipe
from foundation import errors, file_system, progress

_FILES, _BLOCK_BYTES = 8, 1 << 19


class Estimate(NamedTuple):
    """What was measured on a sample of 1 / factor of the text."""

    factor: float
    file_bytes: int
    totals: dict[str, int]
    records: int
    shard_bytes: int
    work_dir_bytes: int
    seconds: float

    def lines(self, num_workers: int) -> Iterator[str]:
        """Yields the estimate for all of the text, as lines."""
        times = self.factor
        yield f"{'text':22}{progress.size(self.file_bytes)}"
        yield f"{'sampled':22}{100 / times:.3g} %"
        for name in ("documents", "sentences", "tokens", "instances"):
            count = self.totals["pieces" if name == "tokens" else name]
            yield f"{name:22}{count * times:,.0f}"
        yield f"{'records':22}{self.records * times:,.0f}"
        shards = progress.size(self.shard_bytes * times)
        yield f"{'bytes of shards':22}{shards}"
        while_working = progress.size(self.work_dir_bytes * times)
        yield f"{'bytes while working':22}{while_working}"
        seconds = self.seconds * times / num_workers
        duration = progress.duration(seconds)
        yield f"{'time':22}{duration}, {num_workers} worker(s)"


def estimate(recipe: Recipe) -> Estimate:
    """Makes a shard of a sample of a recipe's text and measures it."""
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
    return Estimate(
        factor=sum(sizes) / sample_bytes,
        file_bytes=sum(sizes),
        totals=written.totals,
        records=written.record_count,
        shard_bytes=written.shards[0].bytes,
        work_dir_bytes=_work_dir_bytes(recipe, written),
        seconds=seconds,
    )


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
        for block, _ in zip(blocks, range(_FILES // len(chosen)), strict=False):
            yield block


def _work_dir_bytes(recipe: Recipe, sample: manifest.Manifest) -> int:
    """Returns the size of the token store, of the tables and of a shard.

    The slices of a shard are removed after they are joined.
    """
    return (
        sample.totals["pieces"] * recipe.token_dtype.itemsize
        + sample.totals["sentences"] * 8
        + sample.totals["instances"] * instances.INSTANCE.itemsize
        + sample.shards[0].bytes // len(recipe.output_files)
    )
