"""One optimizer step on every replica, and a compiled loop of several.

The mathematics does not depend on how the global batch is cut into replicas and
micro-batches: every loss is a sum, divided by the weight of the global batch;
gradients are summed over micro-batches and replicas, then clipped, then
applied. Every draw of dropout is keyed by (seed, step, replica, micro-batch).
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.framework import ops

from foundation import replacement
from training import optimizers, precision, xla_dropout

Features = Mapping[str, tf.Tensor]
_SUM = tf.distribute.ReduceOp.SUM


class Weighted(Protocol):
    """A loss or a metric: its value is sum / (weight + epsilon).

    The total loss is the sum of factor times value over all losses.
    """

    sum: tf.Tensor
    weight: tf.Tensor
    epsilon: float
    factor: float


class Objective(Protocol):
    """What the loop calls to train a model: its losses and metrics."""

    def loss_weights(self, features: Features) -> Mapping[str, tf.Tensor]:
        """Returns each loss's weight, from the batch alone, float32 []."""

    def forward(
        self,
        model: Any,
        features: Features,
        dropout_seed: tf.Tensor | None = None,
    ) -> tuple[Mapping[str, Weighted], Mapping[str, Weighted]]:
        """Returns (losses, metrics); the losses are named as their weights.

        dropout_seed is int32 [2], or None for inference.
        """


class StepResults(NamedTuple):
    """The results of n consecutive steps, over the global batch.

    Attributes:
        names: M names: "loss" first, then losses, then metrics.
        sums: float32 [n, M].
        weights: float32 [n, M], epsilon included.
        gradient_norms: float32 [n], before clipping.
        is_applied: bool [n]; False where the loss scale skipped the step.
        shapes: int32 [n, D]: the sizes of all features of a replica's batch.
            XLA compiles a step for each shape.
    """

    names: list[str]
    sums: np.ndarray
    weights: np.ndarray
    gradient_norms: np.ndarray
    is_applied: np.ndarray
    shapes: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Learner:
    """A model and all that a training step needs; made in strategy.scope().

    Attributes:
        objective: computes the losses and the metrics.
        model: the model that the objective calls.
        optimizer: updates the model's trainable variables.
        loss_scale: keeps float16 gradients in range; None for other types.
    """

    objective: Objective
    model: Any
    optimizer: optimizers.Optimizer
    loss_scale: precision.LossScale | None = None


@contextlib.contextmanager
def forget_custom_gradients() -> Iterator[None]:
    """Removes custom gradients that its body registered.

    TensorFlow registers the custom gradients of each graph for the life of the
    process, and with them the graph and its weights: a grid of runs would keep
    the weights and slots of every run in memory. Gradients of a graph can only
    be computed inside.
    """
    # Not a part of TensorFlow's interface. Without it memory is not freed.
    registry = getattr(ops, "gradient_registry", None)
    names = getattr(registry, "_registry", {})
    before = set(names)
    try:
        yield
    finally:
        for name in set(names) - before:
            if name.startswith("CustomGradient-"):
                del names[name]


class TrainStep:
    """Runs steps on batches of [accumulation steps, micro-batch, ...]."""

    def __init__(
        self,
        learner: Learner,
        *,
        strategy: tf.distribute.Strategy,
        seed: int,
        jit_compile: bool = False,
        compile_functions: bool = False,
    ):
        """Compiles nothing yet; loop.Options describes the arguments."""
        self._objective = learner.objective
        self._model = learner.model
        self._optimizer = learner.optimizer
        self._loss_scale = learner.loss_scale
        self._strategy = strategy
        self._seed = seed
        # Known once a step has been traced: names, and of each loss its epsilon
        # and its factor.
        self._names: list[str] = []
        self._loss_constants: dict[str, tuple[float, float]] = {}
        self.global_batch_size = 0
        self._run = tf.function(self._steps, autograph=False)
        # XLA compiles the forward and the backward pass. On several devices the
        # reduce and the update stay outside: merge_call cannot be traced inside
        # a nested function. One function a replica, because each captures its
        # own copy of the weights.
        self._jit_compile = jit_compile
        self._compiled: dict[int, Callable] = {}
        # On one device XLA compiles the complete step. Operations outside of it
        # would make the host wait for the device in every step: TensorFlow
        # reshapes int32 on the host.
        self._compiled_step = None
        if jit_compile and isinstance(
            strategy, tf.distribute.OneDeviceStrategy
        ):
            self._compiled_step = tf.function(
                lambda features, step: self._step(
                    features, step, self._accumulate
                ),
                jit_compile=True,
                autograph=False,
            )
        # Replaces functions of the model; see foundation.replacement.
        self._replace: Callable | None = None
        if jit_compile:
            self._replace = xla_dropout.choose
        elif compile_functions:
            from training.cpu import compiled_functions

            self._replace = compiled_functions.Compiler()

    def __call__(
        self, batches: Iterator[Features], first_step: int, num_steps: int
    ) -> StepResults:
        """Takes num_steps batches and updates the model num_steps times."""
        results = self._run(
            batches,
            tf.constant(first_step, tf.int64),
            tf.constant(num_steps, tf.int32),
        )
        rows, *others = (x.numpy() for x in results)
        return StepResults(self._names, rows[:, 0], rows[:, 1], *others)

    def _steps(self, batches, first_step, num_steps):
        types = tf.float32, tf.float32, tf.bool, tf.int32
        arrays = [tf.TensorArray(dtype, num_steps) for dtype in types]

        def body(i, arrays):
            step = first_step + tf.cast(i, tf.int64)
            features = next(batches)
            results = self._strategy.run(
                self.replica_step, args=(features, step)
            )
            # Sums over all replicas: the same value on each.
            local = self._strategy.experimental_local_results
            values = [local(value)[0] for value in results]
            shapes = [tf.shape(local(x)[0]) for x in features.values()]
            values.append(tf.concat(shapes, axis=0))
            return i + 1, [
                array.write(i, value)
                for array, value in zip(arrays, values, strict=True)
            ]

        _, arrays = tf.while_loop(
            lambda i, _: i < num_steps, body, (tf.constant(0), arrays)
        )
        return [array.stack() for array in arrays]

    def replica_step(self, features: Features, step: tf.Tensor):
        """One step in replica context; features [A, micro-batch, ...].

        Returns:
            float32 [2, M] sums and weights, the gradient norm, and whether the
            update was applied.
        """
        if self._compiled_step is not None:
            return self._compiled_step(features, step)
        context = tf.distribute.get_replica_context()
        if not self._jit_compile:
            return self._step(features, step, self._accumulate)
        # Not its device, which a worker other than the first cannot tell.
        key = int(tf.get_static_value(context.replica_id_in_sync_group))
        if key not in self._compiled:
            self._compiled[key] = tf.function(
                self._accumulate, jit_compile=True, autograph=False
            )
        return self._step(features, step, self._compiled[key])

    def _step(self, features, step, compute):
        context = tf.distribute.get_replica_context()
        merged = {k: _merge_leading(v) for k, v in features.items()}
        rows = next(iter(merged.values())).shape[0]
        self.global_batch_size = rows * context.num_replicas_in_sync
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        weights = _all_reduce(
            context, dict(self._objective.loss_weights(merged))
        )
        scale = self._loss_scale.value() if self._loss_scale else tf.ones([])
        gradients, row = compute(features, weights, scale, step, replica)
        row = self._with_total(_all_reduce(context, row), weights)
        if self._loss_scale is None:
            gradients, norm = self._optimizer.reduce(gradients)
            self._optimizer.apply(gradients, step)
            return row, norm, tf.constant(True)
        gradients = [g / scale for g in gradients]
        gradients, norm = self._optimizer.reduce(gradients)
        # The norm of the sum: not finite if any gradient on any replica is.
        is_finite = tf.math.is_finite(norm)
        self._optimizer.apply(gradients, step, is_finite)
        self._loss_scale.update(is_finite)
        return row, norm, is_finite

    def _accumulate(self, features, weights, scale, step, replica):
        """Sums gradients and metrics of this replica over its micro-batches."""
        (number,) = {v.shape[0] for v in features.values()}

        def micro(i):
            part = {k: v[i] for k, v in features.items()}
            seed = dropout_seed(self._seed, step, replica, i)
            return self._gradients(part, weights, scale, seed)

        if number == 1:
            return micro(0)

        def body(i, gradients, rows):
            more, row = micro(i)
            # The dependency keeps TensorFlow from joining these sums with those
            # in the gradients: it would keep them in temporary variables, which
            # fail in a loop within a loop (tables of tens of megabytes only).
            with tf.control_dependencies([row]):
                total = [g + m for g, m in zip(gradients, more, strict=True)]
            return i + 1, total, rows.write(i, row)

        zeros = [tf.zeros(v.shape) for v in self._optimizer.variables]
        rows = tf.TensorArray(tf.float32, number)
        _, gradients, rows = tf.while_loop(
            lambda i, *_: i < number,
            body,
            (tf.constant(0), zeros, rows),
            parallel_iterations=1,
            maximum_iterations=number,
        )
        return gradients, tf.reduce_sum(rows.stack(), axis=0)

    def _gradients(self, features, weights, scale, seed):
        variables = self._optimizer.variables
        with forget_custom_gradients(), replacement.using(self._replace):
            with tf.GradientTape() as tape:
                losses, metrics = self._objective.forward(
                    self._model, features, seed
                )
                if set(losses) != set(weights):
                    raise ValueError(f"losses {set(losses)} != {set(weights)}")
                terms = [
                    loss.factor
                    * _divide(loss.sum, weights[name] + loss.epsilon)
                    for name, loss in losses.items()
                ]
                scaled = tf.add_n(terms) * scale
            gradients = tape.gradient(scaled, [v.value for v in variables])
        self._names = ["loss", *losses, *metrics]
        self._loss_constants = {
            k: (float(v.epsilon), float(v.factor)) for k, v in losses.items()
        }
        row = sums_and_weights([*losses.values(), *metrics.values()])
        return _dense(gradients, variables), row

    def _with_total(self, row, weights):
        """Puts the total loss of the global batch in front."""
        names = self._names[1:]
        values = [
            factor * _divide(row[0, names.index(k)], weights[k] + epsilon)
            for k, (epsilon, factor) in self._loss_constants.items()
        ]
        total = tf.stack([tf.add_n(values), 1.0])
        epsilons = [self._loss_constants.get(k, (0.0,))[0] for k in names]
        padded = row + tf.constant([[0.0] * len(names), epsilons])
        return tf.concat([total[:, None], padded], axis=1)


def sums_and_weights(values: Sequence[Weighted]) -> tf.Tensor:
    """Returns float32 [2, M]: the sums of M values, and their weights."""
    pairs = [(v.sum, v.weight) for v in values]
    columns = [[tf.cast(x, tf.float32) for x in pair] for pair in pairs]
    return tf.stack([tf.stack(pair) for pair in columns], axis=1)


def dropout_seed(
    seed: int, step: tf.Tensor, replica: tf.Tensor, micro_batch: tf.Tensor
) -> tf.Tensor:
    """Hashes its arguments to int32 [2], the same on every kind of device."""
    state = tf.constant([0x9E3779B9, 0x7F4A7C15], tf.uint32)
    low = tf.bitwise.bitwise_and(tf.cast(step, tf.int64), 0xFFFFFFFF)
    words = [
        tf.constant(seed & 0xFFFFFFFF, tf.uint32),
        tf.constant((seed >> 32) & 0xFFFFFFFF, tf.uint32),
        tf.cast(low, tf.uint32),
        tf.cast(replica, tf.uint32),
        tf.cast(micro_batch, tf.uint32),
    ]
    for word in words:
        state = _mix(tf.bitwise.bitwise_xor(state, word))
    return tf.bitcast(state, tf.int32)


def _mix(x: tf.Tensor) -> tf.Tensor:
    """A bijection of uint32 whose every output bit depends on every input bit.

    The constants are Chris Wellons' lowbias32.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, shift))
        x = x * tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, 16))


def _dense(gradients, variables) -> list[tf.Tensor]:
    """Makes every gradient dense and float32.

    Adam's moments decay in every row, whether this batch looked it up or not.
    """
    dense = []
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None:
            logging.warning("no gradient reaches %s", variable.path)
            gradient = tf.zeros(variable.shape)
        dense.append(tf.cast(tf.convert_to_tensor(gradient), tf.float32))
    return dense


def _merge_leading(x: tf.Tensor) -> tf.Tensor:
    """Makes [A, B, ...] into [A * B, ...], also where a length varies."""
    rest = [-1 if size is None else size for size in x.shape[2:]]
    return tf.reshape(x, [x.shape[0] * x.shape[1], *rest])


def _divide(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Divides; a batch in which nothing counts has loss 0, not NaN."""
    return tf.math.divide_no_nan(tf.cast(total, tf.float32), weight)


def _all_reduce(context, tree):
    if context.num_replicas_in_sync == 1:
        return tree
    return context.all_reduce(_SUM, tree)
