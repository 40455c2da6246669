"""Proves extract_features.py: released JSONL, every format, real embeddings.

python -m pytest tests/extract_features_test.py
"""

import io
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

import extract_features
from data.tokenization import vocabulary, wordpiece
from modeling import models
from tasks.features import extraction
from tests.weights import sentence_models

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##b d".split()
SIZES = dict(num_hidden_layers=2, hidden_size=8, max_position_embeddings=32)
LINES = ["a b c", "ab ||| c d", "", "d " * 40, "x \u00e9"]
GOLDEN = pathlib.Path(__file__).parent / "testdata/sentence_modules.json"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("features")
    tiny_runs.save_encoder(root / "encoder", WORDS, **SIZES)
    (root / "in.txt").write_bytes(
        b"".join(line.encode() + b"\n" for line in LINES)
    )
    return root


@pytest.fixture(scope="module")
def states(root):
    """Every line's layers as the model gives them, one line at a time."""
    model = models.PretrainingModel(
        tiny_runs.config(WORDS, **SIZES), seed=tiny_runs.SEED
    )
    tokenizer = wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(WORDS))
    result = []
    for line in LINES:
        first, _, second = line.partition(" ||| ")
        a, b = tokenizer.tokenize([first, second])
        tokens = ["[CLS]", *a[:14], "[SEP]", *b, *(["[SEP]"] if b else [])]
        ids = np.array([[WORDS.index(token) for token in tokens]], np.int32)
        segments = (np.arange(len(tokens))[None] > len(a) + 1).astype(np.int32)
        segments *= bool(b)
        outputs = model.bert(ids, np.ones_like(ids), segments)
        layers = [np.array(x)[0] for x in outputs.all_encoder_layers]
        result.append((tokens, layers))
    return result


def run(root, name, *switches, **flags):
    flags = {
        "input_file": root / "in.txt",
        "output_file": root / name,
        "init_checkpoint": root / "encoder",
        "max_seq_length": 16,
        "batch_size": 2,
    } | flags
    switches = (*switches, "--verbosity=0")
    config = extract_features.ExtractFlags
    tiny_runs.run(extract_features, config, *switches, **flags)
    return root / name


def test_jsonl_is_the_released_one(root, states):
    path = run(root, "out.jsonl", layers="-1,-2,1")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["linex_index"] for record in records] == [0, 1, 2, 3, 4]
    for record, (tokens, layers) in zip(records, states, strict=True):
        assert list(record) == ["linex_index", "features"]
        assert [f["token"] for f in record["features"]] == tokens
        for i, feature in enumerate(record["features"]):
            indices = [layer["index"] for layer in feature["layers"]]
            assert indices == [-1, -2, 1]
            for layer in feature["layers"]:
                np.testing.assert_allclose(
                    layer["values"], layers[layer["index"]][i], atol=2e-6
                )


@pytest.fixture(scope="module")
def last_layer(root):
    """What is written of the last layer."""
    return run(root, "last.jsonl", layers="-1").read_bytes()


def test_standard_input_is_read_to_standard_output(
    root, last_layer, monkeypatch, capfdbinary
):
    data = (root / "in.txt").read_bytes()
    stdin = io.TextIOWrapper(io.BytesIO(data))
    monkeypatch.setattr("sys.stdin", stdin)
    run(root, "", layers="-1", input_file="-", output_file="-")
    assert capfdbinary.readouterr().out == last_layer


def test_the_default_layers_are_the_last_four(root):
    sizes = SIZES | {"num_hidden_layers": 4}
    deep = tiny_runs.save_encoder(root / "deep", WORDS, **sizes)
    flags = {"init_checkpoint": deep, "output_format": "npz"}
    with np.load(run(root, "out.npz", **flags)) as arrays:
        names = [f"layer_-{i}" for i in (1, 2, 3, 4)]
        assert sorted(arrays) == sorted(["input_ids", "row_splits", *names])


def test_arrays_hold_the_same_whatever_the_blocks(root, states, monkeypatch):
    monkeypatch.setattr(extraction, "_BLOCK_BYTES", 1)
    flags = {"layers": "-1,0", "batch_size": 1}
    with np.load(run(root, "o.npz", output_format="npz", **flags)) as arrays:
        splits = arrays["row_splits"]
        for i, (tokens, layers) in enumerate(states):
            part = slice(*splits[i : i + 2])
            ids = [WORDS.index(token) for token in tokens]
            assert arrays["input_ids"][part].tolist() == ids
            for layer in (-1, 0):
                values = arrays[f"layer_{layer}"][part]
                np.testing.assert_allclose(values, layers[layer], atol=1e-6)


POOLINGS = {
    "cls": lambda x: x[0],
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_leaves_padding_out(root, states, pooling):
    path = run(root, f"{pooling}.npz", pooling=pooling, output_format="npz")
    expected = [POOLINGS[pooling](layers[-1]) for _, layers in states]
    with np.load(path) as arrays:
        assert list(arrays) == ["layer_-1"]
        np.testing.assert_allclose(arrays["layer_-1"], expected, atol=1e-6)


def test_a_line_may_have_one_vector_of_length_1(root, states):
    path = run(root, "max.jsonl", "--normalize", pooling="max")
    lines = path.read_text().splitlines()
    for line, (_, layers) in zip(lines, states, strict=True):
        (layer,) = json.loads(line)["layers"]
        vector = POOLINGS["max"](layers[-1])
        unit = vector / np.linalg.norm(vector)
        np.testing.assert_allclose(layer["values"], unit, atol=2e-6)


def test_embeddings_are_those_of_sentence_transformers(tmp_path):
    arguments = sentence_models.CASES["dense"]
    model = sentence_models.save(tmp_path / "model", **arguments)
    (tmp_path / "in.txt").write_text("\n".join(sentence_models.TEXTS) + "\n")
    flags = {"init_checkpoint": model, "max_seq_length": None}
    path = run(
        tmp_path, "out.npz", pooling="auto", output_format="npz", **flags
    )
    with np.load(path) as arrays:
        found = arrays["layer_-1"]
    golden = json.loads(GOLDEN.read_text())["dense"]
    np.testing.assert_allclose(found, golden, atol=1e-5, rtol=0)


def test_float32_is_not_tf32(root):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    run(root, "exact.jsonl", layers="-1", precision="float32")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
