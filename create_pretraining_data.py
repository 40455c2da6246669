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
import re
import tempfile
import zlib
from typing import Literal

from absl import logging

from foundation import config_flags, errors, file_system
from foundation.config_flags import field

_PATIENCE = 4  # Seconds of work before worker processes start.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
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
    shard_index: int = field("Which of these runs this one is, from 0.", 0)
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
            raise errors.InputError(
                "--output_file or --output_prefix: give one of them"
            )
        config_flags.check_bounds(self)
        given = {*config_flags.given(self)}
        unused = {"num_shards", "gzip_compress"} & given
        if self.output_file is not None and unused:
            raise errors.InputError(
                f"--{', --'.join(sorted(unused))}: not with --output_file, "
                "which names every shard; give --output_prefix"
            )
        if "instances_per_row" in given and not self.pack_sequences:
            raise errors.InputError(
                "--instances_per_row: needs --pack_sequences"
            )
        if self.mask_token_prob + self.random_token_prob > 1 + 1e-9:
            raise errors.InputError(
                "--mask_token_prob and --random_token_prob: together over 1"
            )
        _check_groups(self)


def _check_groups(config: Config) -> None:
    groups, index = config.num_shard_groups, config.shard_index
    if not 0 <= index < groups:
        raise errors.InputError(
            f"--shard_index={index}: not below --num_shard_groups={groups}"
        )
    paths, stem = output_files(config)
    if groups > len(paths):
        raise errors.InputError(
            f"--num_shard_groups={groups}: only {len(paths)} shards"
        )
    if config.work_dir is not None:
        file_system.refuse_remote(
            config.work_dir, "work_dir", "its files are mapped and locked"
        )
    is_shared = groups > 1 or config.beam_runner not in (None, "DirectRunner")
    is_remote = file_system.is_remote(stem)
    if is_shared and is_remote and config.work_dir is None:
        raise errors.InputError(
            "--work_dir: name a directory that all machines share"
        )
    if config.beam_options and config.beam_runner is None:
        raise errors.InputError("--beam_options: needs --beam_runner")


def output_files(config: Config) -> tuple[tuple[str, ...], str]:
    """Returns the paths of the shards, and their manifest's without suffix."""
    if config.output_prefix is not None:
        if not os.path.basename(config.output_prefix):
            raise errors.InputError(
                f"--output_prefix={config.output_prefix}: is a directory; add "
                "the beginning of the names, as in shards/books"
            )
        suffix = ".tfrecord.gz" if config.gzip_compress else ".tfrecord"
        count = config.num_shards
        return tuple(
            f"{config.output_prefix}-{n:05d}-of-{count:05d}{suffix}"
            for n in range(count)
        ), config.output_prefix
    paths = tuple(filter(None, map(str.strip, config.output_file.split(","))))
    if not paths or len(set(map(os.path.normpath, paths))) < len(paths):
        raise errors.InputError(
            f"--output_file={config.output_file}: no name, or one name twice"
        )
    if len({os.path.normpath(os.path.dirname(path)) for path in paths}) > 1:
        raise errors.InputError(
            f"--output_file={config.output_file}: the shards must be in one "
            "directory, that of their manifest"
        )
    return paths, paths[0]


def _work_dir(config: Config, stem: str) -> str:
    if config.work_dir is not None:
        return os.path.join(config.work_dir, f"{os.path.basename(stem)}.work")
    if file_system.is_remote(stem):
        name = f"pretraining-data-{zlib.crc32(stem.encode()):08x}"
        return os.path.join(tempfile.gettempdir(), name)
    return f"{stem}.work"


config_flags.parse_early(Config, __name__)

import foundation.tensorflow_setup  # noqa: F401
from data import corpus, workers
from data.pretraining import dry_run, generation, instances, masking, packing
from data.pretraining.recipe import Recipe, digest_files
from data.tokenization import normalization, wordpiece
from data.tokenization.vocabulary import Vocabulary


def make_recipe(config: Config) -> Recipe:
    """Reads the vocabulary and the text's digests."""
    vocabulary = Vocabulary.from_file(config.vocab_file)
    _warn_of_normalization(vocabulary, config)
    tokenizer = wordpiece.Tokenizer(
        vocabulary,
        do_lower_case=config.do_lower_case,
        strip_accents=config.strip_accents,
        tokenize_chinese_chars=config.tokenize_chinese_chars,
    )
    paths, stem = output_files(config)
    texts, text_column = corpus.find_text(
        config.input_file, config.input_format, config.text_column
    )
    for path in texts:
        if not file_system.is_remote(path) and not os.path.isfile(path):
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
        text_column=text_column,
        output_files=paths,
        work_dir=_work_dir(config, stem),
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
        packing=rule,
        random_seed=config.random_seed,
    )


def _warn_of_normalization(vocabulary: Vocabulary, config: Config) -> None:
    """Logs a warning if text will lack many of the vocabulary's characters."""
    do_lower_case, strip_accents = config.do_lower_case, config.strip_accents
    count, name = vocabulary.num_capitalized, os.path.basename(vocabulary.path)
    is_cased = re.search("(?<!un)cased", name) or count > len(vocabulary) // 100
    stripped = []
    if do_lower_case if strip_accents is None else strip_accents:
        rule = normalization.Normalization(
            do_lower_case=False,
            strip_accents=True,
            tokenize_chinese_chars=False,
        )
        stripped = [x for x in vocabulary.ids if "".join(rule.words(x)) != x]
    if do_lower_case and is_cased:
        logging.warning(
            "--do_lower_case=True: %s is the vocabulary of a cased model (%d "
            "tokens with capitals, which no text has once it is lower-cased); "
            "give --do_lower_case=False",
            vocabulary.path,
            count,
        )
    elif len(stripped) > len(vocabulary) // 100:
        logging.warning(
            "--strip_accents: %d tokens of %s have accents (%s), which no text "
            "has once they are stripped; give --strip_accents=False",
            len(stripped),
            vocabulary.path,
            " ".join(stripped[:5]),
        )
    if not do_lower_case and not count:
        logging.warning(
            "--do_lower_case=False: %s has no token with Latin capitals, so "
            "most words that begin with one become [UNK]; give "
            "--do_lower_case=True",
            vocabulary.path,
        )


def _workers(config: Config, recipe: Recipe) -> workers.Workers:
    count = config.num_workers or workers.cores()
    # With --num_workers, they start at once.
    patience = _PATIENCE if config.num_workers is None else 0
    # Processes import this program first, as quietly as it was imported here.
    options = (count, recipe, "create_pretraining_data", patience)
    if config.beam_runner is None:
        return workers.Workers(*options)

    return workers.BeamWorkers(
        *options, runner=config.beam_runner, options=config.beam_options
    )


def _print_estimate(config: Config) -> None:
    recipe = make_recipe(config)
    # Each group of runs writes one shard at a time, Beam all of them.
    at_once = config.num_shard_groups
    if config.beam_runner is not None:
        at_once = len(recipe.output_files)
    estimate = dry_run.estimate(recipe, at_once)
    for line in estimate.lines(config.num_workers or workers.cores()):
        print(line)


def _check_outputs(config: Config) -> None:
    """Refuses what would stop the run only after all of the text was read."""
    if config.beam_runner is not None:
        workers.check_beam()
    flag, paths = "output_file", output_files(config)[0]
    if config.output_prefix is not None:
        flag, paths = "output_prefix", paths[:1]  # One stands for all.
    for path in paths:
        file_system.check_output(path, flag)


def main(config: Config) -> None:
    """Makes the shards, or estimates their size and time."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # No GPU is used.
    if config.dry_run:
        _print_estimate(config)
        return
    _check_outputs(config)
    recipe, stem = make_recipe(config), output_files(config)[1]
    if config.work_dir is None and file_system.is_remote(stem):
        logging.info("Temporary files: %s (--work_dir)", recipe.work_dir)
    with _workers(config, recipe) as pool:
        made = generation.make(
            recipe,
            manifest_path=f"{stem}.manifest.json",
            pool=pool,
            group=generation.ShardGroup(
                config.shard_index, config.num_shard_groups
            ),
            allow_single_document=config.allow_single_document,
        )
    if made is not None:
        generation.log_totals(made)


if __name__ == "__main__":
    config_flags.run(Config, main)
