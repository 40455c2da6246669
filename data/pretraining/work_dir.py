"""The working directory of a run: everything between the text and the shards.

    recipe.json           the recipe; a run with another one is refused
    lock                  held by the process that works here
    block-000007          tokens of a block of text, a unit of work
    tokens.bin            uint16 or int32, the token ids of all sentences, end
                          to end: all blocks, joined
    sentences.bin         int64, where each sentence starts in tokens.bin, and
                          the end
    documents.bin         int64, where each document starts in sentences.bin,
                          and the end
    table-00007           instances of some documents, see instances.py
    index                 the global index of all tables
    slice-00002-of-NAME   a slice of a shard NAME, see generation.py
    finished/NAME         receipt of a finished file: its size, its CRC-32 and
                          what was counted

Every unit of work leaves one file, whose receipt is written after it. A run
that is killed leaves the directory; the next run of the same recipe continues
from it, and removes it when the shards are complete. A file is used again only
if its bytes have the size and the checksum of its receipt.
"""

import collections
import contextlib
import fcntl
import functools
import io
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from absl import logging

from data.pretraining import instances
from data.pretraining.recipe import Recipe
from foundation import atomic, errors, file_system, metadata

_RECIPE, _LOCK, _FINISHED = "recipe.json", "lock", "finished"
_STORE = ("tokens.bin", "sentences.bin", "documents.bin")
# Random access may keep this much of the mapped files in a process's memory.
# One access costs 16 pages at most, which the kernel maps around a fault.
_RESIDENT_BYTES = 16 << 20
_ACCESS_BYTES = 64 << 10
_ROWS_AT_ONCE = 128
_SEARCH_ACCESSES = 64  # Of one binary search in each of two files.


class Receipt(msgspec.Struct):
    """What proves that a file is complete, and what was counted."""

    bytes: int
    crc32: int
    counts: dict[str, int]


def path_of(recipe: Recipe, *names: str) -> str:
    """Returns the path of a file or folder that is listed above."""
    return os.path.join(recipe.work_dir, *names)


def table_path(recipe: Recipe, number: int) -> str:
    """Returns the path of a table of instances."""
    return path_of(recipe, f"table-{number:05d}")


@contextlib.contextmanager
def locked(recipe: Recipe) -> Iterator[None]:
    """Holds the working directory's lock; makes or continues the directory.

    Raises:
      InputError: another run holds the lock, or the directory or a shard
        belongs to another recipe.
    """
    if _begun(recipe):
        logging.info("Continuing the run that left %s.", recipe.work_dir)
    os.makedirs(path_of(recipe, _FINISHED), exist_ok=True)
    with open(path_of(recipe, _LOCK), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.InputError(
                f"{recipe.work_dir}: another run is using it"
            ) from None
        if not _begun(recipe):  # Nor has another run meanwhile.
            atomic.write_json(path_of(recipe, _RECIPE), recipe.to_json())
        yield


def _begun(recipe: Recipe) -> bool:
    """Returns whether a run of the recipe has begun in the directory.

    Raises:
      InputError: a run of another recipe has, or there are other files, which
        would be removed with the directory, or shards, which would be
        overwritten.
    """
    before = metadata.read_if_present(path_of(recipe, _RECIPE), metadata.Object)
    if before is not None:
        recipe.refuse_other(f"--work_dir={recipe.work_dir}", before)
        return True
    own = _LOCK, _FINISHED, f".{_RECIPE}."
    folder = recipe.work_dir
    names = os.listdir(folder) if os.path.isdir(folder) else []
    others = [name for name in names if not name.startswith(own)]
    if others:
        raise errors.InputError(
            f"{folder}: holds {min(others)}, but is removed when the shards "
            "are complete; choose another --work_dir or move it"
        )
    for path in recipe.output_files:
        if file_system.exists(path):
            raise errors.InputError(
                f"{path}: exists and does not belong to this run, or this "
                f"run's {folder} was lost; choose another output directory or "
                "remove it"
            )
    return False


def write(recipe: Recipe, path: str, data: bytes, **counts: int) -> Receipt:
    """Writes a file and its receipt."""
    atomic.write_bytes(path, data)
    return finish(recipe, path, zlib.crc32(data), **counts)


def finish(recipe: Recipe, path: str, crc32: int, **counts: int) -> Receipt:
    """Writes the receipt of a complete file, with some counts."""
    done = Receipt(file_system.size(path), crc32, counts)
    receipt_path = path_of(recipe, _FINISHED, os.path.basename(path))
    atomic.write_bytes(receipt_path, msgspec.json.encode(done))
    return done


def receipt(recipe: Recipe, path: str) -> Receipt | None:
    """Returns the receipt of a finished file; None if it must be made."""
    try:
        name = path_of(recipe, _FINISHED, os.path.basename(path))
        with open(name, "rb") as file:  # Its name may end in .gz.
            found = msgspec.json.decode(file.read(), type=Receipt)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if file_system.is_whole(path, found.bytes, found.crc32):
        return found
    logging.warning("%s: missing or damaged; it is made again.", path)
    return None


def discard(recipe: Recipe, path: str) -> None:
    """Removes a finished file that is no longer needed, and its receipt."""
    os.remove(path_of(recipe, _FINISHED, os.path.basename(path)))
    os.remove(path)


def remove(recipe: Recipe) -> None:
    """Removes the working directory, unless it belongs to another recipe."""
    # The disk space of removed files is freed only when they are not mapped.
    unmap()
    path = path_of(recipe, _RECIPE)
    own = metadata.read_if_present(path, metadata.Object)
    if own == recipe.to_json():
        for name in set(os.listdir(recipe.work_dir)) - {_RECIPE}:
            with contextlib.suppress(OSError):
                file = path_of(recipe, name)
                shutil.rmtree(file) if os.path.isdir(file) else os.remove(file)
        # The recipe last: the next run recognizes what is left by it.
        if os.listdir(recipe.work_dir) == [_RECIPE]:
            os.remove(path)
    with contextlib.suppress(OSError):  # There is none, or it is not empty.
        os.rmdir(recipe.work_dir)


class EncodedBlock(NamedTuple):
    """The sentences of one block of text that have tokens."""

    tokens: np.ndarray  # uint16 or int32 [T]
    lengths: np.ndarray  # int64 [sentences], none is 0
    starts: np.ndarray  # int64, before which sentences a document begins
    counts: collections.Counter


def block_path(recipe: Recipe, number: int) -> str:
    """Returns the path of the tokens of a block of text."""
    return path_of(recipe, f"block-{number:06d}")


def write_block(recipe: Recipe, number: int, block: EncodedBlock) -> Receipt:
    """Writes the tokens of a block, with its counts in the receipt."""
    arrays, data = block._asdict(), io.BytesIO()
    counts = arrays.pop("counts")
    np.savez(data, **arrays)
    path = block_path(recipe, number)
    return write(recipe, path, data.getvalue(), **counts)


def join_blocks(recipe: Recipe, count: int, counts: dict[str, int]) -> None:
    """Makes the token store of some blocks, and removes these."""
    num_tokens = num_sentences = 0
    begins = True  # Whether the next sentence begins a document.
    paths = [path_of(recipe, name) for name in _STORE]
    checksums = [0] * len(paths)

    def append(*arrays: np.ndarray) -> None:
        for i, array in enumerate(arrays):
            files[i].write(array.tobytes())
            checksums[i] = zlib.crc32(array.tobytes(), checksums[i])

    with (
        file_system.naming(paths[0], recipe.work_dir),
        contextlib.ExitStack() as stack,
    ):
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        for number in range(count):
            with np.load(block_path(recipe, number)) as block:
                tokens, lengths, starts = (
                    block[name] for name in EncodedBlock._fields[:3]
                )
            starts = np.union1d(starts, np.zeros(int(begins), np.int64))
            begins = len(lengths) in starts  # The next block begins one.
            starts = starts[starts < len(lengths)]
            ends = num_tokens + np.cumsum(lengths)
            append(tokens, ends - lengths, num_sentences + starts)
            num_tokens += len(tokens)
            num_sentences += len(lengths)
        append(np.zeros(0), np.array([num_tokens]), np.array([num_sentences]))
    for path, checksum in zip(paths, checksums, strict=True):
        finish(recipe, path, checksum, **counts)
    for number in range(count):
        discard(recipe, block_path(recipe, number))


def store_counts(recipe: Recipe) -> dict[str, int] | None:
    """Returns the counts of the token store; None if it must be made."""
    found = [receipt(recipe, path_of(recipe, name)) for name in _STORE]
    return found[0].counts if found[0] and all(found) else None


class TokenStore:
    """A complete corpus, mapped into memory as it is accessed."""

    def __init__(self, folder: str, dtype: np.dtype):
        """Maps the files of a working directory; `dtype` is that of tokens."""
        self._maps: list[mmap.mmap] = []
        arrays: list[np.ndarray] = []
        for name in _STORE:
            with open(os.path.join(folder, name), "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps.append(mapped)
            arrays.append(np.frombuffer(mapped, np.int64 if arrays else dtype))
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
        marks = {len(corpus.document_starts) - 1}
        for mark in range(0, len(corpus.tokens), num_tokens):
            sentence = np.searchsorted(corpus.sentence_starts, mark)
            marks.add(int(np.searchsorted(corpus.document_starts, sentence)))
            self.count_accesses(_SEARCH_ACCESSES)
        bounds = sorted(marks)
        return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def token_store(recipe: Recipe) -> TokenStore:
    """Opens the complete token store; it is mapped once in each process."""
    return _map_store(recipe.work_dir, recipe.token_dtype)


@functools.lru_cache(maxsize=1)
def _map_store(folder: str, dtype: np.dtype) -> TokenStore:
    return TokenStore(folder, dtype)


def unmap() -> None:
    """Makes the next `token_store` map its files again."""
    _map_store.cache_clear()
