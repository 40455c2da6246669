"""Proves that a corpus on disk is what was appended, also after a kill.

pytest tests/data/pretraining/token_store_test.py
"""

import collections
import os

import numpy as np
import pytest

from data.pretraining import token_store


def block(lengths, starts=(), first=0):
    lengths = np.array(lengths, np.int64)
    return token_store.EncodedBlock(
        np.arange(first, first + lengths.sum(), dtype=np.uint16),
        lengths,
        np.array(starts, np.int64),
        collections.Counter(sentences=len(lengths)),
    )


# Documents: 2+3 | 4 | 1+5 (over three blocks, one of them empty) | 2.
BLOCKS = [
    block([2, 3, 4], [2, 3]),
    block([1], [0], first=9),
    block([]),
    block([5, 2], [1, 1], first=10),
    block([], [0]),
]


def store_of(folder, blocks):
    writer = token_store.Writer(str(folder), np.uint16)
    for one in blocks[writer.blocks :]:
        writer.append(one)
    writer.finish()
    return token_store.Store(str(folder), np.uint16).corpus


def check(corpus):
    assert corpus.tokens.tolist() == list(range(17))
    assert corpus.sentence_starts.tolist() == [0, 2, 5, 9, 10, 15, 17]
    assert corpus.document_starts.tolist() == [0, 2, 3, 5, 6]


def test_blocks_become_documents_of_sentences(tmp_path):
    check(store_of(tmp_path, BLOCKS))


def test_leading_and_repeated_boundaries_make_no_empty_documents(tmp_path):
    blocks = [block([], [0, 0]), block([1, 1], [0, 1, 2]), block([3], [0, 1])]
    corpus = store_of(tmp_path, blocks)
    assert corpus.document_starts.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("complete", range(len(BLOCKS) + 1))
def test_a_killed_writer_is_continued(tmp_path, complete):
    writer = token_store.Writer(str(tmp_path), np.uint16)
    for one in BLOCKS[:complete]:
        writer.append(one)
    writer.close()
    for name in os.listdir(tmp_path):  # What a kill in mid-write leaves.
        with open(tmp_path / name, "ab") as file:
            file.write(b"\x01\x02\x03")
    check(store_of(tmp_path, BLOCKS))


def test_a_finished_store_is_not_written_again(tmp_path):
    store_of(tmp_path, BLOCKS)
    writer = token_store.Writer(str(tmp_path), np.uint16)
    assert writer.done and writer.counts["sentences"] == 6
    writer.close()
    check(store_of(tmp_path, BLOCKS))


def test_documents_are_grouped_without_a_gap(tmp_path):
    store_of(tmp_path, BLOCKS)
    store = token_store.Store(str(tmp_path), np.uint16)
    for tokens in (1, 3, 6, 9, 100):
        groups = store.document_groups(tokens)
        assert [d for group in groups for d in group] == [0, 1, 2, 3]
        assert all(len(group) for group in groups)
    assert len(store.document_groups(1)) == 4
    assert len(store.document_groups(100)) == 1


def test_a_large_store_gives_the_same_tokens(tmp_path, monkeypatch):
    store_of(tmp_path, BLOCKS)
    where = np.random.default_rng(0).integers(-2, 20, (50, 7))
    small = token_store.Store(str(tmp_path), np.uint16).take(where)
    monkeypatch.setattr(token_store, "_RESIDENT_BYTES", 1)
    monkeypatch.setattr(token_store, "_ROWS_AT_ONCE", 3)
    large = token_store.Store(str(tmp_path), np.uint16).take(where)
    np.testing.assert_array_equal(small, np.clip(where, 0, 16))
    np.testing.assert_array_equal(large, small)


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.bin"])
def test_a_line_whose_data_is_lost_counts_for_nothing(tmp_path, name):
    """As after a loss of power, which may keep the journal alone."""
    writer = token_store.Writer(str(tmp_path), np.uint16)
    for one in BLOCKS[:4]:
        writer.append(one)
    writer.close()
    os.truncate(tmp_path / name, 7)
    assert token_store.Writer(str(tmp_path), np.uint16).blocks == 0
    check(store_of(tmp_path, BLOCKS))
