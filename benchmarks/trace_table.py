"""Where the time of a step goes: seconds by kind of operation or kernel."""

import collections
import glob
import re
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
    seconds, path = record(run, directory)
    print(f"{'wall time':40s} {1000 * seconds:9.2f} ms")
    for kind, total in seconds_by_kind(path).most_common(most):
        print(f"{kind:40s} {1000 * total:9.2f} ms")


def record(run: Callable[[], object], directory: str) -> tuple[float, str]:
    """Traces one call; returns its seconds and the path of the trace."""
    tf.profiler.experimental.start(directory)
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    tf.profiler.experimental.stop()
    paths = glob.glob(f"{directory}/**/*.xplane.pb", recursive=True)
    return seconds, max(paths)


def seconds_by_kind(path: str) -> collections.Counter[str]:
    """Adds up a trace: a GPU's kernels where there is one, else operations.

    Kernels that XLA made are named by their operation without its number
    (`loop_add_fusion.12` is `loop_add_fusion`), others by their function.
    """
    with open(path, "rb") as file:
        space = xplane_pb2.XSpace.FromString(file.read())
    gpus = [p for p in space.planes if p.name.startswith("/device:GPU")]
    taken: collections.Counter[str] = collections.Counter()
    for plane in gpus:
        for name, seconds in _kernels(plane):
            taken[name] += seconds
    if taken:
        return taken
    for plane in space.planes:
        names = {k: v.name for k, v in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name = names[event.metadata_id]
                if ":" in name and "::" not in name:
                    kind = name.rpartition(":")[2].partition("#")[0]
                    taken[kind] += event.duration_ps / 1e12
    return taken


def _kernels(plane):
    """Yields (kind, seconds) of all kernels and copies of a GPU's plane."""
    stats = {k: v.name for k, v in plane.stat_metadata.items()}
    for line in plane.lines:
        # Other lines repeat the streams' events by step, module or operation.
        if not line.name.startswith("Stream"):
            continue
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            operation = ""
            for stat in (*metadata.stats, *event.stats):
                if stats.get(stat.metadata_id) == "hlo_op":
                    operation = stat.str_value or stats.get(stat.ref_value, "")
            name = _kernel_kind(metadata.name, operation)
            yield name, event.duration_ps / 1e12


def _kernel_kind(kernel: str, operation: str) -> str:
    """Names the kind of a kernel: XLA's operation, or the function."""
    function = re.sub(r"^void |<.*|\(.*", "", kernel)
    if not operation:
        return function
    kind = re.sub(r"[._]\d+(?=[._]|$)", "", operation)
    # What XLA hands to a library has the library's name.
    is_library = not function.startswith(kind)
    return f"{kind}: {function}" if is_library else kind
