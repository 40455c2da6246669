"""The one training loop: log, evaluate, checkpoint, resume.

A run is a pure function of its arguments: stopped at any step, by any signal,
and started again, it goes on from its last checkpoint and ends with the same
weights. What happens inside a step is in step.py.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors
from training import (
    checkpoints,
    clock,
    feed,
    metric_writer,
    optimizers,
    precision,
    preemption,
)
from training import step as steps
from training import strategy as strategies

# ----------------------------------------------------------------------
# What a run is told besides its parts; loop.train takes it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How long, how often, from which seed.

    Attributes:
        seed: keys dropout.
        num_accumulation_steps: micro-batches per step and replica.
        iterations_per_loop: at most so many steps per compiled call.
        log_every: steps between lines of metrics.
        save_checkpoints_steps: steps between checkpoints.
        keep_checkpoint_max: how many of the last to keep; 0 keeps all.
        eval_every: steps between evaluations; 0 is never.
        best_metric: which of evaluate's values picks `best/`.
        higher_is_better: in which direction.
        patience: end after so many evaluations without a better one; 0 is
            never.
        jit_compile: whether XLA compiles forward and backward.
        compile_parts: whether it compiles parts of them, not the products.
        settings: what a resumed run is compared by.
    """

    seed: int
    num_accumulation_steps: int = 1
    iterations_per_loop: int = 1000
    log_every: int = 100
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    eval_every: int = 0
    best_metric: str = "loss"
    higher_is_better: bool = False
    patience: int = 0
    jit_compile: bool = False
    compile_parts: bool = False
    settings: "Settings" = dataclasses.field(default_factory=lambda: Settings())


# ----------------------------------------------------------------------
# What changes while a run goes on: steps, metrics, evaluations, checkpoints.
#
# loop.train makes one Run and hands it each phase; what happens inside a step
# is
# in step.py.

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
    options: Options
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
            "settings": dict(self.options.settings.values),
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that identify a run; its checkpoints hold the values.

    Some decide which records a step reads: with another batch size, seed or
    input, a resumed run would leave records out or read them twice. With
    another development set, the best checkpoint would be chosen by the scores
    of two sets. A resumed run may not change those. It names all others that
    have changed in a warning.

    Attributes:
        values: setting -> JSON value.
        fixed: settings that a resumed run may not change.
        extendable: those of them that list what is read in turn, as a list or
            with commas: a resumed run may add to their end.
        allows_changes: whether a resumed run may change everything.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Collection[str] = ()
    extendable: Collection[str] = ()
    allows_changes: bool = False

    def check(self, directory: str, old: Mapping[str, Any]) -> None:
        """Compares the values with those of a checkpoint, where both have one.

        Args:
            directory: the output_dir that is resumed.
            old: the values in its checkpoint.

        Raises:
            InputError: a fixed setting differs.
        """
        new = self.values
        changed = {
            name: f"--{name} was {_short(old[name])}, is {_short(new[name])}"
            for name in new
            if name in old and old[name] != new[name]
        }
        refused = [
            text
            for name, text in changed.items()
            if name in self.fixed
            and not (
                name in self.extendable and _only_adds(old[name], new[name])
            )
        ]
        if refused and not self.allows_changes:
            raise errors.InputError(
                f"{', '.join(refused)}: the run in {directory} would leave out "
                "records, see them twice or compare scores of two sets; resume "
                "it as it was begun, or say --allow_changed_data, or begin "
                f"another --output_dir with --init_checkpoint={directory}"
            )
        if changed:
            logging.warning(
                "resuming with other settings: %s", ", ".join(changed.values())
            )


def _only_adds(old: Any, new: Any) -> bool:
    old, new = (x.split(",") if isinstance(x, str) else x for x in (old, new))
    if not (isinstance(old, list) and isinstance(new, list)):
        return False
    return new[: len(old)] == old


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_FINISHED = "already finished: %s is at step %d of %d"


def train(
    task: steps.Task,
    model: Any,
    optimizer: optimizers.Optimizer,
    *,
    strategy: tf.distribute.Strategy,
    phases: Sequence[Phase],
    output_dir: str,
    options: Options,
    loss_scale: precision.LossScale | None = None,
    run_clock: clock.Clock | None = None,
    warm_start: Callable[[], None] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> int:
    """Trains through all phases, from wherever the run stands.

    Everything is made under strategy.scope(). `loss_scale` is for float16,
    `run_clock` ends a run of one phase in time, `warm_start` assigns a fresh
    run's weights, `begun` is called when nothing has been refused. Returns the
    step that it starts from; after SIGTERM SystemExit(preemption.EXIT_CODE).
    """
    started = time.monotonic()
    variables = saved_variables(model, optimizer, loss_scale)
    saver = _saver(output_dir, options, strategy)
    step, state = _begin(saver, variables, options, run_clock, warm_start)
    _check_all_go_on_from(step, strategy, output_dir)
    begun()
    end = run_clock.end if run_clock else sum(p.num_steps for p in phases)
    if _is_over(step, end, state, options):
        logging.info(_FINISHED, output_dir, step, end)
        return step
    with preemption.Preemption() as preempted:
        going = Run(
            strategy=strategy,
            options=options,
            optimizer=optimizer,
            loss_scale=loss_scale,
            run_clock=run_clock,
            variables=variables,
            weights=saved_variables(model),
            saver=saver,
            best=_best(output_dir, options, strategy, saver),
            writer=_writer(output_dir, step, end, strategy, state, options),
            preempted=preempted,
            step=step,
            **_stands(state, options, started),
        )
        _run_phases(going, phases, task, model)
    going.writer.close()
    return step


def _stands(state, options, started) -> dict[str, Any]:
    """Returns what is known of metrics and time, as fields of a Run."""
    return {
        "interval": state.get("interval", {}),
        "best_value": state.get("best"),
        "best_step": state.get("best_step", 0),
        "started": started,
        "seconds_before": state.get("seconds", 0.0),
        "owes_evaluation": _owes_evaluation(state, options),
    }


def _begin(
    saver, variables, options, run_clock, warm_start
) -> tuple[int, dict]:
    """Loads what the run goes on from; returns its step and host state."""
    # 1 own checkpoint in output_dir
    # 2 init_checkpoint
    # 3 scratch
    # The order is important.
    latest = saver.latest()
    if latest is None:
        if warm_start is not None:
            warm_start()
        return 0, {}
    step, state = saver.restore(latest, variables)
    options.settings.check(latest, state.get("settings", {}))
    logging.info("resuming from %s", latest)
    if run_clock and "clock" in state:
        run_clock.restore(state["clock"])
    return step, state


def _check_all_go_on_from(step, strategy, output_dir) -> None:
    """Refuses workers that do not see the chief's checkpoints."""
    if not strategies.is_multi_worker(strategy):
        return
    values = tf.constant([step, 1.0], tf.float64)
    total, number = strategies.sum_over_replicas(strategy, values).numpy()
    if total != step * number:
        raise errors.InputError(
            f"--output_dir={output_dir}: this worker finds step {step} there, "
            "others another: give all workers the same shared folder"
        )


def _owes_evaluation(state, options) -> bool:
    """Says whether a signal left out an evaluation that is to be made."""
    return bool(options.eval_every and state.get("owes_evaluation", False))


def _is_over(step, end, state, options) -> bool:
    """Says whether nothing is left to be done."""
    is_at_end = step >= end and not _owes_evaluation(state, options)
    return is_at_end or _is_stopped(step, state, options)


def _is_stopped(step, state, options) -> bool:
    """Says whether it ended early, and would with the patience of now."""
    if not (state.get("is_stopped") and options.eval_every):
        return False
    waited = (step - state["best_step"]) / options.eval_every
    return 0 < options.patience <= waited


def _writer(
    output_dir, step, end, strategy, state, options
) -> metric_writer.MetricWriter:
    return metric_writer.MetricWriter(
        output_dir,
        first_step=step,
        num_steps=end,
        is_chief=strategies.is_chief(strategy),
        evaluates_again=_owes_evaluation(state, options),
    )


def _saver(output_dir, options, strategy) -> checkpoints.Checkpoints:
    return checkpoints.Checkpoints(
        output_dir,
        keep_max=options.keep_checkpoint_max,
        is_chief=strategies.is_chief(strategy),
        is_asynchronous=True,
    )


def _best(output_dir, options, strategy, saver) -> checkpoints.BestCheckpoint:
    return checkpoints.BestCheckpoint(
        output_dir,
        metric=options.best_metric,
        higher_is_better=options.higher_is_better,
        is_chief=strategies.is_chief(strategy),
        beside=saver,
    )


def _run_phases(going: Run, phases, task, model) -> None:
    begins = 0
    for phase in phases:
        ends = begins + phase.num_steps
        if begins < going.step <= ends:
            going.pay(phase, begins)
        if going.step < ends:
            if begins and going.step == begins:
                # What is held out has changed as well.
                going.best_value = None
            batches = feed.distribute(
                going.strategy,
                phase.make_batches,
                first_batch=going.step - begins,
                num_accumulation_steps=going.options.num_accumulation_steps,
                is_endless=True,
            )
            # One for every phase, whose batches have other shapes.
            train_step = steps.TrainStep(
                task,
                model,
                going.optimizer,
                strategy=going.strategy,
                seed=going.options.seed,
                loss_scale=going.loss_scale,
                jit_compile=going.options.jit_compile,
                compile_parts=going.options.compile_parts,
            )
            going.go(phase, begins, train_step, batches)
        begins = ends


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


def seconds(directory: str) -> float:
    """Returns how long training took until the last checkpoint.

    Of one that does not tell it is 0.
    """
    saver = checkpoints.Checkpoints(directory)
    latest = saver.latest()
    if latest is None:
        return 0.0
    _, state = saver.restore(latest, {})
    return state.get("seconds", 0.0)
