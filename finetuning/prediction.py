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
from typing import Any, NamedTuple

import msgspec
import numpy as np
from absl import logging

from data import features as features_lib
from finetuning import session as sessions
from finetuning import task as tasks
from foundation import atomic, config_flags, file_system, progress

BLOCK = 4096  # Examples, or what Task.size counts.
_SECONDS_BETWEEN_LINES = 20.0
_DIGITS = 32


class Block(NamedTuple):
    """Some consecutive examples, and the file of their predictions."""

    path: str
    encoded: tasks.Encoded
    is_new: bool


def predict(
    session: sessions.Session, network: Any, split: str
) -> tasks.Evaluation | None:
    """Predicts a set, writes its files, and evaluates it if it has labels.

    Standard input is predicted to standard output. Then, and on workers that
    write nothing, there is no evaluation.

    Args:
      session: the devices and the task.
      network: a network.Network, or what has its `digest` and `predict`.
      split: the set.
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
      network: what has the `predict` of a network.Network.
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
    paths = []
    most = -(-(most or BLOCK) // batch_size) * batch_size
    blocks = _blocks(
        task,
        examples,
        most,
        folder,
        made_from,
        continues=continues and is_writer,
    )
    with futures.ThreadPoolExecutor(1) as writer:
        written: futures.Future | None = None
        for block in _logged(_ahead(blocks), examples):
            if block.is_new:
                outputs = network.predict(block.encoded.features, batch_size)
                if written is not None:
                    written.result()  # Raises what the thread raised.
                if is_writer:
                    written = writer.submit(
                        _write, block.path, task, block.encoded, outputs
                    )
            paths.append(block.path)
        if written is not None:
            written.result()
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
            return
        file.write(layout.begin)
        between = b""
        for part in filter(None, parts(layout.part)):
            file.write(between + part)
            between = layout.between
        file.write(layout.end)


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
    *,
    continues: bool,
) -> Iterator[Block]:
    """Yields the blocks, those without a file encoded."""
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
        path, encoded = os.path.join(folder, name), tasks.Encoded(task, block)
        is_new = not (continues and _is_complete(path))
        if is_new:
            _ = encoded.features  # In this thread.
        yield Block(path, encoded, is_new)


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yields the blocks; a thread prepares the next one meanwhile."""
    with futures.ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, blocks, None)
        while (block := pending.result()) is not None:
            pending = pool.submit(next, blocks, None)
            yield block


def _logged(
    blocks: Iterator[Block], examples: tasks.Examples
) -> Iterator[Block]:
    """Yields the blocks; logs speed and time left, and a line at the end.

    The first new block includes the compilation of the model: it has no part
    in the speed.
    """
    began = shown = now = time.monotonic()
    count = old = num_blocks = timed = 0
    timed_from: float | None = None
    is_stream = examples.path == tasks.STANDARD_INPUT
    total = 0 if is_stream else examples.summary.count

    def line() -> str:
        text = f"{examples.path}: {count:,} examples predicted"
        if timed and timed_from is not None:
            rate = timed / max(now - timed_from, 1e-9)
            text += f", {rate:,.4g} per second"
            if count < total:
                left = progress.duration((total - count) / rate)
                text += f", {left} left"
        return f"{text}, in {progress.duration(now - began)}"

    for block in blocks:
        yield block
        now, size = time.monotonic(), len(block.encoded.examples)
        count, num_blocks = count + size, num_blocks + 1
        if not block.is_new:
            old += 1
        elif timed_from is None:
            timed_from = now
        else:
            timed += size
        if now - shown > _SECONDS_BETWEEN_LINES:
            shown = now
            logging.info("%s", line())
    logging.info("%s", line())
    if old:
        logging.info(
            "%s: %d of %d blocks were predicted by an earlier command",
            examples.path,
            old,
            num_blocks,
        )


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
