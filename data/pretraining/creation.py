"""The life of create_pretraining_data.py after its flags are parsed.

It imports TensorFlow; worker processes import it, too.
"""

import importlib.util
import os
import tempfile
import zlib
from typing import Any

from absl import logging

import foundation.tensorflow_setup  # noqa: F401
from data import corpus, workers
from data.pretraining import dry_run, generation
from data.pretraining.recipe import Recipe, digest_files
from data.tokenization.vocabulary import Vocabulary
from foundation import errors, file_system

_START_AFTER_SECONDS = 4  # Of work, before worker processes start.


def _work_dir(config: Any) -> str:
    """Returns the directory of the run's temporary files."""
    stem = config.shard_stem
    if config.work_dir is not None:
        return os.path.join(config.work_dir, f"{os.path.basename(stem)}.work")
    if file_system.is_remote(stem):
        name = f"pretraining-data-{zlib.crc32(stem.encode()):08x}"
        return os.path.join(tempfile.gettempdir(), name)
    return f"{stem}.work"


def make_recipe(config: Any) -> Recipe:
    """Reads the vocabulary and the text's digests."""
    settings = config.settings
    texts = corpus.find_text(
        config.input_file, settings.input_format, settings.text_column
    )
    for path in texts:
        if not file_system.is_regular(path):
            raise errors.InputError(
                f"--input_file={path}: not a regular file; it is read twice"
            )
    recipe = Recipe(
        settings=settings,
        input_files=tuple(texts),
        # A dry run must not read all of the text.
        input_digests=() if config.dry_run else digest_files(texts),
        output_files=config.shard_paths,
        work_dir=_work_dir(config),
        vocabulary=Vocabulary.from_file(config.vocab_file),
    )
    _ = recipe.tokenizer  # Chosen, perhaps with a warning, for all workers.
    return recipe


def _workers(config: Any, recipe: Recipe) -> workers.Workers:
    count = config.num_workers or workers.cores()
    # With --num_workers, they start at once.
    start_after = _START_AFTER_SECONDS if config.num_workers is None else 0
    # Processes import this program first, as quietly as it was imported here.
    options = (count, recipe, __name__, start_after)
    if config.beam_runner is None:
        return workers.Workers(*options)
    return workers.BeamWorkers(
        *options, runner=config.beam_runner, options=config.beam_options
    )


def estimate(config: Any) -> list[str]:
    """Returns lines about the size of the shards and the time of the run."""
    num_workers = config.num_workers or workers.cores()
    return dry_run.estimate(make_recipe(config), num_workers)


def _check_outputs(config: Any) -> None:
    """Refuses what would stop the run only after all of the text was read."""
    if config.beam_runner and importlib.util.find_spec("apache_beam") is None:
        raise errors.InputError(
            "--beam_runner: Apache Beam is missing: pip install -e '.[beam]'"
        )
    flag, paths = "output_file", config.shard_paths
    if config.output_prefix is not None:
        flag, paths = "output_prefix", paths[:1]  # One stands for all.
    for path in paths:
        file_system.check_output(path, flag)


def create(config: Any) -> None:
    """Makes the shards."""
    _check_outputs(config)
    recipe, stem = make_recipe(config), config.shard_stem
    if config.work_dir is None and file_system.is_remote(stem):
        logging.info("Temporary files: %s (--work_dir)", recipe.work_dir)
    with _workers(config, recipe) as pool:
        written = generation.make(
            recipe,
            manifest_path=f"{stem}.manifest.json",
            pool=pool,
            allow_single_document=config.allow_single_document,
        )
    generation.log_totals(written)
