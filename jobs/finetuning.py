"""What fine-tuning runners do alike: what a job is, and how a model is asked.

A runner says what its task is; a job trains, asks and restores its models:

    job = Job(config=..., start=..., strategy=..., task=..., make_model=...,
              features=..., evaluate=..., data_settings=...)
    task_model, step = finetuning_grid.train(job, results, save_model)
    task_model, step = load(job)                           # or that
    values = task_model.evaluate().values
    logits = task_model.predict("test", batch_size)["logits"]
"""

import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from data import length_groups
from data.features import Features
from foundation import config_flags, errors, file_system
from jobs import assembly, grid, model_card, run_config, run_files
from training import checkpoints, feed, loop, prediction
from weights import model_directory, pretrained

# ----------------------------------------------------------------------
# How a task is trained for some epochs on top of a pre-trained encoder.

BEST = "best"  # Where the loop keeps the best checkpoint.
Diverged = loop.Diverged
# What evaluations are compared by, while training and in a grid.
SCORE = "score"


def num_train_steps(
    num_examples: int, train_batch_size: int, num_train_epochs: float
) -> int:
    """Returns how many steps the epochs have, as released."""
    steps = int(num_examples / train_batch_size * num_train_epochs)
    if steps < 1:
        raise errors.InputError(
            f"--train_batch_size={train_batch_size}: {num_examples} examples "
            f"in {num_train_epochs:g} epoch(s) do not fill one batch"
        )
    return steps


def length_step(
    config: run_config.FinetuningConfig,
    strategy: tf.distribute.Strategy,
) -> str:
    """Returns which lengths batches may have; see data.length_groups.

    A TPU takes one; XLA compiles every one anew, so there should be few.
    """
    is_tpu = "TPU" in type(strategy).__name__
    if is_tpu or not config.group_by_length:
        return "one"
    return "coarse" if assembly.uses_xla(config) else "fine"


def train_epochs(
    config: run_config.FinetuningConfig,
    run: run_config.RunConfig,
    task: Any,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    make_batches: feed.MakeBatches,
    num_examples: int,
    warm_start: Callable[[], None],
    settings: loop.Settings,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    rate_multiplier: Callable[[str], float] | None = None,
) -> int:
    """Trains for the epochs, or until evaluations say that it is enough.

    Args:
        config: the flags.
        run: those of this run of the grid.
        task: see step.Task.
        model: made in strategy.scope().
        strategy: the devices.
        make_batches: endless.
        num_examples: in an epoch.
        warm_start: assigns the pre-trained weights.
        settings: see assembly.settings_of.
        evaluate: returns held-out values, SCORE among them.
        rate_multiplier: see assembly.make_optimizer.

    Returns:
        The step whose weights the model has now.
    """
    batch_size, epochs = config.train_batch_size, config.num_train_epochs
    steps = num_train_steps(num_examples, batch_size, epochs)
    phase = loop.Phase(steps, make_batches, evaluate=evaluate)
    assembly.train(
        run,
        task,
        model,
        strategy=strategy,
        phases=[phase],
        num_warmup_steps=int(steps * config.warmup_proportion),
        eval_every=config.eval_every_steps,
        warm_start=warm_start,
        settings=settings,
        optimizer_options=_optimizer_options(config, rate_multiplier),
        loop_options=_loop_options(config),
    )
    return restore(config, model, run.output_dir) or 0


def _optimizer_options(config, rate_multiplier) -> dict[str, Any]:
    return {
        "bias_correction": config.bias_correction or None,
        "rate_multiplier": rate_multiplier,
    }


def _loop_options(config) -> dict[str, Any]:
    return {
        "best_metric": SCORE,
        "higher_is_better": True,
        "patience": config.early_stopping_patience,
    }


def restore(
    config: run_config.FinetuningConfig, model: Any, output_dir: str
) -> int | None:
    """Loads what a run ended with; returns its step, None if there is none."""
    if config.early_stopping_patience:
        step = loop.restore_model(model, os.path.join(output_dir, BEST))
        if step is not None:
            return step
    return loop.restore_model(model, output_dir)


def training_seconds(output_dir: str) -> float:
    """Returns how long a run has trained, by all processes that did."""
    return loop.seconds(output_dir)


def remove_checkpoints(directory: str) -> None:
    """Removes a finished run's checkpoints, which its model replaces."""
    for folder in (directory, os.path.join(directory, BEST)):
        checkpoints.remove_all(folder)


TRAIN = "train"


class Evaluation(Protocol):
    """What a model makes of the development sets."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics by name, among them "score", by which runs are compared."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """What all runs of a grid have in common.

    Attributes:
      config: the flags.
      start: what the runs begin with.
      strategy: the devices.
      task: a step.Task and a prediction.Task.
      make_model: takes attention, bilstm_size, recompute, seed and dtype.
      features: of a set by its name; asked for often, so it caches.
      evaluate: asks a model about the development sets.
      data_settings: values of flags that affect records, where they are not the
        flag's own: the digest of a file in place of its name.
      evaluation_settings: returns the same for flags that affect evaluations;
        called only if training evaluates.
      num_examples: that make an epoch, where features are parts of examples;
        None if every row of them is one.
      load_beside: assigns to a model what lies in a directory besides its
        weights, and returns the paths of those variables.
    """

    config: run_config.FinetuningConfig
    start: pretrained.Start
    strategy: Any
    task: Any
    make_model: Callable[..., Any]
    features: Callable[[str], Features]
    evaluate: Callable[["TaskModel"], Evaluation]
    data_settings: Mapping[str, Any]
    evaluation_settings: Callable[[], Mapping[str, Any]]
    num_examples: int | None = None
    load_beside: Callable[[Any, str], Collection[str]] | None = None

    @property
    def lengths(self) -> list[int]:
        """The lengths that batches may have."""
        step = length_step(self.config, self.strategy)
        return length_groups.permitted_lengths(self.config.max_seq_length, step)

    def found_settings(self, *, evaluates: bool) -> dict[str, Any]:
        """Returns the values, by flag, that are not the flags' own."""
        tokenizer = self.start.tokenizer
        return {
            "vocab_file": tokenizer.vocabulary.sha256,
            "do_lower_case": tokenizer.settings["do_lower_case"],
            **self.data_settings,
            **(self.evaluation_settings() if evaluates else {}),
        }

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What decides, by flag, how the runs of a grid end."""
        return {
            **assembly.flag_values(self.config, "records", "result"),
            **self.found_settings(evaluates=self.config.needs_evaluation),
        }

    def build(self, seed: int) -> "TaskModel":
        """Makes the model with the random weights of a seed."""
        with self.strategy.scope():
            model = self.make_model(
                attention=self.start.attention,
                bilstm_size=self.start.bilstm_size,
                recompute=self.config.recompute,
                seed=seed,
                dtype=assembly.dtype_policy(self.config),
            )
        predictor = prediction.Predictor(
            self.task,
            model,
            strategy=self.strategy,
            jit_compile=assembly.uses_xla(self.config),
        )
        return TaskModel(job=self, model=model, predictor=predictor)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskModel:
    """A model of the job, and how it is asked."""

    job: Job
    model: Any
    predictor: prediction.Predictor

    def warm_start(self) -> None:
        """Assigns the pre-trained weights."""
        job = self.job
        pretrained.assign(
            self.model,
            job.start.init_checkpoint,
            tokenizer=job.start.tokenizer,
            reinit_layers=job.config.reinit_layers,
        )
        self._load_beside(job.start.init_checkpoint)

    def assign(self, weights: str | None) -> None:
        """Assigns the weights of a model that was trained for the task.

        Raises:
          InputError: there are none, or a part of the model is missing.
        """
        pretrained.require_weights(weights)
        model_directory.check_task(self.model, weights)
        report = pretrained.assign(self.model, weights)
        found = self._load_beside(weights)
        missing = [path for path in report.initialized if path not in found]
        if missing:
            raise errors.InputError(
                f"{weights} has not been trained for this task: "
                f"{', '.join(missing)} are missing; --do_train"
            )

    def _load_beside(self, weights: str | None) -> Collection[str]:
        if weights is None or self.job.load_beside is None:
            return ()
        return self.job.load_beside(self.model, file_system.folder_of(weights))

    def predict(
        self, features: Features, batch_size: int
    ) -> dict[str, np.ndarray]:
        """Returns what the task predicts, [N, ...] in the examples' order."""
        make_batches = self._batches(features, batch_size)
        return self.predictor(make_batches, len(features))

    def predictions(
        self, features: Features, batch_size: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the same batch by batch; see Predictor.batches."""
        return self.predictor.batches(self._batches(features, batch_size))

    def evaluate(self) -> Evaluation:
        """Returns what the model makes of the development sets."""
        return self.job.evaluate(self)

    def train(self, run: grid.Run) -> int:
        """Trains one run of the grid; returns its last step."""
        job, config = self.job, self.job.config
        features = job.features(TRAIN)

        def evaluate() -> Mapping[str, float]:
            return self.evaluate().values

        return train_epochs(
            config,
            config.run(
                learning_rate=run.learning_rate,
                random_seed=run.random_seed,
                output_dir=run.directory,
            ),
            job.task,
            self.model,
            strategy=job.strategy,
            make_batches=length_groups.endless_batches(
                features,
                batch_size=config.train_batch_size,
                seed=run.random_seed,
                lengths=job.lengths,
            ),
            num_examples=job.num_examples or len(features),
            warm_start=self.warm_start,
            settings=assembly.settings_of(
                config,
                {
                    **job.found_settings(evaluates=config.eval_every_steps > 0),
                    **run.settings,
                },
            ),
            evaluate=evaluate if config.eval_every_steps else None,
            rate_multiplier=pretrained.layer_rates(
                job.start.config.num_hidden_layers, config.layer_decay
            ),
        )

    def _batches(self, features: Features, batch_size: int) -> Callable:
        return length_groups.ordered_batches(
            features, batch_size=batch_size, lengths=self.job.lengths
        )


def open_start(
    config: run_config.FinetuningConfig,
) -> pretrained.Start:
    """Finds what the flags say to start from.

    Where nothing is trained, a model in output_dir is asked, and its labels and
    tokenizer are meant, not those of what it was trained from; see load. What
    is trained never starts from there: a grid's next run would from its best.
    """
    init_checkpoint = config.init_checkpoint
    if config.do_train:
        model_directory.check_not_the_start(
            config.output_dir, init_checkpoint, is_grid=config.is_grid
        )
    elif model_directory.has_model(config.output_dir):
        _tell_of_two(init_checkpoint, config.output_dir)
        init_checkpoint = None
    return pretrained.open_start(
        output_dir=None if config.do_train else config.output_dir,
        init_checkpoint=init_checkpoint,
        bert_config_file=config.bert_config_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        bilstm_size=config.bilstm_size,
        max_seq_length=config.max_seq_length,
    )


def _tell_of_two(init_checkpoint: str | None, output_dir: str) -> None:
    weights = os.path.join(output_dir, model_directory.WEIGHTS)
    same = {file_system.real(path) for path in (output_dir, weights)}
    if init_checkpoint and file_system.real(init_checkpoint) not in same:
        logging.warning(
            "asked is the model in --output_dir=%s, not --init_checkpoint=%s",
            output_dir,
            init_checkpoint,
        )


def open_strategy(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    **batch_sizes: int,
) -> Any:
    """Makes the devices ready, as the last thing before work begins.

    Checks what they must fit, and notes the flags in output_dir, but for those
    of a question to what was trained there: training's stay, which are noted
    when it begins. `batch_sizes` are those besides training's and prediction's,
    by flag.
    """
    model_directory.check_output_dir(config.output_dir, start.config)
    strategy = assembly.make_strategy(config, config.output_dir)
    assembly.check_batch_sizes(
        config,
        strategy,
        train_batch_size=config.train_batch_size,
        predict_batch_size=config.predict_batch_size,
        **batch_sizes,
    )
    if run_files.is_noted_first(config.output_dir, do_train=config.do_train):
        assembly.write_run_config(config, strategy)
    return strategy


def open_files(
    config: run_config.FinetuningConfig, job: Job
) -> run_files.RunFiles:
    """Says where the files go that a job leaves."""
    results, trained_with = grid.Results(config.output_dir), None
    if not config.do_train:
        results.read()
        trained_with = run_files.training_flags(config.output_dir)
    return run_files.RunFiles(
        output_dir=config.output_dir,
        tokenizer=job.start.tokenizer,
        settings=dataclasses.asdict(config),
        given=config_flags.given(config),
        trained_with=trained_with,
        results=results,
        is_chief=assembly.is_chief(job.strategy),
    )


def load(job: Job) -> tuple[TaskModel, int]:
    """Loads what --output_dir or --init_checkpoint holds, and its step.

    Raises:
      InputError: there is none, or it is an encoder without the task's head.
    """
    config = job.config
    task_model = job.build(config.random_seed)
    # 1 what a training has kept, 2 how far one has come that has not ended,
    # 3 a model of other making, 4 what is named.
    kept = grid.kept(config.output_dir)
    is_here = model_directory.has_model(config.output_dir)
    if kept is None or not is_here:
        step = restore(config, task_model.model, config.output_dir)
        if step is not None:
            logging.info(
                "asked: the checkpoint of step %d in %s",
                step,
                config.output_dir,
            )
            return task_model, step
    task_model.assign(
        config.output_dir if is_here else job.start.init_checkpoint
    )
    return task_model, kept["step"] if kept is not None and is_here else 0


# ----------------------------------------------------------------------
# Trains all runs of a job's grid, and keeps the best.
#
#     task_model, step = train(job, results, save_model)
#
# A finished run is not trained again; of the others, one is in memory at a
# time.
# One that diverges is finished, and the grid goes on without it.


def train_grid(
    job: Job, results: grid.Results, save_model: Callable[[Any], None]
) -> tuple[TaskModel, int]:
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
    is_here = model_directory.has_model(config.output_dir)
    is_reused = {run for run in runs if run in results}
    # Whose model output_dir has. Grids of other runs keep another there.
    saved = {run for run in is_reused if is_here and run.is_that_of(kept)}
    task_model, last = None, None
    for run in runs:
        if run not in is_reused:
            task_model = None  # Two models need not fit at a time.
            task_model, last = _finish(job, run, results, save_model), run
            saved = {run} if results.is_best(run) else saved
    results.check()
    while (best := results.best_run) not in saved:
        logging.info(
            "%s is trained once more: it is the best, and not kept", best.name
        )
        task_model = None
        task_model, last = _finish(job, best, results, save_model), best
        results.check(best)
        saved = {best} if results.is_best(best) else saved
    if config.is_grid:
        _tell(job, results)
    if task_model is None or last != best:
        task_model = None
        task_model = _fit(job, config.random_seed)
        task_model.assign(config.output_dir)
    return task_model, results.best["step"]


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
) -> TaskModel:
    """Trains a run to its end, and keeps its model if it is the best."""
    config = job.config
    is_chief = assembly.is_chief(job.strategy)
    if config.is_grid and is_chief:
        run.begin(job.settings)
    task_model = _fit(job, run.random_seed)
    done = _train_one(task_model, run)
    if results.add(run, done):
        save_model(task_model.model)
        if is_chief:
            results.keep(run)
    if is_chief:
        run.finish(done)
        if config.is_grid:
            remove_checkpoints(run.directory)
    return task_model


def _fit(job: Job, seed: int) -> TaskModel:
    """Makes a model where the former one, if any, has been let go."""
    # A compiled step and what it is a method of hold each other, and with them
    # the weights and slots: Python would free them sometime later.
    gc.collect()
    return job.build(seed)


def _train_one(task_model: TaskModel, run: grid.Run) -> dict[str, Any]:
    """Returns what the run ends with; see grid.Results.add.

    Raises:
      InputError: the only run of a job has diverged.
    """
    is_grid = task_model.job.config.is_grid
    failed, values = None, {}
    try:
        step = task_model.train(run)
        seconds = training_seconds(run.directory)
    except Diverged as error:
        if not is_grid:
            raise
        step, seconds, failed = error.step, error.seconds, error.reason
    if is_grid and failed is None:
        values = dict(task_model.evaluate().values)
        score = values[SCORE]
        if not math.isfinite(score):
            values = {}
            failed = f"step {step}: the score on the development set is {score}"
    done = {
        "step": step,
        "seconds": seconds,
        "values": values,
        "settings": {**task_model.job.settings, **run.settings},
    }
    if failed is not None:
        logging.warning("%s: %s", run.name, failed)
        done["failed"] = failed
    return done
