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

from data.pretraining.settings import Settings
from foundation import config_flags, file_system

field, group = config_flags.field, config_flags.group


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
        "Number of shards of --output_prefix.",
        8,
        at_least=1,
        needs="output_prefix",
    )
    gzip_compress: bool = field(
        "Compress the shards of --output_prefix.",
        False,
        needs="output_prefix",
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
        "Options of Beam, in quotes: '--direct_num_workers=8 ...'.",
        "",
        needs="beam_runner",
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
        _check_shard_names(self)
        _check_work_dir(self)

    @property
    def shard_paths(self) -> tuple[str, ...]:
        """The paths of the shards, in order."""
        if self.output_file is not None:
            return tuple(file_system.split_names(self.output_file))
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


def main(config: PretrainingDataConfig) -> None:
    """Makes the shards, or estimates their size and time."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # No GPU is used.
    from data.pretraining import creation

    if config.dry_run:
        print("\n".join(creation.estimate(config)))
    else:
        creation.create(config)


if __name__ == "__main__":
    config_flags.run(PretrainingDataConfig, main)
