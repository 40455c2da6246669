"""The recipe of pre-training shards: everything that determines their bytes.

Shards are a pure function of the input files' bytes, the vocabulary, the flags
and the seed. A `Recipe` holds all of these. Its settings, as JSON, are part of
the manifest and of the working directory: a run continues the work of another
one only if both have the same settings.
"""

import dataclasses
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from concurrent import futures

import numpy as np
from absl import logging

from data import schema
from data.pretraining import instances, masking, packing
from data.tokenization import vocabulary, wordpiece
from foundation import file_system, progress, stamp

FORMAT_VERSION = 2  # Raised whenever the same recipe would give other bytes.
_OUTPUT_FLAGS = "--output_file, --output_prefix or --num_shards"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to make shards of, by which rules, and where they are written.

    Attributes:
      input_files: the text files, in order.
      input_digests: digests of the files' contents, from `digest_files`.
      input_format: one of corpus.FORMATS.
      text_column: see corpus.read_blocks.
      output_files: the shards, in order.
      work_dir: local directory of intermediate files; the only attribute that
        does not affect the shards' bytes.
      tokenizer: the tokenizer with its vocabulary.
      pairing: how documents become pairs of segments.
      masking: the rule of which tokens are predicted.
      words: "white_space" if the text's white space tells which tokens are a
        word; None if the tokens do.
      packing: how instances share a record; None for one in each.
      random_seed: any integer.
    """

    input_files: tuple[str, ...]
    input_digests: tuple[str, ...]
    input_format: str
    text_column: str = "text"
    output_files: tuple[str, ...]
    work_dir: str
    tokenizer: wordpiece.Tokenizer
    pairing: instances.PairingRule
    masking: masking.MaskingRule
    words: str | None = None
    packing: packing.PackingRule | None
    random_seed: int

    @property
    def vocabulary(self) -> vocabulary.Vocabulary:
        """The vocabulary of the tokenizer."""
        return self.tokenizer.vocabulary

    @property
    def schema(self) -> schema.Schema:
        """The features of a record."""
        if self.packing is not None:
            return schema.packed_pretraining(**dataclasses.asdict(self.packing))
        return schema.pretraining(
            self.pairing.max_seq_length, self.masking.max_predictions_per_seq
        )

    @property
    def token_dtype(self) -> np.dtype:
        """The type of a token id in the token store."""
        # Marked tokens need more bits; see white_space.
        small = len(self.vocabulary) <= 1 << 16 and self.words is None
        return np.dtype("<u2" if small else "<i4")

    @property
    def settings(self) -> stamp.Stamp:
        """Everything that determines the shards."""
        digests = zip(self.input_files, self.input_digests, strict=True)
        inputs = [
            {"file": os.path.basename(path), "blake2b": digest}
            for path, digest in digests
        ]
        outputs = list(map(os.path.basename, self.output_files))
        flags = {
            "input_format": self.input_format,
            **self.tokenizer.settings,
            **dataclasses.asdict(self.pairing),
            **dataclasses.asdict(self.masking),
            "random_seed": self.random_seed,
        }
        if self.packing is not None:
            flags["pack_sequences"] = dataclasses.asdict(self.packing)
        if self.words is not None:
            flags["words"] = self.words
        if self.text_column != "text":
            flags["text_column"] = self.text_column
        result = stamp.flags("records", flags)
        for name, value, shown in (
            ("format_version", FORMAT_VERSION, "this program's format_version"),
            ("input_files", inputs, "--input_file"),
            ("output_files", outputs, _OUTPUT_FLAGS),
            ("vocabulary", self.vocabulary.sha256, "--vocab_file"),
        ):
            result |= stamp.flags("records", {name: value}, shown=shown)
        return result

    def rng(self, purpose: str, number: int) -> np.random.Generator:
        """Returns the random generator of one unit of work.

        The text is part of the key. Otherwise training and held-out shards of
        the same seed would draw the same masks.
        """
        text = hashlib.blake2b(digest_size=8)
        text.update("".join(self.input_digests).encode())
        seed = self.random_seed % (1 << 64)
        keys = [seed, int(text.hexdigest(), 16)]
        keys += [zlib.crc32(purpose.encode()), number]
        return np.random.Generator(
            np.random.SFC64(np.random.SeedSequence(keys))
        )


def digest_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Returns a digest of the contents of each file."""

    def digest(path: str) -> str:
        hashed = hashlib.blake2b(digest_size=16)
        with file_system.open_binary(path) as file:
            while data := file.read(1 << 20):
                hashed.update(data)
                bar.update(len(data))
        return hashed.hexdigest()

    options = {"unit": "B", "unit_scale": True, "desc": "digests of the text"}
    total = sum(file_system.size(path) for path in paths)
    with (
        progress.bar(is_brief=True, total=total, **options) as bar,
        futures.ThreadPoolExecutor() as pool,
    ):
        return tuple(pool.map(digest, paths))


def warn_of_normalization(tokenizer: wordpiece.Tokenizer) -> None:
    """Logs a warning if text will lack many of the vocabulary's characters."""
    words = tokenizer.vocabulary
    do_lower_case = tokenizer.settings["do_lower_case"]
    name = os.path.basename(words.path)
    is_cased = re.search("(?<!un)cased", name) or words.is_cased
    if do_lower_case and is_cased:
        logging.warning(
            f"--do_lower_case=True: {words.path} is the vocabulary of a cased "
            f"model ({len(words.capitalized)} tokens with capitals, which no "
            "text has once it is lower-cased); give --do_lower_case=False"
        )
    elif tokenizer.strips_accents and len(words.accented) > len(words) // 100:
        logging.warning(
            f"--strip_accents: {len(words.accented)} tokens of {words.path} "
            f"have accents ({' '.join(words.accented[:5])}), which no text has "
            "once they are stripped; give --strip_accents=False"
        )
    if not do_lower_case and not is_cased:
        logging.warning(
            f"--do_lower_case=False: {words.path} has "
            f"{len(words.capitalized)} tokens with capitals, so most words "
            "that begin with one become [UNK]; give --do_lower_case=True"
        )
