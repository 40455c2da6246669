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
and time. On many machines that share a directory, give each task of an array
job its own --shard_index of --num_shard_groups, or let Apache Beam distribute
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
from typing import Literal

from foundation import config_flags, errors, file_system

field = config_flags.field
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
    input_format: Literal["sentences", "paragraphs", "jsonl"] = field(
        "sentences (one a line), paragraphs (prose, a complete paragraph a "
        "line: never hard-wrapped) or jsonl (one document a line); a blank "
        "line between documents.",
        "sentences",
    )
    text_column: str = field(
        "The text of .parquet files and JSON lines, each row a document.",
        "text",
    )
    do_lower_case: bool = field("False for cased models.", True)
    strip_accents: bool | None = field("Default: as --do_lower_case.", None)
    tokenize_chinese_chars: bool = field(
        "Make each Chinese character a word.", True
    )
    max_seq_length: int = field(
        "Maximum number of tokens of an instance.", 128, at_least=5
    )
    max_predictions_per_seq: int = field(
        "Maximum number of masked tokens.", 20, at_least=1
    )
    masked_lm_prob: float = field(
        "Fraction of the tokens to predict.", 0.15, above=0, at_most=1
    )
    mask_token_prob: float = field(
        "Fraction of those that become [MASK].", 0.8, at_least=0, at_most=1
    )
    random_token_prob: float = field(
        "Fraction of those that become a random token; the rest is kept.",
        0.1,
        at_least=0,
        at_most=1,
    )
    do_whole_word_mask: bool = field("Mask all tokens of a word.", False)
    words: Literal["vocabulary", "white_space"] = field(
        "What a word is for --do_whole_word_mask: a token with the ## tokens "
        "after it, or what is between white space, for Chinese text that a "
        "segmenter has divided.",
        "vocabulary",
    )
    dupe_factor: int = field(
        "Passes over the text, each with other masks.", 10, at_least=1
    )
    short_seq_prob: float = field(
        "Fraction of the passes over a document whose sequences are shorter.",
        0.1,
        at_least=0,
        at_most=1,
    )
    random_seed: int = field("Another seed gives other shards.", 12345)
    pack_sequences: bool = field(
        "Put several instances into a record, with the same losses.", False
    )
    instances_per_row: int = field(
        "Maximum number of instances in a record, with --pack_sequences.",
        8,
        at_least=2,
    )
    num_workers: int | None = field(
        "Processes; default: all cores, after some seconds of work.",
        None,
        at_least=1,
    )
    num_shard_groups: int = field(
        "Number of runs that divide the shards, on machines that share "
        "--work_dir.",
        1,
        at_least=1,
    )
    shard_index: int = field("Number of this run among them, from 0.", 0)
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
        if "instances_per_row" in given_flags and not self.pack_sequences:
            raise ValueError("--instances_per_row: needs --pack_sequences")
        if self.words != "vocabulary" and not self.do_whole_word_mask:
            raise ValueError(
                f"--words={self.words}: needs --do_whole_word_mask"
            )
        if self.mask_token_prob + self.random_token_prob > 1 + 1e-9:
            raise ValueError(
                "--mask_token_prob and --random_token_prob: together over 1"
            )
        groups, index = self.num_shard_groups, self.shard_index
        if not 0 <= index < groups:
            raise ValueError(
                f"--shard_index={index}: not below --num_shard_groups={groups}"
            )
        _check_shard_names(self)
        if groups > len(self.shard_paths):
            raise ValueError(
                f"--num_shard_groups={groups}: only {len(self.shard_paths)} "
                "shards"
            )
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
    uses_cluster = config.beam_runner not in (None, "DirectRunner")
    is_shared = config.num_shard_groups > 1 or uses_cluster
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
from data.pretraining import dry_run, generation, instances, masking, packing
from data.pretraining.recipe import Recipe, digest_files, warn_of_normalization
from data.tokenization import wordpiece
from data.tokenization.vocabulary import Vocabulary


def make_recipe(config: PretrainingDataConfig) -> Recipe:
    """Reads the vocabulary and the text's digests."""
    vocabulary = Vocabulary.from_file(config.vocab_file)
    tokenizer = wordpiece.Tokenizer(
        vocabulary,
        do_lower_case=config.do_lower_case,
        strip_accents=config.strip_accents,
        tokenize_chinese_chars=config.tokenize_chinese_chars,
    )
    warn_of_normalization(tokenizer)
    texts = corpus.find_text(
        config.input_file, config.input_format, config.text_column
    )
    for path in texts:
        if not file_system.is_regular(path):
            raise errors.InputError(
                f"--input_file={path}: not a regular file; it is read twice"
            )
    rule = None
    if config.pack_sequences:
        rule = packing.rule_for(
            config.max_seq_length,
            config.max_predictions_per_seq,
            config.masked_lm_prob,
            config.instances_per_row,
        )
    return Recipe(
        input_files=tuple(texts),
        # A dry run must not read all of the text.
        input_digests=() if config.dry_run else digest_files(texts),
        input_format=config.input_format,
        text_column=config.text_column,
        output_files=config.shard_paths,
        work_dir=_work_dir(config),
        tokenizer=tokenizer,
        pairing=instances.PairingRule(
            max_seq_length=config.max_seq_length,
            short_seq_prob=config.short_seq_prob,
            dupe_factor=config.dupe_factor,
        ),
        masking=masking.MaskingRule(
            masked_lm_prob=config.masked_lm_prob,
            max_predictions_per_seq=config.max_predictions_per_seq,
            mask_token_prob=config.mask_token_prob,
            random_token_prob=config.random_token_prob,
            do_whole_word_mask=config.do_whole_word_mask,
        ),
        words=None if config.words == "vocabulary" else config.words,
        packing=rule,
        random_seed=config.random_seed,
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
    recipe = make_recipe(config)
    # Each group of runs writes one shard at a time, Beam all of them.
    at_once = config.num_shard_groups
    if config.beam_runner is not None:
        at_once = len(recipe.output_files)
    estimate = dry_run.estimate(recipe, at_once)
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
            group=generation.ShardGroup(
                config.shard_index, config.num_shard_groups
            ),
            allow_single_document=config.allow_single_document,
        )
    if written is not None:
        generation.log_totals(written)


if __name__ == "__main__":
    config_flags.run(PretrainingDataConfig, main)
