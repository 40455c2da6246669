"""Evaluation and prediction over a finite stream of batches, on any hardware.

`Evaluator` adds sums and weights of losses and metrics over replicas and
batches, and divides once. `Predictor` returns the predictions for every example
in the examples' order. Its batches are sorted by length: `example_index` is the
index of the example in each row, and `is_real_example` is 0 in rows that fill
up the batch.
"""

import collections
import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from foundation import progress
from training import feed, step
from training import strategy as strategies
from training.cpu import onednn

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_INDEX, _IS_REAL = "example_index", "is_real_example"


class Objective(Protocol):
    """What prediction calls: the outputs of a model."""

    def predict(
        self, model: Any, features: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns tensors [B, ...] for a batch."""


class Predictor:
    """Compiles the forward pass once and predicts any number of sets."""

    def __init__(
        self,
        objective: Objective,
        model: Any,
        *,
        strategy: tf.distribute.Strategy,
        jit_compile: bool = False,
    ):
        """Compiles nothing yet."""
        self._objective = objective
        self._model = model
        self._strategy = strategy
        self._jit_compile = jit_compile
        # By whether the graph has copies of the weights, and by its inputs.
        self._compiled: dict[tuple[bool, str], Any] = {}
        # The weights as constants, where this is faster, or None.
        self._copies: Any = None
        self._weights_change = False

    def __call__(
        self, source: feed.MakeBatches | feed.FiniteBatches, num_examples: int
    ) -> dict[str, np.ndarray]:
        """Returns arrays [num_examples, ...] in the examples' order."""
        results: dict[str, np.ndarray] = {}
        for values in self.batches(source, num_examples):
            rows = values.pop(_INDEX)
            for name, value in values.items():
                if name not in results:
                    shape = (num_examples, *value.shape[1:])
                    results[name] = np.zeros(shape, value.dtype)
                results[name][rows] = value
        return results

    def batches(
        self,
        source: feed.MakeBatches | feed.FiniteBatches,
        num_examples: int | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the predictions and `example_index` of each batch.

        It contains real examples only. Use it if outputs differ in length. A
        bar shows the progress if num_examples is given, and not 1.

        One device takes the arrays of FiniteBatches without making a dataset.
        """
        batches: Iterable[Any]
        is_one_device = isinstance(
            self._strategy, tf.distribute.OneDeviceStrategy
        )
        if is_one_device and isinstance(source, feed.FiniteBatches):
            specs = source.element_spec.items()
            spec = {k: tf.TensorSpec([1, *x.shape], x.dtype) for k, x in specs}
            batches = (
                {name: tf.constant(x[None]) for name, x in batch.items()}
                for batch in source.arrays()
            )
        else:
            make_batches = (
                source.dataset
                if isinstance(source, feed.FiniteBatches)
                else source
            )
            dataset = feed.distribute(self._strategy, make_batches)
            batches, spec = dataset, dataset.element_spec
        run = self._function(spec)

        def predict(features):
            return {k: v.numpy() for k, v in run(features).items()}

        predicted: Iterable[dict[str, np.ndarray]]
        if strategies.is_multi_worker(self._strategy):
            # Reading a batch and predicting it both wait for the other
            # workers, so all workers must do so in the same order.
            predicted = map(predict, batches)
        else:
            # A second batch uses the cores that the first one leaves idle. A
            # GPU is given its next batch before the last one is done anyway.
            is_cpu = strategies.is_one_cpu(self._strategy)
            predicted = _in_flight(predict, batches, 2 if is_cpu else 1)
        is_hidden = num_examples is None or num_examples == 1
        options = {"total": num_examples, "disable": is_hidden}
        name = f"{num_examples:,} examples" if num_examples else ""
        with progress.bar(is_brief=True, desc=name, **options) as bar:
            for values in predicted:
                is_real = values.pop(_IS_REAL) == 1
                bar.update(int(is_real.sum()))
                yield {name: value[is_real] for name, value in values.items()}

    @contextlib.contextmanager
    def while_weights_change(self) -> Iterator[None]:
        """Predicts, in its body, with a graph that new weights leave valid.

        Where copies of the weights make a batch faster, each change of the
        weights costs a trace and the copies. A small set is predicted in less
        time without them.
        """
        self._weights_change = True
        try:
            yield
        finally:
            self._weights_change = False

    def _function(self, spec):
        """Traces the forward pass once; the signature has open lengths."""
        key = (self._choose_copies(), str(spec))
        if key not in self._compiled:
            function = tf.function(
                self._batch, input_signature=[spec], autograph=False
            )
            # A concrete function, so that TensorFlow does not warn of repeated
            # tracing when a grid traces one for every model.
            self._compiled[key] = function.get_concrete_function()
        return self._compiled[key]

    def _choose_copies(self) -> bool:
        """Copies the weights as they are now, where this is faster on a CPU.

        Returns:
          Whether the graph has copies of the weights.
        """
        is_cpu = strategies.is_one_cpu(self._strategy)
        self._uses_copies = False
        if self._jit_compile or self._weights_change or not is_cpu:
            return False
        if self._copies is None or not self._copies.are_current():
            former = [key for key in self._compiled if key[0]]
            for key in former:
                del self._compiled[key]
            self._copies = None
            # Graphs are parts of reference cycles: those of former weights
            # would keep their constants until a later collection.
            if former:
                gc.collect()
            self._copies = onednn.Predictions(self._model)
        self._uses_copies = self._copies.has_copies
        return self._uses_copies

    def _batch(self, features):
        values = self._strategy.run(self._replica_batch, args=(features,))
        return {
            name: self._strategy.gather(value, axis=0)
            for name, value in values.items()
        }

    def _replica_batch(self, features):
        features = {k: v[0] for k, v in features.items()}
        rows = {name: features.pop(name) for name in (_INDEX, _IS_REAL)}

        def predict(features):
            return self._objective.predict(self._model, features)

        if self._jit_compile:
            predict = tf.function(predict, jit_compile=True, autograph=False)
        with self._copies.in_graph() if self._uses_copies else nullcontext():
            return {**predict(features), **rows}


def _in_flight(
    function: Callable[[_In], _Out], items: Iterable[_In], count: int
) -> Iterator[_Out]:
    """Maps in order, with `count` concurrent calls; reads few items ahead."""
    pending: collections.deque[futures.Future[_Out]] = collections.deque()
    with futures.ThreadPoolExecutor(count) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Evaluator:
    """Compiles the forward pass once and serves every evaluation of a run.

    It also keeps the pipeline of the batches until `make_batches` changes.
    """

    def __init__(
        self,
        objective: step.Objective,
        model: Any,
        *,
        strategy: tf.distribute.Strategy,
    ):
        """Compiles nothing yet."""
        self._objective = objective
        self._model = model
        self._strategy = strategy
        self._names: list[str] = []
        self._factors: dict[str, float] = {}
        self._make_batches: feed.MakeBatches | None = None
        self._batches: Any = None
        self._run = tf.function(self._batch, autograph=False)

    def __call__(
        self,
        make_batches: feed.MakeBatches,
        *,
        max_steps: int | None = None,
        num_batches: int | None = None,
    ) -> dict[str, float]:
        """Returns the losses, their total "loss", and the metrics.

        Args:
            make_batches: all real examples once; padding has weight 0.
            max_steps: stop after so many batches.
            num_batches: number of batches to read, for the progress bar; None
              shows none.
        """
        options = {"total": num_batches, "disable": num_batches is None}
        total: Any = 0.0
        if make_batches is not self._make_batches:
            self._batches = feed.distribute(self._strategy, make_batches)
            self._make_batches = make_batches
        with progress.bar(
            is_brief=True, desc="evaluating", unit=" batch", **options
        ) as bar:
            for number, features in enumerate(self._batches):
                if number == max_steps:
                    break
                # float64: a corpus is longer than the digits of a float32 sum.
                total = total + self._run(features).numpy().astype(np.float64)
                bar.update()
        if not self._names:
            raise ValueError("nothing to evaluate")
        values = {
            name: float(total[0, i] / total[1, i]) if total[1, i] else 0.0
            for i, name in enumerate(self._names)
        }
        total = sum(factor * values[k] for k, factor in self._factors.items())
        return {"loss": total, **values}

    def _batch(self, features):
        row = self._strategy.run(self._replica_batch, args=(features,))
        return self._strategy.experimental_local_results(row)[0]

    def _replica_batch(self, features):
        features = {k: v[0] for k, v in features.items()}
        losses, metrics = self._objective.forward(self._model, features, None)
        self._names = [*losses, *metrics]
        self._factors = {k: v.factor for k, v in losses.items()}
        row = step.sums_and_weights([*losses.values(), *metrics.values()])
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, row
        )
