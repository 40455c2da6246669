"""The tokenizer's half of a model directory: vocab.txt and its settings.

Without do_lower_case a vocabulary means nothing, so both always travel
together, under the names that Hugging Face reads as well.
"""

import json
import os

import errors
from data import tokenization, vocabulary

VOCABULARY = "vocab.txt"
SETTINGS = "tokenizer_config.json"
_OURS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")


def load(directory: str) -> tokenization.Tokenizer:
    """Reads the tokenizer of a model directory.

    Raises:
      InputError: vocab.txt is missing or unusable, or the settings are no
        JSON object.
    """
    path = os.path.join(directory, VOCABULARY)
    if not os.path.isfile(path):
        raise errors.InputError(
            f"{directory}: no {VOCABULARY} there, so text cannot be read"
        )
    settings = read_settings(directory)
    return tokenization.Tokenizer(
        vocabulary.Vocabulary.from_file(path), **settings
    )


def read_settings(directory: str) -> dict[str, bool]:
    """Returns those settings of tokenizer_config.json that are given."""
    path = os.path.join(directory, SETTINGS)
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        try:
            settings = json.load(file)
        except ValueError as error:
            raise errors.InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(settings, dict):
        raise errors.InputError(f"{path}: not a JSON object")
    return {
        name: settings[name] for name in _OURS if settings.get(name) is not None
    }


def save(
    tokenizer: tokenization.Tokenizer, directory: str, *, max_length: int
) -> None:
    """Writes vocab.txt and tokenizer_config.json, each whole or not at all.

    Args:
      tokenizer: what the model was trained with.
      directory: an existing model directory.
      max_length: the model's number of positions.
    """
    tokens = tokenizer.vocabulary.tokens
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
    _write(os.path.join(directory, VOCABULARY), "\n".join(tokens) + "\n")
    _write(
        os.path.join(directory, SETTINGS), json.dumps(settings, indent=2) + "\n"
    )


def _write(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    os.replace(temporary, path)
