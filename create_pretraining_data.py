r"""Raw text to masked TFRecord shards for BERT's pre-training.

    python create_pretraining_data.py \
      --input_file='text/*.txt.gz' --vocab_file=vocab.txt \
      --output_prefix=shards/books --num_shards=32 \
      --max_seq_length=128 --max_predictions_per_seq=20

On a laptop, in seconds, by google-research/bert's own command line and text:

    python create_pretraining_data.py --input_file=sample_text.txt \
      --output_file=/tmp/tf_examples.tfrecord --vocab_file=vocab.txt \
      --do_lower_case=True --max_seq_length=128 --max_predictions_per_seq=20 \
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5

The shards depend on the text, the vocabulary and these flags alone. After a
kill, the same command continues the run. --dry_run estimates instances, bytes
and time. On many machines that share a directory, let Apache Beam distribute
the work:

    --beam_runner=DirectRunner --beam_options='--direct_num_workers=4
        --direct_running_mode=multi_processing'

Expect about 25 instances per kilobyte of English text at dupe_factor 10. The
last line is "Wrote N total instances".
"""

import dataclasses
import os
import tempfile
import zlib

from data.pretraining.settings import Settings
from foundation import config_flags, errors, file_system

field, group = config_flags.field, config_flags.group
_START_AFTER_SECONDS = 4  # Of work, before worker processes start.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataConfig:
    """Everything create_pretraining_data.py needs to know."""

    input_file: str = field(
        "Text: comma-separated files or globs; also .gz, .bz2, .zst, .parquet."
    )
    vocab_file: str = field("The vocabulary, one token a line.")
    output_file: str | None = field(
        "Shards, as comma-separated names; .gz compresses.", None
    )
    output_prefix: str | None = field(
        "Instead of output_file: PREFIX-00000-of-00008.tfrecord, ...", None
    )
    num_shards: int = field(
        "Number of shards of --output_prefix.", 8, at_least=1
    )
    gzip_compress: bool = field(
        "Compress the shards of --output_prefix.", False
    )
    settings: Settings = group(Settings)
    num_workers: int | None = field(
        "Processes; default: all cores, after some seconds of work.",
        None,
        at_least=1,
    )
    beam_runner: str | None = field(
        "Apache Beam's runner, e.g. DirectRunner, instead of local workers.",
        None,
    )
    beam_options: str = field(
        "Options of Beam, in quotes: '--direct_num_workers=8 ...'.", ""
    )
    dry_run: bool = field(
        "Only estimate instances, bytes and time, from a sample.", False
    )
    allow_single_document: bool = field(
        "Accept text without blank lines; random next sentences then come from "
        "the same document.",
        False,
    )
    work_dir: str | None = field(
        "Local directory for temporary files, in a subdirectory NAME.work that "
        "is removed at the end. Default: beside the shards, or for shards in a "
        "bucket the temporary directory.",
        None,
    )

    def __post_init__(self):
        """Refuses invalid values, naming the flag."""
        if (self.output_file is None) == (self.output_prefix is None):
            raise ValueError(
                "--output_file or --output_prefix: give one of them"
            )
        given_flags = {*config_flags.given(self)}
        unused = {"num_shards", "gzip_compress"} & given_flags
        if self.output_file is not None and unused:
            raise ValueError(
                f"--{', --'.join(sorted(unused))}: not with --output_file, "
                "which names every shard; give --output_prefix"
            )
        if "instances_per_row" in given_flags and not self.settings.packing:
            raise ValueError("--instances_per_row: needs --pack_sequences")
        _check_shard_names(self)
        _check_work_dir(self)
        if self.beam_options and self.beam_runner is None:
            raise ValueError("--beam_options: needs --beam_runner")

    @property
    def shard_paths(self) -> tuple[str, ...]:
        """The paths of the shards, in order."""
        if self.output_file is not None:
            return tuple(
                file_system.split_names(
                    self.output_file, _has_folder_with_comma
                )
            )
        suffix = ".tfrecord.gz" if self.gzip_compress else ".tfrecord"
        count = self.num_shards
        return tuple(
            f"{self.output_prefix}-{n:05d}-of-{count:05d}{suffix}"
            for n in range(count)
        )

    @property
    def shard_stem(self) -> str:
        """The path of the shards' manifest, without its suffix."""
        if self.output_prefix is None:
            return self.shard_paths[0]
        return self.output_prefix


def _has_folder_with_comma(path: str) -> bool:
    folder = os.path.dirname(path)
    return "," in folder and file_system.is_folder(folder)


def _check_shard_names(config: PretrainingDataConfig) -> None:
    """Raises ValueError if the names of the shards cannot be used."""
    if config.output_prefix is not None:
        if not os.path.basename(config.output_prefix):
            raise ValueError(
                f"--output_prefix={config.output_prefix}: is a directory; add "
                "the beginning of the names, as in shards/books"
            )
        return
    paths = config.shard_paths
    if not paths or len(set(map(os.path.normpath, paths))) < len(paths):
        raise ValueError(
            f"--output_file={config.output_file}: no name, or one name twice"
        )
    if len({os.path.normpath(os.path.dirname(path)) for path in paths}) > 1:
        raise ValueError(
            f"--output_file={config.output_file}: the shards must be in one "
            "directory, that of their manifest"
        )


def _check_work_dir(config: PretrainingDataConfig) -> None:
    """Raises ValueError if --work_dir cannot be used, or is missing."""
    if config.work_dir is not None:
        file_system.refuse_remote(
            config.work_dir, "work_dir", "its files are mapped and locked"
        )
        file_system.check_output_folder(config.work_dir, "work_dir")
        return
    is_shared = config.beam_runner not in (None, "DirectRunner")
    if is_shared and file_system.is_remote(config.shard_stem):
        raise ValueError("--work_dir: name a directory that all machines share")


def _work_dir(config: PretrainingDataConfig) -> str:
    """Returns the directory of the run's temporary files."""
    stem = config.shard_stem
    if config.work_dir is not None:
        return os.path.join(config.work_dir, f"{os.path.basename(stem)}.work")
    if file_system.is_remote(stem):
        name = f"pretraining-data-{zlib.crc32(stem.encode()):08x}"
        return os.path.join(tempfile.gettempdir(), name)
    return f"{stem}.work"


config_flags.parse_early(PretrainingDataConfig, __name__)

from absl import logging

import foundation.tensorflow_setup  # noqa: F401
from data import corpus, workers
from data.pretraining import dry_run, generation
from data.pretraining.recipe import Recipe, digest_files
from data.tokenization.vocabulary import Vocabulary


def make_recipe(config: PretrainingDataConfig) -> Recipe:
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
    return Recipe(
        settings=settings,
        input_files=tuple(texts),
        # A dry run must not read all of the text.
        input_digests=() if config.dry_run else digest_files(texts),
        output_files=config.shard_paths,
        work_dir=_work_dir(config),
        vocabulary=Vocabulary.from_file(config.vocab_file),
    )


def _workers(config: PretrainingDataConfig, recipe: Recipe) -> workers.Workers:
    count = config.num_workers or workers.cores()
    # With --num_workers, they start at once.
    start_after = _START_AFTER_SECONDS if config.num_workers is None else 0
    # Processes import this program first, as quietly as it was imported here.
    options = (count, recipe, "create_pretraining_data", start_after)
    if config.beam_runner is None:
        return workers.Workers(*options)

    return workers.BeamWorkers(
        *options, runner=config.beam_runner, options=config.beam_options
    )


def _print_estimate(config: PretrainingDataConfig) -> None:
    estimate = dry_run.estimate(make_recipe(config))
    for line in estimate.lines(config.num_workers or workers.cores()):
        print(line)


def _check_outputs(config: PretrainingDataConfig) -> None:
    """Refuses what would stop the run only after all of the text was read."""
    if config.beam_runner is not None:
        workers.check_beam()
    flag, paths = "output_file", config.shard_paths
    if config.output_prefix is not None:
        flag, paths = "output_prefix", paths[:1]  # One stands for all.
    for path in paths:
        file_system.check_output(path, flag)


def main(config: PretrainingDataConfig) -> None:
    """Makes the shards, or estimates their size and time."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # No GPU is used.
    if config.dry_run:
        _print_estimate(config)
        return
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


if __name__ == "__main__":
    config_flags.run(PretrainingDataConfig, main)
