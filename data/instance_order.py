"""The global shuffle: every instance of the corpus, in the order of its key.

Each plan (the instances of some documents) lies on disk sorted by its random
keys, with an index of how many keys lie below each of 65,536 marks. So the
instances of any range of ranks of the whole are found by reading a small
slice of every plan: shards are cut from one uniform shuffle of everything,
and no process ever holds more than a slice.
"""

import json
import os
import uuid
from typing import NamedTuple

import numpy as np

from data import instances

_BITS = 16


class Totals(NamedTuple):
    """What one plan holds."""

    instances: int
    random_next: int
    lost_pieces: int
    kept_pieces: int  # With [CLS] and [SEP].


def write_plan(folder: str, number: int, plan: instances.Plan) -> Totals:
    """Sorts a plan and writes it; its totals, written last, say it stands."""
    os.makedirs(folder, exist_ok=True)
    order = np.argsort(plan.places["key"], kind="stable")
    places = plan.places[order]
    marks = np.arange(1, 1 << _BITS, dtype=np.uint64) << np.uint64(64 - _BITS)
    below = np.searchsorted(places["key"], marks)
    index = np.concatenate([[0], below, [len(places)]]).astype("<i8")
    totals = Totals(
        instances=len(places),
        random_next=int(places["is_random"].sum()),
        lost_pieces=plan.lost_pieces,
        kept_pieces=int(
            places["a_length"].sum(dtype=np.int64)
            + places["b_length"].sum(dtype=np.int64)
            + 3 * len(places)
        ),
    )
    replace(_path(folder, number, "places"), places.tobytes())
    replace(_path(folder, number, "index"), index.tobytes())
    replace(
        _path(folder, number, "json"), json.dumps(totals._asdict()).encode()
    )
    return totals


def standing_plan(folder: str, number: int) -> Totals | None:
    """Returns the totals of a plan that was written before, or None."""
    path = _path(folder, number, "json")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return Totals(**json.load(file))


def merge_indexes(folder: str, count: int) -> None:
    """Adds up the indexes of all plans, for `Order` to read."""
    total = np.zeros((1 << _BITS) + 1, np.int64)
    for number in range(count):
        total += np.fromfile(_path(folder, number, "index"), "<i8")
    replace(os.path.join(folder, "order.index"), total.tobytes())


def read_ranks(folder: str, plans: int, ranks: range) -> np.ndarray:
    """Returns the instances of these ranks of the global order: PLACE [N]."""
    below = np.fromfile(os.path.join(folder, "order.index"), "<i8")
    first = int(np.searchsorted(below, ranks.start, "right")) - 1
    last = int(np.searchsorted(below, ranks.stop, "left"))
    slices = [
        _read_slice(folder, number, first, last) for number in range(plans)
    ]
    places = np.concatenate(slices)
    places = places[np.argsort(places["key"], kind="stable")]
    begin = ranks.start - int(below[first])
    return places[begin : begin + len(ranks)]


def _read_slice(folder, number, first, last):
    with open(_path(folder, number, "index"), "rb") as file:
        file.seek(8 * first)
        index = np.frombuffer(file.read(8 * (last - first + 1)), "<i8")
    with open(_path(folder, number, "places"), "rb") as file:
        size = instances.PLACE.itemsize
        file.seek(size * int(index[0]))
        data = file.read(size * int(index[-1] - index[0]))
    return np.frombuffer(data, instances.PLACE)


def replace(path: str, data: bytes) -> None:
    """Writes a local file beside its place, then renames it."""
    hidden = f"{path}.{uuid.uuid4().hex[:12]}.incomplete"
    try:
        with open(hidden, "wb") as file:
            file.write(data)
    except BaseException:
        os.remove(hidden)
        raise
    os.replace(hidden, path)


def _path(folder, number, suffix):
    return os.path.join(folder, f"plan-{number:05d}.{suffix}")
