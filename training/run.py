"""What changes while a run goes on: steps, metrics, evaluations, checkpoints.

loop.train makes one Run and hands it each phase; what happens inside a step is
in step.py.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

import errors
from training import (
    checkpoints,
    clock,
    feed,
    loop_options,
    metric_writer,
    optimizers,
    precision,
    preemption,
)
from training import step as steps
from training import strategy as strategies

# A call of the compiled loop takes no longer, so that a signal is seen soon.
_SECONDS_PER_CALL = 2.0


class Diverged(errors.InputError):
    """Reports a loss that is not finite: the run ends, and would again.

    Attributes:
        reason: what was found, and what may help.
        step: that came to it.
        seconds: of training until then.
    """

    def __init__(self, found: str, advice: str, *, step: int, seconds: float):
        """Puts the message together."""
        super().__init__(f"{found}; the last checkpoint is intact; {advice}")
        self.reason = f"{found}; {advice}"
        self.step = step
        self.seconds = seconds


class Phase(NamedTuple):
    """A stretch of a run on batches of one shape.

    Attributes:
        num_steps: how many steps it has.
        make_batches: its endless batches, from any position on.
        evaluate: returns held-out values, e.g. {"loss": 2.0}.
        describe_batch: says which records are in a batch, for a message.
        diagnose: called when records cannot be read; raises InputError naming
            the damaged one (the failing operation knows no file).
        throughput: turns examples per second into more values.
    """

    num_steps: int
    make_batches: feed.MakeBatches
    evaluate: Callable[[], Mapping[str, float]] | None = None
    describe_batch: Callable[[int], str] | None = None
    diagnose: Callable[[], None] | None = None
    throughput: Callable[[float], Mapping[str, float]] | None = None


@dataclasses.dataclass(kw_only=True)
class Run:
    """Where a run stands, and what it is written to."""

    strategy: tf.distribute.Strategy
    options: loop_options.Options
    optimizer: optimizers.Optimizer
    loss_scale: precision.LossScale | None
    run_clock: clock.Clock | None
    variables: dict[str, tf.Variable]
    # Those of the model alone, which `best/` holds.
    weights: dict[str, tf.Variable]
    saver: checkpoints.Checkpoints
    best: checkpoints.BestCheckpoint
    writer: metric_writer.MetricWriter
    preempted: preemption.Preemption
    step: int
    # name -> [sum, weight] since the last line of metrics. It is part of the
    # checkpoint, so that the line after a resume covers its whole interval.
    interval: dict[str, list[float]]
    best_value: float | None
    best_step: int = 0
    # When this process began, and how long those before it trained until the
    # checkpoint that it goes on from.
    started: float = 0.0
    seconds_before: float = 0.0
    # A signal came before or during this step's evaluation: it was left out,
    # because machines are taken away within seconds; the resumed run makes it.
    owes_evaluation: bool = False
    # Whether evaluations have ended the run early.
    is_stopped: bool = False
    # The running phase, and the steps at which it began and ends.
    phase: Phase | None = None
    first_step: int = 0
    last_step: int = 0
    seconds: float = 0.0
    timed_steps: int = 0

    def go(
        self,
        phase: Phase,
        first_step: int,
        train_step: steps.TrainStep,
        batches: Any,
    ) -> None:
        """Trains to the end of a phase, or exits on a signal."""
        self._enter(phase, first_step)
        iterator = iter(batches)
        per_call, begun = 1, time.monotonic()
        is_first = True
        while self.step < self._end():
            number = min(per_call, self._steps_to_next_action())
            started = time.monotonic()
            results = self._run_steps(train_step, iterator, number)
            taken = time.monotonic() - started
            self._note(results)
            if not is_first:  # That one compiles and fills what shuffles.
                self.seconds += taken
                self.timed_steps += number
            is_first = False
            stop, pace, elapsed = self._agree(
                taken / number, started + taken - begun
            )
            per_call = max(1, int(_SECONDS_PER_CALL / max(pace, 1e-6)))
            per_call = min(per_call, self.options.iterations_per_loop)
            if self.run_clock:
                self.run_clock.tick(self.step, elapsed)
            self.writer.progress(self.step)
            stop = self._act(train_step.global_batch_size, stop)
            if stop or self._is_due(self.options.save_checkpoints_steps):
                self._save()
            if stop:
                self._leave(stop)
        self._settle()
        self._leave_if_asked()

    def pay(self, phase: Phase, first_step: int) -> None:
        """Makes the evaluation that a signal had left out.

        It is saved with the next checkpoint. Saving this step again would
        leave a moment in which its checkpoint is not whole.
        """
        self._enter(phase, first_step)
        if self.owes_evaluation:
            self._evaluate()
            self._settle()  # Nothing may follow that would wait.
            self._leave_if_asked()

    def _enter(self, phase: Phase, first_step: int) -> None:
        self.phase, self.first_step = phase, first_step
        self.last_step = first_step + phase.num_steps

    def _leave_if_asked(self) -> None:
        stop, *_ = self._agree()
        if stop:
            self._leave(stop)

    def _leave(self, stop: int) -> None:
        self._settle()
        logging.info("step %d: saved on signal %d", self.step, stop)
        self.writer.close()
        self.preempted.exit(stop)

    def _settle(self) -> None:
        """Returns when the last checkpoint stands, whoever wrote it."""
        self.best.wait()
        self.saver.wait()
        strategies.wait_for_all(self.strategy)

    def _end(self) -> int:
        if self.is_stopped:
            return self.step
        return self.run_clock.end if self.run_clock else self.last_step

    def _run_steps(self, train_step, iterator, number) -> steps.StepResults:
        try:
            return train_step(iterator, self.step, number)
        except (
            tf.errors.DataLossError,
            tf.errors.InvalidArgumentError,
        ) as error:
            if self.phase.diagnose:
                reason = str(error.message).partition("\n")[0]
                text = "step %d: %s; all records are read to find a damaged one"
                logging.error(text, self.step, reason)
                self.phase.diagnose()
            raise

    def _steps_to_next_action(self) -> int:
        options = self.options
        periods = [options.log_every, options.save_checkpoints_steps]
        if self.phase.evaluate and options.eval_every:
            periods.append(options.eval_every)
        left = [self._end() - self.step]
        return min(left + [p - self.step % p for p in periods if p])

    def _is_due(self, period: int) -> bool:
        is_last = self.step >= self._end()
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

    def _stop_at(self, step: int, loss: float, norm: float) -> NoReturn:
        describe = self.phase.describe_batch
        records = describe(step - self.first_step) if describe else ""
        self._diverge(
            f"step {step}: the loss is {loss:g} and the norm of the gradients "
            f"{norm:g}",
            "lower --learning_rate"
            + (f" or look at {records}" if records else ""),
            step,
        )

    def _diverge(self, found: str, advice: str, step: int) -> NoReturn:
        self.best.wait()
        self.saver.wait()
        self.writer.close()
        raise Diverged(found, advice, step=step, seconds=self._elapsed())

    def _skipped_steps(self) -> int | None:
        if self.loss_scale is None:
            return None
        try:
            return self.loss_scale.check(self.step)
        except precision.TooManySkipped as error:
            self._diverge(error.found, error.advice, self.step)

    def _elapsed(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def _act(self, examples: int, stop: int) -> int:
        """Writes metrics, evaluates; returns the signal to stop on, or 0."""
        skipped = self._skipped_steps()
        if self._is_due(self.options.log_every):
            self._write_interval(examples, skipped)
        every = self.options.eval_every
        if not (self.phase.evaluate and every and self._is_due(every)):
            return stop
        if stop:
            self.owes_evaluation = True
            return stop
        self._evaluate()
        return self._agree()[0]

    def _evaluate(self) -> None:
        """Evaluates the model, and keeps it if it is the best."""
        self.owes_evaluation = True
        # One of several workers cannot leave: the others would wait for it.
        is_one = not strategies.is_multi_worker(self.strategy)
        leave = self.preempted.interruptible if is_one else nullcontext
        try:
            with leave():
                held_out = self.phase.evaluate()
        except preemption.Interrupted:
            return
        self.owes_evaluation = False
        self.writer.write(
            self.step, {f"eval/{k}": v for k, v in held_out.items()}
        )
        best = self.best.offer(
            self.step, held_out, self.weights, self.best_value
        )
        if best != self.best_value:
            self.best_value, self.best_step = best, self.step
        patience = self.options.patience
        waited = (self.step - self.best_step) / self.options.eval_every
        if patience and waited >= patience:
            text = "step %d: no better since step %d, stopping early"
            logging.info(text, self.step, self.best_step)
            self.is_stopped = True

    def _write_interval(self, examples: int, skipped: int | None) -> None:
        values = {
            f"train/{name}": total / weight if weight else 0.0
            for name, (total, weight) in self.interval.items()
        }
        rate = self.optimizer.schedule(tf.constant(self.step - 1, tf.int64))
        values["train/learning_rate"] = float(rate)
        if skipped is not None:
            values["train/skipped_steps"] = skipped
        if self.run_clock:
            values["train/planned_steps"] = self.run_clock.end
        if self.timed_steps:
            values["train/seconds_per_step"] = self.seconds / self.timed_steps
            rate = examples * self.timed_steps / self.seconds
            values["train/examples_per_second"] = rate
            if self.phase.throughput:
                values.update(self.phase.throughput(rate))
        self.writer.write(self.step, values)
        self.interval, self.seconds, self.timed_steps = {}, 0.0, 0

    def _save(self) -> None:
        state = {
            "interval": self.interval,
            "best": self.best_value,
            "best_step": self.best_step,
            "is_stopped": self.is_stopped,
            "owes_evaluation": self.owes_evaluation,
            "settings": dict(self.options.settings),
            "seconds": self._elapsed(),
        }
        if self.run_clock:
            state["clock"] = self.run_clock.state()
        self.saver.save(self.step, self.variables, state)

    def _agree(
        self, seconds: float = 0.0, elapsed: float = 0.0
    ) -> tuple[int, float, float]:
        """Makes all workers stop at the same step and call equally long."""
        signal = self.preempted.signal
        if not strategies.is_multi_worker(self.strategy):
            return signal, seconds, elapsed
        values = tf.constant([float(signal), seconds, elapsed, 1.0])
        total = strategies.sum_over_replicas(self.strategy, values).numpy()
        # The sum of one or several signals is not a signal: SIGTERM it is.
        stop = 0 if not total[0] else (signal or 15)
        # Means: they wait for each other at every step, and take equally long.
        return stop, float(total[1] / total[3]), float(total[2] / total[3])
