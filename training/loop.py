"""The training loop of all commands.

    train                 restores the last checkpoint, else warm-starts; then
      for each phase      on its own batches, until its last step:
        run               one compiled call of several steps (step.TrainStep)
        log               the means of the metrics, if a line is due
        evaluate          and keep the model if it is the best, if due
        save              a checkpoint, if due

A run is a pure function of its arguments: if a signal stops it at any step, the
same command continues from the last checkpoint and ends with the same weights.
"""

import dataclasses
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors
from foundation import progress as progress_lib
from training import (
    checkpoints,
    feed,
    metric_writer,
    optimizers,
    precision,
    preemption,
    throughput,
)
from training import settings as flag_groups
from training import step as steps
from training import strategy as strategies

# Target duration of one compiled call; signals are checked between calls.
_SECONDS_PER_CALL = 2.0
_LINES, _MOST_STEPS_PER_LINE = 50, 100  # Of metrics, by default.
# A warning is logged when the mean loss of the last 5 lines of metrics exceeds
# 2 x its lowest value + 1.
_RECENT, _HIGH_FACTOR, _HIGH_MARGIN = 5, 2.0, 1.0
_LOSS_SCALE = "loss_scale"  # Its name in checkpoints.
# What TensorFlow raises when a record is damaged; the last one is of a message
# that has bytes of the record.
DAMAGED = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    UnicodeDecodeError,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """When a run evaluates, and which of its models it keeps in `best/`.

    Attributes:
        every: steps between evaluations; 0 for no evaluation.
        metric: the name of the metric to compare, one of `Hooks.evaluate`'s.
        higher_is_better: whether the highest value is the best.
        keeps_best: whether the best model is kept.
        patience: number of evaluations without a better value after which
            the run ends early; 0 for no early end.
    """

    every: int = 0
    metric: str = "loss"
    higher_is_better: bool = False
    keeps_best: bool = True
    patience: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is carried out.

    Attributes:
        output_dir: directory of checkpoints and metrics.
        seed: seed of the dropout masks.
        flags: the flags of the loop.
        log_every: steps between lines of metrics; 0 for 50 lines in a run, but
            at least one every 100 steps and every --iterations_per_loop.
        selection: when to evaluate, and which model is the best.
        jit_compile: whether XLA compiles the step; on several devices, its
            forward and backward pass only.
        compile_functions: whether XLA compiles only the model's replaceable
            functions; see foundation.replacement.
        stored: JSON values that each checkpoint stores; see `last_state`.
    """

    output_dir: str
    seed: int
    flags: flag_groups.Loop = flag_groups.Loop()
    log_every: int = 0
    selection: Selection = Selection()
    jit_compile: bool = False
    compile_functions: bool = False
    stored: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps of a run on one dataset, e.g. of one sequence length.

    Attributes:
        num_steps: number of steps.
        make_batches: returns endless batches from a given batch on.
        name: what the log calls it; "" if it is not mentioned.
        speed: returns metrics of the speed by examples per second.
        describe_batch: names the records of a batch by its number, for errors.
        find_damage: reads all records to name a damaged one, which TensorFlow's
            error does not; raises InputError.
    """

    num_steps: int
    make_batches: feed.MakeBatches
    name: str = ""
    speed: throughput.Throughput | None = None
    describe_batch: Callable[[int], str] | None = None
    find_damage: Callable[[], None] | None = None


class Hooks:
    """What the loop calls of the owner of a run; a subclass overrides some.

    `phase` is the index of a phase.
    """

    def warm_start(self) -> None:
        """Assigns the initial weights of a run without a checkpoint."""

    def evaluate(self, phase: int, step: int) -> Mapping[str, float]:
        """Returns metrics on held-out data after a step, e.g. {"loss": 2.0}.

        Is called if `Selection.every` is not 0.
        """
        raise NotImplementedError

    def samples(self, phase: int) -> Sequence[Mapping[str, Any]]:
        """Returns what the model predicts of a few examples, after evaluations.

        Returns:
            JSON values, each with a "text".
        """
        return ()

    def export(self, directory: str) -> None:
        """Writes the model into `best/` in the form that users read."""


class Diverged(errors.InputError):
    """The loss is not finite; a resumed run would diverge again.

    Attributes:
        reason: the problem, and what may help.
        step: the step with this loss.
        seconds: time of training until then.
    """

    def __init__(self, problem: str, advice: str, *, step: int, seconds: float):
        """Composes the message."""
        super().__init__(f"{problem}; the last checkpoint is intact; {advice}")
        self.reason = f"{problem}; {advice}"
        self.step = step
        self.seconds = seconds


def train(
    learner: steps.Learner,
    *,
    strategy: tf.distribute.Strategy,
    phases: Sequence[Phase],
    options: Options,
    hooks: Hooks | None = None,
) -> int:
    """Trains through all phases, from the last checkpoint if there is one.

    Args:
        learner: the model and its optimizer; made in strategy.scope().
        strategy: the devices.
        phases: the steps, in order.
        options: how the run is carried out.
        hooks: what the loop calls besides; by default, nothing.

    Returns:
        The step that this call started from: the checkpoint's, or 0.

    Raises:
        Diverged: the loss is not finite.
        InputError: the checkpoint is of another model.
        KeyboardInterrupt: after SIGINT.
        SystemExit: the code is preemption.EXIT_CODE after SIGTERM, 0 after a
            dry run.
    """
    preempted = preemption.Preemption()
    loop = Loop(learner, strategy, phases, options, hooks or Hooks(), preempted)
    if options.flags.dry_run:
        for phase in phases:
            loop.rehearse(phase)
        raise SystemExit(0)
    first_step = loop.progress.step
    with preempted:
        try:
            loop.run()
        except preemption.Interrupted:  # While looking for a damaged record.
            preempted.exit(preempted.signal)
    return first_step


@dataclasses.dataclass
class Progress:
    """What a checkpoint stores of a run, besides its variables.

    Attributes:
        step: number of steps done; part of the checkpoint's name.
        interval: metric -> [sum, weight] since the last line of metrics, so
            that the line after a resume covers its complete interval.
        recent_losses: losses of the last lines of metrics.
        lowest_loss: the least mean of these so far, or that of the first step.
        best: the best value of the metric `Selection.metric` so far.
        best_step: the step with this value.
        is_stopped: whether evaluations have ended the run early.
        pending_evaluation: whether a signal prevented this step's evaluation.
            The resumed run evaluates then: the signal may leave only seconds.
        seconds: time of training until the last checkpoint.
    """

    step: int = 0
    interval: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    recent_losses: list[float] = dataclasses.field(default_factory=list)
    lowest_loss: float | None = None
    best: float | None = None
    best_step: int = 0
    is_stopped: bool = False
    pending_evaluation: bool = False
    seconds: float = 0.0

    @property
    def last_loss(self) -> float:
        """The mean of the recent losses."""
        return float(np.mean(self.recent_losses or [0.0]))

    @property
    def has_high_loss(self) -> bool:
        """Whether the last loss is far above the lowest one."""
        lowest = self.lowest_loss or 0.0
        return self.last_loss > _HIGH_FACTOR * lowest + _HIGH_MARGIN

    def add_loss(self, loss: float) -> None:
        """Notes the loss of a line of metrics."""
        self.recent_losses = [*self.recent_losses, loss][-_RECENT:]
        last, lowest = self.last_loss, self.lowest_loss
        self.lowest_loss = last if lowest is None else min(last, lowest)

    def is_patience_over(self, selection: Selection) -> bool:
        """Returns whether too many evaluations have found nothing better."""
        if not (selection.every and selection.patience):
            return False
        waited = (self.step - self.best_step) / selection.every
        return waited >= selection.patience


class Loop:
    """A run in progress: its checkpoints, metrics and evaluations."""

    def __init__(
        self,
        learner: steps.Learner,
        strategy: tf.distribute.Strategy,
        phases: Sequence[Phase],
        options: Options,
        hooks: Hooks,
        preempted: preemption.Preemption,
    ):
        """Takes arguments of `train`; loads what the run continues from."""
        self.learner = learner
        self.strategy = strategy
        self.options = options
        self.hooks = hooks
        self._phases, self._preempted = phases, preempted
        self._is_chief = strategies.is_chief(strategy)
        self._saver = checkpoints.Checkpoints(
            options.output_dir,
            keep_max=max(options.flags.keep_checkpoint_max, 1),
            is_chief=self._is_chief,
        )
        self._best = checkpoints.Checkpoints(
            os.path.join(options.output_dir, checkpoints.BEST),
            keep_max=1,
            is_chief=self._is_chief,
        )
        self._variables = saved_variables(
            learner.model, learner.optimizer, learner.loss_scale
        )
        self.progress = progress = self._restore()
        # Moved back by the training time of earlier processes.
        self._started = time.monotonic() - progress.seconds
        self._num_steps = sum(phase.num_steps for phase in phases)
        is_at_end = progress.step >= self._num_steps
        is_at_end &= not progress.pending_evaluation
        self._is_finished = progress.is_stopped or is_at_end
        self._log_every = options.log_every or min(
            max(self._num_steps // _LINES, 1),
            _MOST_STEPS_PER_LINE,
            options.flags.iterations_per_loop,
        )
        writes = not (self._is_finished or options.flags.dry_run)
        self._writer = metric_writer.MetricWriter(
            options.output_dir,
            first_step=progress.step,
            num_steps=self._num_steps,
            is_chief=self._is_chief and writes,
            evaluates_again=progress.pending_evaluation,
        )
        # The phase in progress: its steps, and the shapes of its batches.
        self._index, self._phase = 0, phases[0]
        self._first_step = self._last_step = 0
        self._shapes: set[bytes] = set()
        # Number and seconds of the steps since the last line of metrics.
        self._timed = [0, 0.0]

    def _restore(self) -> Progress:
        """Loads what the run continues from."""
        # 1 own checkpoint in output_dir
        # 2 init_checkpoint
        # 3 scratch
        # The order is important. 2 and 3 are Hooks.warm_start.
        latest, progress = self._saver.latest(), Progress()
        if latest is None:
            self.hooks.warm_start()
        else:
            # A run begun in another precision has no loss scale.
            step, state = self._saver.restore(
                latest, self._variables, optional=[_LOSS_SCALE]
            )
            names = {f.name for f in dataclasses.fields(Progress)}
            fields = {name: x for name, x in state.items() if name in names}
            progress = Progress(**fields | {"step": step})
            # The flags may have changed, e.g. to more patience.
            selection = self.options.selection
            progress.pending_evaluation &= selection.every > 0
            progress.is_stopped &= progress.is_patience_over(selection)
        # All find the chief's checkpoint, or none.
        strategies.check_same_number(
            self.strategy,
            progress.step,
            f"--output_dir={self.options.output_dir}: this worker finds step "
            f"{progress.step} there, others find another: give all workers the "
            "same shared folder",
        )
        return progress

    def rehearse(self, phase: Phase) -> None:
        """Runs three steps of a phase and prints how long it would take."""
        train_step, batches = self._make_step(phase, first_batch=0)
        train_step(batches, 0, 1)  # Compiles.
        started = time.monotonic()
        train_step(batches, 1, 2)
        seconds = (time.monotonic() - started) / 2
        total = progress_lib.duration(seconds * phase.num_steps)
        sys.stdout.write(
            f"{self._num_parameters:,} parameters; {phase.num_steps:,} steps "
            f"of {train_step.global_batch_size} examples, {seconds:.3g} s "
            f"each: {total}\n"
        )

    @property
    def _num_parameters(self) -> int:
        variables = self.learner.model.trainable_variables
        return sum(math.prod(v.shape) for v in variables)

    def run(self) -> None:
        """Trains all phases, as far as they have not ended already."""
        progress, end = self.progress, self._num_steps
        if self._is_chief and progress.step:  # A kill may have prevented it.
            self._saver.tidy(progress.step)
        if self._is_finished:
            logging.info(
                f"already finished: {self.options.output_dir} is at step "
                f"{progress.step} of {end}"
            )
        else:
            if progress.step:
                logging.info("resuming from %s", self._saver.latest())
            logging.info(
                f"training {self._num_parameters:,} parameters, steps "
                f"{progress.step + 1:,} to {end:,}"
            )
            for index, phase in enumerate(self._phases):
                self._run_phase(index, phase)
            self._writer.close()
        if progress.has_high_loss:
            logging.warning(
                f"training has diverged: the loss was "
                f"{progress.lowest_loss:.4g} and ended at "
                f"{progress.last_loss:.4g}; the model is of no use: lower "
                "--learning_rate, or raise the number of warm-up steps"
            )

    def _run_phase(self, index: int, phase: Phase) -> None:
        """Trains until the end of a phase; exits if a signal has come."""
        progress, first_step = self.progress, self._last_step
        last_step = first_step + phase.num_steps
        self._index, self._phase = index, phase
        self._first_step, self._last_step = first_step, last_step
        is_in_phase = first_step < progress.step <= last_step
        if is_in_phase and progress.pending_evaluation:
            # The next checkpoint will hold the result: to save this step again
            # would make its checkpoint incomplete for a moment.
            self._evaluate()
            self._exit_on_signal()
        if progress.step >= last_step or progress.is_stopped:
            return
        if 0 < first_step == progress.step:
            progress.best = None  # Each phase has its own held-out data.
        if phase.name:
            logging.info("phase %d: %s", index + 1, phase.name)
        # Every phase has its own step, because its batches have other shapes.
        train_step, batches = self._make_step(phase, progress.step - first_step)
        self._shapes.clear()
        steps_per_call = 1
        while progress.step < self._end():
            number = min(steps_per_call, self._steps_to_next_action())
            seconds = self._run(train_step, batches, number)
            stop_signal, seconds_per_step = self._agree(seconds / number)
            steps_per_call = min(
                max(1, int(_SECONDS_PER_CALL / max(seconds_per_step, 1e-6))),
                self.options.flags.iterations_per_loop,
            )
            self._log(train_step.global_batch_size)
            self._writer.progress(progress.step)
            if self._is_due(self.options.selection.every):
                stop_signal = self._evaluate_or_stop(stop_signal)
            if stop_signal or self._is_due(
                self.options.flags.save_checkpoints_steps
            ):
                self._save()
            if stop_signal:
                self._exit(stop_signal)
        self._exit_on_signal()

    def _make_step(
        self, phase: Phase, first_batch: int
    ) -> tuple[steps.TrainStep, Any]:
        """Returns the step of a phase, and its batches."""
        train_step = steps.TrainStep(
            self.learner,
            strategy=self.strategy,
            seed=self.options.seed,
            jit_compile=self.options.jit_compile,
            compile_functions=self.options.compile_functions,
        )
        batches = feed.distribute(
            self.strategy,
            phase.make_batches,
            first_batch=first_batch,
            num_accumulation_steps=self.options.flags.gradient_accumulation_steps,
            is_endless=True,
        )
        return train_step, iter(batches)

    def _run(
        self, train_step: steps.TrainStep, batches: Any, number: int
    ) -> float:
        """Runs steps and adds up their metrics; returns their seconds.

        Raises:
            Diverged: the loss or the gradients of a step are not finite.
        """
        first, last = self.options.flags.profile_range or (0, 0)
        is_profiled = first <= self.progress.step < last and self._is_chief
        profile = tf.profiler.experimental.Profile
        if not self._shapes:
            logging.info("compiling the training step can take a minute ...")
        started = time.monotonic()
        try:
            with (
                profile(self.options.output_dir)
                if is_profiled
                else nullcontext()
            ):
                results = train_step(batches, self.progress.step, number)
        except DAMAGED as error:
            self._find_damage(error)
            raise
        seconds = time.monotonic() - started
        for i in range(number):
            self._add(results, i)
        self._saver.check()
        # The first call compiles, and fills the shuffle buffers. Later ones
        # compile if a batch has a new shape.
        shapes = {shape.tobytes() for shape in results.shapes}
        if shapes <= self._shapes:
            self._timed[0] += number
            self._timed[1] += seconds
        self._shapes |= shapes
        return seconds

    def _find_damage(self, error: Exception) -> None:
        """Looks for a damaged record, unless a signal comes."""
        logging.error("step %d: %s", self.progress.step, errors.reason(error))
        if self._phase.find_damage is not None:
            logging.error("all records are read to find a damaged one")
            with self._preempted.interruptible():
                self._phase.find_damage()

    def _add(self, results: steps.StepResults, i: int) -> None:
        """Counts a step and adds its metrics to the interval."""
        progress = self.progress
        if results.is_applied[i]:
            norm = float(results.gradient_norms[i])
            sums = [*results.sums[i].tolist(), norm]
            if not np.isfinite(sums).all():
                advice = "lower --learning_rate"
                if self._phase.describe_batch is not None:
                    batch = progress.step - self._first_step
                    records = self._phase.describe_batch(batch)
                    advice += f" or look at {records}"
                self._diverge(
                    f"the loss is {sums[0]:g} and the norm of the gradients "
                    f"{norm:g}",
                    advice,
                )
            if progress.lowest_loss is None:
                progress.lowest_loss = sums[0]
            names = [*results.names, "grad_norm"]
            weights = [*results.weights[i].tolist(), 1.0]
            for name, *values in zip(names, sums, weights, strict=True):
                former = progress.interval.get(name, [0.0, 0.0])
                progress.interval[name] = np.add(former, values).tolist()
        progress.step += 1

    def _diverge(self, problem: str, advice: str) -> NoReturn:
        self._saver.wait()
        self._writer.close()
        step = self.progress.step
        raise Diverged(
            f"step {step}: {problem}",
            advice,
            step=step,
            seconds=time.monotonic() - self._started,
        )

    def _end(self) -> int:
        """Returns the step at which the phase ends, as known now."""
        is_stopped = self.progress.is_stopped
        return self.progress.step if is_stopped else self._last_step

    def _steps_to_next_action(self) -> int:
        flags, step = self.options.flags, self.progress.step
        periods = (
            self._log_every,
            flags.save_checkpoints_steps,
            self.options.selection.every,
        )
        ends = [step + p - step % p for p in periods if p]
        ends += [x for x in flags.profile_range or () if x > step]
        return min([self._end(), *ends]) - step

    def _is_due(self, period: int) -> bool:
        step = self.progress.step
        return period > 0 and (step >= self._end() or step % period == 0)

    def _log(self, global_batch_size: int) -> None:
        """Writes the means of the metrics since the last line, if due."""
        step, skipped = self.progress.step, None
        if self.learner.loss_scale is not None:
            skipped, problem = self.learner.loss_scale.check()
            if problem:
                self._diverge(
                    problem, "lower --learning_rate or use --precision=bfloat16"
                )
        if not self._is_due(self._log_every):
            return
        values = {
            f"train/{name}": total / weight if weight else 0.0
            for name, (total, weight) in self.progress.interval.items()
        }
        if "train/loss" in values:  # Else all steps were skipped.
            self._compare_loss(values["train/loss"])
        rate = self.learner.optimizer.schedule(tf.constant(step - 1, tf.int64))
        values["train/learning_rate"] = float(rate)
        if skipped is not None:
            values["train/skipped_steps"] = skipped
        number, seconds = self._timed
        if number:
            examples = global_batch_size * number / seconds
            values["train/seconds_per_step"] = seconds / number
            values["train/examples_per_second"] = examples
            if self._phase.speed is not None:
                values |= self._phase.speed(examples)
        self._writer.write(step, values)
        self.progress.interval, self._timed = {}, [0, 0.0]

    def _compare_loss(self, loss: float) -> None:
        """Logs a warning when the loss becomes far higher than it was."""
        progress = self.progress
        was_high = progress.has_high_loss
        progress.add_loss(loss)
        if progress.has_high_loss and not was_high:
            text = "step %d: the loss is %.4g and was %.4g: training diverges"
            lowest = progress.lowest_loss
            logging.warning(text, progress.step, progress.last_loss, lowest)

    def _evaluate_or_stop(self, stop_signal: int) -> int:
        """Evaluates, or leaves it to the resumed run after a signal.

        Returns:
            stop_signal, or the signal that came during the evaluation.
        """
        if stop_signal:
            self.progress.pending_evaluation = True
            return stop_signal
        try:
            self._evaluate()
        except Exception:
            self._save()  # Else the steps since the last checkpoint are lost.
            self._saver.wait()
            raise
        return self._agree()[0]

    def _evaluate(self) -> None:
        """Evaluates the model, and keeps it if it is the best.

        Leaves pending_evaluation set if the evaluation is interrupted by a
        signal, or fails.
        """
        progress = self.progress
        progress.pending_evaluation = True
        # If one of several workers left, the others would wait for it.
        is_alone = not strategies.is_multi_worker(self.strategy)
        context = self._preempted.interruptible if is_alone else nullcontext
        try:
            with context():
                held_out = self.hooks.evaluate(self._index, progress.step)
        except preemption.Interrupted:
            return
        self._writer.write(
            progress.step, {f"eval/{k}": v for k, v in held_out.items()}
        )
        samples = self.hooks.samples(self._index)
        self._writer.write_samples(progress.step, samples)
        if self.options.selection.keeps_best:
            self._keep_if_best(held_out[self.options.selection.metric])
        progress.pending_evaluation = False
        if progress.is_patience_over(self.options.selection):
            text = "step %d: no better since step %d, stopping early"
            logging.info(text, progress.step, progress.best_step)
            progress.is_stopped = True

    def _keep_if_best(self, value: float) -> None:
        """Keeps the model in `best/` if no evaluation before was better.

        Its checkpoint is complete on return: a later one of the run names it.
        """
        progress, selection = self.progress, self.options.selection
        sign = 1 if selection.higher_is_better else -1
        best = -math.inf if progress.best is None else sign * progress.best
        # NaN must not be kept: no later value would compare as better.
        if not (math.isfinite(value) and sign * value > best):
            return
        self._best.save(
            progress.step,
            saved_variables(self.learner.model),
            {selection.metric: float(value)},
        )
        self._best.wait()
        logging.info(
            f"step {progress.step:,}: best so far, {selection.metric} = "
            f"{value:g}"
        )
        self.hooks.export(
            os.path.join(self.options.output_dir, checkpoints.BEST)
        )
        progress.best, progress.best_step = float(value), progress.step

    def _save(self) -> None:
        # A checkpoint must not survive a power failure without its metrics.
        self._writer.flush()
        self.progress.seconds = time.monotonic() - self._started
        state = dataclasses.asdict(self.progress)
        step = state.pop("step")
        self._saver.save(
            step, self._variables, {**state, **self.options.stored}
        )

    def _exit_on_signal(self) -> None:
        """Exits if a signal has come, when all checkpoints are complete."""
        self._wait_for_checkpoints()
        stop_signal, _ = self._agree()
        if stop_signal:
            self._exit(stop_signal)

    def _exit(self, stop_signal: int) -> NoReturn:
        self._wait_for_checkpoints()
        text = "step %d: saved on %s; repeat the command to continue"
        name = signal.Signals(stop_signal).name
        logging.info(text, self.progress.step, name)
        self._writer.close()
        self._preempted.exit(stop_signal)

    def _wait_for_checkpoints(self) -> None:
        """Waits until the last checkpoint is complete, on all workers."""
        self._saver.wait()
        strategies.wait_for_all(self.strategy)

    def _agree(self, seconds: float = 0.0) -> tuple[int, float]:
        """Returns the same values on all workers, so that they act alike.

        Args:
            seconds: this worker's time per step.

        Returns:
            The signal that stops the run, or 0, and the mean of the times.
        """
        received = self._preempted.signal
        if not strategies.is_multi_worker(self.strategy):
            return received, seconds
        values = tf.constant([float(received), seconds, 1.0])
        total = strategies.sum_over_replicas(self.strategy, values).numpy()
        # Workers that have received no signal take SIGTERM (15).
        stop_signal = 0 if not total[0] else (received or 15)
        return stop_signal, float(total[1] / total[2])


def saved_variables(
    model: Any,
    optimizer: optimizers.Optimizer | None = None,
    loss_scale: precision.LossScale | None = None,
) -> dict[str, tf.Variable]:
    """Returns the variables that a checkpoint stores, by their names in it."""
    variables = {v.path: v.value for v in model.variables}
    if len(variables) != len(model.variables):
        raise ValueError("two variables of the model have the same path")
    if optimizer is not None:
        variables.update(optimizer.slots)
    if loss_scale is not None:
        variables[_LOSS_SCALE] = loss_scale.state
    return variables


def restore_model(model: Any, directory: str) -> int | None:
    """Loads the weights of the last checkpoint in a directory.

    Returns:
        The checkpoint's step; None if there is no checkpoint.
    """
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return None
    return saver.restore(latest, saved_variables(model))[0]


def last_state(directory: str) -> dict[str, Any]:
    """Returns what the last checkpoint stores besides tensors, {} if none.

    It has the names of Progress and of Options.stored.
    """
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return {}
    step, state = saver.restore(latest, {})
    return {**state, "step": step}
