"""Proves that pairs are cut as by google-research/bert, and mixed evenly.

The released rules are written down once more, one instance and one token at a
time, and both must agree: exactly where no draw is involved, within five
standard errors where one is. pytest tests/data/pretraining/instances_test.py
"""

import random
import types

import numpy as np
import pytest

from data.pretraining import instances
from data.pretraining.settings import Settings

RULE = Settings(max_seq_length=35, short_seq_prob=0.0, dupe_factor=3)


def corpus(documents: list[list[int]]) -> instances.Corpus:
    """A corpus of sentences of given lengths; token i has the id i."""
    lengths = [length for document in documents for length in document]
    return instances.Corpus(
        np.arange(sum(lengths)),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([[0], np.cumsum([len(x) for x in documents])]),
    )


def some_documents(count=30, seed=0, longest=60) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(1, 20, rng.integers(1, longest)).tolist()
        for _ in range(count)
    ]


def pairs_of(text, rule=RULE, seed=0):
    documents = range(len(text.document_starts) - 1)
    return instances.pair_segments(
        text, documents, rule=rule, rng=np.random.default_rng(seed)
    )


def document_of(text, token):
    sentence = np.searchsorted(text.sentence_starts, token, "right") - 1
    return np.searchsorted(text.document_starts, sentence, "right") - 1


def transcription(documents, rule, rng):
    """Yields (tokens of A, of B, is random) by the rules in words."""
    limit = rule.max_num_tokens
    for number, document in enumerate(documents):
        target = limit
        if rng.random() < rule.short_seq_prob:
            target = rng.randint(2, limit)
        position = 0
        while position < len(document):
            end, size = position, 0
            while end < len(document) and size < target:
                size += document[end]
                end += 1
            a_end = position + 1
            if end - position > 1:
                a_end = position + rng.randint(1, end - position - 1)
            a, b = sum(document[position:a_end]), sum(document[a_end:end])
            is_random = end - position == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other = rng.randrange(len(documents))
                    if other != number:
                        break
                start = rng.randrange(len(documents[other]))
                b = 0
                for length in documents[other][start:]:
                    b += length
                    if b >= target - a:
                        break
                end = a_end
            while a + b > limit:
                if a > b:
                    a -= 1
                else:
                    b -= 1
            yield a, b, is_random
            position = end


@pytest.mark.parametrize("short_seq_prob", [0.0, 1.0])
def test_lengths_and_labels_are_distributed_as_released(short_seq_prob):
    documents = some_documents(60)
    rule = Settings(
        max_seq_length=67, short_seq_prob=short_seq_prob, dupe_factor=1
    )
    text, rng = corpus(documents), random.Random(1)

    def facts(a, b, is_random):
        a, b, is_random = map(np.asarray, (a, b, is_random))
        own = is_random == 0
        full = (a + b == rule.max_num_tokens).mean()
        return [
            *(len(a), a.mean(), b.mean(), is_random.mean(), full),
            *(b[own].mean(), a.std(), b.std()),
        ]

    released = np.array(
        [
            facts(*zip(*transcription(documents, rule, rng), strict=True))
            for _ in range(60)
        ]
    )
    ours = []
    for seed in range(240):
        found, _ = pairs_of(text, rule, seed)
        names = ("a_length", "b_length", "is_random")
        ours.append(facts(*(found[name] for name in names)))
    ours = np.array(ours)
    error = np.hypot(
        released.std(0) / len(released) ** 0.5, ours.std(0) / len(ours) ** 0.5
    )
    assert (abs(released.mean(0) - ours.mean(0)) < 5 * error).all()


def test_truncation_takes_from_the_longer_and_from_b_when_equal():
    limit = 9
    sizes = np.array([(a, b) for a in range(1, 25) for b in range(1, 25)])
    zero = np.zeros(len(sizes), np.int64)
    found, a_cut, b_cut = instances._truncate(
        *(zero, sizes[:, 0], zero, sizes[:, 1]), limit, np.random.default_rng(0)
    )
    for (a, b), got in zip(sizes.tolist(), found, strict=True):
        while a + b > limit:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert (got["a_length"], got["b_length"]) == (a, b)
    np.testing.assert_array_equal(sizes[:, 0] - a_cut, found["a_length"])
    np.testing.assert_array_equal(sizes[:, 1] - b_cut, found["b_length"])


def test_each_truncated_token_is_a_fair_coin_between_front_and_back():
    count = 20000
    zero = np.zeros(count, np.int64)
    found, a_cut, _ = instances._truncate(
        zero, zero + 12, zero, zero + 4, 8, np.random.default_rng(0)
    )
    assert (a_cut == 8).all()
    in_front = found["a_start"]
    # Binomial(8, 1/2): mean 4, variance 2, and the tail is that thin.
    assert abs(in_front.mean() - 4) < 5 * (2 / count) ** 0.5
    assert abs(in_front.var() - 2) < 0.15
    assert abs((in_front == 0).mean() - 2**-8) < 5 * (2**-8 / count) ** 0.5


def test_a_comes_from_its_document_and_b_follows_it_or_is_from_another():
    text = corpus(some_documents())
    found, _ = pairs_of(text)
    a, b = found["a_start"], found["b_start"]
    a_last = a + found["a_length"] - 1
    b_last = b + found["b_length"] - 1
    own = found["is_random"] == 0
    assert (found["a_length"] > 0).all() and (found["b_length"] > 0).all()
    assert (document_of(text, a) == document_of(text, a_last)).all()
    assert (document_of(text, b) == document_of(text, b_last)).all()
    assert ((document_of(text, a) == document_of(text, b)) == own).all()
    assert (b[own] > a_last[own]).all()


def test_every_token_is_used_once_per_pass_when_nothing_is_truncated():
    documents = some_documents(longest=4)
    text = corpus(documents)
    rule = Settings(max_seq_length=500, dupe_factor=3)
    found, lost = pairs_of(text, rule)
    uses = np.zeros(len(text.tokens), int)
    for position in found:
        spans = [("a_start", "a_length")]
        if not position["is_random"]:
            spans.append(("b_start", "b_length"))
        for start, length in spans:
            uses[position[start] : position[start] + position[length]] += 1
    _, short = pairs_of(text, RULE)
    assert lost == (3 * len(text.tokens) - uses.sum()) and short > lost >= 0
    assert (uses <= 3).all() and (uses == 3).mean() > 0.9


def test_instances_are_laid_out_with_their_special_tokens():
    words = types.SimpleNamespace(pad_id=0, cls_id=101, sep_id=102)
    found = np.zeros(2, instances.INSTANCE)
    found["a_start"], found["a_length"] = [1000, 2000], [2, 1]
    found["b_start"], found["b_length"] = [3000, 4000], [1, 3]
    got = instances.assemble(
        lambda where: where.astype(np.int32),
        found,
        max_seq_length=8,
        vocabulary=words,
    )
    assert got.input_ids.tolist() == [
        [101, 1000, 1001, 102, 3000, 102, 0, 0],
        [101, 2000, 102, 4000, 4001, 4002, 102, 0],
    ]
    assert got.input_mask.tolist() == [[1] * 6 + [0] * 2, [1] * 7 + [0]]
    assert got.segment_ids.tolist() == [
        [0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 0],
    ]
    assert got.is_candidate.astype(int).tolist() == [
        [0, 1, 1, 0, 1, 0, 0, 0],
        [0, 1, 0, 1, 1, 1, 0, 0],
    ]
    assert got.lengths.tolist() == [6, 7]


def write_tables(folder, sizes):
    """Returns all instances, the index and the tables that hold them."""
    rng = np.random.default_rng(0)
    every, tables = [], []
    for number, size in enumerate(sizes):
        found = np.zeros(size, instances.INSTANCE)
        found["key"] = rng.integers(0, 1 << 64, size, np.uint64)
        found["a_start"] = number * 1000 + np.arange(size)
        tables.append(folder / str(number))
        tables[-1].write_bytes(instances.table_bytes(found))
        every.append(found)
    instances.merge_indexes(str(folder / "index"), tables)
    return np.concatenate(every), str(folder / "index"), tables


def test_ranges_of_ranks_cut_the_sorted_whole(tmp_path):
    every, index, tables = write_tables(tmp_path, [300, 0, 1, 500])
    every = every[np.argsort(every["key"], kind="stable")]
    for bounds in ([0, 801], [0, 1, 2, 400, 800, 801], [0, 333, 666, 801]):
        got = [
            instances.read_ranks(index, tables, range(a, b))
            for a, b in zip(bounds, bounds[1:], strict=False)
        ]
        assert np.concatenate(got).tobytes() == every.tobytes()
