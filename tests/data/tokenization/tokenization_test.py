"""Proves that tokens are google-research/bert's, in a graph and outside.

python -m pytest tests/data/tokenization/tokenization_test.py
"""

import itertools
import json
import pickle
import re

import pytest
import tensorflow as tf

from data.tokenization import (
    vocabulary,
    wordpiece,
)


@pytest.fixture(scope="module", autouse=True)
def shared_tokenizers():
    """Here every tokenizer makes its own graph."""


@pytest.fixture(scope="module")
def uncased(tiny):
    return wordpiece.Tokenizer(tiny)


@pytest.fixture(scope="module")
def tiny(repository):
    path = repository / "tests" / "testdata" / "tiny_vocab.txt"
    return vocabulary.Vocabulary.from_file(path)


@pytest.fixture(scope="module")
def golden(repository):
    path = repository / "tests" / "testdata" / "golden_pieces.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_graph(tokenizer, texts, batch_size=100):
    """Tokenizes in a tf.data pipeline."""
    dataset = tf.data.Dataset.from_tensor_slices(
        [text.encode() for text in texts]
    )
    dataset = dataset.batch(batch_size).map(tokenizer.graph)
    rows = itertools.chain.from_iterable(b.to_list() for b in dataset)
    return [[tokenizer.vocabulary.tokens[i] for i in row] for row in rows]


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_golden_pieces_in_a_graph_and_outside(tiny, golden, case):
    tokenizer = wordpiece.Tokenizer(tiny, do_lower_case=case == "uncased")
    texts = [row["text"] for row in golden]
    tokens = [row[case] for row in golden]
    assert tokenizer.tokenize(texts) == tokens
    assert in_graph(tokenizer, texts, batch_size=4) == tokens
    assert [tokenizer.tokenize([text])[0] for text in texts] == tokens


def test_an_exported_graph_tokenizes_by_itself(uncased, tiny, golden, tmp_path):
    module = tf.Module()
    module.encode = tf.function(
        lambda texts: uncased.graph(texts).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    texts = [row["text"] for row in golden]
    ids = loaded.encode(tf.constant([text.encode() for text in texts]))
    for row, given in zip(ids.numpy(), golden, strict=True):
        tokens = [tiny.tokens[i] for i in row if i >= 0]
        assert tokens == given["uncased"]


def test_a_tokenizer_can_be_sent_to_another_process(tiny):
    tokenizer = wordpiece.Tokenizer(tiny, do_lower_case=False)
    tokenizer.tokenize(["built"])
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.settings == tokenizer.settings
    assert copy.tokenize(["Hello World"]) == [["Hello", "World"]]


def covered(tokenizer, text):
    """Pairs each token with the characters that its offsets name."""
    encoding = tokenizer.encode_with_offsets([text])
    return [
        (tokenizer.vocabulary.tokens[i], text[start:end])
        for i, start, end in zip(
            encoding.ids, encoding.starts, encoding.ends, strict=True
        )
    ]


def test_offsets_name_characters_of_the_original(uncased):
    assert covered(uncased, "  Una\u200bffable, \ufeffCafe\u0301!") == [
        ("una", "Una"),
        ("##ffa", "ffa"),
        ("##ble", "ble"),
        (",", ","),
        ("cafe", "Cafe\u0301"),
        ("!", "!"),
    ]
    # One syllable of Hangul becomes three characters, [UNK] covers its word.
    assert covered(uncased, "x\U0001f680y \ud55c \u4e2d") == [
        ("[UNK]", "x\U0001f680y"),
        ("\u1112", "\ud55c"),
        ("##\u1161", "\ud55c"),
        ("##\u11ab", "\ud55c"),
        ("\u4e2d", "\u4e2d"),
    ]
    long = "a" * 201
    assert covered(uncased, f"{long} fox") == [
        ("[UNK]", long),
        ("fox", "fox"),
    ]


def test_a_long_word_takes_no_memory_for_every_token(uncased):
    """TensorFlow numbers rows with Tile, in [rows, longest row]."""
    texts = tf.TensorSpec([None], tf.string)
    for function in (uncased.graph.with_offsets, uncased.graph):
        traced = tf.function(function, autograph=False)
        graph = traced.get_concrete_function(texts).graph.as_graph_def()
        found = {*re.findall(r'\bop: "(\w+)"', str(graph))}
        assert "Tile" not in found and len(found) > 20
    encoded = uncased.encode_with_offsets(["", "x" * 10000, "", "a b", ""])
    assert encoded.starts.tolist() == [0, 0, 2]
    assert encoded.ends.tolist() == [10000, 1, 3]
