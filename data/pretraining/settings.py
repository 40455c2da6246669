"""Settings of pre-training records: the flags that determine their bytes.

One type goes from the command to masking. A manifest keeps it as JSON.
"""

import dataclasses
from typing import Any, Literal

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingRule:
    """The capacity of a record that holds several instances, a row."""

    max_seq_length: int
    predictions_per_row: int
    instances_per_row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How text becomes records."""

    input_format: Literal["sentences", "paragraphs", "jsonl"] = field(
        "sentences (one a line), paragraphs (prose, a complete paragraph a "
        "line: never hard-wrapped) or jsonl (one document an object); a blank "
        "line between documents.",
        "sentences",
    )
    text_column: str = field(
        "The text of .parquet files and JSON objects, each row a document.",
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
        needs="do_whole_word_mask",
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
        needs="pack_sequences",
    )

    def __post_init__(self):
        """Refuses values that contradict each other, naming the flag."""
        if self.mask_token_prob + self.random_token_prob > 1 + 1e-9:
            raise ValueError(
                "--mask_token_prob and --random_token_prob: together over 1"
            )

    @property
    def max_num_tokens(self) -> int:
        """The maximum length of A and B together, without special tokens."""
        return self.max_seq_length - 3

    @property
    def marks_words(self) -> bool:
        """Whether white space tells which tokens are a word."""
        return self.words == "white_space"

    @property
    def packing(self) -> PackingRule | None:
        """The capacity of a record; None for one instance in each.

        A full row has about as many predictions as one instance of its length.
        Four more allow for rounding in each of its instances.
        """
        if not self.pack_sequences:
            return None
        one, most = self.max_predictions_per_seq, self.instances_per_row
        expected = int(self.max_seq_length * self.masked_lm_prob) + 4
        return PackingRule(
            max_seq_length=self.max_seq_length,
            predictions_per_row=max(min(expected, most * one), one),
            instances_per_row=most,
        )

    @property
    def tokenizer(self) -> dict[Any, Any]:
        """The options of wordpiece.Tokenizer."""
        return {
            "do_lower_case": self.do_lower_case,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
        }
