"""Apache Beam in the place of local workers: the same tasks, the same shards.

    tasks that leave a file (pairing, writing)    a Beam pipeline
    tasks that give a result (tokenizing)         local workers

Beam gives no results back in order, so it runs what leaves its result under a
final name; this process then asks for the same tasks again, which return at
once. Tokenizing, a tenth of the work, is appended in order and stays here.
All machines must see the job's working directory.
"""

import functools
import logging
import pickle
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import errors
from data import workers


class BeamWorkers(workers.Workers):
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

    def map_standing(
        self, function: Callable[[Any, Any], Any], tasks: Iterable
    ) -> Iterator:
        """Runs the tasks as a pipeline, then collects what they left."""
        import apache_beam as beam

        tasks = list(tasks)
        if tasks:
            context = pickle.dumps(self._context)
            with (
                workers.importable(),
                beam.Pipeline(options=self._options) as pipeline,
            ):
                _ = (
                    pipeline
                    | beam.Create([pickle.dumps(task) for task in tasks])
                    | beam.Reshuffle()
                    | beam.Map(_call, pickle.dumps(function), context)
                )
        for task in tasks:
            yield function(self._context, task)


def _call(task: bytes, function: bytes, context: bytes) -> None:
    _load(function)(_load(context), pickle.loads(task))


@functools.lru_cache(maxsize=4)
def _load(data: bytes) -> Any:
    """Builds a function or a job, once in each process."""
    return pickle.loads(data)
