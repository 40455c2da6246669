"""What a model says of every example, on any hardware, in the examples' order.

Batches come sorted by length; `example_index` says which example a row is, and
`is_real_example` is 0 where a batch is only filled up.
"""

import collections
import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from foundation import fusion
from training import feed
from training import strategy as strategies
from training.cpu import allocator, constants, onednn

_In, _Out = TypeVar("_In"), TypeVar("_Out")
_INDEX, _IS_REAL = "example_index", "is_real_example"


class Task(Protocol):
    """What prediction needs to know of a task."""

    def predict(
        self, model: Any, features: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns tensors [B, ...] for a batch."""


def _in_flight(
    function: Callable[[_In], _Out], items: Iterable[_In], count: int
) -> Iterator[_Out]:
    """Maps in order, `count` calls at a time; takes few items in advance."""
    pending: collections.deque[futures.Future[_Out]] = collections.deque()
    with futures.ThreadPoolExecutor(count) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Predictor:
    """Compiles the forward pass once and serves every set of a run."""

    def __init__(
        self,
        task: Task,
        model: Any,
        *,
        strategy: tf.distribute.Strategy,
        jit_compile: bool = False,
    ):
        """Compiles nothing yet."""
        self._task = task
        self._model = model
        self._strategy = strategy
        self._jit_compile = jit_compile
        self._compiled: dict[str, Any] = {}
        self._kernels: constants.Kernels | None = None

    def batches(
        self, make_batches: feed.MakeBatches
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields what the task predicts, and `example_index`, batch by batch.

        Only real examples are there. Use it where outputs differ in length.
        """
        batches = feed.distribute(self._strategy, make_batches)
        run = self._function(batches.element_spec)

        def answer(features):
            allocator.keep_freed_memory()
            return {k: v.numpy() for k, v in run(features).items()}

        answers: Iterable[dict[str, np.ndarray]]
        if strategies.is_multi_worker(self._strategy):
            # Taking a batch and answering one both ask the other workers, all
            # of whom must do so in the same order.
            answers = map(answer, batches)
        else:
            # What one batch leaves idle on a CPU, another uses. A GPU is handed
            # its next batch before it is done with the last one anyway.
            is_cpu = strategies.is_one_cpu(self._strategy)
            answers = _in_flight(answer, batches, 2 if is_cpu else 1)
        for values in answers:
            is_real = values.pop(_IS_REAL) == 1
            yield {name: value[is_real] for name, value in values.items()}

    def __call__(
        self, make_batches: feed.MakeBatches, num_examples: int
    ) -> dict[str, np.ndarray]:
        """Returns arrays [num_examples, ...] in the examples' order."""
        results: dict[str, np.ndarray] = {}
        for values in self.batches(make_batches):
            rows = values.pop(_INDEX)
            for name, value in values.items():
                if name not in results:
                    shape = (num_examples, *value.shape[1:])
                    results[name] = np.zeros(shape, value.dtype)
                results[name][rows] = value
        return results

    def _function(self, spec):
        """Traces once for all lengths, which a signature leaves open."""
        self._take_kernels()
        key = str(spec)
        if key not in self._compiled:
            function = tf.function(
                self._batch, input_signature=[spec], autograph=False
            )
            # As such it is not taken for one that is traced again and again,
            # where a grid of runs makes one for every model.
            self._compiled[key] = function.get_concrete_function()
        return self._compiled[key]

    def _take_kernels(self) -> None:
        """Makes the graphs hold the weights as they are now, where it pays."""
        if self._jit_compile or not strategies.is_one_cpu(self._strategy):
            return
        if self._model.compute_dtype != "bfloat16":
            return  # float32 is no faster so; nothing else was measured.
        if self._kernels is None or not self._kernels.are_current():
            self._compiled.clear()
            self._kernels = None
            # Graphs are parts of cycles: those of former weights, this model's
            # or another's, would hold their constants until some time later.
            gc.collect()
            self._kernels = constants.Kernels(self._model)

    def _batch(self, features):
        values = self._strategy.run(self._replica_batch, args=(features,))
        return {
            name: self._strategy.gather(value, axis=0)
            for name, value in values.items()
        }

    def _replica_batch(self, features):
        features = {k: v[0] for k, v in features.items()}
        marks = {name: features.pop(name) for name in (_INDEX, _IS_REAL)}
        predict = self._task.predict
        if self._jit_compile:

            def predict(model, features):
                compiled = tf.function(
                    lambda x: self._task.predict(model, x),
                    jit_compile=True,
                    autograph=False,
                )
                return compiled(features)

        with contextlib.ExitStack() as stack:
            if self._kernels is not None:
                stack.enter_context(self._kernels.in_graph())
                stack.enter_context(fusion.using(onednn.kernels()))
            return {**predict(self._model, features), **marks}
