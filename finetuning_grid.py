"""Trains all runs of a job's grid, and keeps the best.

    fitted, step = train(job, results, save_model)

A finished run is not trained again; of the others, one is in memory at a time.
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from finetuning_job import Fitted, Job
from tasks import grid
from training import assembly
from training import finetuning as training


def train(
    job: Job, results: grid.Results, save_model: Callable[[Any], None]
) -> tuple[Fitted, int]:
    """Trains the grid; returns the best model and its step.

    Args:
      job: what is trained.
      results: gets what every run ends with.
      save_model: writes a model into output_dir; called with the best so far.
    """
    config = job.config
    runs = grid.plan(config.learning_rates, config.seeds, config.output_dir)
    for run in runs:
        _reuse(job, run, results, is_grid=len(runs) > 1)
    kept = grid.kept(config.output_dir)  # Now: a chief writes it anew later.
    is_reused = set(results.values)
    fitted, last = None, None
    for run in runs:
        if run not in is_reused:
            fitted = None  # Two models need not fit at a time.
            fitted, last = _finish(job, run, results, save_model), run
    best = results.best_run
    if best in is_reused and not best.is_that_of(kept):
        # A grid of other runs has kept another, and no checkpoints.
        logging.info("%s is trained once more: it is the best", best.name)
        fitted = None
        fitted, last = _finish(job, best, results, save_model), best
    if len(runs) > 1:
        is_chief = assembly.is_chief(job.strategy)
        shown = results.write() if is_chief else results.text()
        sys.stdout.write(shown + "\n")
    if fitted is None or last != best:
        fitted = None
        fitted = _fit(job, config.random_seed)
        fitted.assign(config.output_dir)
    return fitted, results.best["step"]


def _reuse(
    job: Job, run: grid.Run, results: grid.Results, *, is_grid: bool
) -> None:
    """Takes over what a run of a grid has ended with, if it has.

    The only run of a job has its checkpoints still, and is resumed.
    """
    done = run.result()
    if done is not None:
        run.check(done, job.settings)
        if is_grid:
            results.add(run, done)


def _finish(
    job: Job,
    run: grid.Run,
    results: grid.Results,
    save_model: Callable[[Any], None],
) -> Fitted:
    """Trains a run to its end, and keeps its model if it is the best."""
    config = job.config
    fitted = _fit(job, run.random_seed)
    done = _train_one(fitted, run, judge=config.is_grid)
    is_chief = assembly.is_chief(job.strategy)
    if results.add(run, done):
        save_model(fitted.model)
        if is_chief:
            results.keep(run)
    if is_chief:
        run.finish(done)
        if config.is_grid:
            training.remove_checkpoints(run.directory)
    return fitted


def _fit(job: Job, seed: int) -> Fitted:
    """Makes a model where the former one, if any, has been let go."""
    # A compiled step and what it is a method of hold each other, and with them
    # the weights and slots: Python would free them sometime later.
    gc.collect()
    return job.fit(seed)


def _train_one(fitted: Fitted, run: grid.Run, *, judge: bool) -> dict[str, Any]:
    """Returns what the run ends with: step, seconds, values."""
    started = time.monotonic()
    step = fitted.train(run)
    # Of a run that was stopped and had ended already when it was resumed.
    before = (run.result() or {"seconds": 0.0})["seconds"]
    seconds = before + time.monotonic() - started
    values = dict(fitted.judge().values) if judge else {}
    return {
        "step": step,
        "seconds": seconds,
        "values": values,
        "settings": {**fitted.job.settings, **run.settings},
    }
