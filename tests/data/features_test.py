"""Proves how text becomes features, records and batches of similar length.

python -m pytest tests/data/features_test.py
"""

import dataclasses

import encoded_texts
import numpy as np
import pytest

from data import features, length_groups, permutations, schema
from data.tokenization import vocabulary, wordpiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens(SPECIAL + WORDS)
    )


def texts(seed, count, longest, shortest=0):
    rng = np.random.default_rng(seed)
    return [
        " ".join(rng.choice(WORDS, rng.integers(shortest, longest + 1)))
        for _ in range(count)
    ]


def features_of(tokenizer, count=101, longest=40, **options):
    made = encoded_texts.encode(
        tokenizer, texts(1, count, longest), None, max_seq_length=64, **options
    )
    labels = np.arange(len(made))[:, None]
    return features.Features(
        row_splits=made.row_splits,
        ragged=made.ragged,
        dense={"label_ids": labels},
        num_choices=made.num_choices,
    )


def released_rule(tokens_a, tokens_b, max_seq_length):
    """What google-research/bert's README and issues say, token by token."""
    tokens_a, tokens_b = list(tokens_a), list(tokens_b)
    if tokens_b:
        while len(tokens_a) + len(tokens_b) > max_seq_length - 3:
            longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
            longer.pop()
    else:
        tokens_a = tokens_a[: max_seq_length - 2]
    tokens = ["[CLS]", *tokens_a, "[SEP]"]
    segments = [0] * len(tokens)
    if tokens_b:
        tokens += [*tokens_b, "[SEP]"]
        segments += [1] * (len(tokens_b) + 1)
    return tokens, segments


@pytest.mark.parametrize("max_seq_length", [4, 5, 8, 13, 64])
def test_pairs_are_cut_and_joined_by_the_released_rule(
    tokenizer, max_seq_length
):
    first, second = texts(1, 300, 20), texts(2, 300, 20)
    made = encoded_texts.encode(
        tokenizer, first, second, max_seq_length=max_seq_length
    )
    tokens = np.array(SPECIAL + WORDS)
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        expected = released_rule(a.split(), b.split(), max_seq_length)
        part = slice(made.row_splits[i], made.row_splits[i + 1])
        assert tokens[made.ragged["input_ids"][part]].tolist() == expected[0]
        assert made.ragged["segment_ids"][part].tolist() == expected[1]


def test_a_batch_is_padded_to_its_length(tokenizer):
    made = encoded_texts.encode(
        tokenizer, ["w1 w2", "w3"], ["w4", ""], max_seq_length=8
    )
    batch = made.batch(np.array([1, 0]), 7)
    cls, sep, w1 = 2, 3, 6
    assert batch["input_ids"].tolist() == [
        [cls, w1 + 2, sep, 0, 0, 0, 0],
        [cls, w1, w1 + 1, sep, w1 + 3, sep, 0],
    ]
    assert batch["input_mask"].tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],
    ]
    assert batch["segment_ids"].tolist() == [
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0],
    ]


def test_several_floats_of_each_token_stay_floats(tokenizer):
    made = encoded_texts.encode(
        tokenizer, ["w1 w2", "w3"], None, max_seq_length=8
    )
    values = np.arange(14, dtype=np.float32).reshape(7, 2) / 4
    ragged = {**made.ragged, "values": values}
    made = dataclasses.replace(made, ragged=ragged)
    found = made.batch(np.array([1, 0]), 5)["values"]
    assert found.dtype == np.float32
    assert found[1].tolist() == [*values[:4].tolist(), [0, 0]]
    assert found[0].tolist() == [*values[4:].tolist(), [0, 0], [0, 0]]
    batches = length_groups.train_batches(
        made, batch_size=2, seed=1, lengths=[8, 16]
    )
    assert batches.element_spec["values"].shape.as_list() == [2, None, 2]
    assert next(iter(batches))["values"].shape == [2, 8, 2]


@pytest.mark.parametrize("num_choices", [0, 4])
def test_records_hold_what_was_written(tokenizer, tmp_path, num_choices):
    made = features_of(tokenizer, 40, num_choices=num_choices)
    path = str(tmp_path / "train.tf_record")
    kind = (
        schema.multiple_choice(64, num_choices)
        if num_choices
        else schema.classification(64)
    )
    features.write(path, kind, made)
    read = features.read(path, kind)
    np.testing.assert_array_equal(read.row_splits, made.row_splits)
    assert read.num_choices == num_choices
    for name, values in {**made.ragged, **made.dense}.items():
        found = {**read.ragged, **read.dense}[name]
        np.testing.assert_array_equal(found, values)


def test_records_are_made_again_only_when_something_changed(
    tokenizer, tmp_path
):
    path, calls = str(tmp_path / "train.tf_record"), []

    def make():
        calls.append(1)
        return features_of(tokenizer, 5)

    def is_made(text, length=64):
        before = len(calls)
        found = features.stored(
            path,
            schema.classification(length),
            tokenizer,
            {"text": text},
            make,
        )
        assert len(found) == 5
        return len(calls) > before

    assert is_made("a") and not is_made("a")
    assert is_made("b") and is_made("a")
    assert is_made("a", length=128) and is_made("a")
    with open(path, "r+b") as file:
        file.seek(40)
        file.write(b"?")
    assert is_made("a") and not is_made("a")


def rows_of(dataset, number):
    return [
        batch["label_ids"][:, 0].tolist()
        for batch in dataset.take(number).as_numpy_iterator()
    ]


def test_training_can_be_entered_anywhere(tokenizer):
    made = features_of(tokenizer)
    options = {"batch_size": 4, "seed": 5, "lengths": [64]}
    whole = rows_of(length_groups.train_batches(made, **options), 40)
    for first in (0, 1, 17, 30):
        entered = length_groups.train_batches(
            made, first_batch=first, **options
        )
        assert rows_of(entered, 40 - first) == whole[first:]


def test_the_order_is_the_same_on_every_machine():
    found = permutations.permutation(8, 12345, 0, 1).tolist()
    assert found == GOLDEN_PERMUTATION


GOLDEN_PERMUTATION = [2, 7, 1, 5, 3, 6, 4, 0]


def test_batches_are_hardly_padded(tokenizer):
    made = features_of(tokenizer, 1000)
    lengths = length_groups.permitted_lengths(64)
    batches = length_groups.train_batches(
        made, batch_size=8, seed=3, lengths=lengths
    )
    masks = [b["input_mask"] for b in batches.take(125).as_numpy_iterator()]
    padding = 1 - sum(m.sum() for m in masks) / sum(m.size for m in masks)
    assert padding < 0.2
    assert {m.shape[1] for m in masks} <= set(lengths)
    assert len({m.shape[1] for m in masks}) >= 4


def test_parts_of_workers_make_up_the_batch(tokenizer):
    made = features_of(tokenizer)
    options = {"batch_size": 6, "seed": 5, "lengths": [16, 32, 64]}
    whole = length_groups.train_batches(made, **options).take(5)
    parts = [
        length_groups.train_batches(made, part=i, num_parts=3, **options)
        for i in range(3)
    ]
    for batch, *cut in zip(
        whole.as_numpy_iterator(),
        *(part.as_numpy_iterator() for part in parts),
        strict=False,
    ):
        for name, values in batch.items():
            joined = np.concatenate([part[name] for part in cut])
            np.testing.assert_array_equal(joined, values)


def test_evaluation_has_every_example_once_and_says_which(tokenizer):
    made = features_of(tokenizer)
    batches = length_groups.OrderedBatches(made, batch_size=8, lengths=[64])
    seen = []
    for batch in batches.arrays():
        assert batch["input_ids"].shape == (8, 64)
        is_real = batch["is_real_example"] == 1
        indices = batch["example_index"][is_real]
        expected = made.batch(indices, 64)["input_ids"]
        np.testing.assert_array_equal(batch["input_ids"][is_real], expected)
        seen += indices.tolist()
    assert sorted(seen) == list(range(101))


@pytest.mark.parametrize("longest", [7, 8, 9, 20, 64, 128, 384, 512])
@pytest.mark.parametrize("step", ["fine", "coarse", "one"])
def test_permitted_lengths_rise_to_the_longest(longest, step):
    lengths = length_groups.permitted_lengths(longest, step)
    assert lengths[-1] == longest
    assert lengths == sorted(set(lengths))
    assert all(n % 8 == 0 for n in lengths[:-1])
    if step == "coarse":
        assert len(lengths) <= 6
