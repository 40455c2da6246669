r"""Learns a WordPiece vocabulary of a given size from raw text.

    python create_vocabulary.py --input_file='corpus/*.txt.gz' \
        --output_file=vocab.txt --vocab_size=30522

On a laptop, in seconds, from any text at hand:

    python create_vocabulary.py --input_file=README.md --output_file=vocab.txt \
        --vocab_size=600

The special tokens have the ids of the released vocabularies. Words are found as
the tokenizer finds them, so use the vocabulary with the same --do_lower_case,
--strip_accents and --tokenize_chinese_chars.
Memory does not grow with the text.
"""

import dataclasses
from typing import Literal

from foundation import config_flags, errors, file_system, progress

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Everything create_vocabulary.py needs to know."""

    input_file: str = field(
        "Text: comma-separated files or globs; also .gz, .bz2, .zst, .parquet."
    )
    output_file: str = field("The vocab.txt to write.")
    input_format: Literal["sentences", "paragraphs", "jsonl"] = field(
        "Plain text (sentences or paragraphs), or JSON lines (jsonl).",
        "sentences",
    )
    text_column: str = field(
        "The text of .parquet files and JSON lines.", "text"
    )
    vocab_size: int = field("Exact number of lines.", 30522)
    do_lower_case: bool = field("False for a cased model.", True)
    strip_accents: bool | None = field("Default: as --do_lower_case.", None)
    tokenize_chinese_chars: bool = field(
        "Make each Chinese character a word.", True
    )
    character_coverage: float = field(
        "Fraction of the text's characters that the kept ones cover.",
        0.99995,
        above=0,
        at_most=1,
    )
    num_unused: int | None = field(
        "Number of [unusedN] tokens. Default: 994 as released, or 99 if "
        "--vocab_size is below 10000.",
        None,
    )
    min_frequency: int = field(
        "Least count of a pair of tokens that is merged.", 2, at_least=1
    )


def main(config: VocabularyConfig) -> None:
    """Counts words, learns tokens, writes them and logs how they fit."""
    from absl import logging

    from data import corpus
    from data.tokenization import normalization, vocabulary, wordpiece_learner

    file_system.check_output(config.output_file, "output_file")
    reserved = vocabulary.reserved_tokens(config.vocab_size, config.num_unused)
    if config.vocab_size <= len(reserved):
        raise errors.InputError(
            f"--vocab_size={config.vocab_size} is too small: there are "
            f"{len(reserved)} reserved tokens"
        )
    paths = corpus.find_text(
        config.input_file, config.input_format, config.text_column
    )
    size = sum(map(file_system.size, paths))
    with progress.bar(
        total=size, unit="B", unit_scale=True, desc="counting words"
    ) as bar:
        counted = wordpiece_learner.count_words(
            paths,
            normalization.Normalization(
                do_lower_case=config.do_lower_case,
                strip_accents=config.strip_accents,
                tokenize_chinese_chars=config.tokenize_chinese_chars,
            ),
            input_format=config.input_format,
            text_column=config.text_column,
            progress=bar.update,
        )
    words = counted.counts
    if not words:
        raise errors.InputError(f"--input_file={config.input_file}: no words")
    chars = wordpiece_learner.alphabet(words, config.character_coverage)
    with progress.bar(
        mininterval=1, total=config.vocab_size, desc="learning tokens"
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        tokens = wordpiece_learner.learn(
            words,
            config.vocab_size,
            chars,
            num_reserved=len(reserved),
            min_frequency=config.min_frequency,
            progress=show,
        )
    learned = vocabulary.Vocabulary.from_tokens(reserved + tokens)
    learned.to_file(config.output_file)
    logging.info("%d different words, %d characters", len(words), len(chars))
    if counted.invalid_bytes:
        logging.warning(
            "Dropped: %d bytes that are not UTF-8", counted.invalid_bytes
        )
    if counted.too_long:
        logging.info(
            "%d words are [UNK] because they are too long", counted.too_long
        )
    length, unknown = wordpiece_learner.coverage(
        words, set(tokens), counted.too_long
    )
    logging.info(
        "Some of the tokens: %s", " ".join(tokens[:: len(tokens) // 20 + 1])
    )
    logging.info(
        "Wrote %d tokens to %s: %.3f tokens a word, %.3f%% of words [UNK]",
        len(learned),
        config.output_file,
        length,
        100 * unknown,
    )


if __name__ == "__main__":
    config_flags.run(VocabularyConfig, main)
