"""Proves that graphs arrange tokens as NumPy does.

python -m pytest tests/serving/model_inputs_test.py
"""

import types

import encoded_texts
import numpy as np
import pytest
import tensorflow as tf

from data import features, sequences
from data.pretraining import instances
from data.tokenization import vocabulary, wordpiece
from finetuning import task as tasks
from serving import model_inputs

WORDS = types.SimpleNamespace(pad_id=0, cls_id=101, sep_id=102)


TOKENIZER = types.SimpleNamespace(
    vocabulary=types.SimpleNamespace(ids={"[CLS]": 101, "[SEP]": 102})
)


def some_texts(seed):
    """Returns texts as lists of ids."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(200, 300, length).tolist()
        for length in rng.integers(0, 12, 200)
    ]


def same(graph, expected):
    """Checks a ragged batch against sequences."""
    assert graph.input_ids.to_list() == [x.ids for x in expected]
    assert graph.segment_ids.to_list() == [x.segment_ids for x in expected]


@pytest.mark.parametrize("length", [4, 9, 16, 30])
def test_pairs_are_truncated_and_joined_alike(length):
    first, second = some_texts(1), some_texts(2)
    graph = model_inputs.join(
        WORDS, *(tf.ragged.constant(x) for x in (first, second)), length
    )
    pairs = zip(first, second, strict=True)
    same(graph, [tasks.sequence(TOKENIZER, *x, length) for x in pairs])


def test_single_texts_are_joined_alike():
    first = some_texts(1)
    graph = model_inputs.join(WORDS, tf.ragged.constant(first), None, 30)
    same(graph, [tasks.sequence(TOKENIZER, x, (), 30) for x in first])


def test_segments_of_pre_training_are_joined_alike():
    texts = zip(some_texts(1), some_texts(2), strict=True)
    pairs = [(a, b) for a, b in texts if a and b]
    batch = np.zeros(len(pairs), instances.INSTANCE)
    store = []  # Both segments are slices of one store.
    for row, pair in zip(batch, pairs, strict=True):
        for name, ids in zip("ab", pair, strict=True):
            row[f"{name}_start"], row[f"{name}_length"] = len(store), len(ids)
            store += ids
    assembled = instances.assemble(
        lambda positions: np.array(store).take(positions, mode="clip"),
        batch,
        max_seq_length=25,
        vocabulary=WORDS,
    )
    expected = [tasks.sequence(TOKENIZER, *pair, 25) for pair in pairs]
    is_token = assembled.input_mask > 0
    for name, field in (("input_ids", "ids"), ("segment_ids", "segment_ids")):
        joined = sum((getattr(x, field) for x in expected), [])
        assert getattr(assembled, name)[is_token].tolist() == joined


@pytest.mark.parametrize("size_weight", [0.0, 0.01])
def test_the_window_with_most_context_is_the_same(size_weight):
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 9, 50)
    left = sequences.ranges(np.zeros_like(sizes), sizes)
    items = sequences.ranges(rng.integers(0, 20, 50), sizes)
    right = np.repeat(sizes, sizes) - 1 - left
    found = sequences.has_most_context(
        items, left, right, size_weight=size_weight
    )
    for item in set(items.tolist()):
        rows = np.flatnonzero(items == item).tolist()
        best = max(  # The first of equal ones.
            rows,
            key=lambda row: (
                min(left[row], right[row])
                + size_weight * (left[row] + right[row] + 1)
            ),
        )
        assert np.flatnonzero(found & (items == item)).tolist() == [best]
    graph = model_inputs.has_most_context(
        *map(tf.constant, (items, left, right)), size_weight=size_weight
    )
    assert graph.numpy().tolist() == found.tolist()


def test_without_windows_there_is_no_context():
    empty = np.zeros(0, np.int64)
    assert not len(sequences.has_most_context(empty, empty, empty))
    tensor = tf.constant(empty)
    assert not len(model_inputs.has_most_context(tensor, tensor, tensor))


@pytest.mark.parametrize("second", [None, (1, 0, 20, 9, 40)])
@pytest.mark.parametrize("most", [2, 50])
def test_the_graph_divides_texts_in_the_same_way(second, most):
    words = "the cat sat on a mat".split()
    tokenizer = wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens([*vocabulary.SPECIAL_TOKENS, *words])
    )

    def text(length, start=0):
        return " ".join(words[(start + i) % 6] for i in range(length))

    first = [text(n) for n in (0, 5, 9, 30, 4)]
    others = second and [text(n, 2) for n in second]
    windows = features.Windows(stride=5, most=most)
    made = encoded_texts.encode(
        tokenizer, first, others, max_seq_length=11, windows=windows
    )
    expected = made.batch(np.arange(5), int(made.lengths.max()))
    found = model_inputs.join_windows(
        tokenizer.vocabulary,
        tokenizer.encode_graph(tf.constant(first)),
        None if others is None else tokenizer.encode_graph(tf.constant(others)),
        11,
        **windows._asdict(),
    )
    for name, values in found.items():
        assert np.array_equal(values, expected[name]), name
