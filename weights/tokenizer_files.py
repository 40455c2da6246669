"""The tokenizer's files in a model directory: vocab.txt and its settings.

A vocabulary can only be used with the do_lower_case that it was made for, so
both files are written and read together, under the names that Hugging Face
uses:

    vocab.txt               one token a line
    tokenizer_config.json   do_lower_case, strip_accents, tokenize_chinese_chars
    tokenizer.json          both; the only file that newer transformers write
    added_tokens.json, special_tokens_map.json   of older ones: added tokens
    sentence_bert_config.json   of sentence-transformers: do_lower_case, too

For released TF1 models only the directory's name shows the case:
"uncased_L-12_...".
"""

import dataclasses
import json
import os
import re
from typing import Annotated, Literal

import msgspec
from absl import logging

from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from foundation import atomic, errors, file_system, metadata

VOCABULARY = "vocab.txt"
SETTINGS = "tokenizer_config.json"
FAST = "tokenizer.json"
ADDED, SPECIAL_MAP = "added_tokens.json", "special_tokens_map.json"
SENTENCES = "sentence_bert_config.json"
# Our setting -> the same in the "normalizer" of tokenizer.json.
_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# What else these files may say of BERT's tokenizer. Other types of words are
# those of Japanese models, trained on words from MeCab.
_ALGORITHMS = {
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "do_basic_tokenize": True,
    "never_split": [],
}
# Key of tokenizer_config.json -> token.
_SPECIAL = {
    "pad_token": vocabulary.PAD,
    "unk_token": vocabulary.UNK,
    "cls_token": vocabulary.CLS,
    "sep_token": vocabulary.SEP,
    "mask_token": vocabulary.MASK,
}
_Id = Annotated[int, msgspec.Meta(ge=0, le=10**7)]
_RELEASE = re.compile(
    r"(?:wwm_)?(uncased|cased|multi_cased|multilingual|chinese)(?:_wwm(?:_ext)?)?"
    r"_L-\d+_H-\d+_A-\d+(?:_\w+)?"
)


@dataclasses.dataclass(frozen=True)
class _Added:
    """A token that is found in any text; tokenizer.json has its id."""

    content: metadata.Text
    id: _Id | None = None


@dataclasses.dataclass(frozen=True)
class _Normalizer:
    """How tokenizer.json prepares text: as BERT, or it is refused."""

    type: Literal["BertNormalizer"] = "BertNormalizer"
    clean_text: bool = True
    lowercase: bool | None = None
    strip_accents: bool | None = None
    handle_chinese_chars: bool | None = None


@dataclasses.dataclass(frozen=True)
class _PreTokenizer:
    """How tokenizer.json divides text: as BERT, or it is refused."""

    type: Literal["BertPreTokenizer"] = "BertPreTokenizer"


@dataclasses.dataclass(frozen=True)
class _Model:
    """The tokens of tokenizer.json; those of other models are refused."""

    vocab: dict[metadata.Text, _Id]
    type: Literal["WordPiece"] = "WordPiece"
    continuing_subword_prefix: Literal["##"] = "##"


@dataclasses.dataclass(frozen=True)
class _Fast:
    """The content of tokenizer.json."""

    model: _Model
    normalizer: _Normalizer = _Normalizer()
    pre_tokenizer: _PreTokenizer = _PreTokenizer()
    added_tokens: list[_Added] | None = None


@dataclasses.dataclass(frozen=True)
class _Settings:
    """The keys of tokenizer_config.json that have one type."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    added_tokens_decoder: dict[_Id, _Added] | None = None
    additional_special_tokens: list[metadata.Text | _Added] | None = None


def load(
    directory: str | None,
    *,
    vocab_file: str | None = None,
    init_checkpoint: str | None = None,
    do_lower_case: bool | None = None,
) -> plain_wordpiece.PlainTokenizer:
    """Reads the tokenizer of a model directory of any origin.

    Args:
      directory: directory with a vocab.txt or a tokenizer.json, and settings;
        None if there is only a vocab_file.
      vocab_file: replaces the vocabulary there.
      init_checkpoint: a path that may have the name of a release; by default
        that of the vocabulary.
      do_lower_case: overrides the files' setting.

    Raises:
      InputError: there is no vocabulary, or a file is unusable.
    """
    fast = _read_fast(directory) if directory else None
    beside = os.path.join(directory or "", VOCABULARY)
    settings = read_settings(directory, fast) if directory else {}
    if directory and vocab_file in (None, beside):
        words = read_vocabulary(directory, fast)
    elif vocab_file is not None:
        words = vocabulary.Vocabulary.from_file(vocab_file)
    else:
        raise errors.InputError(
            "--vocab_file is required without --init_checkpoint"
        )
    place = vocab_file or directory or ""
    known = [do_lower_case, settings.get("do_lower_case")]
    known += map(case_of_release, (init_checkpoint or place, place))
    lower_case = next((x for x in known if x is not None), None)
    if lower_case is None:
        count = "many" if words.is_cased else "few or no"
        lower_case = not words.is_cased
        logging.info(
            f"{place}: do_lower_case={lower_case}, as its vocabulary has "
            f"{count} capital letters"
        )
        if words.is_accented and "strip_accents" not in settings:
            logging.info("%s: strip_accents=False, as it has accents", place)
            settings["strip_accents"] = False
    settings["do_lower_case"] = lower_case
    return plain_wordpiece.PlainTokenizer(words, **settings)


def has_vocabulary(directory: str) -> bool:
    """Returns whether a directory has a vocabulary in either form."""
    return any(
        file_system.is_file(os.path.join(directory, name))
        for name in (VOCABULARY, FAST)
    )


def no_vocabulary(directory: str) -> str:
    """Returns the beginning of all messages about a missing vocabulary."""
    return f"{directory}: no vocabulary there ({VOCABULARY} or {FAST})"


def _read_fast(directory: str) -> _Fast | None:
    return metadata.read_if_present(os.path.join(directory, FAST), _Fast)


def read_settings(directory: str, fast: _Fast | None = None) -> dict[str, bool]:
    """Returns the settings in the files; tokenizer_config.json comes first.

    `fast` is the content of tokenizer.json, if it has been read.

    Raises:
      InputError: a file is no JSON object, or a setting is not supported.
    """
    fast = fast or _read_fast(directory)
    normalizer = fast.normalizer if fast else _Normalizer()
    if not normalizer.clean_text:
        path = os.path.join(directory, FAST)
        raise errors.InputError(f"{path}: clean_text is false")
    path = os.path.join(directory, SETTINGS)
    stored = metadata.read_if_present(path, metadata.Object) or {}
    metadata.convert(stored, _Settings, path)
    for name, ours in _ALGORITHMS.items():
        if stored.get(name) not in (ours, None):
            raise errors.InputError(
                f"{directory}: its {name} is {stored[name]!r}; only BERT's "
                f"{ours!r} is supported. Split the text into words first and "
                f"set {name} to {json.dumps(ours)} in {SETTINGS}"
            )
    found = {x: getattr(normalizer, key) for x, key in _NORMALIZER.items()}
    found |= {x: stored[x] for x in found if stored.get(x) is not None}
    settings = {name: x for name, x in found.items() if x is not None}
    # sentence-transformers lower-cases the text before a cased tokenizer, which
    # does not strip accents.
    path = os.path.join(directory, SENTENCES)
    sentences = metadata.read_if_present(path, _Settings)
    if sentences and sentences.do_lower_case:
        if settings.get("do_lower_case") is False:
            settings.setdefault("strip_accents", False)
        settings["do_lower_case"] = True
    return settings


def case_of_release(path: str) -> bool | None:
    """Returns do_lower_case by a released directory's name, None for others.

    A relative path is within the working directory, which may be such a one.
    """
    parts = os.path.abspath(path).split("/")[-2:]
    found = next(filter(None, map(_RELEASE.fullmatch, parts)), None)
    return found[1] not in ("cased", "multi_cased") if found else None


def check_case(init_checkpoint: str, directory: str, given: bool) -> None:
    """Raises InputError if --do_lower_case contradicts the checkpoint.

    A release is known by the name in init_checkpoint. `directory` may have
    tokenizer settings.
    """
    expected, because = case_of_release(init_checkpoint), "its name says so"
    if expected is None:
        expected = read_settings(directory).get("do_lower_case", given)
        because = f"its {SETTINGS} or {FAST} says so"
    if expected != given:
        raise errors.InputError(
            f"--do_lower_case={given}, but --init_checkpoint={init_checkpoint} "
            f"was trained with --do_lower_case={expected}: {because}"
        )


def save(
    tokenizer: wordpiece.Tokenizer, directory: str, *, max_length: int
) -> None:
    """Writes vocab.txt and tokenizer_config.json, each atomically.

    `max_length` is the model's number of positions.
    """
    settings = {
        **tokenizer.settings,
        "tokenizer_class": "BertTokenizer",
        "model_max_length": max_length,
        **_SPECIAL,
    }
    if tokenizer.vocabulary.added:
        settings["additional_special_tokens"] = [*tokenizer.vocabulary.added]
    tokenizer.vocabulary.to_file(os.path.join(directory, VOCABULARY))
    atomic.write_json(os.path.join(directory, SETTINGS), settings)


def read_vocabulary(
    directory: str, fast: _Fast | None = None
) -> vocabulary.Vocabulary:
    """Reads vocab.txt, or the vocabulary in tokenizer.json; see read_settings.

    Raises:
      InputError: there is neither, or the two disagree.
    """
    fast = fast or _read_fast(directory)
    path = os.path.join(directory, VOCABULARY)
    tokens: list[str] = []
    if file_system.is_file(path):
        tokens += vocabulary.Vocabulary.from_file(path).tokens
    elif fast is not None:
        path = os.path.join(directory, FAST)
    else:
        raise errors.InputError(
            f"{no_vocabulary(directory)}; put it there, or give --vocab_file "
            "if the command has it"
        )
    added = _added_tokens(directory, fast)
    ids = {token: i for token, (i, _) in added.items() if i is not None}
    ids |= fast.model.vocab if fast else {}
    for token, i in sorted(ids.items(), key=lambda item: item[1]):
        _, file = added.get(token, (i, FAST))
        if i > len(tokens):
            raise errors.InputError(
                f"{path}: has {len(tokens)} tokens, but {token!r} of {file} is "
                f"number {i}: the ids are not 0, 1, 2, ..."
            )
        # A vocabulary has no white space around its tokens; Chinese ones have
        # the line U+2028.
        if i == len(tokens):
            tokens.append(token.strip())
        elif tokens[i].startswith("[unused"):
            tokens[i] = token
        elif tokens[i] != token.strip():
            raise errors.InputError(
                f"{path}: token {i} is {tokens[i]!r}, but {token!r} in {file}; "
                "remove the wrong file"
            )
    words = vocabulary.Vocabulary.from_tokens(tokens, path)
    return words.with_added(token for token in added if token.strip())


def _added_tokens(
    directory: str, fast: _Fast | None
) -> dict[str, tuple[int | None, str]]:
    """Returns the added tokens: token -> its id, if known, and the file.

    BERT's special tokens are left out: in a text, they are split.

    Raises:
      InputError: a file is unusable.
    """
    found: dict[str, tuple[int | None, str]] = {}
    for name in (SPECIAL_MAP, SETTINGS):
        path = os.path.join(directory, name)
        values = metadata.read_if_present(path, _Settings) or _Settings()
        for named in values.additional_special_tokens or ():
            token = named if isinstance(named, str) else named.content
            found[token] = None, name
        for number, entry in (values.added_tokens_decoder or {}).items():
            found[entry.content] = number, name
    ids = metadata.read_if_present(
        os.path.join(directory, ADDED), dict[metadata.Text, _Id]
    )
    found |= {token: (i, ADDED) for token, i in (ids or {}).items()}
    for entry in fast and fast.added_tokens or ():
        found[entry.content] = entry.id, FAST
    for token in vocabulary.SPECIAL_TOKENS:
        found.pop(token, None)
    return found
