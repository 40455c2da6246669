"""The training of a task: the runs of a grid, and the model that is kept.

    job = Job(source=source, builder=builder, task=task)
    task_model, step = train_grid(job, outputs)
    task_model, step = load(job)                       # instead of training

train_grid           skips finished runs, trains the others, loads the best
  _train_run         trains a run, and writes its files in a fixed order
    Job.train        features and settings of a run
      train_epochs   steps, learner and options, for training.loop.train
"""

import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from data import length_groups
from data.features import Features
from foundation import config_flags, errors, stamp
from jobs import (
    assembly,
    distillation,
    grid,
    model_card,
    run_config,
    run_directory,
)
from jobs import source as source_lib
from jobs.outputs import Outputs
from jobs.task import TRAIN, Evaluation, Task
from jobs.task_model import Builder, TaskModel
from training import checkpoints, feed, loop
from training import step as steps
from training import strategy as strategies
from weights import model_directory, pretrained

# While training, smaller sets are predicted without copies of the weights; see
# inference.Predictor.while_weights_change. Measured in docs/LOG.md.
_FEW_TOKENS = 50_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """The training of a task: what all runs of a grid have in common.

    Attributes:
      source: the model to start from or to use.
      builder: builds the models.
      task: the sets of the task.
      teacher: the model whose outputs are targets; None without one.
    """

    source: source_lib.ModelSource
    builder: Builder
    task: Task
    teacher: distillation.Teacher | None = None

    @property
    def config(self) -> run_config.FinetuningConfig:
        """The flags."""
        return self.builder.config

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the job."""
        return self.builder.is_chief

    @functools.cached_property
    def _features(self) -> dict[str, Features]:
        return {}

    def features(self, split: str) -> Features:
        """Returns the features of a set, which are made once."""
        if split not in self._features:
            features = self.task.features(
                split, records_dir(self.config, self.builder.strategy)
            )
            if split == TRAIN and self.teacher is not None:
                features = self.teacher.with_targets(features, self.builder)
            self._features[split] = features
        return self._features[split]

    @functools.cached_property
    def _evaluations(self) -> dict[tuple[grid.Run, int], Evaluation]:
        """The best evaluation of this command and the last one."""
        return {}

    def evaluate(
        self,
        task_model: TaskModel,
        trained: tuple[grid.Run, int] | None = None,
        *,
        is_training: bool = False,
    ) -> Evaluation:
        """Returns a model's metrics on the development sets.

        Those of the same weights are computed once, as far as these are the
        best or the last ones.

        Args:
          task_model: the model.
          trained: the run of this command that has trained the weights, and
            their step; None for other weights.
          is_training: whether its weights will change, and be evaluated again.
        """
        kept = self._evaluations
        if trained in kept:
            return kept[trained]
        sets = {split: self.features(split) for split in self.task.dev_splits}
        num_tokens = sum(int(x.sizes.sum()) for x in sets.values())
        is_small = 0 < num_tokens < _FEW_TOKENS
        if is_training and is_small:
            # Not kept: another graph may round otherwise.
            with task_model.predictor.while_weights_change():
                return self.task.evaluate(task_model, sets)
        evaluation = self.task.evaluate(task_model, sets)
        if trained is not None:
            scores = {k: x.values[grid.SCORE] for k, x in kept.items()}
            best = max(scores, key=scores.__getitem__, default=None)
            for other in scores.keys() - {best}:
                del kept[other]
            kept[trained] = evaluation
        return evaluation

    def resolved_settings(self, *, includes_evaluation: bool) -> stamp.Stamp:
        """Returns the settings that runs compare instead of a flag's value.

        For example, the digest of a file instead of its path.

        Args:
          includes_evaluation: whether to include flags that affect
            evaluations.
        """
        settings = self._start_contents
        settings |= source_lib.tokenizer_settings(self.source.start.tokenizer)
        settings |= stamp.flags("records", self.task.data_settings)
        if self.teacher is not None:
            settings |= self.teacher.contents
        if includes_evaluation:
            settings |= stamp.flags("evaluation", self.task.evaluation_settings)
        return settings

    @functools.cached_property
    def _start_contents(self) -> stamp.Stamp:
        return pretrained.contents(self.source.start.init_checkpoint)

    @functools.cached_property
    def settings(self) -> stamp.Stamp:
        """The settings that begun.json and result.json of a run store.

        A grid refuses runs with other values, a single run does so when it has
        finished; see grid.Run.check.
        """
        flags = config_flags.affecting(self.config, "records", "result")
        selects = self.config.selects_by_evaluation
        return flags | self.resolved_settings(includes_evaluation=selects)

    @property
    def checkpoint_settings(self) -> stamp.Stamp:
        """The settings that the checkpoints of a run store.

        These are also devices and logging: a resumed run warns of all changes,
        and refuses those of records and evaluations.
        """
        selects = self.config.selection.eval_every_steps > 0
        return assembly.settings_of(
            self.config,
            self.builder.strategy,
            self.resolved_settings(includes_evaluation=selects),
        )

    def train(self, task_model: TaskModel, run: grid.Run) -> int:
        """Trains one run of the grid; returns the step of its weights."""
        config, builder = self.config, self.builder
        features = self.features(TRAIN)
        self.source.start.check_segments(features)
        assembly.write_run_config(config, builder.strategy)
        return train_epochs(
            builder,
            task_model.model,
            run,
            make_batches=length_groups.endless_batches(
                features,
                batch_size=run.train_batch_size,
                seed=run.random_seed,
                lengths=builder.lengths,
            ),
            num_examples=self.task.num_examples or len(features),
            settings=self.checkpoint_settings.with_values(run.settings),
            objective=self.teacher.student_objective if self.teacher else None,
            rate_factors=assembly.layer_factors(
                [variable.path for variable in task_model.model.variables],
                self.source.start.config.num_hidden_layers,
                config.layer_decay,
            ),
            hooks=_RunHooks(job=self, task_model=task_model, run=run),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _RunHooks(loop.Hooks):
    """What the loop calls in a run of a job."""

    job: Job
    task_model: TaskModel
    run: grid.Run

    def warm_start(self) -> None:
        """See loop.Hooks."""
        self.task_model.warm_start()

    def evaluate(self, phase: int, step: int) -> Mapping[str, float]:
        """See loop.Hooks."""
        trained = self.run, step
        return self.job.evaluate(
            self.task_model, trained, is_training=True
        ).values

    def export(self, directory: str) -> None:
        """See loop.Hooks.

        In a grid, best/ has no model, only a checkpoint, which is removed at
        the end of the run.
        """
        job = self.job
        if job.is_chief and not job.config.is_grid:
            config_flags.write_run_config(job.config, directory)
            tokenizer = job.source.start.tokenizer
            job.task.save(self.task_model.model, directory, tokenizer)


def open_run(
    config: run_config.FinetuningConfig, start: pretrained.Start
) -> Any:
    """Checks output_dir, opens the devices and writes the flags.

    Call it after all other checks. A command that does not train writes its
    flags into run_config.json, unless the file has the flags of a training. A
    training writes its flags when it begins. The model to start from must fit
    that in output_dir, if any.

    Returns:
      A tf.distribute.Strategy.

    Raises:
      InputError: a check failed, or several workers would read standard input.
    """
    model_directory.check_output_dir(config.output_dir, start.config)
    strategy = assembly.make_strategy(config.devices, config.output_dir)
    flag = config.standard_input_flag
    if flag is not None and strategies.is_multi_worker(strategy):
        raise errors.InputError(
            f"--{flag}: standard input cannot be read by several workers"
        )
    assembly.check_batch_sizes(
        config,
        strategy,
        train=config.grid.train_batch_size if config.do_train else (),
        others=config.batch_sizes,
    )
    run_directory.begin(config, is_chief=strategies.is_chief(strategy))
    return strategy


def train_grid(job: Job, outputs: Outputs) -> tuple[TaskModel, int]:
    """Trains all runs of a job's grid; returns the best model and its step.

    A run that an earlier command has finished is trained again only if it is
    the best and its model was not saved. One model is in memory at a time. A
    run that diverges counts as finished, and the grid continues. `outputs` gets
    the results of all runs.

    Raises:
      InputError: an earlier run of the grid had other settings, or all runs
        have diverged.
    """
    config, results = job.config, outputs.results
    runs = grid.plan(config.grid, config.random_seed, config.output_dir)
    _read_results(job, runs, results)
    if all(map(results.__contains__, runs)):  # Else the first run writes them.
        assembly.write_run_config(config, job.builder.strategy)
    # Read before a run ends: then the chief may replace model and kept.json,
    # and other workers would read the new ones.
    saved = set()
    if model_directory.has_model(config.output_dir):
        saved = results.saved_runs()
    for finished in filter(results.__contains__, runs):
        _announce_finished(job, finished, runs, results)
    task_model, last = None, None
    while (run := grid.next_run(runs, results, saved)) is not None:
        is_repeated = run in results
        if is_repeated:
            logging.info(
                "%s is trained again: it is the best, but its model is not "
                "saved",
                run.name,
            )
        elif config.is_grid:
            number = runs.index(run) + 1
            logging.info("run %d of %d: %s", number, len(runs), run.name)
        task_model = None  # Two models need not fit into memory.
        task_model, last = _train_run(job, run, outputs), run
        if is_repeated:  # It may have diverged on another machine.
            results.check(run)
        saved = {run} if results.is_best(run) else saved
    best = results.best_run
    if config.is_grid:
        logging.info("kept: %s, step %d", best.name, results.best["step"])
    if config.is_grid and job.is_chief:
        sys.stdout.write(results.write() + "\n")
        seconds = results.seconds
        assert seconds is not None
        model_card.end(
            config.output_dir, seconds=seconds, flags=config_flags.given(config)
        )
    if task_model is None or last != best:
        task_model = None
        gc.collect()
        task_model = job.builder.build(config.random_seed)
        task_model.assign(config.output_dir)
    return task_model, results.best["step"]


def _read_results(
    job: Job, runs: Sequence[grid.Run], results: grid.Results
) -> None:
    """Adds the results of runs that an earlier command has finished.

    A finished run that has checkpoints is not added: it is resumed, which
    trains no step and saves its model again. It is added nevertheless if
    finished runs keep no checkpoints and output_dir has a model: then a killed
    command has not removed the checkpoints.

    Raises:
      InputError: a run was begun with other settings that forbid to resume it.
    """
    is_grid = job.config.is_grid
    has_model = model_directory.has_model(job.config.output_dir)
    are_left_over = has_model and not _keeps_checkpoints(job.config)
    for run in runs:
        result = run.result()
        if result is not None:
            run.check(result, job.settings)
            if are_left_over or not checkpoints.steps(run.directory):
                results.add(run, result)
        elif is_grid:  # A run that was not begun has nothing to compare.
            run.check(run.begun() or {}, job.settings)
        else:
            settings = job.checkpoint_settings.with_values(run.settings)
            assembly.check_settings(run.directory, settings)


def _announce_finished(
    job: Job, run: grid.Run, runs: Sequence[grid.Run], results: grid.Results
) -> None:
    """Logs that a run needs no training, and removes its checkpoints.

    A command that was killed at the end of the run has left the checkpoints.
    """
    if not job.config.is_grid:
        step = results.as_kept(run)["step"]
        logging.info("already finished: %s is at step %d", run.directory, step)
    else:
        number = runs.index(run) + 1
        text = "run %d of %d: %s has been trained already"
        logging.info(text, number, len(runs), run.name)
    keeps_checkpoints = _keeps_checkpoints(job.config)
    if job.is_chief and not (keeps_checkpoints or job.config.loop.dry_run):
        _remove_checkpoints(run)


def _train_run(job: Job, run: grid.Run, outputs: Outputs) -> TaskModel:
    """Trains a run to its end, and keeps its model if it is the best.

    Writes begun.json, then checkpoints, then the model and kept.json if the run
    is the best, then result.json. At last, removes the checkpoints. A command
    that was killed before result.json is written continues the run from its
    last checkpoint when it is started again.

    Raises:
      InputError: the only run of a job has diverged.
    """
    is_grid, results = job.config.is_grid, outputs.results
    if is_grid and job.is_chief and not job.config.loop.dry_run:
        run.begin(job.settings)
    # The previous model and its compiled step form a reference cycle, which
    # only the garbage collector frees.
    gc.collect()
    task_model = job.builder.build(run.random_seed)
    result: dict[str, Any] = {"values": {}}
    try:
        result["step"] = job.train(task_model, run)
        result["seconds"] = loop.training_seconds(run.directory)
    except loop.Diverged as error:
        if not is_grid:
            raise
        result |= {"step": error.step, "seconds": error.seconds}
        result["failed"] = error.reason
    if is_grid and "failed" not in result:
        trained = run, result["step"]
        values = dict(job.evaluate(task_model, trained).values)
        if math.isfinite(values[grid.SCORE]):
            result["values"] = values
        else:
            result["failed"] = (
                f"step {result['step']}: the score on the development set is "
                f"{values[grid.SCORE]}"
            )
    if "failed" in result:
        logging.warning("%s: %s", run.name, result["failed"])
    result["settings"] = job.settings.with_values(run.settings).to_json()
    if results.add(run, result):
        if job.is_chief:
            # In this order: a command that is killed in between has named a
            # run that is not finished, so the next one takes the model of
            # output_dir for no other run's.
            results.keep(run)
            _save_model(job, outputs, task_model.model)
    keeps_checkpoints = _keeps_checkpoints(job.config)
    if not keeps_checkpoints:  # Other workers may still read them.
        strategies.wait_for_all(job.builder.strategy)
    if job.is_chief:
        run.finish(result)
        if not keeps_checkpoints:
            _remove_checkpoints(run)
    return task_model


def _save_model(job: Job, outputs: Outputs, model: Any) -> None:
    """Writes the model of the best run into output_dir, and begins its card.

    The card of the same weights stays.
    """
    weights = outputs.new_weights(model)
    job.task.save(
        model,
        outputs.output_dir,
        job.source.start.tokenizer,
        is_same=weights is None,
    )
    if weights is None:
        return
    outputs.begin_card(job.task.card(outputs.training_flags), weights)
    best = outputs.results.best
    if best["values"]:  # The runs of a grid have been evaluated.
        outputs.add_scores(job.task.scores(best["values"], best["step"]))


def _keeps_checkpoints(config: run_config.FinetuningConfig) -> bool:
    """Returns whether finished runs keep their checkpoints."""
    return not config.is_grid and config.selection.keep_optimizer


def _remove_checkpoints(run: grid.Run) -> None:
    """Removes the checkpoints of a finished run, which its result replaces."""
    checkpoints.remove_all(run.directory)
    checkpoints.remove_all(os.path.join(run.directory, checkpoints.BEST))


def load(job: Job) -> tuple[TaskModel, int]:
    """Loads the model of a command that does not train.

    Returns:
      The model and its step; 0 if it was not trained in output_dir.

    Raises:
      InputError: there is no model, or it lacks the head of the task.
    """
    config, source = job.config, job.source
    task_model = job.builder.build(config.random_seed)
    if source.case == "UNFINISHED":
        step = restore(config, task_model.model, config.output_dir)
        logging.info(
            "using the checkpoint of step %d in %s", step, config.output_dir
        )
        return task_model, step
    task_model.assign(source.start.init_checkpoint)
    return task_model, source.step


def train_epochs(
    builder: Builder,
    model: Any,
    run: grid.Run,
    *,
    make_batches: feed.MakeBatches,
    num_examples: int,
    settings: stamp.Stamp,
    objective: steps.Objective | None = None,
    rate_factors: Mapping[str, float] | None = None,
    hooks: loop.Hooks | None = None,
) -> int:
    """Trains a model for --num_train_epochs, or until evaluations end the run.

    Args:
      builder: gives the flags, the objective and the devices.
      model: the model, made in the strategy's scope.
      run: the learning rate, the seed and the directory.
      make_batches: makes endless training batches.
      num_examples: number of examples per epoch.
      settings: the settings that a resumed run compares.
      objective: the loss; by default that of the builder.
      rate_factors: maps variables' paths to factors on the learning rate.
      hooks: evaluates after --eval_every_steps or every epoch, as the flags
        say, with grid.SCORE among the metrics; None for no evaluation.

    Returns:
      The step whose weights the model has now.
    """
    config = builder.config
    num_steps = num_train_steps(
        num_examples, run.train_batch_size, run.num_train_epochs
    )
    every = config.selection.eval_every_steps
    keeps_best = every > 0
    if hooks is not None and config.evaluates_while_training and not every:
        every = math.ceil(num_examples / run.train_batch_size)
    learner = assembly.make_learner(
        config,
        objective or builder.objective,
        model,
        strategy=builder.strategy,
        learning_rate=run.learning_rate,
        num_train_steps=num_steps,
        num_warmup_steps=int(num_steps * config.warmup_proportion),
        rate_factors=rate_factors,
    )
    loop.train(
        learner,
        strategy=builder.strategy,
        phases=[loop.Phase(num_steps, make_batches)],
        options=assembly.loop_options(
            config,
            num_steps,
            output_dir=run.directory,
            seed=run.random_seed,
            selection=loop.Selection(
                every=every,
                keeps_best=keeps_best,
                metric=grid.SCORE,
                higher_is_better=True,
                patience=config.selection.early_stopping_patience,
            ),
            settings=settings,
            task_settings=builder.objective.stored,
        ),
        hooks=hooks,
    )
    return restore(config, model, run.directory)


def num_train_steps(
    num_examples: int, train_batch_size: int, num_train_epochs: float
) -> int:
    """Returns the steps of all epochs, computed as google-research/bert does.

    Raises:
      InputError: the result is less than one step.
    """
    steps = int(num_examples / train_batch_size * num_train_epochs)
    if steps < 1:
        raise errors.InputError(
            f"--train_batch_size={train_batch_size}: {num_examples} examples "
            f"in {num_train_epochs:g} epoch(s) do not fill one batch; lower "
            "it, or raise --num_train_epochs"
        )
    return steps


def restore(
    config: run_config.FinetuningConfig, model: Any, output_dir: str
) -> int:
    """Loads the weights of a run: with early stopping the best, else the last.

    Returns:
      Their step; 0 if the run has no checkpoint.
    """
    folder = source_lib.checkpoint_folder(config, output_dir)
    step = folder and loop.restore_model(model, folder)
    return step or 0


def records_dir(
    config: run_config.FinetuningConfig, strategy: Any
) -> str | None:
    """Returns the directory in which this process keeps tokenized examples.

    Returns None without --write_records, and on workers other than the chief,
    which share the chief's output_dir.
    """
    # A dry run writes nothing.
    writes = config.write_records and not config.loop.dry_run
    is_writer = writes and strategies.is_chief(strategy)
    return config.output_dir if is_writer else None
