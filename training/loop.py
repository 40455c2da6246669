"""The training loop of all commands: train, log, evaluate, save, resume.

    train                       restores the last checkpoint; for every phase:
      Loop.run_phase            repeats until the phase ends:
        step.TrainStep          one compiled call: several steps
        Loop._act               writes metrics and evaluates, if due
        Loop._save              writes a checkpoint, if due

A run is a pure function of its arguments: if a signal stops it at any step, the
same command continues from the last checkpoint and ends with the same weights.
"""

import dataclasses
import math
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors, stamp
from foundation import progress as progress_lib
from training import (
    checkpoints,
    cost,
    feed,
    metric_writer,
    optimizers,
    precision,
    preemption,
)
from training import settings as flag_groups
from training import step as steps
from training import strategy as strategies

# Target duration of one compiled call; signals are checked between calls.
_SECONDS_PER_CALL = 2.0
_COMPILING = "compiling the training step, which can take a minute ..."

# A warning is logged when the mean loss of the last 5 lines of metrics exceeds
# 2 x its lowest value + 1.
_LINES, _HIGH_FACTOR, _HIGH_MARGIN = 5, 2.0, 1.0
# Fraction of a device's peak that a step is assumed to reach in a dry run.
_UTILIZATION = 0.3
_LOSS_SCALE = "loss_scale"  # Its name in checkpoints.


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
        flags: the flags of the loop; those of the model's memory and of
            throughput are not used here.
        log_every: steps between lines of metrics.
        selection: when to evaluate, and which model is the best.
        jit_compile: whether XLA compiles the step; on several devices, its
            forward and backward pass only.
        compile_functions: whether XLA compiles only the model's replaceable
            functions; see foundation.replacement.
        settings: what a resumed run compares with its checkpoint's.
        task_settings: JSON values that a checkpoint stores; see `last_state`.
    """

    output_dir: str
    seed: int
    flags: flag_groups.Loop = flag_groups.Loop()
    log_every: int = 100
    selection: Selection = Selection()
    jit_compile: bool = False
    compile_functions: bool = False
    settings: stamp.Stamp = stamp.Stamp()
    task_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Phase(NamedTuple):
    """Consecutive steps of a run on one dataset, e.g. of one sequence length.

    Attributes:
        num_steps: number of steps; in a run of a given time, its part of it is
            the phase's part of all steps.
        make_batches: returns endless batches from a given batch on.
        learner: the run's learner with another objective or preparation of
            features; None if it is the run's.
        name: what the log calls it; "" if it is not mentioned.
    """

    num_steps: int
    make_batches: feed.MakeBatches
    learner: steps.Learner | None = None
    name: str = ""


class Hooks:
    """What only the owner of a run knows, and the loop calls.

    A subclass overrides what it needs; these methods add nothing. `phase` is
    the index of a phase.
    """

    def warm_start(self) -> None:
        """Assigns the initial weights of a run without a checkpoint."""

    def begin(self) -> None:
        """Is called before the first step, when all checks have passed."""

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

    def speed(
        self, phase: int, examples_per_second: float
    ) -> Mapping[str, float]:
        """Returns metrics of the speed besides examples per second."""
        return {}

    def describe_batch(self, phase: int, number: int) -> str:
        """Returns the names of the records of a phase's batch, for errors."""
        return ""

    def diagnose(self, phase: int, problem: str) -> None:
        """Looks for the cause when a phase's records cannot be read.

        TensorFlow's error does not say which record is damaged.

        Raises:
            InputError: it names the record.
        """


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

    At the end the model has the averages of its weights if the optimizer keeps
    them, otherwise the last weights.

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
        InputError: the checkpoint's settings may not change.
        KeyboardInterrupt: after SIGINT.
        SystemExit: the code is preemption.EXIT_CODE after SIGTERM, 0 after a
            dry run.
    """
    hooks = hooks or Hooks()
    loop = Loop(learner, strategy, options, hooks)
    loop.restore()
    first_step = loop.progress.step
    # All find the chief's checkpoint, or none.
    strategies.check_same_number(
        strategy,
        first_step,
        f"--output_dir={options.output_dir}: this worker finds step "
        f"{first_step} there, others find another: give all workers the same "
        "shared folder",
    )
    if options.flags.dry_run:
        for phase in phases:
            loop.report_cost(phase)
        raise SystemExit(0)
    hooks.begin()
    end = loop.step_at(sum(phase.num_steps for phase in phases))
    if loop.is_finished(end):
        text = "already finished: %s is at step %d of %d"
        logging.info(text, options.output_dir, first_step, end)
    else:
        if loop.restored_from:
            logging.info("resuming from %s", loop.restored_from)
        model = learner.model
        count = sum(math.prod(v.shape) for v in model.trainable_variables)
        logging.info(
            f"training {count:,} parameters, steps {first_step + 1:,} to "
            f"{end:,}"
        )
        with preemption.Preemption() as preempted:
            loop.open(preempted, end)
            before = 0
            for index, phase in enumerate(phases):
                loop.run_phase(index, phase, before)
                before += phase.num_steps
        loop.writer.close()
    loop.warn_of_high_loss()
    learner.optimizer.use_averages()
    return first_step


def check_settings(
    directory: str, settings: stamp.Stamp, flags: flag_groups.Loop
) -> None:
    """Refuses changes that `train` would refuse.

    Call it before files of the run are written again, such as its records.

    Args:
        directory: directory of the run, with or without a checkpoint.
        settings: `Options.settings`.
        flags: `Options.flags`.

    Raises:
        InputError: the run would go on with other records or evaluations.
    """
    latest = checkpoints.Checkpoints(directory).latest()
    if latest is not None:
        old = last_state(directory).get("settings", {})
        _refuse_other_data(latest, settings.difference(old), flags)


def _refuse_other_data(
    latest: str, changes: Sequence[stamp.Change], flags: flag_groups.Loop
) -> None:
    if flags.allow_changed_data:
        return
    stamp.refuse(
        [change for change in changes if change.forbids_resuming],
        f"the run in {latest} would go on with other records or evaluations; "
        "resume it as it was begun, or say --allow_changed_data, or begin "
        f"another --output_dir with --init_checkpoint={latest}",
    )


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


class Loop:
    """A run in progress: its checkpoints, metrics and evaluations."""

    def __init__(
        self,
        learner: steps.Learner,
        strategy: tf.distribute.Strategy,
        options: Options,
        hooks: Hooks,
    ):
        """Takes arguments of `train`; restores and writes nothing yet."""
        self.learner = learner
        self.strategy = strategy
        self.options = options
        self.hooks = hooks
        self.progress = Progress()
        self.restored_from: str | None = None  # A checkpoint.
        # Not a flag's value: it depends on the machine.
        replicas = {"replicas in fact": strategy.num_replicas_in_sync}
        self._settings = options.settings | stamp.facts("execution", replicas)
        # Restoring moves it back by the training time of earlier processes.
        self._started = time.monotonic()
        self._is_profiling = False
        self._is_chief = strategies.is_chief(strategy)
        self.saver = checkpoints.Checkpoints(
            options.output_dir,
            keep_max=options.flags.keep_checkpoint_max,
            is_chief=self._is_chief,
        )
        self.best = checkpoints.BestCheckpoint(
            options.output_dir,
            metric=options.selection.metric,
            higher_is_better=options.selection.higher_is_better,
            is_chief=self._is_chief,
        )
        self._variables = saved_variables(
            learner.model, learner.optimizer, learner.loss_scale
        )
        # Time of the steps since the last line of metrics.
        self._interval_seconds = 0.0
        self._interval_steps = 0

    def restore(self) -> None:
        """Loads what the run continues from.

        Raises:
            InputError: the checkpoint's settings may not change.
        """
        # 1 own checkpoint in output_dir
        # 2 init_checkpoint
        # 3 scratch
        # The order is important. 2 and 3 are Hooks.warm_start.
        latest = self.saver.latest()
        if latest is None:
            if metric_writer.has_begun(self.options.output_dir):
                logging.info(
                    f"an earlier run in {self.options.output_dir} has left no "
                    "checkpoint yet (--save_checkpoints_steps): begins again "
                    "at step 0"
                )
            self.hooks.warm_start()
            self.learner.optimizer.start_averages()
            return
        # A run begun in another precision has no loss scale.
        step, state = self.saver.restore(
            latest, self._variables, optional=[_LOSS_SCALE]
        )
        self._compare(latest, state.get("settings", {}))
        self.restored_from = latest
        if self.learner.run_clock and "clock" in state:
            self.learner.run_clock.restore(state["clock"])
        names = {f.name for f in dataclasses.fields(Progress)}
        fields = {name: x for name, x in state.items() if name in names}
        self.progress = Progress(**fields | {"step": step})
        self._started -= self.progress.seconds
        if not self.options.selection.every:
            self.progress.pending_evaluation = False
        # With more patience than before, a run that ended early continues.
        if not self._is_patience_over():
            self.progress.is_stopped = False

    def _compare(self, latest: str, old: Mapping[str, Any]) -> None:
        """Refuses other records and evaluations, and warns of the rest."""
        changes = self._settings.difference(old)
        _refuse_other_data(latest, changes, self.options.flags)
        if changes:
            text = "resuming with other settings: %s"
            logging.warning(text, ", ".join(map(str, changes)))

    def _is_patience_over(self) -> bool:
        progress, selection = self.progress, self.options.selection
        if selection.every <= 0 or selection.patience <= 0:
            return False
        waited = (progress.step - progress.best_step) / selection.every
        return waited >= selection.patience

    def is_finished(self, end: int) -> bool:
        """Returns whether the run has ended, at step `end` or early."""
        progress = self.progress
        is_at_end = progress.step >= end and not progress.pending_evaluation
        return progress.is_stopped or is_at_end

    def open(self, preempted: preemption.Preemption, end: int) -> None:
        """Opens the files of metrics; `run_phase` may be called then.

        Args:
            preempted: holds the signal, once one has come.
            end: the last step, as planned now.
        """
        self.preempted = preempted
        self._begun = time.monotonic()
        self.writer = metric_writer.MetricWriter(
            self.options.output_dir,
            first_step=self.progress.step,
            num_steps=end,
            is_chief=self._is_chief,
            evaluates_again=self.progress.pending_evaluation,
        )

    def step_at(self, planned: int) -> int:
        """Returns the step at which a planned number of steps is done.

        A run of a given time moves the steps of its plan.
        """
        run_clock = self.learner.run_clock
        return run_clock.step_at(planned) if run_clock else planned

    def run_phase(self, index: int, phase: Phase, before: int) -> None:
        """Trains until the end of a phase, if it has not ended already.

        Exits the process if a signal has come.

        Args:
            index: the number of phases before it.
            phase: the phase.
            before: the number of steps in the phases before it, as planned.
        """
        progress = self.progress
        first_step = self.step_at(before)
        self._phase, self._first_step = index, first_step
        self._planned_end = before + phase.num_steps
        last_step = self.step_at(self._planned_end)
        is_in_phase = first_step < progress.step <= last_step
        if is_in_phase and progress.pending_evaluation:
            # The next checkpoint will hold the result: to save this step again
            # would make its checkpoint incomplete for a moment.
            self._evaluate()
            self._exit_on_signal()
        if progress.step >= last_step or progress.is_stopped:
            return
        if first_step and progress.step == first_step:
            progress.best = None  # Each phase has its own held-out data.
        if phase.name:
            logging.info("phase %d: %s", index + 1, phase.name)
        self.writer.begin_phase()
        if self.learner.run_clock:
            self.learner.run_clock.begin_phase()
        # Every phase has its own step, because its batches have other shapes.
        batches = self._batches(phase, progress.step - first_step)
        self._train(self._train_step(phase), batches)
        self._exit_on_signal()

    def _train_step(self, phase: Phase) -> steps.TrainStep:
        return steps.TrainStep(
            phase.learner or self.learner,
            strategy=self.strategy,
            seed=self.options.seed,
            jit_compile=self.options.jit_compile,
            compile_functions=self.options.compile_functions,
        )

    def _batches(self, phase: Phase, first_batch: int) -> Any:
        num_parts = self.options.flags.gradient_accumulation_steps
        return iter(
            feed.distribute(
                self.strategy,
                phase.make_batches,
                first_batch=first_batch,
                num_accumulation_steps=num_parts,
                is_endless=True,
            )
        )

    def report_cost(self, phase: Phase) -> None:
        """Prints what a phase costs; measures two steps for their time."""
        flags = self.options.flags
        replicas = self.strategy.num_replicas_in_sync
        estimate = cost.estimate(
            phase.learner or self.learner,
            self._train_step(phase),
            phase.make_batches,
            replicas=replicas,
            accumulation=flags.gradient_accumulation_steps,
        )
        lines = estimate.lines(phase.num_steps)
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()  # The steps below may use up the memory.
        if flags.peak_tflops is not None:
            speed = _UTILIZATION * flags.peak_tflops * 1e12 * replicas
            seconds = estimate.flops / speed
            source = f"at {_UTILIZATION:.0%} of --peak_tflops"
        elif estimate.fits:
            train_step = self._train_step(phase)
            batches = self._batches(phase, 0)
            train_step(batches, 0, 1)  # Compiles.
            started = time.monotonic()
            train_step(batches, 1, 1)
            seconds, source = time.monotonic() - started, "measured"
        else:
            return
        hours = seconds * phase.num_steps / 3600
        line = f"{seconds:.3g} s per step ({source}): {hours:.3g} h"
        sys.stdout.write(f"time        {line}\n")

    def _train(self, train_step: steps.TrainStep, batches: Any) -> None:
        """Calls the compiled steps until the phase ends."""
        flags = self.options.flags
        steps_per_call = 1
        seen_shapes: set[bytes] = set()
        while self.progress.step < self._end():
            number = min(steps_per_call, self._steps_to_next_action())
            self._profile()
            started = time.monotonic()
            is_first = not seen_shapes
            with progress_lib.notice(_COMPILING) if is_first else nullcontext():
                results = self._call(train_step, batches, number)
            seconds = time.monotonic() - started
            self._add(results)
            self.saver.check()
            # The first call compiles, and fills the shuffle buffers. Later ones
            # compile if a batch has a new shape.
            shapes = {shape.tobytes() for shape in results.shapes}
            if shapes <= seen_shapes:
                self._interval_seconds += seconds
                self._interval_steps += number
            else:
                self.writer.leave_out(number, seconds)
            seen_shapes |= shapes
            stop_signal, seconds_per_step, elapsed = self._agree(
                seconds / number, started + seconds - self._begun
            )
            steps_per_call = min(
                max(1, int(_SECONDS_PER_CALL / max(seconds_per_step, 1e-6))),
                flags.iterations_per_loop,
            )
            if run_clock := self.learner.run_clock:
                run_clock.tick(self.progress.step, elapsed)
                self.writer.plan(run_clock.end)
            self.writer.progress(self.progress.step)
            stop_signal = self._act(train_step.global_batch_size, stop_signal)
            if stop_signal or self._is_due(flags.save_checkpoints_steps):
                self._save()
            if stop_signal:
                self._exit(stop_signal)
        self._profile(is_end=True)

    def _profile(self, *, is_end: bool = False) -> None:
        """Starts or ends the profile of --profile_steps, for TensorBoard."""
        first, last = self.options.flags.profile_range or (0, 0)
        is_wanted = first <= self.progress.step < last and not is_end
        if is_wanted == self._is_profiling or not self._is_chief:
            return
        self._is_profiling = is_wanted
        if is_wanted:
            tf.profiler.experimental.start(self.options.output_dir)
        else:
            tf.profiler.experimental.stop()
            text = "step %d: wrote a profile into %s/plugins/profile"
            logging.info(text, self.progress.step, self.options.output_dir)

    def _exit_on_signal(self) -> None:
        """Exits if a signal has come, when all checkpoints are complete."""
        self._wait_for_checkpoints()
        stop_signal, *_ = self._agree()
        if stop_signal:
            self._exit(stop_signal)

    def _exit(self, stop_signal: int) -> NoReturn:
        self._wait_for_checkpoints()
        text = "step %d: saved on %s; repeat the command to continue"
        name = signal.Signals(stop_signal).name
        logging.info(text, self.progress.step, name)
        self.writer.close()
        self.preempted.exit(stop_signal)

    def _wait_for_checkpoints(self) -> None:
        """Waits until the last checkpoint is complete, on all workers."""
        self.saver.wait()
        strategies.wait_for_all(self.strategy)

    def _end(self) -> int:
        """Returns the step at which the phase ends, as known now."""
        if self.progress.is_stopped:
            return self.progress.step
        return self.step_at(self._planned_end)

    def _call(self, train_step, batches, number) -> steps.StepResults:
        step = self.progress.step
        try:
            return train_step(batches, step, number)
        except (
            tf.errors.DataLossError,
            tf.errors.InvalidArgumentError,
            UnicodeDecodeError,  # Of a message with bytes of a record.
        ) as error:
            self._diagnose(f"step {step}: {errors.reason(error)}")
            raise

    def _diagnose(self, problem: str) -> None:
        """Looks for a damaged record; exits if a signal comes."""
        try:
            with self.preempted.interruptible():
                self.hooks.diagnose(self._phase, problem)
        except preemption.Interrupted:
            self.preempted.exit(self.preempted.signal)

    def _steps_to_next_action(self) -> int:
        options, step = self.options, self.progress.step
        periods = (
            options.log_every,
            options.flags.save_checkpoints_steps,
            options.selection.every,
        )
        ends = [step + p - step % p for p in periods if p]
        ends += [x for x in options.flags.profile_range or () if x > step]
        return min([self._end(), *ends]) - step

    def _is_due(self, period: int) -> bool:
        step = self.progress.step
        return step >= self._end() or (period > 0 and step % period == 0)

    def _add(self, results: steps.StepResults) -> None:
        """Counts steps and adds their metrics to the interval.

        Raises:
            Diverged: the loss or the gradients of a step are not finite.
        """
        progress = self.progress
        for i, is_applied in enumerate(results.is_applied):
            norm = float(results.gradient_norms[i])
            if is_applied:
                sums = results.sums[i].tolist()
                if not np.isfinite([*sums, norm]).all():
                    self._raise_not_finite(sums[0], norm)
                if progress.lowest_loss is None:
                    progress.lowest_loss = sums[0]
                names = [*results.names, "grad_norm"]
                weights = [*results.weights[i].tolist(), 1.0]
                rows = zip(names, [*sums, norm], weights, strict=True)
                for name, total, weight in rows:
                    entry = progress.interval.setdefault(name, [0.0, 0.0])
                    entry[0] += total
                    entry[1] += weight
            progress.step += 1

    def _raise_not_finite(self, loss: float, norm: float) -> NoReturn:
        step = self.progress.step
        batch = step - self._first_step
        records = self.hooks.describe_batch(self._phase, batch)
        self._raise_diverged(
            f"step {step}: the loss is {loss:g} and the norm of the gradients "
            f"{norm:g}",
            "lower --learning_rate"
            + (f" or look at {records}" if records else ""),
        )

    def _raise_diverged(self, problem: str, advice: str) -> NoReturn:
        self.saver.wait()
        self.writer.close()
        raise Diverged(
            problem, advice, step=self.progress.step, seconds=self._seconds()
        )

    def _seconds(self) -> float:
        """Returns how long all processes of this run have trained."""
        return time.monotonic() - self._started

    def _act(self, global_batch_size: int, stop_signal: int) -> int:
        """Writes metrics and evaluates, each if it is due.

        Args:
            global_batch_size: examples per step.
            stop_signal: the signal that stops the run, or 0.

        Returns:
            stop_signal, or the signal that came during the evaluation.
        """
        skipped = None
        if self.learner.loss_scale is not None:
            skipped, problem = self.learner.loss_scale.check()
            if problem:
                self._raise_diverged(
                    f"step {self.progress.step}: {problem}",
                    "lower --learning_rate or use --precision=bfloat16",
                )
        if self._is_due(self.options.log_every):
            self._write_interval(global_batch_size, skipped)
        every = self.options.selection.every
        if not (every and self._is_due(every)):
            return stop_signal
        if stop_signal:
            self.progress.pending_evaluation = True
            return stop_signal
        try:
            self._evaluate()
        except Exception:
            self._save()  # Else the steps since the last checkpoint are lost.
            self.saver.wait()
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
        context = self.preempted.interruptible if is_alone else nullcontext
        with self.learner.optimizer.averaged():
            try:
                with context():
                    held_out = self.hooks.evaluate(self._phase, progress.step)
            except preemption.Interrupted:
                return
            self.writer.write(
                progress.step, {f"eval/{k}": v for k, v in held_out.items()}
            )
            samples = self.hooks.samples(self._phase)
            self.writer.write_samples(progress.step, samples)
            if self.options.selection.keeps_best:
                self._keep_if_best(held_out)
        progress.pending_evaluation = False
        if self._is_patience_over():
            text = "step %d: no better since step %d, stopping early"
            logging.info(text, progress.step, progress.best_step)
            progress.is_stopped = True

    def _keep_if_best(self, held_out: Mapping[str, float]) -> None:
        """Keeps the model if no evaluation before was better."""
        progress = self.progress
        best = self.best.offer(
            progress.step,
            held_out,
            saved_variables(self.learner.model),
            progress.best,
        )
        if best != progress.best:
            self.hooks.export(self.best.directory)
            progress.best, progress.best_step = best, progress.step

    def _write_interval(
        self, global_batch_size: int, skipped: int | None
    ) -> None:
        """Writes the means of the metrics since the last line."""
        step = self.progress.step
        values = {
            f"train/{name}": total / weight if weight else 0.0
            for name, (total, weight) in self.progress.interval.items()
        }
        self._compare_loss(values.get("train/loss"))
        schedule = self.learner.optimizer.schedule
        learning_rate = schedule(tf.constant(step - 1, tf.int64))
        values["train/learning_rate"] = float(learning_rate)
        if skipped is not None:
            values["train/skipped_steps"] = skipped
        if self.learner.run_clock:
            values["train/planned_steps"] = self.learner.run_clock.end
        if self._interval_steps:
            seconds = self._interval_seconds / self._interval_steps
            values["train/seconds_per_step"] = seconds
            rate = global_batch_size / seconds
            values["train/examples_per_second"] = rate
            values.update(self.hooks.speed(self._phase, rate))
        self.writer.write(step, values)
        self.progress.interval = {}
        self._interval_seconds, self._interval_steps = 0.0, 0

    def _compare_loss(self, loss: float | None) -> None:
        """Logs a warning when the loss becomes far higher than it was."""
        if loss is None:  # All steps of the interval were skipped.
            return
        progress = self.progress
        was_high = progress.has_high_loss
        progress.recent_losses = [*progress.recent_losses, loss][-_LINES:]
        last, lowest = progress.last_loss, progress.lowest_loss
        progress.lowest_loss = min(last, last if lowest is None else lowest)
        if progress.has_high_loss and not was_high:
            text = "step %d: the loss is %.4g and was %.4g: training diverges"
            logging.warning(text, progress.step, last, progress.lowest_loss)

    def warn_of_high_loss(self) -> None:
        """Logs a warning if the run has ended with a high loss."""
        if self.progress.has_high_loss:
            logging.warning(
                "training has diverged: the loss was "
                f"{self.progress.lowest_loss:.4g} and ended at "
                f"{self.progress.last_loss:.4g}; the model is of no use: lower "
                "--learning_rate, or raise the number of warm-up steps"
            )

    def _save(self) -> None:
        # A checkpoint must not survive a power failure without its metrics.
        self.writer.flush()
        self.progress.seconds = self._seconds()
        state = dataclasses.asdict(self.progress)
        state["settings"] = self._settings.to_json()
        state["task_settings"] = dict(self.options.task_settings)
        if self.learner.run_clock:
            elapsed = time.monotonic() - self._begun
            state["clock"] = self.learner.run_clock.state(elapsed)
        self.saver.save(state.pop("step"), self._variables, state)

    def _agree(
        self, seconds: float = 0.0, elapsed: float = 0.0
    ) -> tuple[int, float, float]:
        """Returns the same values on all workers, so that they act alike.

        Args:
            seconds: this worker's time per step.
            elapsed: this worker's time since it began to train.

        Returns:
            The signal that stops the run, or 0, and the means of both times.
        """
        received = self.preempted.signal
        if not strategies.is_multi_worker(self.strategy):
            return received, seconds, elapsed
        values = tf.constant([float(received), seconds, elapsed, 1.0])
        total = strategies.sum_over_replicas(self.strategy, values).numpy()
        # Workers that have received no signal take SIGTERM (15).
        stop_signal = 0 if not total[0] else (received or 15)
        return (
            stop_signal,
            float(total[1] / total[3]),
            float(total[2] / total[3]),
        )


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

    Where the checkpoint has averages of the weights, it loads these.

    Returns:
        The checkpoint's step; None if there is no checkpoint.
    """
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return None
    return saver.restore(latest, saved_variables(model), averaged=True)[0]


def training_seconds(directory: str) -> float:
    """Returns the time of training until the last checkpoint, 0 if none."""
    return last_state(directory).get("seconds", 0.0)


def last_state(directory: str) -> dict[str, Any]:
    """Returns what the last checkpoint stores besides tensors, {} if none.

    It has the names of Progress, "settings", and "task_settings": what tells
    the meaning of the model's outputs.
    """
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return {}
    step, state = saver.restore(latest, {})
    return {**state, "step": step}
