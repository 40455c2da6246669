"""The one training loop: log, evaluate, checkpoint, resume.

A run is a pure function of its arguments: stopped at any step, by any signal,
and started again, it goes on from its last checkpoint and ends with the same
weights. What happens inside a step is in step.py.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

import errors
from training import (
    checkpoints,
    feed,
    metric_writer,
    optimizers,
    precision,
    preemption,
)
from training import step as steps
from training import strategy as strategies

# A call of the compiled loop takes no longer, so that a signal is seen soon.
_SECONDS_PER_CALL = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How long, how often, from which seed.

    Attributes:
        num_train_steps: the step at which the run is finished.
        seed: keys dropout.
        num_accumulation_steps: micro-batches per step and replica.
        iterations_per_loop: at most so many steps per compiled call.
        log_every: steps between lines of metrics.
        save_checkpoints_steps: steps between checkpoints.
        keep_checkpoint_max: how many of the last to keep; 0 keeps all.
        eval_every: steps between evaluations; 0 is never.
        best_metric: which of evaluate's values picks `best/`.
        higher_is_better: in which direction.
        jit_compile: whether XLA compiles forward and backward.
    """

    num_train_steps: int
    seed: int
    num_accumulation_steps: int = 1
    iterations_per_loop: int = 1000
    log_every: int = 100
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    eval_every: int = 0
    best_metric: str = "loss"
    higher_is_better: bool = False
    jit_compile: bool = False


def train(
    task: steps.Task,
    model: Any,
    optimizer: optimizers.Optimizer,
    *,
    strategy: tf.distribute.Strategy,
    make_batches: feed.MakeBatches,
    output_dir: str,
    options: Options,
    loss_scale: precision.LossScale | None = None,
    warm_start: Callable[[], None] | None = None,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    describe_batch: Callable[[int], str] | None = None,
    diagnose: Callable[[], None] | None = None,
) -> int:
    """Trains until options.num_train_steps, from wherever the run stands.

    Args:
        task: losses and metrics of a batch.
        model: a Keras model, made under strategy.scope().
        optimizer: made under strategy.scope().
        strategy: see strategy.create.
        make_batches: endless batches from any position on.
        output_dir: checkpoints, best/, metrics.jsonl, TensorBoard events.
        options: how long, how often.
        loss_scale: for float16, made under strategy.scope().
        warm_start: assigns initial weights; called only by a fresh run.
        evaluate: returns held-out values, e.g. {"loss": 2.0}.
        describe_batch: says which records are in the batch of a step.
        diagnose: called when records cannot be read; raises InputError naming
            the damaged one (the failing operation knows no file).

    Returns:
        The step that it started from.

    Raises:
        InputError: output_dir holds another model, or the loss is not finite.
        SystemExit: preemption.EXIT_CODE after SIGTERM, when all is saved.
    """
    variables = saved_variables(model, optimizer, loss_scale)
    saver = checkpoints.Checkpoints(
        output_dir,
        keep_max=options.keep_checkpoint_max,
        is_chief=strategies.is_chief(strategy),
    )
    # 1 own checkpoint in output_dir
    # 2 init_checkpoint
    # 3 scratch
    # The order is important.
    first_step, state = 0, {}
    if (latest := saver.latest()) is not None:
        first_step, state = saver.restore(latest, variables)
        logging.info("resuming from %s", latest)
    elif warm_start is not None:
        warm_start()
    if first_step >= options.num_train_steps:
        logging.info(
            "already finished: %s is at step %d of --num_train_steps=%d",
            output_dir,
            first_step,
            options.num_train_steps,
        )
        return first_step
    run = _Run(
        strategy=strategy,
        options=options,
        optimizer=optimizer,
        loss_scale=loss_scale,
        variables=variables,
        saver=saver,
        best=checkpoints.BestCheckpoint(
            output_dir,
            metric=options.best_metric,
            higher_is_better=options.higher_is_better,
            is_chief=strategies.is_chief(strategy),
        ),
        writer=metric_writer.MetricWriter(
            output_dir,
            first_step=first_step,
            num_steps=options.num_train_steps,
            is_chief=strategies.is_chief(strategy),
        ),
        evaluate=evaluate,
        describe_batch=describe_batch,
        diagnose=diagnose,
        step=first_step,
        interval=state.get("interval", {}),
        best_value=state.get("best"),
    )
    batches = feed.distribute(
        strategy,
        make_batches,
        first_batch=first_step,
        num_accumulation_steps=options.num_accumulation_steps,
        is_endless=True,
    )
    run.go(
        steps.TrainStep(
            task,
            model,
            optimizer,
            strategy=strategy,
            seed=options.seed,
            loss_scale=loss_scale,
            jit_compile=options.jit_compile,
        ),
        batches,
    )
    return first_step


def saved_variables(
    model: Any,
    optimizer: optimizers.Optimizer | None = None,
    loss_scale: precision.LossScale | None = None,
) -> dict[str, tf.Variable]:
    """Maps the names in a checkpoint to what is saved under them."""
    variables = {v.path: v.value for v in model.variables}
    if len(variables) != len(model.variables):
        raise ValueError("two variables of the model share a path")
    if optimizer is not None:
        variables.update(optimizer.slots)
    if loss_scale is not None:
        variables["loss_scale"] = loss_scale.state
    return variables


def restore_model(model: Any, directory: str) -> int | None:
    """Loads the last checkpoint's weights; returns its step, None if none."""
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return None
    return saver.restore(latest, saved_variables(model))[0]


@dataclasses.dataclass(kw_only=True)
class _Run:
    """What changes while a run goes on, and what it is written to."""

    strategy: tf.distribute.Strategy
    options: Options
    optimizer: optimizers.Optimizer
    loss_scale: precision.LossScale | None
    variables: dict[str, tf.Variable]
    saver: checkpoints.Checkpoints
    best: checkpoints.BestCheckpoint
    writer: metric_writer.MetricWriter
    evaluate: Callable[[], Mapping[str, float]] | None
    describe_batch: Callable[[int], str] | None
    diagnose: Callable[[], None] | None
    step: int
    # name -> [sum, weight] since the last line of metrics. It is part of the
    # checkpoint, so that the line after a resume covers its whole interval.
    interval: dict[str, list[float]]
    best_value: float | None
    seconds: float = 0.0
    timed_steps: int = 0

    def go(self, train_step: steps.TrainStep, batches: Any) -> None:
        iterator = iter(batches)
        examples = _global_batch_size(batches, self.strategy)
        per_call = 1
        with preemption.Preemption() as preempted:
            while self.step < self.options.num_train_steps:
                number = min(per_call, self._steps_to_next_action())
                started = time.monotonic()
                results = self._run_steps(train_step, iterator, number)
                taken = time.monotonic() - started
                self._note(results)
                self.seconds += taken
                self.timed_steps += number
                stop, slowest = self._agree(preempted.signal, taken / number)
                per_call = max(1, int(_SECONDS_PER_CALL / max(slowest, 1e-6)))
                per_call = min(per_call, self.options.iterations_per_loop)
                self.writer.progress(self.step)
                self._act(examples)
                if stop or self._is_due(self.options.save_checkpoints_steps):
                    self._save()
                if stop:
                    logging.info("step %d: saved on signal %d", self.step, stop)
                    self.writer.close()
                    preempted.exit(stop)
        self.writer.close()

    def _run_steps(self, train_step, iterator, number) -> steps.StepResults:
        try:
            return train_step(iterator, self.step, number)
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
            if self.diagnose:
                self.diagnose()
            raise

    def _steps_to_next_action(self) -> int:
        options = self.options
        periods = [options.log_every, options.save_checkpoints_steps]
        if self.evaluate and options.eval_every:
            periods.append(options.eval_every)
        left = [options.num_train_steps - self.step]
        return min(left + [p - self.step % p for p in periods if p])

    def _is_due(self, period: int) -> bool:
        is_last = self.step == self.options.num_train_steps
        return is_last or (period > 0 and self.step % period == 0)

    def _note(self, results: steps.StepResults) -> None:
        """Adds the steps to the interval; stops where one is not finite."""
        for i, is_applied in enumerate(results.is_applied):
            norm = float(results.gradient_norms[i])
            if is_applied:
                if not np.isfinite([*results.sums[i], norm]).all():
                    self._stop_at(self.step, float(results.sums[i, 0]), norm)
                rows = zip(
                    results.names,
                    results.sums[i].tolist(),
                    results.weights[i].tolist(),
                    strict=True,
                )
                for name, total, weight in [*rows, ("grad_norm", norm, 1.0)]:
                    entry = self.interval.setdefault(name, [0.0, 0.0])
                    entry[0] += total
                    entry[1] += weight
            self.step += 1

    def _stop_at(self, step: int, loss: float, norm: float) -> None:
        records = self.describe_batch(step) if self.describe_batch else ""
        raise errors.InputError(
            f"step {step}: the loss is {loss:g} and the norm of the gradients "
            f"{norm:g}; the last checkpoint is intact; lower --learning_rate"
            + (f" or look at {records}" if records else "")
        )

    def _act(self, examples: int) -> None:
        options = self.options
        if self.loss_scale:
            skipped = self.loss_scale.check(self.step)
        if self._is_due(options.log_every):
            values = {
                f"train/{name}": total / weight if weight else 0.0
                for name, (total, weight) in self.interval.items()
            }
            rate = self.optimizer.schedule(tf.constant(self.step - 1, tf.int64))
            values["train/learning_rate"] = float(rate)
            if self.loss_scale:
                values["train/skipped_steps"] = skipped
            values["train/seconds_per_step"] = self.seconds / self.timed_steps
            values["train/examples_per_second"] = (
                examples * self.timed_steps / self.seconds
            )
            self.writer.write(self.step, values)
            self.interval, self.seconds, self.timed_steps = {}, 0.0, 0
        if (
            self.evaluate
            and options.eval_every
            and self._is_due(options.eval_every)
        ):
            held_out = self.evaluate()
            self.writer.write(
                self.step, {f"eval/{k}": v for k, v in held_out.items()}
            )
            self.best_value = self.best.offer(
                self.step, held_out, self.variables, self.best_value
            )

    def _save(self) -> None:
        state = {"interval": self.interval, "best": self.best_value}
        self.saver.save(self.step, self.variables, state)

    def _agree(self, signal: int, seconds: float) -> tuple[int, float]:
        """Makes all workers stop at the same step and call equally long."""
        if not strategies.is_multi_worker(self.strategy):
            return signal, seconds

        values = tf.constant([float(signal), seconds])
        total = strategies.sum_over_replicas(self.strategy, values).numpy()
        # The sum of one or several signals is not a signal: SIGTERM it is.
        stop = 0 if not total[0] else (signal or 15)
        return stop, float(total[1])


def _global_batch_size(batches: Any, strategy: tf.distribute.Strategy) -> int:
    specs = tf.nest.flatten(batches.element_spec)
    shape = getattr(specs[0], "_value_specs", [specs[0]])[0].shape
    return int(shape[0] * shape[1]) * strategy.num_replicas_in_sync
