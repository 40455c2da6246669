"""A served model: batches of the rows of concurrent requests.

    rows of one request
        -> parts of rows of similar length (`split`)
        -> a batch with the parts of other requests
        -> one result for each row, in the request's order

A part that finds the model idle is computed at once; while a batch is computed,
the next parts wait and make the next batch. Each class of lengths has batches
of its own, because a model pads a batch to its longest row.

Everything here runs in the event loop, except the model itself, which a thread
computes.
"""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from foundation import config_flags, errors
from serving import served_directories, served_model

field = config_flags.field
# Upper bounds of the length classes in bytes of UTF-8. A token of English text
# has about 5 bytes with its space, of Chinese 3.
_LENGTH_CLASSES = (48, 96, 192, 384, 768, 1536)
_BYTES_PER_TOKEN = 5
_PARTS_AT_ONCE = 4  # Of one request.
_THREADS = 16  # Each computes one batch.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batching:
    """How the rows of concurrent requests are batched."""

    max_batch_size: int = field(
        "Texts that are computed together, at most.", 32, at_least=1
    )
    threads_per_batch: int | None = field(
        "Threads that compute a batch; 0 for all cores. Few threads take less "
        "processor time, and up to 4 batches are computed at the same time; a "
        "long text by itself takes longer. Without the flag: a quarter of the "
        "cores, at least one.",
        None,
        at_least=0,
    )

    @property
    def threads(self) -> int:
        """The threads that compute a batch; 0 is all cores."""
        if self.threads_per_batch is None:
            return max(1, (os.cpu_count() or 1) // 4)
        return self.threads_per_batch

    @property
    def num_concurrent(self) -> int:
        """The batches of one length class that are computed at the same time.

        While they are, the next one grows. More than one makes batches smaller,
        which gains only if each is computed by few threads.
        """
        cores = os.cpu_count() or 1
        return max(1, min(4, cores // (self.threads or cores)))


class Part(NamedTuple):
    """Some rows of a request.

    Attributes:
      rows: int [n], their numbers in the request.
      inputs: name -> array [n, ...].
      length_class: the class of the length of the longest of them, from 0.
    """

    rows: np.ndarray
    inputs: dict[str, np.ndarray]
    length_class: int


# Output's name -> a JSON value or an array, for each row.
Rows = Sequence[Mapping[str, Any]]


Status = dict[str, Any]  # Of a version, in the form of TensorFlow Serving.


def status(version: int, state: str, message: str = "") -> Status:
    """Returns the status of a version in the form of TensorFlow Serving.

    Args:
      version: the number of the version.
      state: LOADING, AVAILABLE, UNLOADING or END.
      message: why it could not be loaded; "" if it could.
    """
    code = "UNKNOWN" if message else "OK"
    return {
        "version": str(version),
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }


class Servable:
    """A loaded model, called by any number of requests of one event loop.

    Attributes:
      name: the model's name in the addresses of the server.
      version: the number of the version's directory; 1 without one.
      model: the model, which an engine has loaded.
      batching: how rows are batched.
      task, signatures: see served_model.Model.
      statuses: the status of each version of the model, of the version that is
        served now and of others.
      num_batches: the number of batches that were computed.
      num_users: the number of requests that use the model.
    """

    def __init__(
        self,
        name: str,
        model: served_model.Model,
        batching: Batching = Batching(),
        version: int = 1,
    ):
        """Wraps a model; the arguments are attributes, or how it is batched."""
        self.name, self.model, self.version = name, model, version
        self.task, self.signatures = model.task, model.signatures
        self.statuses = {version: status(version, "AVAILABLE")}
        self.batching = batching
        self.num_batches = self.num_users = 0
        # Longer texts are cut, or split into windows of this length.
        longest = model.max_seq_length or _LENGTH_CLASSES[-1]
        self._bounds = [
            bound
            for bound in _LENGTH_CLASSES
            if bound < longest * _BYTES_PER_TOKEN
        ]
        # What can be in one batch -> the parts that wait for their results, and
        # the number of batches that are computed.
        self._waiting: dict[Any, list[tuple[Part, asyncio.Future]]] = {}
        self._num_running: dict[Any, int] = collections.defaultdict(int)
        self._pool = futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix="compute"
        )

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keeps the model loaded in a context."""
        self.num_users += 1
        try:
            yield
        finally:
            self.num_users -= 1

    @property
    def versions(self) -> list[Status]:
        """The status of each version, the newest first."""
        return [self.statuses[x] for x in sorted(self.statuses, reverse=True)]

    def warm_up(self) -> None:
        """Predicts a row of one word, which takes longer the first time.

        A SavedModel of another program may refuse the row, with a warning.

        Raises:
          InputError: a model of this project cannot predict it.
        """
        signature_name = served_model.DEFAULT_SIGNATURE
        inputs = {
            name: np.full(
                [1, *(n or 2 for n in spec.shape)],
                b"[MASK]" if spec.dtype == object else 1,
                spec.dtype,
            )
            for name, spec in self.signatures[signature_name].inputs.items()
        }
        try:
            self.model.predict(signature_name, inputs)
        except errors.InputError as error:
            if self.model.task:
                raise
            logging.warning("%s: not prepared: %s", self.name, error)

    def split(self, inputs: Mapping[str, np.ndarray]) -> list[Part]:
        """Cuts the rows of a request into parts of similar length.

        Args:
          inputs: name -> array [N, ...], N > 0.
        """
        lengths = sum(served_model.row_lengths(x) for x in inputs.values())
        classes = np.searchsorted(self._bounds, lengths)
        order, parts = np.argsort(lengths, kind="stable"), []
        # np.split of the sorted rows where the class changes.
        changes = np.flatnonzero(np.diff(classes[order])) + 1
        for rows in np.split(order, changes):
            # A part for each batch that is computed at the same time.
            size = -(-len(rows) // self.batching.num_concurrent)
            size = min(self.batching.max_batch_size, size)
            for first in range(0, len(rows), size):
                chosen = rows[first : first + size]
                values = {name: x[chosen] for name, x in inputs.items()}
                parts.append(Part(chosen, values, int(classes[chosen[0]])))
        return parts

    async def predict(self, signature_name: str, parts: Sequence[Part]) -> Rows:
        """Computes the parts of a request, together with those of others.

        Args:
          signature_name: one of `signatures`.
          parts: what `split` has returned.

        Returns:
          The rows in the order of the request.

        Raises:
          InputError: the model refuses a row.
        """
        rows: list[Mapping[str, Any]] = []
        # Few at a time, so that others get batches between those of a long
        # request.
        for first in range(0, len(parts), _PARTS_AT_ONCE):
            chosen = parts[first : first + _PARTS_AT_ONCE]
            results = await asyncio.gather(
                *(self._enqueue(signature_name, part) for part in chosen)
            )
            rows += itertools.chain.from_iterable(results)
        numbers = np.concatenate([part.rows for part in parts])
        return [rows[i] for i in np.argsort(numbers)]

    def _enqueue(self, signature_name: str, part: Part) -> asyncio.Future:
        """Returns the future result of a part."""
        result = asyncio.get_running_loop().create_future()
        shapes = tuple(x.shape[1:] for x in part.inputs.values())
        key = signature_name, part.length_class, shapes
        self._waiting.setdefault(key, []).append((part, result))
        self._start(key)
        return result

    def _start(self, key: Any) -> None:
        """Starts the batches that can be computed now."""
        loop, largest = (
            asyncio.get_running_loop(),
            self.batching.max_batch_size,
        )
        while self._num_running[key] < self.batching.num_concurrent:
            # Without those whose request was given up.
            waiting = [x for x in self._waiting[key] if not x[1].done()]
            counts = itertools.accumulate(len(part.rows) for part, _ in waiting)
            size = max(1, sum(count <= largest for count in counts))
            batch, self._waiting[key] = waiting[:size], waiting[size:]
            if not batch:
                break
            self._num_running[key] += 1
            self.num_batches += 1
            parts = [part for part, _ in batch]
            loop.run_in_executor(
                self._pool, _outcomes, self.model, key[0], parts
            ).add_done_callback(functools.partial(self._finish, key, batch))
        if not self._num_running[key]:
            del self._waiting[key], self._num_running[key]

    def _finish(
        self,
        key: Any,
        batch: Sequence[tuple[Part, asyncio.Future]],
        done: asyncio.Future,
    ) -> None:
        """Starts the next batch, and gives the parts of this one results."""
        self._num_running[key] -= 1
        self._start(key)
        for (_, result), outcome in zip(batch, done.result(), strict=True):
            if result.done():
                continue  # The request was given up.
            if isinstance(outcome, Exception):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)


def _outcomes(
    model: served_model.Model, signature_name: str, parts: Sequence[Part]
) -> list[Rows | Exception]:
    """Computes parts in one batch; returns rows or an error for each.

    If a batch fails, each part is computed by itself: a row of another request
    may be the cause.
    """
    try:
        joined = {
            name: np.concatenate([part.inputs[name] for part in parts])
            for name in parts[0].inputs
        }
        rows = model.predict(signature_name, joined)
    except Exception as error:
        if len(parts) > 1:
            return [_outcomes(model, signature_name, [x])[0] for x in parts]
        return [error]
    ends = [0, *itertools.accumulate(len(part.rows) for part in parts)]
    return [rows[first:end] for first, end in itertools.pairwise(ends)]


def load(
    name: str,
    directory: str,
    engine: served_model.Engine,
    batching: Batching = Batching(),
) -> Servable:
    """Loads a model, the highest of its versions as TensorFlow Serving does.

    Args:
      name: the model's name in the addresses of the server.
      directory: the model's directory, or one with numbered directories.
      engine: what computes the model.
      batching: how rows are batched.

    Raises:
      InputError: there is no model, or it cannot be loaded.
    """
    version, path = served_directories.find_version(directory, engine.file)
    model = engine.load(path)
    logging.info("%s: version %d is loaded", name, version)
    return Servable(name, model, batching, version)
