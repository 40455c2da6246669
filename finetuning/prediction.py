"""Prediction of a set in blocks: the memory of one block, kills lose nothing.

    output_dir/test.blocks/0000000-1f3c...   the parts of one block of examples

The name of a block's file has the digest of all that determines it: examples,
weights, tokenizer, flags. So a block that is there is used, and one that was
made from anything else is not. The files of a set are joined from its blocks
when all are there; then the blocks are removed.
"""

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from absl import logging

from data import features as features_lib
from data.features import Features
from finetuning import session as sessions
from finetuning import task as tasks
from foundation import atomic, config_flags, file_system, progress

BLOCK = 4096  # Examples, or what Task.size counts.
_SECONDS_BETWEEN_LINES = 20.0
_DIGITS = 32
_Value = TypeVar("_Value")


class Predictor(Protocol):
    """What predicts: a network, or several as one."""

    @property
    def digest(self) -> str:
        """Identifies the weights."""

    def predict(
        self, features: Features, batch_size: int
    ) -> Mapping[str, np.ndarray]:
        """Returns the outputs by name; see network.Network.predict."""


class Block(NamedTuple):
    """The file of some consecutive examples, and the examples to predict."""

    path: str
    count: int  # type: ignore[assignment]
    encoded: tasks.Encoded | None  # None if the file is there.


def predict(
    session: sessions.Session, network: Predictor, split: str
) -> tasks.Evaluation | None:
    """Predicts a set, writes its files, and evaluates it if it has labels.

    Standard input is predicted to standard output. Then, and on workers that
    write nothing, there is no evaluation.
    """
    flags, task, devices = session.flags, session.task, session.devices
    examples, batch_size = task.sets[split], flags.predict_batch_size
    if examples.path == tasks.STANDARD_INPUT:
        (layout,) = task.files(split).values()
        print_blocks(task, network, examples, layout, batch_size=batch_size)
        return None
    made_from = {
        "weights": network.digest,
        "tokenizer": features_lib.tokenizer_recipe(task.tokenizer),
        "precision": devices.precision,
        "uses_xla": devices.uses_xla,
        "lengths": devices.batch_lengths(flags.max_seq_length),
        "predict_batch_size": batch_size,
        **task.settings,
        **config_flags.affecting(flags, "evaluation"),
    }
    paths = predict_blocks(
        task,
        network,
        examples,
        os.path.join(flags.output_dir, f"{split}.blocks"),
        made_from,
        batch_size=batch_size,
        is_writer=session.is_writer,
        # All workers must predict the same blocks.
        continues=not devices.is_multi_worker,
    )
    if not session.is_writer:
        return None
    for name, layout in task.files(split).items():
        write_file(os.path.join(flags.output_dir, name), layout, paths)
    evaluation = task.finish(
        examples, lambda part: b"".join(_read(x, part) for x in paths)
    )
    session.note_set(
        split,
        weights=made_from["weights"],
        inputs={"tokenizer": made_from["tokenizer"], **task.settings},
    )
    return evaluation


def predict_blocks(
    task: Any,
    network: Any,
    examples: tasks.Examples,
    folder: str,
    made_from: Mapping[str, Any],
    *,
    batch_size: int,
    most: int = 0,
    is_writer: bool = True,
    continues: bool = True,
) -> list[str]:
    """Predicts the blocks of a set that are missing in a folder.

    Encoding, the network and writing each work on a block of their own.

    Args:
      task: encodes and decodes: a tasks.Task, or what has its `features`,
        `decode` and `size`.
      network: a Predictor of these features.
      examples: the set.
      folder: the folder of the blocks.
      made_from: JSON values that determine predictions, besides the examples.
      batch_size: examples per batch.
      most: the number of examples of a block, by default BLOCK, rounded up to
        batches, so that no batch is padded.
      is_writer: whether this process writes.
      continues: whether blocks that are there are used.

    Returns:
      The paths of all blocks.
    """
    if is_writer:
        file_system.make_folder(folder)
    paths, new = [], 0
    most = -(-(most or BLOCK) // batch_size) * batch_size
    with (
        futures.ThreadPoolExecutor(1) as writer,
        _Progress(examples) as shown,
    ):
        written: futures.Future | None = None
        blocks = _encoded(
            _blocks(task, examples, most, folder, made_from),
            continues=continues and is_writer,
        )
        for block in _ahead(blocks):
            if block.encoded is not None:
                outputs = network.predict(block.encoded.features, batch_size)
                if written is not None:
                    written.result()  # Raises what the thread raised.
                if is_writer:
                    written = writer.submit(
                        _write, block.path, task, block.encoded, outputs
                    )
                new += 1
            paths.append(block.path)
            shown.add(block.count, is_new=block.encoded is not None)
        if written is not None:
            written.result()
    if new < len(paths):
        logging.info(
            "%s: %d of %d blocks were predicted by an earlier command",
            examples.path,
            len(paths) - new,
            len(paths),
        )
    return paths


def write_file(path: str, layout: tasks.Layout, paths: Sequence[str]) -> None:
    """Writes a file from the blocks of these paths, atomically."""

    def parts(name: str) -> Iterator[bytes]:
        return (_read(block, name) for block in paths)

    with (
        atomic.replacing(path) as temporary,
        open(temporary, "wb") as file,
    ):
        if layout.write is not None:
            layout.write(file, parts)
        else:
            file.writelines(_joined(layout, parts(layout.part)))


def remove_blocks(session: sessions.Session, split: str) -> None:
    """Removes the blocks of a set, if there are any."""
    folder = os.path.join(session.flags.output_dir, f"{split}.blocks")
    if session.is_writer and file_system.is_folder(folder):
        file_system.remove_folder(folder)


def print_blocks(
    task: Any,
    network: Any,
    examples: Iterable[Any],
    layout: tasks.Layout,
    *,
    batch_size: int,
    most: int = 0,
) -> None:
    """Predicts examples to standard output, block by block.

    See predict_blocks for the arguments; `layout` is that of the output.
    """
    source = iter(examples)
    try:
        sys.stdout.buffer.write(layout.begin)
        while block := list(itertools.islice(source, most or BLOCK)):
            encoded = tasks.Encoded(task, block)
            outputs = network.predict(encoded.features, batch_size)
            sys.stdout.buffer.write(task.decode(encoded, outputs)[layout.part])
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # The reader has ended, e.g. "| head".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _blocks(
    task: Any,
    examples: tasks.Examples,
    most: int,
    folder: str,
    made_from: Mapping[str, Any],
) -> Iterator[tuple[str, tasks.Encoded]]:
    """Yields the path of each block, and its examples, not yet encoded."""
    key = json.dumps(made_from, sort_keys=True).encode()
    source = iter(examples)
    for number in itertools.count():
        block, size = [], 0
        while size < most and (example := next(source, None)) is not None:
            block.append(example)
            size += task.size(example)
        if not block:
            return
        sha = hashlib.sha256(key)
        for example in block:
            sha.update(tasks.content(example) + b"\n")
        name = f"{number:07d}-{sha.hexdigest()[:_DIGITS]}"
        yield os.path.join(folder, name), tasks.Encoded(task, block)


def _encoded(
    blocks: Iterator[tuple[str, tasks.Encoded]], *, continues: bool
) -> Iterator[Block]:
    """Yields the blocks, encoded if their file is not there."""
    for path, encoded in blocks:
        count = len(encoded.examples)
        if continues and _is_complete(path):
            yield Block(path, count, None)
        else:
            _ = encoded.features  # In this thread.
            yield Block(path, count, encoded)


def _ahead(values: Iterator[_Value]) -> Iterator[_Value]:
    """Yields the values; a thread computes the next one meanwhile."""
    with futures.ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, values, None)
        while (value := pending.result()) is not None:
            pending = pool.submit(next, values, None)
            yield value


def _write(
    path: str,
    task: Any,
    encoded: tasks.Encoded,
    outputs: Mapping[str, np.ndarray],
) -> None:
    data = msgspec.msgpack.encode(task.decode(encoded, outputs))
    atomic.write_bytes(path, hashlib.sha256(data).digest() + data)


def _is_complete(path: str) -> bool:
    if not file_system.is_file(path):
        return False
    data = file_system.read(path)
    size = hashlib.sha256().digest_size
    return hashlib.sha256(data[size:]).digest() == data[:size]


def _read(path: str, part: str) -> bytes:
    data = file_system.read(path)[hashlib.sha256().digest_size :]
    return msgspec.msgpack.decode(data, type=dict[str, bytes]).get(part, b"")


def _joined(layout: tasks.Layout, parts: Iterator[bytes]) -> Iterator[bytes]:
    yield layout.begin
    is_first = True
    for part in parts:
        if part and not is_first:
            yield layout.between
        is_first = is_first and not part
        yield part
    yield layout.end


class _Progress:
    """Logs speed and time left now and then, and a line at the end.

    The first block includes the compilation of the model: it has no part in
    the speed.
    """

    def __init__(self, examples: tasks.Examples):
        self._name, self._total = examples.path, None
        if examples.path != tasks.STANDARD_INPUT:
            self._total = examples.summary.count
        self._count = self._new = self._timed = 0
        self._began = self._shown = self._timed_from = time.monotonic()

    def __enter__(self) -> "_Progress":
        """Begins."""
        return self

    def add(self, count: int, *, is_new: bool) -> None:
        """Counts the examples of a block."""
        now = time.monotonic()
        self._count += count
        if is_new:
            self._timed += count if self._new else 0
            self._timed_from = self._timed_from if self._new else now
            self._new += count
        if now - self._shown > _SECONDS_BETWEEN_LINES:
            self._shown = now
            logging.info("%s", self._line())

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Logs the last line, unless there was an error."""
        if kind is None:
            logging.info("%s", self._line())

    def _line(self) -> str:
        now = time.monotonic()
        line = f"{self._name}: {self._count:,} examples predicted"
        if self._timed:
            rate = self._timed / max(now - self._timed_from, 1e-9)
            line += f", {rate:,.4g} per second"
            if self._total is not None and self._count < self._total:
                left = (self._total - self._count) / rate
                line += f", {progress.duration(left)} left"
        return f"{line}, in {progress.duration(now - self._began)}"
