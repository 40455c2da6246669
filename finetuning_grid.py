"""Trains all runs of a job's grid, and keeps the best.

    fitted, step = train(job, results, save_model)

A finished run is not trained again; of the others, one is in memory at a time.
One that diverges is finished, and the grid goes on without it.
"""

import gc
import math
import sys
from collections.abc import Callable
from typing import Any

from absl import logging

from finetuning_job import Fitted, Job
from tasks import grid, model_card, model_files
from training import assembly, config_flags
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
        _reuse(job, run, results)
    assembly.write_run_config(config, job.strategy)
    # Now: a chief writes both anew later.
    kept = grid.kept(config.output_dir)
    is_here = model_files.is_here(config.output_dir)
    is_reused = {run for run in runs if run in results}
    # Whose model output_dir has. Grids of other runs keep another there.
    saved = {run for run in is_reused if is_here and run.is_that_of(kept)}
    fitted, last = None, None
    for run in runs:
        if run not in is_reused:
            fitted = None  # Two models need not fit at a time.
            fitted, last = _finish(job, run, results, save_model), run
            saved = {run} if results.is_best(run) else saved
    results.check()
    while (best := results.best_run) not in saved:
        logging.info(
            "%s is trained once more: it is the best, and not kept", best.name
        )
        fitted = None
        fitted, last = _finish(job, best, results, save_model), best
        results.check(best)
        saved = {best} if results.is_best(best) else saved
    if config.is_grid:
        _tell(job, results)
    if fitted is None or last != best:
        fitted = None
        fitted = _fit(job, config.random_seed)
        fitted.assign(config.output_dir)
    return fitted, results.best["step"]


def _reuse(job: Job, run: grid.Run, results: grid.Results) -> None:
    """Takes over what a run of a grid has ended with, if it has.

    The only run of a job has its checkpoints still, and is resumed.
    """
    done = run.result()
    if done is not None:
        run.check(done, job.settings)
        if job.config.is_grid:
            results.add(run, done)
    elif job.config.is_grid:
        run.check(run.begun() or {}, job.settings)


def _tell(job: Job, results: grid.Results) -> None:
    """Shows what a grid ended with, and writes it beside the kept model."""
    if assembly.is_chief(job.strategy):
        shown = results.write()
        model_card.end(
            job.config.output_dir,
            seconds=results.seconds,
            flags=config_flags.given(job.config),
        )
    else:
        shown = results.text()
    sys.stdout.write(shown + "\n")


def _finish(
    job: Job,
    run: grid.Run,
    results: grid.Results,
    save_model: Callable[[Any], None],
) -> Fitted:
    """Trains a run to its end, and keeps its model if it is the best."""
    config = job.config
    is_chief = assembly.is_chief(job.strategy)
    if config.is_grid and is_chief:
        run.begin(job.settings)
    fitted = _fit(job, run.random_seed)
    done = _train_one(fitted, run)
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


def _train_one(fitted: Fitted, run: grid.Run) -> dict[str, Any]:
    """Returns what the run ends with; see grid.Results.add.

    Raises:
      InputError: the only run of a job has diverged.
    """
    is_grid = fitted.job.config.is_grid
    failed, values = None, {}
    try:
        step = fitted.train(run)
        seconds = training.seconds(run.directory)
    except training.Diverged as error:
        if not is_grid:
            raise
        step, seconds, failed = error.step, error.seconds, error.reason
    if is_grid and failed is None:
        values = dict(fitted.judge().values)
        score = values[training.SCORE]
        if not math.isfinite(score):
            values = {}
            failed = f"step {step}: the score on the development set is {score}"
    done = {
        "step": step,
        "seconds": seconds,
        "values": values,
        "settings": {**fitted.job.settings, **run.settings},
    }
    if failed is not None:
        logging.warning("%s: %s", run.name, failed)
        done["failed"] = failed
    return done
