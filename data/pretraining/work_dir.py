"""The working directory of a run: everything between the text and the shards.

    recipe.json           the recipe; a run with another one is refused
    lock                  held by the process that works here
    block-000007          tokens of a block of text, a unit of work
    store                 all blocks, joined:
                            int64 [3], the numbers of the following
                            uint16 or int32, the token ids of all sentences,
                            end to end, filled up to a multiple of 8 bytes
                            int64, where each sentence starts in the tokens,
                            and the end
                            int64, where each document starts in the sentences,
                            and the end
    table-00007           instances of some documents, see instances.py
    index                 the global index of all tables
    slice-00002-of-NAME   a slice of a shard NAME, see generation.py
    finished/NAME.json    receipt of a finished file

Every unit of work leaves one file. A run that is killed leaves the directory;
the next run of the same recipe continues from it, and removes it when the
shards are complete.
"""

import contextlib
import fcntl
import functools
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from absl import logging

from data import receipts
from data.pretraining import instances
from data.pretraining.recipe import Recipe
from foundation import atomic, errors, file_system, metadata

_SMALL_BYTES = 16 << 20
_RECIPE, _LOCK, _FINISHED = "recipe.json", "lock", "finished"


def path_of(recipe: Recipe, *names: str) -> str:
    """Returns the path of a file or folder that is listed above."""
    return os.path.join(recipe.work_dir, *names)


def block_path(recipe: Recipe, number: int) -> str:
    """Returns the path of the tokens of a block of text."""
    return path_of(recipe, f"block-{number:06d}")


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
    os.makedirs(path_of(recipe, _FINISHED), exist_ok=True)
    with open(path_of(recipe, _LOCK), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.InputError(
                f"{recipe.work_dir}: another run is using it"
            ) from None
        _begin(recipe)
        yield


def _begin(recipe: Recipe) -> None:
    """Writes the recipe, unless a run of the same recipe has.

    Raises:
      InputError: a run of another recipe has, or there are other files, which
        would be removed with the directory, or shards, which would be
        overwritten.
    """
    folder, path = recipe.work_dir, path_of(recipe, _RECIPE)
    before = metadata.read_if_present(path, metadata.Object)
    if before is not None:
        recipe.refuse_other(f"--work_dir={folder}", before)
        logging.info("Continuing the run that left %s.", folder)
        return
    own = _LOCK, _FINISHED, f".{_RECIPE}."
    others = [name for name in os.listdir(folder) if not name.startswith(own)]
    if others:
        raise errors.InputError(
            f"{folder}: holds {min(others)}, but is removed when the shards "
            "are complete; choose another --work_dir or move it"
        )
    for shard in recipe.output_files:
        if file_system.exists(shard):
            raise errors.InputError(
                f"{shard}: exists and does not belong to this run, or this "
                f"run's {folder} was lost; choose another output directory or "
                "remove it"
            )
    atomic.write_json(path, recipe.to_json())


def _receipt_path(recipe: Recipe, path: str) -> str:
    return path_of(recipe, _FINISHED, f"{os.path.basename(path)}.json")


def receipt(recipe: Recipe, path: str) -> receipts.Receipt | None:
    """Returns the receipt of a finished file; None if it must be made."""
    return receipts.read(path, _receipt_path(recipe, path))


def finished(
    recipe: Recipe, path: str, write: Callable[[str], dict[str, int]]
) -> receipts.Receipt:
    """Returns the receipt of a file; see `receipts.finished`."""
    return receipts.finished(path, _receipt_path(recipe, path), write)


def discard(recipe: Recipe, path: str) -> None:
    """Removes a finished file that is no longer needed, and its receipt."""
    os.remove(_receipt_path(recipe, path))
    os.remove(path)


def remove(recipe: Recipe) -> None:
    """Removes the working directory, unless it belongs to another recipe."""
    # The disk space of removed files is freed only when they are not mapped.
    token_store.cache_clear()
    path = path_of(recipe, _RECIPE)
    own = metadata.read_if_present(path, metadata.Object)
    if own == recipe.to_json():
        # The recipe last: the next run recognizes what is left by it.
        for name in sorted(os.listdir(recipe.work_dir), key=_RECIPE.__eq__):
            file = path_of(recipe, name)
            shutil.rmtree(file) if os.path.isdir(file) else os.remove(file)
    with contextlib.suppress(OSError):  # There is none, or it is not empty.
        os.rmdir(recipe.work_dir)


class EncodedBlock(NamedTuple):
    """The sentences of one block of text that have tokens."""

    tokens: np.ndarray  # uint16 or int32 [T]
    lengths: np.ndarray  # int64 [sentences], none is 0
    starts: np.ndarray  # int64, before which sentences a document begins


def join_blocks(recipe: Recipe, count: int, path: str) -> None:
    """Writes the token store of some blocks."""

    def blocks(*names: str) -> Iterator[list[np.ndarray]]:
        for number in range(count):
            with np.load(block_path(recipe, number)) as block:
                yield [block[name] for name in names]

    tokens = sentences = documents = 0
    begins = True  # Whether the next sentence begins a document.
    with open(path, "wb") as file:
        file.write(bytes(24))
        for (ids,) in blocks("tokens"):
            file.write(ids.tobytes())
        file.write(bytes(-file.tell() % 8))
        for (lengths,) in blocks("lengths"):
            file.write((tokens + np.cumsum(lengths) - lengths).tobytes())
            tokens += int(lengths.sum())
        file.write(np.int64(tokens).tobytes())
        for lengths, starts in blocks("lengths", "starts"):
            starts = np.union1d(starts, np.zeros(int(begins), np.int64))
            begins = len(lengths) in starts  # The next block begins one.
            starts = starts[starts < len(lengths)]
            file.write((sentences + starts).tobytes())
            sentences += len(lengths)
            documents += len(starts)
        file.write(np.int64(sentences).tobytes())
        file.seek(0)
        file.write(np.array([tokens, sentences, documents]).tobytes())


class TokenStore:
    """A complete corpus, mapped into memory as it is accessed."""

    def __init__(self, path: str, dtype: np.dtype):
        """Maps the store of a working directory; `dtype` is that of tokens."""
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        place, arrays = 24, []
        sizes = np.frombuffer(self._map, np.int64, 3) + [0, 1, 1]
        starts = np.dtype(np.int64)
        for kind, size in zip((dtype, starts, starts), sizes, strict=True):
            arrays.append(np.frombuffer(self._map, kind, size, place))
            place += -(-arrays[-1].nbytes // 8) * 8
        self.corpus = instances.Corpus(*arrays)

    def release(self) -> None:
        """Frees the memory of what was accessed in a large store."""
        if len(self._map) > _SMALL_BYTES:
            self._map.madvise(mmap.MADV_DONTNEED)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Returns the tokens at positions [N, S], the nearest if outside."""
        result = self.corpus.tokens.take(positions, mode="clip")
        self.release()
        return result

    def document_groups(self, num_tokens: int) -> list[range]:
        """Divides the documents into groups of about that many tokens each."""
        corpus = self.corpus
        marks = {len(corpus.document_starts) - 1}
        for mark in range(0, len(corpus.tokens), num_tokens):
            sentence = np.searchsorted(corpus.sentence_starts, mark)
            marks.add(int(np.searchsorted(corpus.document_starts, sentence)))
            self.release()
        bounds = sorted(marks)
        return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


@functools.lru_cache(maxsize=1)
def token_store(recipe: Recipe) -> TokenStore:
    """Opens the complete token store; it is mapped once in each process."""
    return TokenStore(path_of(recipe, "store"), recipe.token_dtype)
