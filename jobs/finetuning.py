"""Fine-tuning jobs: the training and prediction of all fine-tuned tasks.

A command describes its task in a Job. A job builds models (TaskModel), trains
them and loads trained ones:

    start = open_start(config)
    strategy = open_strategy(config, start)
    job = Job(config=config, start=start, strategy=strategy, task=...,
              make_model=..., features=..., evaluate=..., ...)
    task_model, step = train_grid(job, results, writer)
    task_model, step = load(job)                       # instead of training
    values = task_model.evaluate().values
    logits = task_model.predict(features, batch_size)["logits"]

train_grid -> TaskModel.train -> train_epochs -> training.loop.train
"""

import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from absl import logging

from data import features as features_lib
from data import length_groups
from data.features import Features
from foundation import config_flags, errors, file_system, stamp
from jobs import (
    assembly,
    grid,
    model_card,
    run_config,
    run_directory,
    streaming,
)
from training import checkpoints, feed, inference, loop, metric_writer
from training import strategy as strategies
from weights import model_directory, pretrained, task_files

TRAIN = "train"
# Name of the metric that selects the best model, while training and in a grid.
SCORE = grid.SCORE


class Evaluation(Protocol):
    """Metrics of a model on the development sets."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics by name, among them "score", by which runs are compared."""


class ModelWriter(Protocol):
    """Writes the trained models of a task; only the chief process does."""

    def write_model(self, model: Any, directory: str) -> None:
        """Writes a model directory with the files of the task."""

    def save_model(self, model: Any) -> None:
        """Writes the model into output_dir, and its card."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """What all runs of a grid have in common.

    Attributes:
      config: the flags.
      start: the pre-trained model and its tokenizer.
      strategy: the devices.
      task: implements step.Task and inference.Task.
      make_model: takes attention, bilstm_size, recompute, seed and dtype.
      features: takes a split; returns its features, which it caches.
      evaluate: evaluates a model on the development sets.
      data_settings: flag -> value that replaces the flag's own when runs are
        compared, e.g. the digest of a file; for flags that affect the training
        records.
      evaluation_settings: returns the same for flags that affect evaluations;
        called only if training evaluates.
      task_settings: JSON values that checkpoints store, because they tell the
        meaning of the model's outputs; the "labels" among them, if any.
      num_examples: number of examples per epoch; None if every row of the
        training features is one example.
      load_extra_weights: takes a model and its directory; assigns weights from
        other files there, and returns the paths of these variables.
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
    task_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_examples: int | None = None
    load_extra_weights: Callable[[Any, str], Collection[str]] | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the job."""
        return strategies.is_chief(self.strategy)

    def lengths_up_to(self, longest: int) -> list[int]:
        """Returns the lengths of batches for examples of up to `longest`."""
        return assembly.batch_lengths(self.config, self.strategy, longest)

    def resolved_settings(self, *, evaluates: bool) -> stamp.Stamp:
        """Returns settings that replace the flags' own.

        They identify the contents of files, e.g. by a digest.

        Args:
          evaluates: whether to include flags that affect evaluations.
        """
        tokenizer = self.start.tokenizer
        records = {
            "vocab_file": tokenizer.vocabulary.sha256,
            "do_lower_case": tokenizer.settings["do_lower_case"],
            **self.data_settings,
        }
        found = self._initial_weights | stamp.flags("records", records)
        if evaluates:
            found |= stamp.flags("evaluation", self.evaluation_settings())
        return found

    @functools.cached_property
    def _initial_weights(self) -> stamp.Stamp:
        return pretrained.contents(self.start.init_checkpoint)

    @functools.cached_property
    def settings(self) -> stamp.Stamp:
        """What affects the results of the grid's runs."""
        flags = config_flags.affecting(self.config, "records", "result")
        evaluates = self.config.needs_evaluation
        return flags | self.resolved_settings(evaluates=evaluates)

    def build(self, seed: int) -> "TaskModel":
        """Builds a model with random weights of a seed, and its predictor."""
        with self.strategy.scope():
            model = self.make_model(
                attention=self.start.attention,
                bilstm_size=self.start.bilstm_size,
                recompute=assembly.recomputed(self.config),
                seed=seed,
                dtype=assembly.dtype_policy(self.config),
            )
        predictor = inference.Predictor(
            self.task,
            model,
            strategy=self.strategy,
            jit_compile=assembly.uses_xla(self.config),
        )
        return TaskModel(job=self, model=model, predictor=predictor)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskModel:
    """A model of a job, and its predictor."""

    job: Job
    model: Any
    predictor: inference.Predictor

    def warm_start(self) -> None:
        """Assigns the pre-trained weights.

        If the model has been trained for other labels, or for these in another
        order, its output layer is not used.
        """
        start = self.job.start
        known = task_files.ModelClasses(labels=start.labels, problem_type=None)
        labels = self.job.task_settings.get("labels") or ()
        has_others = known.has_other_outputs(labels)
        if has_others:
            logging.info(
                "a new output layer is trained for %s; the model to start from "
                "has one for %s",
                ", ".join(labels),
                ", ".join(known.names),
            )
        pretrained.assign(
            self.model,
            start.init_checkpoint,
            tokenizer=start.tokenizer,
            reinit_layers=self.job.config.reinit_layers,
            new_output_layer=has_others,
        )
        if not has_others:
            self._load_extra_weights(start.init_checkpoint)

    def assign(self, weights: str | None) -> None:
        """Assigns the weights of a model that was trained for the task.

        Args:
          weights: a model directory or a checkpoint; None is refused.

        Raises:
          InputError: weights is None or was not trained for the task.
        """
        pretrained.require_weights(weights)
        model_directory.check_task(self.model, weights)
        report = pretrained.assign(
            self.model, weights, tokenizer=self.job.start.tokenizer
        )
        found = self._load_extra_weights(weights)
        missing = [path for path in report.initialized if path not in found]
        if missing:
            raise errors.InputError(
                f"{weights} has not been trained for this task: "
                f"{', '.join(missing)} are missing; --do_train"
            )

    def _load_extra_weights(self, weights: str | None) -> Collection[str]:
        if weights is None or self.job.load_extra_weights is None:
            return ()
        return self.job.load_extra_weights(
            self.model, file_system.folder_of(weights)
        )

    def predict(
        self, features: Features, batch_size: int
    ) -> dict[str, np.ndarray]:
        """Returns the task's predictions, [N, ...] in the examples' order."""
        return self.predictor(
            self._batches(features, batch_size), len(features)
        )

    def predictions(
        self, features: Features, batch_size: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the predictions batch by batch; see Predictor.batches."""
        return self.predictor.batches(
            self._batches(features, batch_size), len(features)
        )

    def _batches(
        self, features: Features, batch_size: int
    ) -> length_groups.OrderedBatches:
        self.job.start.check_segments(features)
        return length_groups.OrderedBatches(
            features,
            batch_size=batch_size,
            lengths=self.job.lengths_up_to(self.job.config.max_seq_length),
        )

    def open_blocks(
        self, folder: str, settings: Mapping[str, Any]
    ) -> streaming.Blocks | None:
        """Opens the blocks of a prediction; None if this worker writes nothing.

        Args:
          folder: in output_dir.
          settings: what the predictions depend on, besides the items, the model
            and its tokenizer; see streaming.Blocks.
        """
        job, config = self.job, self.job.config
        if not job.is_chief:
            return None
        return streaming.Blocks(
            os.path.join(config.output_dir, folder),
            {
                "the model's weights": run_directory.weights_digest(self.model),
                "tokenizer": features_lib.tokenizer_recipe(job.start.tokenizer),
                "precision": assembly.dtype_policy(config),
                "predict_batch_size": config.predict_batch_size,
                "use_xla": config.use_xla,
                "lengths": job.lengths_up_to(config.max_seq_length),
                **settings,
            },
            continues=not strategies.is_multi_worker(job.strategy),
            discards=config.do_train,
        )

    def evaluate(self) -> Evaluation:
        """Returns the model's metrics on the development sets."""
        return self.job.evaluate(self)

    def train(self, run: grid.Run, writer: ModelWriter) -> int:
        """Trains one run of the grid; returns the step of its weights."""
        job, config = self.job, self.job.config
        features = job.features(TRAIN)
        job.start.check_segments(features)
        evaluates = config.eval_every_steps > 0
        found = job.resolved_settings(evaluates=evaluates)
        settings = assembly.settings_of(config, found)
        return train_epochs(
            job,
            self.model,
            run,
            TrainingSet(
                length_groups.endless_batches(
                    features,
                    batch_size=run.train_batch_size or config.train_batch_size,
                    seed=run.random_seed,
                    lengths=job.lengths_up_to(config.max_seq_length),
                ),
                job.num_examples or len(features),
            ),
            settings=settings.with_values(run.settings),
            warm_start=self.warm_start,
            evaluate=(lambda: self.evaluate().values) if evaluates else None,
            # A grid exports nothing here: the checkpoints of a run are removed
            # at its end.
            export=None
            if config.is_grid
            else functools.partial(self._write_best, writer),
            rate_multiplier=assembly.layer_rates(
                job.start.config.num_hidden_layers, config.layer_decay
            ),
        )

    def _write_best(self, writer: ModelWriter, directory: str) -> None:
        """Writes a model directory with the flags of its training."""
        if self.job.is_chief:
            config_flags.write_run_config(self.job.config, directory)
        writer.write_model(self.model, directory)


class TrainingSet(NamedTuple):
    """Endless training batches, and the number of examples per epoch."""

    make_batches: feed.MakeBatches
    num_examples: int


def train_epochs(
    job: Job,
    model: Any,
    run: grid.Run,
    training_set: TrainingSet,
    *,
    settings: stamp.Stamp,
    warm_start: Callable[[], None] | None = None,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    export: Callable[[str], None] | None = None,
    rate_multiplier: Callable[[str], float] | None = None,
) -> int:
    """Trains a model for --num_train_epochs, or until evaluations end the run.

    Args:
      job: its flags, task and devices are used.
      model: the model, made in the strategy's scope.
      run: the learning rate, the seed and the directory.
      training_set: the batches.
      settings: the settings that a resumed run compares.
      warm_start: assigns the pre-trained weights.
      evaluate: returns metrics on held-out data, SCORE among them.
      export: see loop.Selection.
      rate_multiplier: maps a variable's path to a factor on its learning rate.

    Returns:
      The step whose weights the model has now.
    """
    config = job.config
    num_steps = num_train_steps(
        training_set.num_examples,
        run.train_batch_size or config.train_batch_size,
        run.num_train_epochs or config.num_train_epochs,
    )
    run_flags = config.run(
        learning_rate=run.learning_rate,
        random_seed=run.random_seed,
        output_dir=run.directory,
    )
    learner = assembly.make_learner(
        run_flags,
        job.task,
        model,
        strategy=job.strategy,
        num_train_steps=num_steps,
        num_warmup_steps=int(num_steps * config.warmup_proportion),
        rate_multiplier=rate_multiplier,
    )
    loop.train(
        learner,
        strategy=job.strategy,
        phases=[
            loop.Phase(num_steps, training_set.make_batches, evaluate=evaluate)
        ],
        options=assembly.loop_options(
            run_flags,
            num_steps,
            selection=loop.Selection(
                every=config.eval_every_steps,
                metric=SCORE,
                higher_is_better=True,
                patience=config.early_stopping_patience,
                export=export,
            ),
            settings=settings,
            task_settings=job.task_settings,
        ),
        warm_start=warm_start,
    )
    return restore(config, model, run.directory) or 0


def num_train_steps(
    num_examples: int, train_batch_size: int, num_train_epochs: float
) -> int:
    """Returns the steps of all epochs, computed as google-research/bert does.

    Raises:
      InputError: that is less than one step.
    """
    steps = int(num_examples / train_batch_size * num_train_epochs)
    if steps < 1:
        raise errors.InputError(
            f"--train_batch_size={train_batch_size}: {num_examples} examples "
            f"in {num_train_epochs:g} epoch(s) do not fill one batch"
        )
    return steps


def restore(
    config: run_config.FinetuningConfig, model: Any, output_dir: str
) -> int | None:
    """Loads the weights of a run: with early stopping the best, else the last.

    Returns:
      Their step; None if the run has no checkpoint.
    """
    if config.early_stopping_patience:
        best = os.path.join(output_dir, checkpoints.BEST)
        step = loop.restore_model(model, best)
        if step is not None:
            return step
    return loop.restore_model(model, output_dir)


def open_start(
    config: run_config.FinetuningConfig,
) -> pretrained.Start:
    """Finds the pre-trained model and its tokenizer.

    A command that does not train uses the model in output_dir, if there is one,
    with its labels and tokenizer. The checkpoint of an unfinished training
    there has its own labels. A command that trains never starts from that
    model, because the next run of a grid would start from the best run's.
    """
    init_checkpoint = config.init_checkpoint
    if config.do_train:
        model_directory.check_not_the_start(
            config.output_dir, init_checkpoint, is_grid=config.is_grid
        )
    elif model_directory.has_model(config.output_dir):
        step = _finished_step(config.output_dir)
        paths = (
            config.output_dir,
            os.path.join(config.output_dir, model_directory.WEIGHTS),
            checkpoints.path_of(config.output_dir, step),
        )
        own = set(map(file_system.real, paths))
        if init_checkpoint and file_system.real(init_checkpoint) not in own:
            logging.warning(
                "using the model in --output_dir=%s, not --init_checkpoint=%s",
                config.output_dir,
                init_checkpoint,
            )
        init_checkpoint = None
    start = pretrained.open_start(
        output_dir=None if config.do_train else config.output_dir,
        init_checkpoint=init_checkpoint,
        bert_config_file=config.bert_config_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        bilstm_size=config.bilstm_size,
        max_seq_length=config.max_seq_length,
    )
    if config.do_train or _finished_step(config.output_dir) is not None:
        return start
    stored = loop.last_state(config.output_dir).get("task_settings")
    if not stored:
        return start
    return dataclasses.replace(
        start,
        labels=stored.get("labels"),
        problem_type=stored.get("problem_type"),
        num_outputs=None,
        task_settings=stored,
    )


def _finished_step(output_dir: str) -> int | None:
    """Returns the step of the model that a training wrote; None without one."""
    has_model = model_directory.has_model(output_dir)
    kept = grid.kept(output_dir) if has_model else None
    return None if kept is None else kept["step"]


def open_strategy(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    **batch_sizes: int,
) -> Any:
    """Checks output_dir, opens the devices and writes the flags.

    Call it when all other checks have passed. It writes run_config.json only
    for a command that does not train, and not over that of a training, which
    is written when the training begins.

    Args:
      config: the flags.
      start: its model must fit that in output_dir, if there is one.
      **batch_sizes: by flag, sizes that the number of replicas must divide, in
        addition to train_batch_size and predict_batch_size.

    Returns:
      A tf.distribute.Strategy.

    Raises:
      InputError: a check failed, or several workers would read standard input.
    """
    model_directory.check_output_dir(config.output_dir, start.config)
    strategy = assembly.make_strategy(config, config.output_dir)
    flag = config.standard_input_flag
    if flag is not None and strategies.is_multi_worker(strategy):
        raise errors.InputError(
            f"--{flag}: standard input cannot be read by several workers"
        )
    for size in config.axis("train_batch_size"):
        assembly.check_batch_sizes(
            config,
            strategy,
            train_batch_size=size,
            predict_batch_size=config.predict_batch_size,
            **batch_sizes,
        )
    run_directory.begin(config, is_chief=strategies.is_chief(strategy))
    return strategy


def records_dir(
    config: run_config.FinetuningConfig, strategy: Any
) -> str | None:
    """Returns the directory in which this process keeps tokenized examples.

    Returns None without --write_records, and on workers other than the chief,
    which share the chief's output_dir.
    """
    is_writer = config.write_records and strategies.is_chief(strategy)
    return config.output_dir if is_writer else None


def open_files(
    config: run_config.FinetuningConfig, job: Job
) -> run_directory.RunFiles:
    """Returns the writer of those files that do not depend on the task."""
    results, trained_with = grid.Results(config.output_dir), None
    if not config.do_train:
        results.read()
        trained_with = run_directory.training_flags(config.output_dir)
    return run_directory.RunFiles(
        output_dir=config.output_dir,
        tokenizer=job.start.tokenizer,
        flags=dataclasses.asdict(config),
        given_flags=config_flags.given(config),
        trained_with=trained_with,
        results=results,
        is_chief=job.is_chief,
    )


def load(job: Job) -> tuple[TaskModel, int]:
    """Loads the model of --output_dir or --init_checkpoint.

    Returns:
      The model and its step; 0 if it was not trained in output_dir.

    Raises:
      InputError: there is none, or it is an encoder without the task's head.
    """
    config = job.config
    task_model = job.build(config.random_seed)
    # 1 the model of a finished training in output_dir (kept.json exists)
    # 2 the checkpoint of an unfinished training in output_dir
    # 3 a model in output_dir that was not trained there
    # 4 init_checkpoint
    # The order is important.
    step = _finished_step(config.output_dir)
    if step is not None:
        task_model.assign(config.output_dir)
        return task_model, step
    step = restore(config, task_model.model, config.output_dir)
    if step is not None:
        logging.info(
            "using the checkpoint of step %d in %s", step, config.output_dir
        )
        return task_model, step
    has_model = model_directory.has_model(config.output_dir)
    task_model.assign(
        config.output_dir if has_model else job.start.init_checkpoint
    )
    return task_model, 0


def train_grid(
    job: Job, results: grid.Results, writer: ModelWriter
) -> tuple[TaskModel, int]:
    """Trains all runs of a job's grid; returns the best model and its step.

    A run that an earlier command has finished is trained again only if it is
    the best and its model was not saved. One model is in memory at a time. A
    run that diverges counts as finished, and the grid continues.

    Args:
      job: what is trained.
      results: receives the results of every run.
      writer: saves the best model so far.

    Raises:
      InputError: an earlier run of the grid had other settings, or all runs
        have diverged.
    """
    config = job.config
    runs = grid.plan(
        config.learning_rates,
        config.seeds,
        config.output_dir,
        batch_sizes=config.axis("train_batch_size"),
        epochs=config.axis("num_train_epochs"),
    )
    for run in runs:
        finished = run.result()
        if finished is not None:
            run.check(finished, job.settings)
            if config.is_grid:
                results.add(run, finished)
        elif config.is_grid:
            run.check(run.begun() or {}, job.settings)
        # The only run of a job still has its checkpoints, and is resumed.
    assembly.write_run_config(config, job.strategy)
    # Read now: the chief replaces both files when the first run ends.
    kept = grid.kept(config.output_dir)
    reused = {run for run in runs if run in results}
    # The run whose model is in output_dir, if it is one of this grid's: an
    # earlier grid may have saved the model of another run there.
    saved = set()
    if model_directory.has_model(config.output_dir):
        saved = {
            run
            for run in reused
            if kept is None or kept == run.as_kept(run.result()["step"])
        }
    task_model, last = None, None
    for number, run in enumerate(runs, 1):
        if config.is_grid:
            is_done = " has been trained already" if run in reused else ""
            logging.info(
                "run %d of %d: %s%s", number, len(runs), run.name, is_done
            )
        if run not in reused:
            task_model = None  # Two models need not fit into memory.
            task_model, last = _train_run(job, run, results, writer), run
            saved = {run} if results.is_best(run) else saved
    results.check()
    while (best := results.best_run) not in saved:
        logging.info(
            "%s is trained again: it is the best, but its model is not saved",
            best.name,
        )
        task_model = None
        task_model, last = _train_run(job, best, results, writer), best
        results.check(best)
        saved = {best} if results.is_best(best) else saved
    if config.is_grid:
        logging.info(
            "kept: %s, step %d", results.best_run.name, results.best["step"]
        )
    if config.is_grid and job.is_chief:
        sys.stdout.write(results.write() + "\n")
        model_card.end(
            config.output_dir,
            seconds=results.seconds,
            flags=config_flags.given(config),
        )
    if task_model is None or last != best:
        task_model = None
        gc.collect()
        task_model = job.build(config.random_seed)
        task_model.assign(config.output_dir)
    return task_model, results.best["step"]


def _train_run(
    job: Job,
    run: grid.Run,
    results: grid.Results,
    writer: ModelWriter,
) -> TaskModel:
    """Trains a run to its end, and keeps its model if it is the best.

    Raises:
      InputError: the only run of a job has diverged.
    """
    is_grid = job.config.is_grid
    if is_grid and job.is_chief and not job.config.dry_run:
        run.begin(job.settings)
    # The previous model and its compiled step form a reference cycle, which
    # only the garbage collector frees.
    gc.collect()
    task_model = job.build(run.random_seed)
    finished: dict[str, Any] = {"values": {}}
    try:
        finished["step"] = task_model.train(run, writer)
        finished["seconds"] = loop.training_seconds(run.directory)
    except loop.Diverged as error:
        if not is_grid:
            raise
        finished |= {"step": error.step, "seconds": error.seconds}
        finished["failed"] = error.reason
    if is_grid and "failed" not in finished:
        values = dict(task_model.evaluate().values)
        if math.isfinite(values[SCORE]):
            finished["values"] = values
        else:
            finished["failed"] = (
                f"step {finished['step']}: the score on the development set is "
                f"{values[SCORE]}"
            )
    if "failed" in finished:
        logging.warning("%s: %s", run.name, finished["failed"])
    finished["settings"] = job.settings.with_values(run.settings).to_json()
    if results.add(run, finished):
        writer.save_model(task_model.model)
        if job.is_chief:
            results.keep(run)
    if job.is_chief:
        run.finish(finished)
        if is_grid:  # The result replaces the checkpoints.
            metrics = finished["values"].items()
            metric_writer.write_hyperparameters(
                run.directory,
                run.settings,
                dict(sorted(metrics, key=lambda item: item[0] != SCORE)),
                finished["step"],
            )
            best = os.path.join(run.directory, checkpoints.BEST)
            checkpoints.remove_all(run.directory)
            checkpoints.remove_all(best)
    return task_model
