"""The recipe of pre-training shards: everything that determines their bytes.

Shards are a pure function of the input files' bytes, the vocabulary, the
settings and the seed. A `Recipe` holds all of these. As JSON, it is part of the
manifest and of the working directory: a run continues the work of another one
only if both have the same recipe. The names of input files do not matter.
"""

import dataclasses
import functools
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from data import schema
from data.pretraining.settings import Settings
from data.tokenization import plain_wordpiece, wordpiece
from data.tokenization import vocabulary as vocabularies
from foundation import errors, file_system, progress

FORMAT_VERSION = 3  # Raised whenever the same recipe would give other bytes.
# How a message names what is not a flag of the same name.
_SHOWN = {
    "input_files": "--input_file",
    "vocabulary": "--vocab_file",
    "output_files": "--output_file, --output_prefix or --num_shards",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to make shards of, by which rules, and where they are written.

    Attributes:
      settings: how text becomes records.
      input_files: the text files, in order.
      input_digests: digests of the files' contents, from `digest_files`.
      output_files: the shards, in order.
      work_dir: local directory of intermediate files.
      vocabulary: the tokens.
    """

    settings: Settings
    input_files: tuple[str, ...]
    input_digests: tuple[str, ...]
    output_files: tuple[str, ...]
    work_dir: str
    vocabulary: vocabularies.Vocabulary

    @functools.cached_property
    def tokenizer(self) -> wordpiece.Tokenizer:
        """The tokenizer of the vocabulary."""
        return plain_wordpiece.for_corpus(
            self.vocabulary, **self.settings.tokenizer
        )

    @property
    def schema(self) -> schema.Schema:
        """The features of a record."""
        settings = self.settings
        if settings.packing is not None:
            packing = dataclasses.asdict(settings.packing)
            return schema.packed_pretraining(**packing)
        return schema.pretraining(
            settings.max_seq_length, settings.max_predictions_per_seq
        )

    @property
    def token_dtype(self) -> np.dtype:
        """The type of a token id in the token store."""
        # Marked tokens need more bits; see white_space.
        marks_words = self.settings.marks_words
        small = len(self.vocabulary) <= 1 << 16 and not marks_words
        return np.dtype("<u2" if small else "<i4")

    def to_json(self) -> dict[str, Any]:
        """Returns everything that determines the shards."""
        digests = zip(self.input_files, self.input_digests, strict=True)
        return {
            "format_version": FORMAT_VERSION,
            **dataclasses.asdict(self.settings),
            "input_files": [
                {"file": os.path.basename(path), "blake2b": digest}
                for path, digest in digests
            ],
            "vocabulary": self.vocabulary.sha256,
            "output_files": [*map(os.path.basename, self.output_files)],
        }

    def refuse_other(self, where: str, other: Mapping[str, Any]) -> None:
        """Refuses what was made by another recipe.

        Args:
          where: names the file that has the other recipe.
          other: the other recipe, from `to_json`.

        Raises:
          InputError: names the flags that have other values.
        """
        changes = ", ".join(_changes(other, self.to_json()))
        if changes:
            raise errors.InputError(
                f"{changes}: {where} belongs to shards of another run; choose "
                "another directory or remove those files"
            )

    def rng(self, purpose: str, number: int) -> np.random.Generator:
        """Returns the random generator of one unit of work.

        The text is part of the key. Otherwise training and held-out shards of
        the same seed would draw the same masks.
        """
        text = hashlib.blake2b(digest_size=8)
        text.update("".join(self.input_digests).encode())
        seed = self.settings.random_seed % (1 << 64)
        keys = [seed, int(text.hexdigest(), 16)]
        keys += [zlib.crc32(purpose.encode()), number]
        return np.random.Generator(
            np.random.SFC64(np.random.SeedSequence(keys))
        )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields "--NAME was OLD, is NEW" for each difference of two recipes."""
    for name in {**old, **new}:
        values = [old.get(name), new.get(name)]
        if name == "input_files":  # Which may have been moved.
            values = [[x["blake2b"] for x in files or ()] for files in values]
        if values[0] != values[1]:
            what = "was {}, is {}".format(*values)
            if name in ("input_files", "vocabulary"):
                what = "had other contents"
            yield f"{_SHOWN.get(name, f'--{name}')} {what}"


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
