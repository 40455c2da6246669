"""The tokens of a vocab.txt and their ids.

One token a line; its id is the number of the line, from 0. Real files have
flaws that trained models depend on: duplicate lines, blank lines, lines of a
single exotic space. Every line keeps its id, and a duplicate token has the id
of its last line, as in google-research/bert.
"""

import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from data.tokenization import normalization
from foundation import atomic, errors, file_system

CONTINUATION = "##"
PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
_UNUSED_BEFORE_UNK = 99
_UNUSED_RELEASED = 994
_LARGE = 10000
# Of the words, so many have capitals at least; a quarter in the released cased
# vocabularies.
_CASED_SHARE = 0.01
_CASED_SHARE_OF_LISTS = 0.05
# Of the tokens, so many have accents at least where text kept them; 2 % in the
# released cased vocabulary of English, none in those of stripped text.
_ACCENTED_SHARE = 0.01


def reserved_tokens(
    vocab_size: int, num_unused: int | None = None
) -> list[str]:
    """Returns the tokens that the released vocabularies begin with.

    [PAD] 0, [unused0] 1, ..., [unused98] 99, [UNK] 100, [CLS] 101, [SEP] 102,
    [MASK] 103, [unused99] 104, ..., [unused993] 998.

    Args:
      vocab_size: the default of num_unused is 994, or 99 below 10000.
      num_unused: number of unused tokens, at least 99.
    """
    if num_unused is None:
        is_large = vocab_size >= _LARGE
        num_unused = _UNUSED_RELEASED if is_large else _UNUSED_BEFORE_UNK
    if num_unused < _UNUSED_BEFORE_UNK:
        raise errors.InputError(
            f"--num_unused={num_unused} must be at least "
            f"{_UNUSED_BEFORE_UNK}, because the id of [UNK] is 100"
        )
    unused = [f"[unused{number}]" for number in range(num_unused)]
    first, rest = unused[:_UNUSED_BEFORE_UNK], unused[_UNUSED_BEFORE_UNK:]
    return [PAD, *first, UNK, CLS, SEP, MASK, *rest]


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """Maps tokens to ids and back.

    Attributes:
      tokens: the token of each line; its length is the model's vocab_size.
      ids: token -> id, in order of first appearance.
      path: the file, "" if there is none.
      added: tokens that are found in texts before these are split into words,
        such as "[E1]".
    """

    tokens: tuple[str, ...]
    ids: dict[str, int]
    path: str = ""
    added: tuple[str, ...] = ()

    @classmethod
    def from_tokens(
        cls, tokens: Sequence[str], path: str = "", added: Sequence[str] = ()
    ) -> "Vocabulary":
        """Builds a vocabulary from its lines; `added` are some of them."""
        tokens = tuple(token.strip() for token in tokens)
        ids = {token: index for index, token in enumerate(tokens)}
        for token in SPECIAL_TOKENS:
            if token not in ids:
                raise errors.InputError(
                    f"vocabulary {path or '(in memory)'}: no {token} among "
                    f"its {len(tokens)} lines"
                )
        return cls(tokens, ids, path, tuple(added))

    @classmethod
    def from_file(cls, path: str) -> "Vocabulary":
        """Reads a vocab.txt from a disk or a bucket."""
        path = str(path)
        if not file_system.is_file(path):
            raise errors.InputError(f"vocabulary {path}: no such file")
        content = file_system.read(path)
        # Only \n ends a line (not U+2028, which multilingual files hold), and
        # TensorFlow's reader, which the released code uses, skips every \r.
        text = file_system.decode(
            content.replace(b"\r", b""), f"vocabulary {path}"
        ).removeprefix("\ufeff")
        if not text:
            raise errors.InputError(f"vocabulary {path} is empty")
        return cls.from_tokens(text.removesuffix("\n").split("\n"), path)

    def with_added(self, tokens: Iterable[str]) -> "Vocabulary":
        """Returns the vocabulary with tokens that are found in any text.

        Those that it lacks get ids at its end.
        """
        added = dict.fromkeys([*self.added, *tokens])
        missing = [token for token in added if token not in self.ids]
        return self.from_tokens([*self.tokens, *missing], self.path, [*added])

    def added_pattern(self, *, lowers: bool) -> str:
        """Returns a regular expression that finds added tokens, "" without any.

        As in transformers, the longest token wins. Where text is lower-cased, a
        token without capitals has capitals in text, too.
        """

        def pattern(token: str) -> str:
            any_case = lowers and token == token.lower()
            return "".join(
                f"[{x}{x.upper()}]"
                if any_case and x.isascii() and x.isalpha()
                else re.escape(x)
                for x in token
            )

        longest_first = sorted(self.added, key=len, reverse=True)
        return "|".join(map(pattern, longest_first))

    def to_file(self, path: str) -> None:
        """Writes a vocab.txt atomically."""
        file_system.make_folder(os.path.dirname(path) or ".")
        lines = "".join(f"{token}\n" for token in self.tokens)
        atomic.write_text(path, lines)

    def __len__(self) -> int:
        """Returns the number of lines."""
        return len(self.tokens)

    pad_id = property(lambda self: self.ids[PAD])
    unk_id = property(lambda self: self.ids[UNK])
    cls_id = property(lambda self: self.ids[CLS])
    sep_id = property(lambda self: self.ids[SEP])
    mask_id = property(lambda self: self.ids[MASK])

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Whether the token of each id continues a word: bool [V]."""
        return np.array(
            [token.startswith(CONTINUATION) for token in self.tokens], bool
        )

    @functools.cached_property
    def is_cased(self) -> bool:
        """Whether the vocabulary was made of text with its capitals.

        A few capitals prove nothing: words are added to uncased vocabularies
        in place of [unused1]. A learned vocabulary also has the letters that
        its words begin with as tokens, so capitalized words whose first letter
        is no token were added. Where the other words lack their first letters
        too, as in a list of words, all capitalized words count, but more of
        them are needed.
        """
        words = [x for x in self.ids if x[:1].lower() != x[:1].upper()]
        capitals = [word for word in words if word[0] != word[0].lower()]
        spelled = [word for word in words if word[0] in self.ids]
        if 2 * len(spelled) < len(words) - len(capitals):
            return len(capitals) >= _CASED_SHARE_OF_LISTS * len(words) > 0
        learned = {*spelled} & {*capitals}
        return len(learned) >= _CASED_SHARE * len(words) > 0

    @functools.cached_property
    def is_accented(self) -> bool:
        """Whether the vocabulary was made of text with its accents.

        A few words prove nothing: they may have been added.
        """
        count = sum(map(_has_accent, self.ids))
        return count >= _ACCENTED_SHARE * len(self.ids)

    @functools.cached_property
    def replacement_ids(self) -> np.ndarray:
        """The ids of the random tokens that masking inserts: int32.

        As in the released code, all different tokens, special ones included, in
        order of first appearance.
        """
        return np.array(list(self.ids.values()), np.int32)

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the stripped lines, and of the added tokens again."""
        lines = "".join(token + "\n" for token in self.tokens + self.added)
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()


def _has_accent(token: str) -> bool:
    """Returns whether stripping accents changes a token, or Hangul."""
    if token.isascii():
        return False
    properties = normalization.unicode_properties()
    return any(
        properties.nonspacing_mark[ord(char)]
        or ord(char) in properties.decomposition
        for char in token
    )
