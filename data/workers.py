"""Worker processes that give results in the order of their tasks.

The results never depend on how many workers there are. A worker whose parent
dies, even by SIGKILL, ends itself; one worker means this very process, and so
does a single task. Starting workers takes seconds: a patient pool does the
work of the first seconds, and that of the start itself, in this process.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import logging
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

from foundation import errors

_state: dict[str, Any] = {}  # A worker process keeps its context here.


def cores() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Runs functions of (context, task) in `count` processes."""

    def __init__(
        self, count: int, context: Any, preload: str, patience: float = 0
    ):
        """Starts nothing yet.

        Args:
          count: number of processes; 1 is this one.
          context: what every task needs, sent once to each process.
          preload: a module to import once, before processes are forked off.
          patience: after how many seconds of work to start processes.
        """
        self._count, self._context = count, context
        self._preload, self._pool = preload, None
        self._patience, self._begin, self._arrivals = patience, None, []

    def _is_ready(self) -> bool:
        """Whether to hand tasks to processes by now."""
        if self._count == 1:
            return False
        if self._patience == 0:
            return True
        self._begin = self._begin or time.monotonic()
        if time.monotonic() - self._begin < self._patience:
            return False
        if self._pool is None:
            self._pool = self._start()
            self._arrivals = [
                self._pool.submit(os.getpid) for _ in range(self._count)
            ]
        return all(arrival.done() for arrival in self._arrivals)

    def _start(self):
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
        self, function: Callable[[Any, Any], Any], tasks: Iterable
    ) -> Iterator:
        """Yields function(context, task) for each task, in order.

        Tasks are drawn only as workers become free, so that an endless
        iterable costs no memory.
        """
        tasks = iter(tasks)
        for task in tasks:
            # The last task of all is not worth a process.
            more = list(itertools.islice(tasks, 1)) if self._is_ready() else []
            if more:
                rest = itertools.chain([task], more, tasks)
                yield from self._map_in_processes(function, rest)
                return
            yield function(self._context, task)

    def map_on_disk(
        self, function: Callable[[Any, Any], Any], tasks: Iterable
    ) -> Iterator:
        """Does as `map`, for tasks that return at once if done before."""
        return self.map(function, tasks)

    def _map_in_processes(self, function, tasks):
        if self._pool is None:
            self._pool = self._start()
        waiting = [
            self._pool.submit(_call, function, task)
            for task in itertools.islice(tasks, 2 * self._count)
        ]
        try:
            while waiting:
                result = waiting.pop(0).result()
                for task in itertools.islice(tasks, 1):
                    waiting.append(self._pool.submit(_call, function, task))
                yield result
        except concurrent.futures.process.BrokenProcessPool:
            raise OSError(
                "a worker process was killed (out of memory?): the same "
                "command goes on from what stands; --num_workers=1 needs least"
            ) from None

    def __enter__(self) -> "Workers":
        """Returns itself."""
        return self

    def __exit__(self, *exception) -> None:
        """Ends the processes; tasks that were not begun are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Lets processes that are started meanwhile import what this one can.

    Python does not hand forkserver its path, and swallows the failing import.
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

    def end_with_parent():
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _call(function, task):
    return function(_state["context"], task)


# ----------------------------------------------------------------------
# Apache Beam in the place of local workers: the same tasks, the same shards.
#
#     tasks that leave a file (pairing, writing)    a Beam pipeline
#     tasks that give a result (tokenizing)         local workers
#
# Beam gives no results back in order, so it runs what leaves its result under a
# final name; this process then asks for the same tasks again, which return at
# once. Tokenizing, a tenth of the work, is appended in order and stays here.
# All machines must see the job's working directory.


class BeamWorkers(Workers):
    """Runs functions of (context, task) where a Beam runner says."""

    def __init__(self, *local, runner: str, options: str = ""):
        """Checks Beam's options, starts nothing yet.

        Args:
          *local: as for Workers.
          runner: Beam's --runner.
          options: all other options of Beam, as on a command line.
        """
        super().__init__(*local)
        try:
            from apache_beam.options import pipeline_options
        except ImportError:
            raise errors.InputError(
                "--beam_runner: Apache Beam is missing: pip install .[beam]"
            ) from None
        flags = [f"--runner={runner}", *shlex.split(options)]
        self._options = pipeline_options.PipelineOptions(flags)
        unknown = self._options.get_all_options(
            drop_default=True, retain_unknown_options=False
        )
        given = {flag.lstrip("-").split("=")[0] for flag in flags}
        for name in sorted(given - set(unknown)):
            logging.info("Beam may not know its option --%s.", name)

    def map_on_disk(
        self, function: Callable[[Any, Any], Any], tasks: Iterable
    ) -> Iterator:
        """Runs the tasks as a pipeline, then collects what they left."""
        import apache_beam as beam

        tasks = list(tasks)
        if tasks:
            context = pickle.dumps(self._context)
            with (
                importable(),
                beam.Pipeline(options=self._options) as pipeline,
            ):
                _ = (
                    pipeline
                    | beam.Create([pickle.dumps(task) for task in tasks])
                    | beam.Reshuffle()
                    | beam.Map(_call_workers, pickle.dumps(function), context)
                )
        for task in tasks:
            yield function(self._context, task)


def _call_workers(task: bytes, function: bytes, context: bytes) -> None:
    _load(function)(_load(context), pickle.loads(task))


@functools.lru_cache(maxsize=4)
def _load(data: bytes) -> Any:
    """Builds a function or a job, once in each process."""
    return pickle.loads(data)
