"""Proves that the tokenizer of a model of any origin is found, or refused.

python -m pytest tests/weights/tokenizer_files_test.py
"""

import json
import pathlib
import re
import shutil

import pytest

from foundation import errors
from modeling import models
from modeling.config import BertConfig
from weights import pretrained, tokenizer_files

PRETRAINED = pathlib.Path(__file__).parent.parent / "testdata/tiny_pretrained"
SETTINGS, FAST = "tokenizer_config.json", "tokenizer.json"
TOKENS = (PRETRAINED / "vocab.txt").read_text().split()
COUNT = len(TOKENS)
VOCAB = {token: i for i, token in enumerate(TOKENS)}
NORMALIZER = {
    "type": "BertNormalizer",
    "lowercase": False,
    "strip_accents": True,
    "handle_chinese_chars": False,
}


@pytest.fixture
def directory(tmp_path):
    """A folder with a vocabulary and no settings."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(PRETRAINED / "vocab.txt", folder)
    return folder


def write(directory, **files):
    """Writes JSON files, named by constants of this module."""
    for name, value in files.items():
        (directory / globals()[name]).write_text(json.dumps(value))


def load(directory, **options):
    return tokenizer_files.load(str(directory), **options)


def append(directory, *tokens):
    with (directory / "vocab.txt").open("a") as file:
        file.write("".join(f"{token}\n" for token in tokens))


def test_a_tokenizer_json_alone_is_enough(directory):
    added = [{"id": COUNT, "content": "[NEW]"}]
    model = {"type": "WordPiece", "vocab": VOCAB}
    values = {"added_tokens": added, "normalizer": NORMALIZER, "model": model}
    write(directory, FAST=values)
    (directory / "vocab.txt").unlink()
    found = load(directory)
    assert found.vocabulary.tokens == (*TOKENS, "[NEW]")
    assert found.settings == {
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    }
    write(directory, SETTINGS={"do_lower_case": True})  # Has the last word.
    assert load(directory).settings["do_lower_case"] is True


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (FAST, {"model": {"vocab": VOCAB, "type": "BPE"}}, "value 'BPE'"),
        (FAST, {"normalizer": None}, "normalizer: Expected object"),
        (FAST, {"normalizer": {"type": "Lowercase"}}, "normalizer.type: .*Low"),
        (
            FAST,
            {"normalizer": NORMALIZER | {"clean_text": False}},
            "clean_text is false",
        ),
        (FAST, {"pre_tokenizer": {"type": "WhitespaceSplit"}}, "pre_.*Whitesp"),
        (SETTINGS, {"do_basic_tokenize": False}, "do_basic_tokenize is False"),
        (
            SETTINGS,
            {"never_split": ["a"]},
            r"set never_split to \[\] in tokenizer_config.json",
        ),
        (
            FAST,
            {"model": {"vocab": VOCAB | {TOKENS[5]: 6, TOKENS[6]: 5}}},
            "remove the wrong file",
        ),
        ("added_tokens.json", {"[E1]": COUNT + 1}, r"\[E1\].*added_tokens.jso"),
    ],
)
def test_other_tokenizers_than_berts_are_refused(
    directory, file, values, message
):
    default = {"model": {"vocab": VOCAB}} if file == FAST else {}
    (directory / file).write_text(json.dumps(default | values))
    with pytest.raises(errors.InputError, match=message) as caught:
        load(directory)
    if way_out := re.search(r"and set (\w+) to (\S+) in", str(caught.value)):
        write(directory, SETTINGS={way_out[1]: json.loads(way_out[2])})
        assert load(directory).vocabulary.tokens == tuple(TOKENS)


# File -> what adds the tokens [E1] and <url> to the vocabulary.
ADDED = {
    "older": {
        "added_tokens.json": {"<url>": COUNT + 1, "[E1]": COUNT, "[PAD]": 0},
        "special_tokens_map.json": {
            "additional_special_tokens": [{"content": "[E1]"}]
        },
    },
    "settings": {
        SETTINGS: {
            "added_tokens_decoder": {
                "0": {"content": "[PAD]"},
                COUNT: {"content": "[E1]"},
                COUNT + 1: {"content": "<url>"},
            }
        }
    },
    "both": {
        SETTINGS: {"added_tokens_decoder": {COUNT: {"content": "[E1]"}}},
        FAST: {
            "added_tokens": [{"id": COUNT + 1, "content": "<url>"}],
            "model": {"vocab": VOCAB},
        },
    },
}


@pytest.mark.parametrize("files", ADDED.values(), ids=ADDED)
def test_added_tokens_have_the_ids_of_the_files(directory, files, caplog):
    for name, values in files.items():
        (directory / name).write_text(json.dumps(values))
    found = load(directory)
    assert found.vocabulary.tokens == (*TOKENS, "[E1]", "<url>")
    assert {*found.vocabulary.added} == {"[E1]", "<url>"}
    assert "warning" not in caplog.text.lower()
    encoding = found.encode(["a <url>[E1]"])
    assert encoding.ids[-2:].tolist() == [COUNT + 1, COUNT]
    tokenizer_files.save(found, str(directory), max_length=9)
    for name in {*files} - {SETTINGS}:
        (directory / name).unlink()
    again = load(directory).vocabulary
    assert again.tokens == found.vocabulary.tokens
    assert {*again.added} == {*found.vocabulary.added}


def test_lines_of_chinese_releases_are_tokens(directory):
    append(directory, "\u2028", "##\u2028")
    tokens = load(directory).vocabulary.tokens
    assert tokens[COUNT:] == ("", "##")
    lines = [*TOKENS, "\u2028", "##\u2028"]
    vocab = {token: i for i, token in enumerate(lines)}
    write(directory, FAST={"model": {"vocab": vocab}})
    assert load(directory).vocabulary.tokens == tokens


@pytest.mark.parametrize(
    ("added", "settings", "name", "given", "expected"),
    [
        (["<S>", "<T>"], {}, "model", None, True),  # As the Chinese release.
        (["London"], {}, "model", None, True),
        (["London", "Paris", "The", "Rome"], {}, "model", None, False),
        (["London", "Paris", "The", "Rome"], {}, "model", True, True),
        (["London", "Paris", "The"], {"do_lower_case": True}, "m", None, True),
        ([], {"do_lower_case": False}, "model", None, False),
        ([], {"do_lower_case": False}, "uncased_L-2_H-16_A-2", None, False),
        ([], {"do_lower_case": False}, "model", True, True),
        ([], {}, "cased_L-2_H-16_A-2", None, False),
        (["London", "Paris", "The"], {}, "uncased_L-2_H-1_A-1", None, True),
    ],
)
def test_a_flag_beats_settings_a_releases_name_and_capitals(
    directory, added, settings, name, given, expected
):
    append(directory, *added)
    write(directory, SETTINGS=settings)
    directory = directory.rename(directory.parent / name)
    found = load(directory, do_lower_case=given)
    assert found.settings["do_lower_case"] is expected
    vocab_file = str(directory / "vocab.txt")
    other = tokenizer_files.load(
        None if not settings else str(directory),
        vocab_file=vocab_file,
        do_lower_case=given,
    )
    assert other.settings == found.settings


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uncased_L-24_H-1024_A-16", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-12_H-768_A-12", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("my_cased_model", None),
    ],
)
def test_releases_are_known_by_name(name, expected, tmp_path, monkeypatch):
    for path in (name, f"/x/{name}/bert_model.ckpt", f"gs://b/{name}"):
        assert tokenizer_files.case_of_release(path) == expected
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    assert tokenizer_files.case_of_release("bert_model.ckpt") == expected


def test_the_case_of_the_weights_must_be_that_of_the_run(tmp_path):
    for name, is_cased in (("cased_L-12_H-768_A-12", True), ("model", False)):
        folder = tmp_path / name
        shutil.copytree(PRETRAINED, folder)
        model = models.PretrainingModel(
            BertConfig.from_json_file(folder / "config.json")
        )
        right, wrong = (
            load(PRETRAINED, do_lower_case=lower)
            for lower in (not is_cased, is_cased)
        )
        pretrained.assign(model, str(folder), tokenizer=right)
        message = f"with --do_lower_case={not is_cased}"
        with pytest.raises(errors.InputError, match=message):
            pretrained.assign(model, str(folder), tokenizer=wrong)


def test_accents_show_that_text_keeps_them(directory):
    """A vocabulary learned with --strip_accents=False, with no settings."""
    append(directory, "\u00e9", "##\u00e9", "##t\u00e9", "caf\u00e9")
    append(directory, "\uac00", "##\uac00", "\u0915", "##\u0941")
    texts = ["Caf\u00e9 \u00e9t\u00e9", "\uac00\uac00", "\u0915\u0941"]
    vocab_file = str(directory / "vocab.txt")
    for found in (
        load(directory),
        tokenizer_files.load(None, vocab_file=vocab_file),
    ):
        assert found.settings["do_lower_case"]
        assert found.tokenize(texts) == [
            ["caf\u00e9", "\u00e9", "##t\u00e9"],
            ["\uac00", "##\uac00"],
            ["\u0915", "##\u0941"],
        ]
    for settings in ({"do_lower_case": True}, {"strip_accents": True}):
        write(directory, SETTINGS=settings)
        assert load(directory).tokenize(["Caf\u00e9"]) != [["caf\u00e9"]]


def test_a_given_vocabulary_keeps_the_other_settings(directory):
    write(directory, SETTINGS={"do_lower_case": True, "strip_accents": False})
    other = directory / "words.txt"
    (directory / "vocab.txt").rename(other)
    named = load(directory, vocab_file=str(other))
    assert named.settings["strip_accents"] is False
    with pytest.raises(errors.InputError) as caught:
        load(directory)
    said = tokenizer_files.no_vocabulary(str(directory))
    assert str(caught.value).startswith(f"{said}; put it there")
    with pytest.raises(errors.InputError, match="--vocab_file is required"):
        tokenizer_files.load(None)
