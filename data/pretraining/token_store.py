"""A tokenized corpus on disk: written once, in order, then mapped by workers.

    tokens.bin      uint16 or int32, the token ids of all sentences, end to end
    sentences.bin   int64, where each sentence starts in tokens.bin, and the end
    documents.bin   int64, where each document starts in sentences.bin, and the
                    end
    journal.jsonl   one line per block of text: the lengths and checksums of
                    the files up to there

The files only grow, and a block's line in the journal follows its data. A
writer that continues after a kill or a power failure compares the files with
the journal, cuts them after the last block that agrees, and appends from there.
"""

import collections
import contextlib
import json
import mmap
import os
import zlib
from typing import BinaryIO, NamedTuple

import numpy as np

from data.pretraining import instances

_KINDS = ("tokens", "sentences", "documents")
_JOURNAL = "journal.jsonl"
# Random access may keep this much of the mapped files in a process's memory.
# One access costs 16 pages at most, which the kernel maps around a fault.
_RESIDENT_BYTES = 16 << 20
_ACCESS_BYTES = 64 << 10
_ROWS_AT_ONCE = 128
_SEARCH_ACCESSES = 64  # Of one binary search in each of two files.


class EncodedBlock(NamedTuple):
    """The sentences of one block of text that have tokens."""

    tokens: np.ndarray  # uint16 or int32 [T]
    lengths: np.ndarray  # int64 [sentences], none is 0
    starts: np.ndarray  # int64, before which sentences a document begins
    counts: collections.Counter


class Writer:
    """Appends encoded blocks in order; continues what a killed one wrote.

    Attributes:
      blocks: number of blocks in the store.
      counts: the sum of the blocks' counts.
      done: whether the store is complete.
    """

    def __init__(self, folder: str, dtype: np.dtype):
        """Opens the store and cuts everything after the last intact block."""
        os.makedirs(folder, exist_ok=True)
        self._dtypes = dict.fromkeys(_KINDS, np.dtype(np.int64))
        self._dtypes["tokens"] = np.dtype(dtype)
        self.blocks, self.counts = 0, collections.Counter()
        self.done = False
        self._lengths = dict.fromkeys(_KINDS, 0)
        self._crc32 = dict.fromkeys(_KINDS, 0)
        self._begins = True  # Whether the next sentence begins a document.
        self._stack = contextlib.ExitStack()
        self._files = {
            kind: self._stack.enter_context(open(_path(folder, kind), "a+b"))
            for kind in _KINDS
        }
        journal = os.path.join(folder, _JOURNAL)
        self._journal = self._stack.enter_context(open(journal, "a+b"))
        end = self._read_journal()
        self._journal.truncate(end)
        for kind, file in self._files.items():
            file.truncate(self._lengths[kind] * self._dtypes[kind].itemsize)

    def _read_journal(self) -> int:
        """Restores the state after the last intact block; returns its end."""
        end = 0
        for file in (self._journal, *self._files.values()):
            file.seek(0)
        for line in self._journal:
            try:
                state = json.loads(line)
            except ValueError:
                break  # A killed writer's last line.
            crc32 = {}
            for kind, file in self._files.items():
                grown = state["lengths"][kind] - self._lengths[kind]
                data = file.read(grown * self._dtypes[kind].itemsize)
                crc32[kind] = zlib.crc32(data, self._crc32[kind])
            if crc32 != state["crc32"]:
                break
            self.blocks, self.done = state["blocks"], state["done"]
            self.counts = collections.Counter(state["counts"])
            self._lengths, self._crc32 = state["lengths"], crc32
            self._begins = state["begins"]
            end += len(line)
        return end

    def append(self, block: EncodedBlock) -> None:
        """Adds one block."""
        count = len(block.lengths)
        starts = set(block.starts.tolist())
        if count:
            if self._begins:
                starts.add(0)
            self._begins = count in starts
            starts.discard(count)
        else:
            self._begins = self._begins or bool(starts)
            starts = set()
        first_token, first_sentence, _ = self._lengths.values()
        sentence_starts = first_token + np.cumsum(block.lengths) - block.lengths
        document_starts = np.array(sorted(starts), np.int64) + first_sentence
        self._write("tokens", block.tokens)
        self._write("sentences", sentence_starts)
        self._write("documents", document_starts)
        self.blocks += 1
        self.counts.update(block.counts)
        self._write_journal()

    def finish(self) -> None:
        """Writes the ends; the store can be opened from now on."""
        if not self.done:
            tokens, sentences, _ = self._lengths.values()
            self._write("sentences", np.array([tokens]))
            self._write("documents", np.array([sentences]))
            for file in self._files.values():
                os.fsync(file.fileno())
            self.done = True
            self._write_journal()
        self.close()

    def _write(self, kind: str, array: np.ndarray) -> None:
        data = array.astype(self._dtypes[kind]).tobytes()
        _append(self._files[kind], data)
        self._lengths[kind] += len(array)
        self._crc32[kind] = zlib.crc32(data, self._crc32[kind])

    def _write_journal(self) -> None:
        state = {
            "blocks": self.blocks,
            "lengths": self._lengths,
            "crc32": self._crc32,
            "begins": self._begins,
            "counts": self.counts,
            "done": self.done,
        }
        _append(self._journal, json.dumps(state).encode() + b"\n")

    def close(self) -> None:
        """Closes the files."""
        self._stack.close()


class Store:
    """A complete corpus, mapped into memory as it is accessed."""

    def __init__(self, folder: str, dtype: np.dtype):
        """Maps the files of `folder`."""
        self._maps, arrays = [], []
        for kind in _KINDS:
            with open(_path(folder, kind), "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps.append(mapped)
            arrays.append(
                np.frombuffer(mapped, dtype if kind == "tokens" else np.int64)
            )
        self.corpus = instances.Corpus(*arrays)
        self._is_large = sum(map(len, self._maps)) > _RESIDENT_BYTES
        self._accesses = 0

    def count_accesses(self, count: int) -> None:
        """Frees the memory of a large store after enough random accesses."""
        self._accesses += count
        if self._is_large and self._accesses * _ACCESS_BYTES >= _RESIDENT_BYTES:
            self._accesses = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Returns the tokens at positions [N, S], the nearest if outside."""
        tokens = self.corpus.tokens
        step = len(positions) if not self._is_large else _ROWS_AT_ONCE
        result = np.empty(positions.shape, tokens.dtype)
        for start in range(0, len(positions), step):
            rows = positions[start : start + step]
            tokens.take(rows, mode="clip", out=result[start : start + step])
            self.count_accesses(2 * len(rows))
        return result

    def document_groups(self, num_tokens: int) -> list[range]:
        """Divides the documents into groups of about that many tokens each."""
        corpus = self.corpus
        bounds = {len(corpus.document_starts) - 1}
        for mark in range(0, len(corpus.tokens), num_tokens):
            sentence = np.searchsorted(corpus.sentence_starts, mark)
            bounds.add(int(np.searchsorted(corpus.document_starts, sentence)))
            self.count_accesses(_SEARCH_ACCESSES)
        bounds = sorted(bounds)
        return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def _append(file: BinaryIO, data: bytes) -> None:
    try:
        file.write(data)
        file.flush()
    except OSError as error:  # A full disk, for example.
        raise OSError(error.errno, error.strerror, file.name) from None


def _path(folder: str, kind: str) -> str:
    return os.path.join(folder, f"{kind}.bin")
