"""Reads and writes TensorFlow checkpoints under the released TF1 names.

    bert_model.ckpt.index                  names, shapes, places
    bert_model.ckpt.data-00000-of-00001    values

What google-research/bert released, what its runs and ours leave behind
(optimizer slots and the step included), and the raw view of TF2 checkpoints,
whose names `model_garden` understands.
"""

import dataclasses
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from foundation import errors, file_system
from weights import weight_names
from weights.stored_weights import Matched, StoredTensor

# ----------------------------------------------------------------------
# Reads the index of a TensorFlow checkpoint without believing it.
#
# TensorFlow's own reader aborts the process on sizes that cannot be, so they
# are
# looked at first. `PREFIX.index` is a sorted table (LevelDB's format) of
# protocol buffers; the values lie in `PREFIX.data-0000i-of-0000n`:
#
#     ""                         header: number of data files, byte order
#     "bert/pooler/dense/bias"   dtype, shape, data file, offset, size

_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_BLOCK_TRAILER = 5
_LARGEST = 1 << 28
_MAX_RANK = 8
_COUNT = 1 << 40
_STRING = tf.string.as_datatype_enum


class _Damaged(Exception):
    """Says what is wrong with the table."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where one tensor lies."""

    dtype: str
    shape: tuple
    shard: int
    offset: int
    size: int
    is_sliced: bool


def read_index(prefix: str, *, needs_data: bool = True) -> dict[str, Entry]:
    """Lists the tensors of a checkpoint.

    Args:
      prefix: the checkpoint's files up to ".index".
      needs_data: whether the data files must be there, too.

    Raises:
      InputError: the index is damaged or cannot be true, or data is missing.
    """
    path = prefix + ".index"
    if tf.io.gfile.stat(path).length > _LARGEST:
        raise errors.InputError(f"{path}: too large for an index")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        table = dict(_table(content))
        header = _message(table.pop(b""), numbers=(1, 2))
        if header.get(2, 0) != 0:
            raise _Damaged("it is of a big-endian machine")
        entries = {
            name.decode("utf-8"): _entry(name, value)
            for name, value in table.items()
        }
    except (_Damaged, KeyError, IndexError, TypeError, ValueError) as error:
        raise errors.InputError(
            f"{path}: damaged, or no checkpoint's index ({error})"
        ) from error
    if needs_data:
        _check_data(prefix, header.get(1, 1), entries)
    return entries


def _check_data(prefix: str, count: int, entries: dict[str, Entry]) -> None:
    """Refuses tensors that end beyond their file."""
    if not 1 <= count <= 10_000:
        raise errors.InputError(f"{prefix}.index: {count} data files")
    sizes = []
    for shard in range(count):
        path = f"{prefix}.data-{shard:05d}-of-{count:05d}"
        if not tf.io.gfile.exists(path):
            raise errors.InputError(f"{path} is missing")
        sizes.append(tf.io.gfile.stat(path).length)
    for name, entry in entries.items():
        if entry.is_sliced:
            continue
        if entry.shard >= count:
            raise errors.InputError(
                f"{prefix}.index: {name} lies in data file {entry.shard} of "
                f"{count}"
            )
        if entry.offset + entry.size > sizes[entry.shard]:
            raise errors.InputError(
                f"{prefix}: truncated: {name} ends at byte "
                f"{entry.offset + entry.size} of {sizes[entry.shard]}"
            )


def _entry(name: bytes, value: bytes) -> Entry:
    """Checks one tensor's description."""
    fields = _message(value, numbers=(1, 3, 4, 5))
    is_sliced = 7 in fields
    dtype = tf.dtypes.as_dtype(fields.get(1, 0))
    shape = []
    for number, dimension in _fields(fields.get(2, b"")):
        if number != 2:
            raise _Damaged(f"{name[:80]!r} has no shape")
        shape.append(_message(dimension, numbers=(1,)).get(1, 0))
    size, offset = fields.get(5, 0), fields.get(4, 0)
    # A negative number is a large one here.
    if len(shape) > _MAX_RANK or math.prod(max(n, 1) for n in shape) > _COUNT:
        raise _Damaged(f"{name[:80]!r} has the shape {shape[:_MAX_RANK]}")
    if dtype.is_numpy_compatible and fields.get(1) != _STRING:
        needed = math.prod(shape) * dtype.size
        if not is_sliced and needed != size:
            raise _Damaged(
                f"{name[:80]!r} is {dtype.name} {shape} of {size} bytes"
            )
    return Entry(
        dtype.name, tuple(shape), fields.get(3, 0), offset, size, is_sliced
    )


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a sorted table."""
    if len(content) < _FOOTER or content[-8:] != _MAGIC:
        raise _Damaged("its end is missing")
    footer = content[-_FOOTER:]
    _, at = _varint(footer, 0)
    _, at = _varint(footer, at)
    offset, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    for _, handle in _block(content, offset, size):
        offset, at = _varint(handle, 0)
        size, _ = _varint(handle, at)
        yield from _block(content, offset, size)


def _block(
    content: bytes, offset: int, size: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of one block; keys share prefixes."""
    if offset + size + _BLOCK_TRAILER > len(content) or size < 4:
        raise _Damaged("a block lies outside of the file")
    if content[offset + size] != 0:
        raise _Damaged("a block is compressed, which TensorFlow never writes")
    block = content[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end = size - 4 * (restarts + 1)
    if end < 0:
        raise _Damaged("a block is too short")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + own + length > end:
            raise _Damaged("an entry is longer than its block")
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _message(message: bytes, numbers: tuple) -> dict:
    """Reads a protocol buffer; these of its fields must be numbers."""
    fields = dict(_fields(message))
    if any(not isinstance(fields.get(n, 0), int) for n in numbers):
        raise _Damaged("a field of another kind")
    return fields


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields numbers and values of a protocol buffer's fields."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value = int.from_bytes(message[at : at + length], "little")
            at += length
        elif kind == 2:
            length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        else:
            raise _Damaged("a field of an unknown kind")
        if at > len(message):
            raise _Damaged("a field is cut off")
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _Damaged("a number is too long")


PREFIX = "bert_model.ckpt"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_DATA = ".data-00000-of-00001"
# What training leaves beside the weights: slots of whatever optimizer, steps.
_TRAINING = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|lamb_[mv]|LAMB(_1)?|AdamWeightDecayOptimizer"
    r"(_1)?|Momentum|beta[12]_power|global_step|save_counter|training_state"
    r"|loss_scale|good_steps|(current_)?loss_scale.*|.*_slot.*)"
)


def find(directory: str) -> str | None:
    """Returns the prefix that `checkpoint` names, or the only one there is.

    Raises:
      InputError: there are several, and nothing says which.
    """
    path = os.path.join(directory, "checkpoint")
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            named = re.search(
                r'^model_checkpoint_path: "(.*)"', file.read(), re.M
            )
        if named:  # The directory may have been moved since.
            prefix = os.path.join(directory, os.path.basename(named[1]))
            if tf.io.gfile.exists(prefix + ".index"):
                return prefix
    found = sorted(tf.io.gfile.glob(os.path.join(directory, "*.index")))
    if len(found) > 1:
        names = ", ".join(os.path.basename(name)[:-6] for name in found[:3])
        raise errors.InputError(
            f"{directory}: {len(found)} checkpoints there ({names}, ...); "
            "name one of them"
        )
    return found[0][: -len(".index")] if found else None


def read(prefix: str, *, needs_data: bool = True) -> dict[str, StoredTensor]:
    """Lists all tensors; they are read, and their checksums tested, later."""
    entries = read_index(prefix, needs_data=needs_data)
    reader = None

    def load(name: str) -> np.ndarray:
        nonlocal reader
        if entries[name].is_sliced:
            raise errors.InputError(f"{prefix}: {name} is stored in slices")
        try:
            if reader is None:
                reader = tf.train.load_checkpoint(prefix)
            return reader.get_tensor(name)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise errors.InputError(
                f"{prefix}: {name} cannot be read: {reason:.200}"
            ) from error

    return {
        name: StoredTensor(
            name, entry.shape, entry.dtype, lambda name=name: load(name)
        )
        for name, entry in entries.items()
    }


def is_training_state(name: str) -> bool:
    """Tells optimizer slots and steps from weights."""
    return _TRAINING.fullmatch(name) is not None


def match(stored: Mapping[str, StoredTensor]) -> Matched:
    """Sorts out BERT's weights; their names are ours already."""
    tensors = {
        name: tensor
        for name, tensor in stored.items()
        if weight_names.to_hugging_face(name) is not None
    }
    others = {name: t for name, t in stored.items() if name not in tensors}
    return Matched(tensors, others)


def write(prefix: str, values: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint that any TensorFlow restores by name.

    Both files appear under their names only when they are whole, the index
    last.
    """
    directory, name = os.path.split(prefix)
    tf.io.gfile.makedirs(directory)
    scratch = os.path.join(directory, f".{name}.{uuid.uuid4().hex[:12]}")
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=os.path.join(scratch, name),
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=[tf.constant(value) for value in values.values()],
            )
        for suffix in (_DATA, ".index"):
            file_system.replace(
                os.path.join(scratch, name) + suffix, prefix + suffix
            )
    finally:
        if tf.io.gfile.exists(scratch):
            tf.io.gfile.rmtree(scratch)
