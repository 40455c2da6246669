"""Worker processes that run units of work; the results come in order.

The results do not depend on the number of workers. A worker ends itself when
its parent dies, even by SIGKILL. One worker, or a single unit, means this
process. Starting processes takes seconds. Until start_after_seconds have passed
and the processes are ready, units run in this process.

`BeamWorkers` runs units that leave a file with Apache Beam instead. All its
machines must share the working directory.
"""

import concurrent.futures
import contextlib
import errno
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import pickle
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_state: dict[str, Any] = {}  # Holds the context of a worker process.


def cores() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Runs functions of (context, unit) in `count` processes."""

    def __init__(
        self,
        count: int,
        context: Any,
        preload: str,
        start_after_seconds: float = 0,
    ):
        """Starts no processes yet.

        Args:
          count: number of processes; 1 means this one.
          context: the first argument of every unit, sent once to each process.
          preload: a module to import once, before processes are forked.
          start_after_seconds: seconds of work before processes are started.
        """
        self._count, self._context = count, context
        self._preload = preload
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._start_after_seconds = start_after_seconds
        self._begin: float | None = None
        self._arrivals: list[concurrent.futures.Future[int]] = []

    def _is_ready(self) -> bool:
        """Returns whether to run units in processes by now."""
        if self._count == 1:
            return False
        if self._start_after_seconds == 0:
            return True
        self._begin = self._begin or time.monotonic()
        if time.monotonic() - self._begin < self._start_after_seconds:
            return False
        if self._pool is None:
            pool = self._pool = self._start()
            self._arrivals = [
                pool.submit(os.getpid) for _ in range(self._count)
            ]
        return all(arrival.done() for arrival in self._arrivals)

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        methods = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in methods else "spawn"
        start = multiprocessing.get_context(method)
        if method == "forkserver":
            start.set_forkserver_preload([self._preload])
            with importable():
                multiprocessing.forkserver.ensure_running()
        return concurrent.futures.ProcessPoolExecutor(
            self._count, start, initializer=_begin, initargs=(self._context,)
        )

    def map(
        self, function: Callable[[Any, Any], Any], units: Iterable
    ) -> Iterator:
        """Yields function(context, unit) for each unit, in order.

        Tasks are taken only as workers become free, so an endless iterable
        needs no memory.
        """
        units = iter(units)
        for unit in units:
            # Starting processes takes longer than the last unit.
            more = list(itertools.islice(units, 1)) if self._is_ready() else []
            if more:
                rest = itertools.chain([unit], more, units)
                yield from self._map_in_processes(function, rest)
                return
            yield function(self._context, unit)

    def map_on_disk(
        self, function: Callable[[Any, Any], Any], units: Iterable
    ) -> Iterator:
        """Same as `map`, for units that leave a file and are idempotent."""
        return self.map(function, units)

    def _map_in_processes(self, function, units):
        pool = self._pool = self._pool or self._start()
        try:
            waiting = [
                pool.submit(_call, function, unit)
                for unit in itertools.islice(units, 2 * self._count)
            ]
            while waiting:
                result = waiting.pop(0).result()
                for unit in itertools.islice(units, 1):
                    waiting.append(pool.submit(_call, function, unit))
                yield result
        except concurrent.futures.process.BrokenProcessPool:
            raise OSError(
                errno.ENOMEM,
                "a worker process was killed (out of memory?): the same "
                "command continues the run; --num_workers=1 needs least memory",
            ) from None

    def __enter__(self) -> "Workers":
        """Returns itself."""
        return self

    def __exit__(self, *exception) -> None:
        """Ends the processes and drops units that have not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Context in which new processes have this one's import path.

    Python does not pass it to the forkserver, and ignores the failing import.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _begin(context):
    _state["context"] = context
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent():
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _call(function, unit):
    return function(_state["context"], unit)


class BeamWorkers(Workers):
    """Runs functions of (context, unit) with a Beam runner.

    Beam returns no results in order, so `map_on_disk` runs units that leave
    their result in a file, and then reads it by calling the same functions
    again. `map` (tokenizing, a tenth of the work) uses local workers.
    """

    def __init__(self, *local, runner: str, options: str = ""):
        """Checks Beam's options; the positional arguments are Workers'."""
        super().__init__(*local)
        from apache_beam.options import pipeline_options

        flags = [f"--runner={runner}", *shlex.split(options)]
        self._options = pipeline_options.PipelineOptions(flags)

    def map_on_disk(
        self, function: Callable[[Any, Any], Any], units: Iterable
    ) -> Iterator:
        """Runs the units as a pipeline, then reads their results."""
        import apache_beam as beam

        units = list(units)
        if units:
            context = pickle.dumps(self._context)
            with importable(), beam.Pipeline(options=self._options) as pipeline:
                _ = (
                    pipeline
                    | beam.Create([pickle.dumps(unit) for unit in units])
                    | beam.Reshuffle()
                    | beam.Map(_run_unit, pickle.dumps(function), context)
                )
        for unit in units:
            yield function(self._context, unit)


def _run_unit(unit: bytes, function: bytes, context: bytes) -> None:
    _load(function)(_load(context), pickle.loads(unit))


@functools.lru_cache(maxsize=4)
def _load(data: bytes) -> Any:
    """Unpickles a function or a context, once in each process."""
    return pickle.loads(data)
