"""The word pieces of a vocab.txt and their ids.

One piece a line, the id is the line's number. Real files have flaws that
trained models depend on: duplicate lines, blank lines, lines that are only an
exotic space. Every line keeps its id; a piece that stands on two lines means
the later one, as in google-research/bert.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from foundation import errors, file_system

CONTINUATION = "##"
PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
_UNUSED_BEFORE_UNK = 99
_UNUSED_RELEASED = 994
_LARGE = 10000


def reserved_tokens(
    vocab_size: int, num_unused: int | None = None
) -> list[str]:
    """Lists what the released vocabularies begin with.

    [PAD] 0, [unused0] 1, ..., [unused98] 99, [UNK] 100, [CLS] 101, [SEP] 102,
    [MASK] 103, [unused99] 104, ..., [unused993] 998.

    Args:
      vocab_size: below 10000, only the first 99 unused tokens are listed.
      num_unused: how many unused tokens, if not that.
    """
    if num_unused is None:
        is_large = vocab_size >= _LARGE
        num_unused = _UNUSED_RELEASED if is_large else _UNUSED_BEFORE_UNK
    if num_unused < _UNUSED_BEFORE_UNK:
        raise errors.InputError(
            f"--num_unused={num_unused} must be at least "
            f"{_UNUSED_BEFORE_UNK}, for [UNK] is to be 100"
        )
    unused = [f"[unused{number}]" for number in range(num_unused)]
    first, rest = unused[:_UNUSED_BEFORE_UNK], unused[_UNUSED_BEFORE_UNK:]
    return [PAD, *first, UNK, CLS, SEP, MASK, *rest]


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """Maps pieces to ids and back.

    Attributes:
      tokens: the piece on each line; its length is the model's vocab_size.
      ids: piece -> id, in order of first appearance.
      path: the file it came from, "" if none.
    """

    tokens: tuple[str, ...]
    ids: dict[str, int]
    path: str = ""

    @classmethod
    def from_tokens(cls, tokens: Sequence[str], path: str = "") -> "Vocabulary":
        """Builds a vocabulary from its lines."""
        tokens = tuple(token.strip() for token in tokens)
        ids = {}
        for index, token in enumerate(tokens):
            ids[token] = index
        vocabulary = cls(tokens, ids, path)
        for token in SPECIAL_TOKENS:
            vocabulary._special_id(token)
        return vocabulary

    @classmethod
    def from_file(cls, path: str) -> "Vocabulary":
        """Reads a vocab.txt, anywhere tf.io.gfile can read."""
        path = str(path)
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                content = file.read()
        except (OSError, tf.errors.OpError) as error:
            reason = getattr(error, "message", None) or str(error)
            raise errors.InputError(
                f"vocabulary {path} cannot be read: "
                + " ".join(reason.split())[:200]
            ) from error
        # Only \n ends a line (not U+2028, which multilingual files hold), and
        # TensorFlow's reader, which the released code uses, skips every \r.
        text = file_system.decode(
            content.replace(b"\r", b""), f"vocabulary {path}"
        )
        if not text:
            raise errors.InputError(f"vocabulary {path} is empty")
        return cls.from_tokens(text.removesuffix("\n").split("\n"), path)

    def to_file(self, path: str) -> None:
        """Writes a vocab.txt atomically."""
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
        lines = "".join(f"{token}\n" for token in self.tokens)
        file_system.write_text(path, lines)

    def __len__(self) -> int:
        """Counts the lines."""
        return len(self.tokens)

    def _special_id(self, token: str) -> int:
        if token not in self.ids:
            raise errors.InputError(
                f"vocabulary {self.path or '(in memory)'}: no {token} among "
                f"its {len(self.tokens)} lines"
            )
        return self.ids[token]

    @property
    def pad_id(self) -> int:
        """The id of [PAD]."""
        return self.ids[PAD]

    @property
    def unk_id(self) -> int:
        """The id of [UNK]."""
        return self.ids[UNK]

    @property
    def cls_id(self) -> int:
        """The id of [CLS]."""
        return self.ids[CLS]

    @property
    def sep_id(self) -> int:
        """The id of [SEP]."""
        return self.ids[SEP]

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.ids[MASK]

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Tells, for every id, whether its piece continues a word: bool [V]."""
        return np.array(
            [token.startswith(CONTINUATION) for token in self.tokens], bool
        )

    @functools.cached_property
    def replacement_ids(self) -> np.ndarray:
        """The ids that a masked piece may be replaced by, as int32.

        The released code draws from the keys of its dictionary, special
        tokens and all, in order of first appearance: as many as there are
        different pieces.
        """
        return np.array(list(self.ids.values()), np.int32)

    @functools.cached_property
    def sha256(self) -> str:
        """Identifies the vocabulary: the hash of its stripped lines."""
        lines = "".join(token + "\n" for token in self.tokens)
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()
