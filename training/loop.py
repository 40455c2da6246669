"""The one training loop: log, evaluate, checkpoint, resume.

A run is a pure function of its arguments: stopped at any step, by any signal,
and started again, it goes on from its last checkpoint and ends with the same
weights. What happens inside a step is in step.py.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

import errors
from training import (
    checkpoints,
    clock,
    continuity,
    feed,
    loop_options,
    metric_writer,
    optimizers,
    precision,
    preemption,
    run,
)
from training import step as steps
from training import strategy as strategies

Phase = run.Phase
Diverged = run.Diverged
Options = loop_options.Options
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
        going = run.Run(
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
    continuity.check(
        latest,
        state.get("settings", {}),
        options.settings,
        refused=options.data_settings,
        extendable=options.extendable_settings,
        is_allowed=options.allow_changed_data,
    )
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


def _run_phases(going: run.Run, phases, task, model) -> None:
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
