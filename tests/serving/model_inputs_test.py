"""Proves that graphs arrange tokens as NumPy does.

python -m pytest tests/serving/model_inputs_test.py
"""

import types

import numpy as np
import pytest
import tensorflow as tf

from data import features, sequences
from data.pretraining import instances
from data.tokenization import vocabulary, wordpiece
from serving import model_inputs

WORDS = types.SimpleNamespace(pad_id=0, cls_id=101, sep_id=102)


def ragged(rng, lengths):
    """Returns texts of these lengths as NumPy's slices and as a tensor."""
    ids = rng.integers(200, 300, int(lengths.sum())).astype(np.int32)
    starts = np.cumsum(lengths) - lengths
    tensor = tf.RaggedTensor.from_row_lengths(ids, lengths)
    return sequences.Slices(ids, starts, lengths), tensor


def some_pairs(seed=1, count=200):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 12, (2, count))
    return ragged(rng, a), ragged(rng, b)


@pytest.mark.parametrize("length", [4, 9, 16, 30])
def test_pairs_are_truncated_and_joined_alike(length):
    (first, a), (second, b) = some_pairs()
    room = length - 2 - (second.lengths > 0)
    kept = sequences.truncated_lengths(first.lengths, second.lengths, room)
    assert (sum(kept) <= room).all()
    joined = sequences.join(
        WORDS,
        first._replace(lengths=kept[0]),
        second._replace(lengths=kept[1]),
    )
    graph = model_inputs.join(WORDS, a, b, length)
    assert (
        joined.row_splits.tolist()
        == graph.input_ids.row_splits.numpy().tolist()
    )
    for name in ("input_ids", "segment_ids"):
        found = getattr(graph, name).values.numpy().tolist()
        assert found == getattr(joined, name).tolist()


def test_single_texts_are_joined_alike():
    (first, a), _ = some_pairs()
    joined = sequences.join(WORDS, first, None)
    graph = model_inputs.join(WORDS, a, None, 30)
    assert joined.input_ids.tolist() == graph.input_ids.values.numpy().tolist()
    assert not joined.segment_ids.any()


def test_segments_of_pre_training_are_joined_alike():
    (first, _), (second, _) = some_pairs()
    rows = np.flatnonzero((first.lengths > 0) & (second.lengths > 0))
    first, second = (
        sequences.Slices(x.ids, x.starts[rows], x.lengths[rows])
        for x in (first, second)
    )
    batch = np.zeros(len(rows), instances.INSTANCE)
    batch["a_start"], batch["a_length"] = first.starts, first.lengths
    # Both segments are slices of one store.
    batch["b_start"] = len(first.ids) + second.starts
    batch["b_length"] = second.lengths
    store = np.concatenate([first.ids, second.ids])
    assembled = instances.assemble(
        lambda positions: store.take(positions, mode="clip"),
        batch,
        max_seq_length=25,
        vocabulary=WORDS,
    )
    joined = sequences.join(WORDS, first, second)
    is_token = assembled.input_mask > 0
    assert assembled.lengths.tolist() == np.diff(joined.row_splits).tolist()
    for name in ("input_ids", "segment_ids"):
        found = getattr(assembled, name)[is_token].tolist()
        assert found == getattr(joined, name).tolist()


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
    made = features.encode(
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
