"""Proves that damaged JSON files of every kind end in one line.

Each kind has a valid file and a function that reads it. The table of damages
names the key that the line must name; what hypothesis makes of the valid file
must end in InputError, or be read, but never in another exception.

python -m pytest tests/metadata_files_test.py
"""

import copy
import functools
import json
import os
import pathlib
import shutil
import types

import hypothesis
import pytest
from hypothesis import strategies

from data import manifest, receipts
from data.pretraining import work_dir
from finetuning import record
from foundation import errors
from modeling.config import BertConfig
from tasks.ner import tagging
from weights import model_directory, task_files, tokenizer_files

NUM_DAMAGES = 25  # Of each kind.
MADE_AGAIN = ("receipt",)
VALUES = (
    *(None, True, -1, 0, 1, 3.5, 10**8, 2**62, 2**80, float("nan"), 1e300),
    *("", "x", "5", "../x", "\ud800", [], [1], ["x"], {}, {"a": 1}, {"0": []}),
)
PRETRAINED = pathlib.Path(__file__).parent / "testdata" / "tiny_pretrained"
CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "a", "1": "b"},
    "problem_type": None,
    "pad_token_id": 0,
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
FAST = {
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "added_tokens": [{"id": 0, "content": "[PAD]"}],
    "model": {
        "type": "WordPiece",
        "vocab": {word: i for i, word in enumerate(WORDS)},
    },
}
TOKENIZER = {
    "do_lower_case": True,
    "strip_accents": None,
    "added_tokens_decoder": {"0": {"content": "[PAD]"}},
    "never_split": [],
}
JOURNAL = {
    "flags": {"learning_rate": 5e-05, "max_seq_length": 128},
    "made_from": {"train": "aa", "labels": ["a", "b"]},
    "runs": {"one": {"step": 3, "values": {"score": 0.5}, "failed": ""}},
    "best": {"run": "one", "step": 3},
}
MANIFEST = {
    "kind": "pretraining",
    "max_seq_length": 16,
    "max_predictions_per_seq": 4,
    "vocabulary": {"file": "v.txt", "size": 50, "sha256": "aa"},
    "tokenizer": {"do_lower_case": True},
    "shards": [{"file": "a.tfrecord", "records": 3, "bytes": 700}],
    "job": {"input_files": [{"file": "x", "blake2b": "y"}]},
    "totals": {"instances": 3},
    "packing": None,
    "format_version": 1,
}


def _tokenizer(folder):
    path = pathlib.Path(folder) / "vocab.txt"
    if not (pathlib.Path(folder) / "tokenizer.json").exists():
        path.write_text("\n".join(WORDS))
    return tokenizer_files.load(folder)


def _begun(folder):
    own = {"random_seed": 1}
    recipe = types.SimpleNamespace(work_dir=folder, to_json=lambda: own)
    work_dir.remove(recipe)


def _receipt(folder):
    pathlib.Path(folder, "a").write_bytes(b"abc")
    receipts.read(f"{folder}/a", f"{folder}/receipt.json")


def _of(function, name):
    """Returns a function of the folder that reads one file of it."""
    return lambda folder: function(os.path.join(folder, name))


# Name of the file, its content, the function that reads it from a folder.
KINDS = {
    "manifest": (
        "a.manifest.json",
        MANIFEST,
        _of(manifest.read, "a.manifest.json"),
    ),
    "bert_config": (
        "bert_config.json",
        CONFIG,
        _of(BertConfig.from_json_file, "bert_config.json"),
    ),
    "config": (
        "config.json",
        CONFIG,
        _of(BertConfig.from_json_file, "config.json"),
    ),
    "settings": ("config.json", CONFIG, model_directory.read_settings),
    "index": (
        model_directory.INDEX,
        {"weight_map": {"a": "one.safetensors"}},
        _of(model_directory.read_index, model_directory.INDEX),
    ),
    "tokenizer_config": ("tokenizer_config.json", TOKENIZER, _tokenizer),
    "tokenizer": ("tokenizer.json", FAST, _tokenizer),
    "added_tokens": ("added_tokens.json", {"[X]": 7}, _tokenizer),
    "journal": (record.NAME, JOURNAL, record.RunRecord),
    "question_answering": (
        "question_answering.json",
        {"version_2_with_negative": True, "null_score_diff_threshold": -1.5},
        task_files.read_settings,
    ),
    "crf": (
        "crf.json",
        {
            "labels": ["a", "b"],
            "transitions": [[0.5, 0], [1, 2]],
            "start": [0.0, 1.0],
            "end": [1.0, 2.0],
        },
        functools.partial(tagging.read_crf, ["a", "b"]),
    ),
    "recipe": ("recipe.json", {"random_seed": 1}, _begun),
    "receipt": (
        "receipt.json",
        {"bytes": 3, "crc32": 5, "counts": {"a": 1}},
        _receipt,
    ),
}


def _read(kind, values, tmp_path):
    name, _, read = KINDS[kind]
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / name).write_text(json.dumps(values))
    return read(str(tmp_path))


def _places(value, path=()):
    """Yields the path of every value inside of a value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


def _with(value, path, new):
    """Returns a value with another one at a path."""
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = functools.reduce(lambda x, key: x[key], path[:-1], value)
    inner[path[-1]] = new
    return value


_JSON = strategies.recursive(
    strategies.sampled_from(VALUES) | strategies.text(max_size=3),
    lambda inner: (
        strategies.lists(inner, max_size=2)
        | strategies.dictionaries(strategies.text(max_size=3), inner)
    ),
    max_leaves=3,
)


@strategies.composite
def _damaged(draw, valid):
    """Draws a value of which one inside has gone, or is another."""
    path = draw(strategies.sampled_from(list(_places(valid))))
    found = functools.reduce(lambda x, key: x[key], path, valid)
    if found and isinstance(found, dict) and draw(strategies.booleans()):
        lost = draw(strategies.sampled_from(sorted(found)))
        return _with(valid, path, {k: found[k] for k in found if k != lost})
    return _with(valid, path, draw(_JSON))


@pytest.fixture(autouse=True)
def _no_warnings_in_common():
    errors.warn_once.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_damages_are_read_or_end_in_one_line(kind, tmp_path):
    """What is not even an object is refused, or made again."""
    name, valid, _ = KINDS[kind]
    if kind != "index":  # It needs other files.
        _read(kind, valid, tmp_path)

    @hypothesis.settings(
        max_examples=NUM_DAMAGES, derandomize=True, deadline=None, database=None
    )
    @hypothesis.given(_damaged(valid))
    def check(values):
        try:
            _read(kind, values, tmp_path)
        except errors.InputError as error:
            assert "\n" not in str(error)
            assert isinstance(values, dict) or name in str(error)
        else:
            assert isinstance(values, dict) or kind in MADE_AGAIN

    check()


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("bert_config", ["vocab_size"], 2**62),
        ("config", ["hidden_act"], {}),
        ("config", ["num_hidden_layers"], 10**8),
        ("settings", ["problem_type"], [1]),
        ("settings", ["architectures"], "x"),
        ("settings", ["id2label", "0"], None),
        ("index", ["weight_map", "a"], "../x"),
        ("tokenizer_config", ["added_tokens_decoder"], "x"),
        ("tokenizer_config", ["do_lower_case"], "yes"),
        ("tokenizer", ["added_tokens"], "x"),
        ("tokenizer", ["added_tokens", 0, "id"], "0"),
        ("tokenizer", ["model", "vocab", "a"], None),
        ("tokenizer", ["model", "vocab", "a"], -1),
        ("tokenizer", ["normalizer", "lowercase"], 1),
        ("question_answering", ["null_score_diff_threshold"], "0"),
        ("crf", ["start"], [1.0, "x"]),
        ("crf", ["end"], [1.0]),
    ],
)
def test_a_wrong_value_is_named(kind, path, value, tmp_path):
    name, valid, _ = KINDS[kind]
    with pytest.raises(errors.InputError) as caught:
        _read(kind, _with(valid, path, value), tmp_path)
    message = str(caught.value)
    assert os.path.join(tmp_path, name) in message
    if kind not in ("added_tokens",):  # Maps of any keys.
        assert path[0] in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["config", "tokenizer"])
def test_depth_is_refused(kind, tmp_path):
    name, _, read = KINDS[kind]
    (tmp_path / name).write_text("[" * 100000)
    with pytest.raises(errors.InputError, match=name):
        read(str(tmp_path))
