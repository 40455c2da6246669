"""A table of TensorFlow's time by kind of operation, from a profile."""

import collections
import glob
import time
from collections.abc import Callable

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2


def show(run: Callable[[], None], directory: str, *, most: int = 30) -> None:
    """Prints the milliseconds of each kind of operation in one call of `run`.

    Times of concurrent operations are added up. TensorBoard can read the trace
    in `directory`. The first call of `run` is not traced.
    """
    run()
    tf.profiler.experimental.start(directory)
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    tf.profiler.experimental.stop()
    paths = glob.glob(f"{directory}/**/*.xplane.pb", recursive=True)
    with open(max(paths), "rb") as file:
        space = xplane_pb2.XSpace.FromString(file.read())
    taken: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        names = {k: v.name for k, v in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name = names[event.metadata_id]
                if ":" in name and "::" not in name:
                    kind = name.rpartition(":")[2].partition("#")[0]
                    taken[kind] += event.duration_ps / 1e12
    print(f"{'by the clock':40s} {1000 * seconds:9.2f} ms")
    for kind, total in taken.most_common(most):
        print(f"{kind:40s} {1000 * total:9.2f} ms")
