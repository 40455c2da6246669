"""The working directory of a run: everything between the text and the shards.

    recipe.json           the recipe; a run with another one is refused
    lock, lock-1, ...     held by the processes that work here
    store/                the token store, the tokenized corpus: written once,
                          in order, then mapped by workers
        tokens.bin        uint16 or int32, the token ids of all sentences, end
                          to end
        sentences.bin     int64, where each sentence starts in tokens.bin, and
                          the end
        documents.bin     int64, where each document starts in sentences.bin,
                          and the end
        journal.jsonl     one line per block of text: the lengths and checksums
                          of the files up to there
    table-00007           instances of some documents, see instances.py
    index                 the global index of all tables
    slice-00002-of-NAME   a slice of a large shard NAME, see generation.py
    finished/NAME         receipt of a finished file: its size and checksum

A run that is killed leaves the directory; the next run of the same recipe
continues from it, and the run that completes the shards removes it. A power
failure may truncate a file that had its final name, so a file is used again
only after it has been compared: a file of the store with the journal, any other
with its receipt.

The files of the store only grow, and a block's line in the journal follows its
data. A writer that continues cuts the files after the last block that agrees,
and appends from there. The checksum of the store and of tables is a CRC-32;
shards and slices are TFRecord files, which carry a CRC-32C for each record, and
are compared by their number of records.
"""

import collections
import contextlib
import dataclasses
import fcntl
import functools
import json
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import BinaryIO, NamedTuple

import numpy as np
from absl import logging

from data import records
from data.pretraining import instances
from data.pretraining.recipe import Recipe
from foundation import atomic, errors, file_system, metadata, progress, stamp

_RECIPE, _FINISHED, _STORE = "recipe.json", "finished", "store"
_SLICE = re.compile(r"slice-\d+-of-")
_KINDS = ("tokens", "sentences", "documents")
_JOURNAL = "journal.jsonl"
# Random access may keep this much of the mapped files in a process's memory.
# One access costs 16 pages at most, which the kernel maps around a fault.
_RESIDENT_BYTES = 16 << 20
_ACCESS_BYTES = 64 << 10
_ROWS_AT_ONCE = 128
_SEARCH_ACCESSES = 64  # Of one binary search in each of two files.


@dataclasses.dataclass(frozen=True)
class _Receipt:
    """What every receipt has; files of records have their number."""

    bytes: metadata.Count
    crc32: metadata.Count | None
    records: metadata.Count = 0


@dataclasses.dataclass(frozen=True)
class _OfKinds:
    tokens: metadata.Count
    sentences: metadata.Count
    documents: metadata.Count


@dataclasses.dataclass(frozen=True)
class _Block:
    """A line of journal.jsonl."""

    blocks: metadata.Count
    lengths: _OfKinds
    crc32: _OfKinds
    begins: bool
    counts: dict[str, metadata.Count]
    done: bool


def path_of(recipe: Recipe, *names: str) -> str:
    """Returns the path of a file or folder that is listed above."""
    return os.path.join(recipe.work_dir, *names)


def table_path(recipe: Recipe, number: int) -> str:
    """Returns the path of a table of instances."""
    return path_of(recipe, f"table-{number:05d}")


@contextlib.contextmanager
def locked(
    recipe: Recipe, shards: Sequence[str], role: str = ""
) -> Iterator[None]:
    """Holds the working directory's lock; makes or continues the directory.

    Runs of one recipe that make different shards need different roles.

    Raises:
      InputError: another run holds the lock, or the directory or a shard
        belongs to another recipe.
    """
    before = _begun(recipe)
    where = f"--work_dir={recipe.work_dir}"
    if before is not None:
        refuse_changes(where, before, recipe)
        logging.info("Continuing the run that left %s.", recipe.work_dir)
    else:
        _refuse_other_shards(recipe)
        _refuse_other_files(recipe.work_dir)
    os.makedirs(path_of(recipe, _FINISHED), exist_ok=True)
    with open(path_of(recipe, f"lock{role}"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.InputError(
                f"{recipe.work_dir}: another run is using it"
            ) from None
        # Another run may have begun meanwhile.
        now = _begun(recipe)
        if now is None:
            path = path_of(recipe, _RECIPE)
            atomic.write_json(path, recipe.settings.to_json())
        else:
            refuse_changes(where, now, recipe)
        with one_at_a_time(recipe, "verifying"):
            _verify(recipe, shards)
        yield


@contextlib.contextmanager
def one_at_a_time(recipe: Recipe, purpose: str) -> Iterator[None]:
    """Waits until no other run of this recipe does the same."""
    path = path_of(recipe, f"lock-{purpose}")
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("Waiting: another run is %s.", purpose)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def finish(
    recipe: Recipe, path: str, *, crc32: int | None = None, **counts: int
) -> None:
    """Writes the receipt of a shard or of a file of the working directory.

    Counts are kept in the receipt. Files of records need `records`, other files
    the CRC-32 of their bytes.
    """
    size = file_system.size(path)
    receipt = {"bytes": size, "crc32": crc32, **counts}
    atomic.write_json(_receipt_path(recipe, path), receipt)


def receipt(recipe: Recipe, path: str) -> dict | None:
    """Returns a finished file's receipt, or None; compares the size alone."""
    name = _receipt_path(recipe, path)
    try:
        # Not `metadata.read`: the receipt of x.gz is also x.gz, but plain JSON.
        with file_system.open_binary(name) as file:
            values = file_system.parse_json(file.read(), name)
        metadata.convert(values, _Receipt, name)
    except (FileNotFoundError, errors.InputError):
        return None
    if not file_system.exists(path):
        return None
    return values if file_system.size(path) == values["bytes"] else None


def discard(recipe: Recipe, path: str) -> None:
    """Removes a finished file that is no longer needed, and its receipt."""
    os.remove(_receipt_path(recipe, path))
    os.remove(path)


def remove(recipe: Recipe) -> None:
    """Removes the working directory, unless it belongs to another recipe."""
    # The disk space of removed files is freed only when they are not mapped.
    unmap()
    if recipe.settings.is_same(_begun(recipe)):
        # The recipe last: the next run recognizes what is left by it.
        # Another group that finishes now removes the same files.
        with contextlib.suppress(FileNotFoundError):
            for name in set(os.listdir(recipe.work_dir)) - {_RECIPE}:
                path = path_of(recipe, name)
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(path)
            if os.listdir(recipe.work_dir) == [_RECIPE]:
                os.remove(path_of(recipe, _RECIPE))
    with contextlib.suppress(OSError):  # There is none, or it is not empty.
        os.rmdir(recipe.work_dir)


def refuse_changes(where: str, before: dict, recipe: Recipe) -> None:
    """Raises InputError naming the flags in which a recipe has changed."""
    stamp.refuse(
        recipe.settings.difference(before, is_complete=True),
        f"{where} belongs to shards of another run; choose another directory "
        "or remove those files",
    )


def _receipt_path(recipe: Recipe, path: str) -> str:
    return path_of(recipe, _FINISHED, os.path.basename(path))


def _begun(recipe: Recipe) -> dict | None:
    """Returns the description of the recipe that the directory belongs to."""
    path = path_of(recipe, _RECIPE)
    try:
        return metadata.read_if_present(path, metadata.Object)
    except errors.InputError as error:
        raise errors.InputError(
            f"{error}: damaged; remove {recipe.work_dir} and the "
            "shards that the run has written"
        ) from None


def _verify(recipe: Recipe, own: Sequence[str]) -> None:
    """Removes the receipts of damaged files, which are then made again.

    Leaves out other runs' shards and slices, which these runs verify.
    """
    others = {os.path.basename(path) for path in recipe.output_files}
    shards = {os.path.basename(path): path for path in own}
    others -= set(shards)
    paths = [
        shards.get(name, path_of(recipe, name))
        for name in os.listdir(path_of(recipe, _FINISHED))
        if not name.startswith(".") and _SLICE.sub("", name) not in others
    ]
    options = {"total": len(paths), "desc": "verifying files"}
    with (
        progress.bar(is_brief=True, **options) as bar,
        futures.ThreadPoolExecutor() as pool,
    ):
        is_intact = pool.map(lambda path: _is_intact(recipe, path), paths)
        for path, intact in zip(paths, is_intact, strict=True):
            bar.update()
            if not intact:
                logging.warning("%s: damaged; it is made again.", path)
                os.remove(_receipt_path(recipe, path))


def _is_intact(recipe: Recipe, path: str) -> bool:
    written = receipt(recipe, path)
    if written is None:
        return False
    if written["crc32"] is None:
        try:
            return records.counts([path]) == [written["records"]]
        except errors.InputError:
            return False
    crc32 = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            crc32 = zlib.crc32(data, crc32)
    return crc32 == written["crc32"]


def _refuse_other_files(work_dir: str) -> None:
    """Prevents other people's files from being removed with the directory."""
    names = os.listdir(work_dir) if file_system.is_folder(work_dir) else []
    # A run of this recipe writes these first, and may have begun by now.
    own_prefixes = ("lock", _RECIPE, f".{_RECIPE}")
    other_names = [
        name
        for name in names
        if not name.startswith(own_prefixes) and name != _FINISHED
    ]
    if other_names and _RECIPE not in names:
        raise errors.InputError(
            f"{work_dir}: holds {min(other_names)}, but is removed when the "
            "shards are complete; choose another --work_dir or move it"
        )


def _refuse_other_shards(recipe: Recipe) -> None:
    """Refuses to overwrite shards; makes their directory."""
    paths = recipe.output_files
    folder = os.path.dirname(paths[0]) or "."
    try:
        file_system.make_folder(folder)
    except file_system.failures(folder) as error:
        raise errors.InputError(
            f"{paths[0]}: its directory cannot be made: {errors.reason(error)}"
        ) from None
    names = set(map(os.path.basename, paths))
    other_shards = names.intersection(file_system.entries(folder))
    if other_shards:
        raise errors.InputError(
            f"{os.path.join(folder, min(other_shards))}: exists and does not "
            f"belong to this run, or this run's {recipe.work_dir} was lost; "
            "choose another output directory or remove it"
        )


class EncodedBlock(NamedTuple):
    """The sentences of one block of text that have tokens."""

    tokens: np.ndarray  # uint16 or int32 [T]
    lengths: np.ndarray  # int64 [sentences], none is 0
    starts: np.ndarray  # int64, before which sentences a document begins
    counts: collections.Counter


class TokenWriter:
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
        self.blocks = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.done = False
        self._lengths = dict.fromkeys(_KINDS, 0)
        self._crc32 = dict.fromkeys(_KINDS, 0)
        self._begins = True  # Whether the next sentence begins a document.
        self._stack = contextlib.ExitStack()
        self._files = {
            kind: self._stack.enter_context(
                open(_store_path(folder, kind), "a+b")
            )
            for kind in _KINDS
        }
        journal = os.path.join(folder, _JOURNAL)
        self._journal = self._stack.enter_context(open(journal, "a+b"))
        end = self._read_journal()
        with file_system.naming(folder):
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
                values = file_system.parse_json(line, self._journal.name)
                state = metadata.convert(values, _Block, self._journal.name)
            except errors.InputError:
                break  # A killed writer's last line.
            lengths = dataclasses.asdict(state.lengths)
            crc32 = {}
            for kind, file in self._files.items():
                grown = max(0, lengths[kind] - self._lengths[kind])
                size = os.fstat(file.fileno()).st_size  # Limits the memory.
                expected = grown * self._dtypes[kind].itemsize
                data = file.read(min(expected, size))
                crc32[kind] = zlib.crc32(data, self._crc32[kind])
            if crc32 != dataclasses.asdict(state.crc32):
                break
            self.blocks, self.done = state.blocks, state.done
            self.counts = collections.Counter(state.counts)
            self._lengths, self._crc32 = lengths, crc32
            self._begins = state.begins
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
                atomic.flush(file.name)
            self.done = True
            self._write_journal()

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


def token_writer(recipe: Recipe) -> TokenWriter:
    """Opens the token store to write it, or to continue."""
    return TokenWriter(path_of(recipe, _STORE), recipe.token_dtype)


class TokenStore:
    """A complete corpus, mapped into memory as it is accessed."""

    def __init__(self, folder: str, dtype: np.dtype):
        """Maps the files of `folder`."""
        self._maps, arrays = [], []
        for kind in _KINDS:
            with open(_store_path(folder, kind), "rb") as file:
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
        marks = {len(corpus.document_starts) - 1}
        for mark in range(0, len(corpus.tokens), num_tokens):
            sentence = np.searchsorted(corpus.sentence_starts, mark)
            marks.add(int(np.searchsorted(corpus.document_starts, sentence)))
            self.count_accesses(_SEARCH_ACCESSES)
        bounds = sorted(marks)
        return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def token_store(recipe: Recipe) -> TokenStore:
    """Opens the complete token store; it is mapped once in each process."""
    return _map_store(path_of(recipe, _STORE), recipe.token_dtype)


@functools.lru_cache(maxsize=1)
def _map_store(folder: str, dtype: np.dtype) -> TokenStore:
    return TokenStore(folder, dtype)


def unmap() -> None:
    """Makes the next `token_store` map its files again."""
    _map_store.cache_clear()


def _append(file: BinaryIO, data: bytes) -> None:
    with file_system.naming(file.name):
        file.write(data)
        file.flush()


def _store_path(folder: str, kind: str) -> str:
    return os.path.join(folder, f"{kind}.bin")
