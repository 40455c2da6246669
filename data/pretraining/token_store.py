"""A tokenized corpus on disk: written once, in order, then mapped by workers.

    pieces.bin      uint16 or int32, all pieces of all sentences, end to end
    sentences.bin   int64, where each sentence starts in pieces.bin, and the end
    documents.bin   int64, where each document starts in sentences.bin, and the
                    end
    blocks.jsonl    one line per block of text: how far the files had grown

The files only grow, and a line of blocks.jsonl follows its block's data:
a writer that was killed goes on behind the last whole line for which the files
are long enough: a machine that lost its power may have kept lines alone.
"""

import collections
import json
import mmap
import os
from typing import NamedTuple

import numpy as np

from data.pretraining import instances

_FILES = {"pieces": "pieces.bin", "sentences": "sentences.bin"} | {
    "documents": "documents.bin"
}
_JOURNAL = "blocks.jsonl"
# What the maps of one process may hold of random places, and what one
# such place costs at most: the kernel maps 16 pages around a fault.
_RESIDENT_BYTES = 16 << 20
_PLACE_BYTES = 64 << 10
_ROWS_AT_ONCE = 128
_SEARCH_PLACES = 64  # What a binary search in two of the maps looks at.


class EncodedBlock(NamedTuple):
    """The sentences of one block of text that have pieces."""

    pieces: np.ndarray  # uint16 or int32 [T]
    lengths: np.ndarray  # int64 [sentences], none is 0
    starts: np.ndarray  # int64, before which sentences a document begins
    counts: collections.Counter


class Writer:
    """Appends encoded blocks, in order; resumes where a killed one stood."""

    def __init__(self, folder: str, dtype: np.dtype):
        """Opens the files of `folder` and cuts what no journal line covers."""
        os.makedirs(folder, exist_ok=True)
        self._folder, self._dtype = folder, np.dtype(dtype)
        self._journal = os.path.join(folder, _JOURNAL)
        self._read_journal()
        self._files = {
            kind: open(os.path.join(folder, name), "ab")
            for kind, name in _FILES.items()
        }
        for kind, file in self._files.items():
            file.truncate(getattr(self, kind) * self._itemsize(kind))
        self._lines = open(self._journal, "ab")
        self._lines.truncate(self._journal_bytes)

    def _read_journal(self):
        state = {"blocks": 0, "pieces": 0, "sentences": 0, "documents": 0}
        state |= {"begins": True, "counts": {}, "done": False}
        self._journal_bytes = 0
        sizes = self._sizes()
        if os.path.exists(self._journal):
            with open(self._journal, "rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    noted = json.loads(line)
                    if any(noted[kind] > size for kind, size in sizes.items()):
                        break
                    state = noted
                    self._journal_bytes += len(line)
        self.blocks: int = state["blocks"]
        self.pieces: int = state["pieces"]
        self.sentences: int = state["sentences"]
        self.documents: int = state["documents"]
        self.counts = collections.Counter(state["counts"])
        self.done: bool = state["done"]
        self._begins: bool = state["begins"]  # The next sentence a document.

    def _sizes(self) -> dict[str, int]:
        """Returns how many elements each file has."""
        paths = {k: os.path.join(self._folder, v) for k, v in _FILES.items()}
        return {
            kind: os.path.getsize(path) // self._itemsize(kind)
            if os.path.exists(path)
            else 0
            for kind, path in paths.items()
        }

    def _itemsize(self, kind: str) -> int:
        return self._dtype.itemsize if kind == "pieces" else 8

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
        sentence_starts = self.pieces + np.cumsum(block.lengths) - block.lengths
        document_starts = np.array(sorted(starts), np.int64) + self.sentences
        self._write("pieces", block.pieces.astype(self._dtype))
        self._write("sentences", sentence_starts.astype(np.int64))
        self._write("documents", document_starts)
        self.blocks += 1
        self.pieces += len(block.pieces)
        self.sentences += count
        self.documents += len(starts)
        self.counts.update(block.counts)
        self._note()

    def finish(self) -> None:
        """Writes the ends; the store can be opened from now on."""
        if not self.done:
            self._write("sentences", np.array([self.pieces], np.int64))
            self._write("documents", np.array([self.sentences], np.int64))
            self.sentences += 1
            self.documents += 1
            self.done = True
            for file in self._files.values():
                os.fsync(file.fileno())
            self._note()
        self.close()

    def _write(self, kind, array):
        self._files[kind].write(array.tobytes())
        self._files[kind].flush()

    def _note(self):
        state = {
            "blocks": self.blocks,
            "pieces": self.pieces,
            "sentences": self.sentences,
            "documents": self.documents,
            "begins": self._begins,
            "counts": dict(self.counts),
            "done": self.done,
        }
        self._lines.write(json.dumps(state).encode() + b"\n")
        self._lines.flush()

    def close(self) -> None:
        """Closes the files."""
        for file in (*self._files.values(), self._lines):
            file.close()


class Store:
    """A finished corpus, mapped; only what is looked at takes memory."""

    def __init__(self, folder: str, dtype: np.dtype):
        """Maps the files of `folder`."""
        self._maps, arrays = [], []
        for kind, name in _FILES.items():
            with open(os.path.join(folder, name), "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps.append(mapped)
            arrays.append(
                np.frombuffer(mapped, dtype if kind == "pieces" else np.int64)
            )
        self.corpus = instances.Corpus(*arrays)
        self._is_large = sum(map(len, self._maps)) > _RESIDENT_BYTES
        self._touched = 0

    def touched(self, count: int) -> None:
        """Gives memory back after enough random looks into a large store."""
        self._touched += count
        if self._is_large and self._touched * _PLACE_BYTES >= _RESIDENT_BYTES:
            self._touched = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    def take(self, where: np.ndarray) -> np.ndarray:
        """Returns the pieces at some places, [N, S], nearest if outside."""
        pieces = self.corpus.pieces
        step = len(where) if not self._is_large else _ROWS_AT_ONCE
        result = np.empty(where.shape, pieces.dtype)
        for start in range(0, len(where), step):
            rows = where[start : start + step]
            pieces.take(rows, mode="clip", out=result[start : start + step])
            self.touched(2 * len(rows))
        return result

    def document_groups(self, pieces: int) -> list[range]:
        """Cuts the documents into runs of about that many pieces each."""
        corpus = self.corpus
        bounds = {len(corpus.document_starts) - 1}
        for mark in range(0, len(corpus.pieces), pieces):
            sentence = np.searchsorted(corpus.sentence_starts, mark)
            bounds.add(int(np.searchsorted(corpus.document_starts, sentence)))
            self.touched(_SEARCH_PLACES)
        bounds = sorted(bounds)
        return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
