"""The global shuffle: all instances of the corpus, ordered by random keys.

    table 0   index | instances of some documents, sorted by key
    table 1   index | instances of other documents, sorted by key
    ...
    global index    the sum of all indexes

An index counts the keys below each of 65,536 marks. From the global index
follows which marks enclose a range of ranks of the global order, and from each
table's own index which slice of the table these marks enclose. So a shard is a
range of one uniform shuffle of everything, and a process reads only a small
slice of each table.
"""

from collections.abc import Sequence

import numpy as np

from data.pretraining import instances
from foundation import file_system

_BITS = 16
_INDEX_BYTES = 8 * ((1 << _BITS) + 1)


def table(unsorted: np.ndarray) -> bytes:
    """Returns the contents of a table file, of instances INSTANCE [N]."""
    order = np.argsort(unsorted["key"], kind="stable")
    found = unsorted[order]
    marks = np.arange(1, 1 << _BITS, dtype=np.uint64) << np.uint64(64 - _BITS)
    below = np.searchsorted(found["key"], marks)
    index = np.concatenate([[0], below, [len(found)]]).astype("<i8")
    return index.tobytes() + found.tobytes()


def merge_indexes(path: str, tables: Sequence[str]) -> None:
    """Writes the global index of all tables."""
    total = np.zeros((1 << _BITS) + 1, np.int64)
    for name in tables:
        total += np.fromfile(name, "<i8", count=len(total))
    file_system.write_bytes(path, total.tobytes())


def read_ranks(path: str, tables: Sequence[str], ranks: range) -> np.ndarray:
    """Returns the instances of a range of ranks, in order: INSTANCE [N].

    Args:
      path: of the global index.
      tables: the files of all tables.
      ranks: which instances of the global order.
    """
    below = np.fromfile(path, "<i8")
    first = int(np.searchsorted(below, ranks.start, "right")) - 1
    last = int(np.searchsorted(below, ranks.stop, "left"))
    found = np.concatenate([_read(name, first, last) for name in tables])
    found = found[np.argsort(found["key"], kind="stable")]
    begin = ranks.start - int(below[first])
    return found[begin : begin + len(ranks)]


def _read(name: str, first: int, last: int) -> np.ndarray:
    """Returns a table's instances between two marks."""
    with open(name, "rb") as file:
        file.seek(8 * first)
        index = np.frombuffer(file.read(8 * (last - first + 1)), "<i8")
        size = instances.INSTANCE.itemsize
        file.seek(_INDEX_BYTES + size * int(index[0]))
        data = file.read(size * int(index[-1] - index[0]))
    return np.frombuffer(data, instances.INSTANCE)
