"""The tokenizer's files in a model directory: vocab.txt and its settings.

A vocabulary can only be used with the do_lower_case that it was made for, so
both files are written and read together, under the names that Hugging Face
uses:

    vocab.txt               one token a line
    tokenizer_config.json   do_lower_case, strip_accents, tokenize_chinese_chars
    tokenizer.json          both; the only file that newer transformers write

For released TF1 models only the directory's name shows the case:
"uncased_L-12_...".
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from data.tokenization import vocabulary, wordpiece
from foundation import errors, file_system

VOCABULARY = "vocab.txt"
SETTINGS = "tokenizer_config.json"
FAST = "tokenizer.json"
ADDED = "added_tokens.json"
_SHOWN = 5  # added tokens in a warning
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
_COMPONENTS = {
    "normalizer": "BertNormalizer",
    "pre_tokenizer": "BertPreTokenizer",
}
_RELEASE = re.compile(
    r"(?:wwm_)?(uncased|cased|multi_cased|multilingual|chinese)(?:_wwm(?:_ext)?)?"
    r"_L-\d+_H-\d+_A-\d+(?:_\w+)?"
)


def load(
    directory: str, *, do_lower_case: bool | None = None
) -> wordpiece.Tokenizer:
    """Reads the tokenizer of a model directory of any origin.

    Args:
      directory: with a vocab.txt or a tokenizer.json.
      do_lower_case: overrides the files' setting.

    Raises:
      InputError: there is no vocabulary, or a file is unusable.
    """
    fast = _read_fast(directory)
    words = read_vocabulary(directory, fast)
    _warn_of_added_tokens(directory, fast)
    settings = read_settings(directory, fast)
    return _make(words, settings, do_lower_case, directory)


def with_vocabulary(
    vocab_file: str,
    *,
    init_checkpoint: str | None = None,
    directory: str | None = None,
    do_lower_case: bool | None = None,
) -> wordpiece.Tokenizer:
    """Makes a tokenizer of a vocabulary file and a checkpoint's settings.

    A release is known by the name in init_checkpoint. `directory` may have
    tokenizer settings; do_lower_case overrides both.
    """
    words = vocabulary.Vocabulary.from_file(vocab_file)
    settings = read_settings(directory) if directory else {}
    if init_checkpoint is not None:
        known = case_of_release(init_checkpoint)
        if known is not None:
            settings.setdefault("do_lower_case", known)
    return _make(words, settings, do_lower_case, vocab_file)


def _make(
    words: vocabulary.Vocabulary,
    settings: dict[str, bool],
    do_lower_case: bool | None,
    path: str,
) -> wordpiece.Tokenizer:
    if do_lower_case is not None:
        settings["do_lower_case"] = do_lower_case
    known = case_of_release(os.path.abspath(path))
    if known is not None:
        settings.setdefault("do_lower_case", known)
    if "do_lower_case" not in settings:
        is_cased = words.num_capitalized > 0
        logging.info(
            "%s: do_lower_case=%s, as its vocabulary has %s capital letters",
            path,
            not is_cased,
            "" if is_cased else "no",
        )
        settings["do_lower_case"] = not is_cased
    return wordpiece.Tokenizer(words, **settings)


def has_vocabulary(directory: str) -> bool:
    """Returns whether a directory has a vocabulary in either form."""
    return any(
        file_system.is_file(os.path.join(directory, name))
        for name in (VOCABULARY, FAST)
    )


def _read_fast(directory: str) -> dict[str, Any]:
    return file_system.read_object(os.path.join(directory, FAST))


def read_settings(
    directory: str, fast: Mapping[str, Any] | None = None
) -> dict[str, bool]:
    """Returns the settings in the files; tokenizer_config.json comes first.

    `fast` is the content of tokenizer.json, if it has been read.

    Raises:
      InputError: a file is no JSON object, or a setting is not supported.
    """
    if fast is None:
        fast = _read_fast(directory)
    normalizer = _normalizer(fast, os.path.join(directory, FAST))
    given = file_system.read_object(os.path.join(directory, SETTINGS))
    for name, ours in _ALGORITHMS.items():
        if given.get(name, ours) not in (ours, None):
            raise errors.InputError(
                f"{directory}: its {name} is {given[name]!r}; only BERT's "
                f"{ours!r} is supported. Split the text into words first and "
                f"set {name} to {json.dumps(ours)} in {SETTINGS}"
            )
    settings = {}
    for name, theirs in _NORMALIZER.items():
        value = given.get(name)
        if value is None:
            value = normalizer.get(theirs)
        if value is not None:
            settings[name] = value
        if not isinstance(value, bool | None):
            raise errors.InputError(
                f"{directory}: the tokenizer's {name} is {value!r}"
            )
    return settings


def _normalizer(fast: Mapping[str, Any], path: str) -> dict[str, bool]:
    """Returns the settings of the normalizer of tokenizer.json.

    Raises:
      InputError: the file prepares text in another way than BERT.
    """
    for name, ours in _COMPONENTS.items():
        part = fast.get(name, {"type": ours})
        found = part.get("type") if isinstance(part, dict) else part
        if found != ours:
            raise errors.InputError(
                f"{path}: its {name} is {found}; only {ours} is supported"
            )
    normalizer = fast.get("normalizer", {})
    if not normalizer.get("clean_text", True):
        raise errors.InputError(f"{path}: clean_text is false")
    return normalizer


def case_of_release(path: str) -> bool | None:
    """Returns do_lower_case by a released directory's name, None for others."""
    for part in path.rstrip("/").split("/")[-2:]:
        found = _RELEASE.fullmatch(part)
        if found:
            return found[1] not in ("cased", "multi_cased")
    return None


def check_case(init_checkpoint: str, directory: str, given: bool) -> None:
    """Raises InputError if --do_lower_case contradicts the checkpoint.

    A release is known by the name in init_checkpoint. `directory` may have
    tokenizer settings.
    """
    wanted, because = case_of_release(init_checkpoint), "its name says so"
    if wanted is None:
        wanted = read_settings(directory).get("do_lower_case", given)
        because = f"its {SETTINGS} or {FAST} says so"
    if wanted != given:
        raise errors.InputError(
            f"--do_lower_case={given}, but --init_checkpoint={init_checkpoint} "
            f"was trained with --do_lower_case={wanted}: {because}"
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
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    text = "\n".join(tokenizer.vocabulary.tokens) + "\n"
    file_system.write_text(os.path.join(directory, VOCABULARY), text)
    file_system.write_json(os.path.join(directory, SETTINGS), settings)


def read_vocabulary(
    directory: str, fast: Mapping[str, Any] | None = None
) -> vocabulary.Vocabulary:
    """Reads vocab.txt, or the vocabulary in tokenizer.json; see read_settings.

    Raises:
      InputError: there is neither, or the two disagree.
    """
    if fast is None:
        fast = _read_fast(directory)
    path = os.path.join(directory, VOCABULARY)
    fast_path = os.path.join(directory, FAST)
    ids = _ids(fast, fast_path) if fast else {}
    if file_system.is_file(path):
        words = vocabulary.Vocabulary.from_file(path)
        for token, i in ids.items():
            # A vocabulary has no white space around its tokens; Chinese ones
            # have the line U+2028.
            if i < len(words) and words.tokens[i] != token.strip():
                raise errors.InputError(
                    f"{path}: token {i} is {words.tokens[i]!r}, but {token!r} "
                    f"in {FAST}; remove the wrong file"
                )
        return words
    if not ids:
        raise errors.InputError(
            f"{directory}: no {VOCABULARY} there, so text cannot be read"
        )
    if sorted(ids.values()) != list(range(len(ids))):
        raise errors.InputError(f"{fast_path}: its ids are not 0, 1, 2, ...")
    tokens = sorted(ids, key=ids.get)
    return vocabulary.Vocabulary.from_tokens(tokens, fast_path)


def _ids(fast: Mapping[str, Any], path: str) -> dict[str, int]:
    """Returns the ids of all tokens in tokenizer.json."""
    model = fast.get("model")
    model = model if isinstance(model, dict) else {}
    if (
        model.get("type", "WordPiece") != "WordPiece"
        or model.get("continuing_subword_prefix", "##") != "##"
        or not isinstance(model.get("vocab"), dict)
    ):
        raise errors.InputError(f"{path}: not BERT's WordPiece tokens")
    added = fast.get("added_tokens") or ()
    return {token.get("content"): token.get("id") for token in added} | model[
        "vocab"
    ]


def _warn_of_added_tokens(directory: str, fast: Mapping[str, Any]) -> None:
    """Warns of added tokens: the tokenizer never makes them from text."""
    settings = file_system.read_object(os.path.join(directory, SETTINGS))
    entries = [
        *(fast.get("added_tokens") or ()),
        *(settings.get("added_tokens_decoder") or {}).values(),
    ]
    added = [token.get("content") for token in entries]
    added += file_system.read_object(os.path.join(directory, ADDED))
    added = sorted({*added} - {*vocabulary.SPECIAL_TOKENS})
    if added:
        shown = ", ".join(map(str, added[:_SHOWN]))
        errors.warn_once(
            f"{directory}: {len(added)} added token(s) are split like other "
            f"words: {shown}"
        )
