r"""Prediction in blocks: the memory of one block, continued after a kill.

A Stream has these methods:

    read        -> any iterator, e.g. of the rows of a table
    encode      items -> features                in a thread, one block ahead
    predict     features -> predictions          in the caller's thread
    parts       items, features, predictions     in a thread, one block behind
                -> {"predictions.tsv": b"...", ...}

    blocks = streaming.Blocks("out/predict.incomplete", settings)
    count = streaming.run(stream, blocks)
    blocks.write("predictions.tsv", "out/predictions.tsv", head=b"id\tlabel\n")
    blocks.remove()

A killed prediction leaves its directory:

    settings.json   what the predictions depend on, besides the items, and the
                    version of this format
    block-0000000   a line of JSON (checksum, digests of the settings and of the
                    keys of the items, lengths of the parts), then the parts

The next run reads the items again, compares their keys, and predicts the
blocks that are missing or damaged. So it writes the same bytes as a run that
was never killed.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from absl import logging

from foundation import atomic, errors, file_system, metadata, progress, stamp

BLOCK_ITEMS = 4096
_SETTINGS = "settings.json"
_VERSION = 2  # Raised when the digest of the same items changes.
_SECONDS_BETWEEN_LINES = 20.0
_Value = TypeVar("_Value")

Parts = Mapping[str, bytes]


class Store(Protocol):
    """Receives the parts of each block, in order."""

    def find(self, number: int, digest: str) -> bool:
        """Returns whether the store has a block of these items already."""

    def add(self, number: int, digest: str, parts: Parts) -> None:
        """Keeps a block's parts."""


class Blocks:
    """Blocks in a directory on a disk or in a bucket."""

    def __init__(
        self,
        directory: str,
        settings: Mapping[str, Any],
        *,
        continues: bool = True,
        discards_changed: bool = False,
    ):
        """Opens the directory of a killed prediction, or makes a new one.

        Args:
          directory: directory of this prediction alone, beside its outputs.
          settings: JSON values that determine the predictions of an item; the
            name of a flag for each value that a flag gives, for the message.
          continues: whether to use existing blocks. False for several workers,
            which must all predict the same blocks.
          discards_changed: whether to remove blocks with other settings
            instead of refusing them. True for a command that trains: they are
            mostly those of an earlier model.

        Raises:
          InputError: the directory belongs to a prediction with other settings.
        """
        self._directory = directory
        self._continues = continues
        self._count = 0
        path = os.path.join(directory, _SETTINGS)
        values = {"format_version": _VERSION, **settings}
        now = stamp.facts("result", values)
        self._key = _digest(now.to_json())
        if continues and file_system.exists(path):
            before = metadata.read(path, metadata.Object)
            changes = now.difference(before, is_complete=True)
            is_older = before.get("format_version") != _VERSION
            if not (is_older or discards_changed):
                stamp.refuse(changes, self._unfinished)
            if changes:
                reason = ", ".join(map(str, changes))
                logging.warning(
                    "%s: removed, its prediction begins again: %s",
                    directory,
                    "an earlier version wrote it" if is_older else reason,
                )
                self.remove()
        if not (continues and file_system.exists(path)):
            file_system.make_folder(directory)
            atomic.write_json(path, now.to_json())

    def find(self, number: int, digest: str) -> bool:
        """Returns whether a complete block exists; see Store.

        Raises:
          InputError: the block has other items.
        """
        self._count = number + 1
        path = self._path(number)
        if not (self._continues and file_system.exists(path)):
            return False
        block = _read(path)
        if block is None or block.key != self._key:
            logging.warning("%s: damaged; it is predicted again", path)
            return False
        if block.digest != digest:
            raise errors.InputError(
                f"another or changed input: {self._unfinished}"
            )
        return True

    def add(self, number: int, digest: str, parts: Parts) -> None:
        """Writes a block to the disk; see Store."""
        data = b"".join(parts.values())
        head = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "settings": self._key,
            "digest": digest,
            "parts": {name: len(part) for name, part in parts.items()},
        }
        head_line = json.dumps(head).encode() + b"\n"
        atomic.write_bytes(self._path(number), head_line + data)

    def parts(self, name: str) -> Iterator[bytes]:
        """Yields a part of all blocks in order.

        Raises:
          InputError: a block was damaged after it had been written.
        """
        for number in range(self._count):
            block = _read(self._path(number))
            if block is None:
                raise errors.InputError(
                    f"{self._path(number)}: damaged since it was written; the "
                    "same command predicts it again"
                )
            yield block.parts.get(name, b"")

    def write(self, name: str, path: str, *, head: bytes = b"") -> None:
        """Writes a part of all blocks into a file that appears when complete.

        The file begins with `head`.
        """
        with atomic.replacing(path, on_disk=True) as temporary:
            with open(temporary, "wb") as file:
                file.write(head)
                file.writelines(self.parts(name))

    def remove(self) -> None:
        """Removes the directory, when the outputs have been written."""
        file_system.remove_folder(self._directory)

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, f"block-{number:07d}")

    @property
    def _unfinished(self) -> str:
        return (
            f"{self._directory} contains an unfinished prediction; run the "
            "command that began it, or remove the directory"
        )


class NpzArray(NamedTuple):
    """An array in parts.

    dtype: NumPy's name of the number type, e.g. "<f4".
    shape: shape of the complete array.
    parts: its bytes in row-major order.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[bytes]


def write_npz(path: str, arrays: Mapping[str, NpzArray]) -> None:
    """Writes the file that np.savez would, in the memory of one part."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (dtype, shape, parts) in arrays.items():
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array_header_1_0(entry, header)
                entry.writelines(parts)


def row_splits(lengths: Iterable[bytes]) -> Iterator[bytes]:
    """Yields int64 row splits, from parts of the rows' int64 lengths."""
    splits = np.zeros(1, "<i8")
    yield splits.tobytes()
    for part in lengths:
        # A part may be empty.
        splits = np.append(splits[-1], np.frombuffer(part, "<i8")).cumsum()
        yield splits[1:].astype("<i8").tobytes()


class StandardOutput:
    """Writes one part of each block to standard output, at once."""

    def __init__(self, name: str, head: bytes = b""):
        """Writes the head; `name` is that of the part to print."""
        self._name = name
        self._write(head)

    def find(self, number: int, digest: str) -> bool:
        """Returns False: nothing is kept."""
        del number, digest
        return False

    def add(self, number: int, digest: str, parts: Parts) -> None:
        """Writes a block's part."""
        del number, digest
        self._write(parts[self._name])

    def _write(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # The reader has ended, e.g. "| head".
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


class _Block(NamedTuple):
    number: int
    items: list
    rows: int
    digest: str
    encoded: Any  # None if the store has the block.


class Stream(Protocol):
    """Items to predict, and how."""

    @property
    def block_items(self) -> int:
        """The number of rows of a block, which ends with a complete item."""

    @property
    def total(self) -> int | None:
        """The number of all rows, to show how much time is left.

        None if it is unknown.
        """

    @property
    def unit(self) -> str:
        """Names the rows, in messages."""

    def read(self) -> Iterable[Any]:
        """Returns the items."""

    def key(self, item: Any) -> Any:
        """Returns JSON values of the content of an item, without its position.

        A continued run recognizes its items by these values.
        """

    def rows_of(self, item: Any) -> int:
        """Returns the number of rows of an item, e.g. of sentences."""

    def encode(self, items: list) -> Any:
        """Does the work that needs no model, e.g. tokenization."""

    def predict(self, encoded: Any) -> Any:
        """Calls the model; on several workers, on all of them."""

    def parts(self, items: list, encoded: Any, predicted: Any) -> Parts:
        """Returns the block's part of every output."""

    def end(self) -> None:
        """Warns of lost text; called after the last block."""


def run(stream: Stream, store: Store | None) -> int:
    """Predicts all items block by block; returns the number of rows.

    Three blocks at most are in memory: one is encoded, one predicted, one
    written.

    Args:
      stream: the items, and how they are predicted.
      store: receives the blocks; None on workers that write nothing.

    Raises:
      InputError: see Blocks.find; the number of rows is not `total`; or a
        method of the stream raises it.
    """
    unit, total = stream.unit, stream.total

    def read() -> Iterator[_Block]:
        source = iter(stream.read())
        for number in itertools.count():
            block, rows = [], 0
            while rows < stream.block_items:
                if (item := next(source, None)) is None:
                    break
                block.append(item)
                rows += stream.rows_of(item)
            if not block:
                return
            digest = _digest([stream.key(item) for item in block])
            has_block = store is not None and store.find(number, digest)
            encoded = None if has_block else stream.encode(block)
            yield _Block(number, block, rows, digest, encoded)

    def write(block: _Block, predicted: Any) -> None:
        assert store is not None
        parts = stream.parts(block.items, block.encoded, predicted)
        store.add(block.number, block.digest, parts)

    counter = _Progress(unit, total)
    with futures.ThreadPoolExecutor(1) as writer:
        written = None
        for block in _ahead(read()):
            if block.encoded is not None:
                predicted = stream.predict(block.encoded)
                if written is not None:
                    written.result()  # Raises what the thread raised.
                if store is not None:
                    written = writer.submit(write, block, predicted)
            counter.add(block.rows, is_new=block.encoded is not None)
        if written is not None:
            written.result()
    counter.end()
    stream.end()
    if total not in (None, counter.count):
        raise errors.InputError(
            f"{counter.count:,} {unit} predicted, but {total:,} were counted "
            "before: the input has changed meanwhile"
        )
    return counter.count


def _digest(value: Any) -> str:
    """Returns the SHA-256 of a JSON value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class _Read(NamedTuple):
    key: str
    digest: str
    parts: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class _Head:
    """The first line of a block's file."""

    sha256: str
    settings: str
    digest: str
    parts: dict[str, metadata.Count]


def _read(path: str) -> _Read | None:
    """Returns a block, None if it is damaged."""
    head_line, _, data = file_system.read(path).partition(b"\n")
    try:
        values = file_system.parse_json(head_line, path)
        head = metadata.convert(values, _Head, path)
    except errors.InputError:
        return None
    if hashlib.sha256(data).hexdigest() != head.sha256:
        return None
    parts, begin = {}, 0
    for name, length in head.parts.items():
        parts[name] = data[begin : begin + length]
        begin += length
    return _Read(head.settings, head.digest, parts)


def _ahead(values: Iterator[_Value]) -> Iterator[_Value]:
    """Yields the values; a thread computes the next one meanwhile."""
    with futures.ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, values, None)
        while (value := pending.result()) is not None:
            pending = pool.submit(next, values, None)
            yield value


class _Progress:
    """Shows speed and time left: a bar at a terminal, else lines of the log.

    The first block that is predicted includes the compilation of the model, so
    it has no part in the speed.
    """

    def __init__(self, unit: str, total: int | None):
        self.count = 0
        self._unit = unit
        self._total = total
        self._new = 0
        self._after_first = 0
        self._start = self._shown = time.monotonic()
        self._end_of_first: float | None = None
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = progress.bar(
                total=total, unit=f" {unit}", unit_scale=True
            )

    def add(self, count: int, *, is_new: bool) -> None:
        """Counts the rows of a block."""
        self.count += count
        if is_new:
            self._new += count
            if self._end_of_first is None:
                self._end_of_first = time.monotonic()
            else:
                self._after_first += count
        else:  # A killed run has predicted it.
            self._start = time.monotonic()
        if self._bar is not None:
            self._bar.initial = self.count - self._new
            self._bar.update(count)
        elif time.monotonic() - self._shown > _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            logging.info("%s", self._line())

    def end(self) -> None:
        """Shows the last line."""
        if self._bar is not None:
            self._bar.close()
        logging.info("%s", self._line(is_end=True))

    def _line(self, *, is_end: bool = False) -> str:
        now = time.monotonic()
        line = f"{self.count:,} {self._unit} predicted"
        if self._new < self.count:
            line += f", {self.count - self._new:,} of them by an earlier run"
        if is_end and self._new:
            line += f", in {progress.duration(now - self._start)}"
        seconds, rows = now - self._start, self._new
        if self._end_of_first is not None and self._after_first:
            seconds, rows = now - self._end_of_first, self._after_first
            line += f", {rows / max(seconds, 1e-9):,.4g} per second"
        if not is_end and self._total is not None and self._new:
            left = (self._total - self.count) * seconds / rows
            line += f", {progress.duration(left)} left"
        return line
