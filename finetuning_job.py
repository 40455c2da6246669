"""What fine-tuning runners do alike: the runs of a grid, the best is kept.

A runner says what its task is; a job trains, asks and restores its models:

    job = Job(config=..., start=..., strategy=..., task=..., make_model=...,
              features=..., judge=..., data_settings=...)
    fitted, step = train(job, results, save_model)     # or load(job)
    values = fitted.judge().values
    logits = fitted.predict("test", batch_size)["logits"]
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from absl import logging

import tensorflow_setup  # noqa: F401
from data import length_groups
from data.features import Features
from tasks import batches, finetuning, grid, model_files, run_files
from training import (
    assembly,
    config_flags,
    finetuning_config,
    prediction,
)
from training import finetuning as training

TRAIN = "train"


class Judgment(Protocol):
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
      judge: asks a model about the development sets.
      data_settings: what decides which records a step reads, by flag; that of
        the order is added here.
      num_examples: that make an epoch, where features are parts of examples;
        None if every row of them is one.
    """

    config: finetuning_config.FinetuningConfig
    start: finetuning.Start
    strategy: Any
    task: Any
    make_model: Callable[..., Any]
    features: Callable[[str], Features]
    judge: Callable[["Fitted"], Judgment]
    data_settings: Mapping[str, Any]
    num_examples: int | None = None

    @property
    def lengths(self) -> list[int]:
        """The lengths that batches may have."""
        step = training.length_step(self.config, self.strategy)
        return length_groups.permitted_lengths(self.config.max_seq_length, step)

    @property
    def all_data_settings(self) -> dict[str, Any]:
        """What decides which records a step reads, but for the seed."""
        tokenizer = self.start.tokenizer
        return {
            "train_batch_size": self.config.train_batch_size,
            "max_seq_length": self.config.max_seq_length,
            "vocab_file": tokenizer.vocabulary.sha256,
            "do_lower_case": tokenizer.settings["do_lower_case"],
            **self.data_settings,
        }

    def fit(self, seed: int) -> "Fitted":
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
        return Fitted(job=self, model=model, predictor=predictor)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A model of the job, and how it is asked."""

    job: Job
    model: Any
    predictor: prediction.Predictor

    def warm_start(self) -> None:
        """Assigns the pre-trained weights."""
        job = self.job
        finetuning.warm_start(
            self.model, job.start, reinit_layers=job.config.reinit_layers
        )

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

    def judge(self) -> Judgment:
        """Returns what the model makes of the development sets."""
        return self.job.judge(self)

    def train(self, run: grid.Run) -> int:
        """Trains one run of the grid; returns its last step."""
        job, config = self.job, self.job.config
        features = job.features(TRAIN)

        def evaluate() -> Mapping[str, float]:
            return self.judge().values

        return training.train(
            config,
            config.run(
                learning_rate=run.learning_rate,
                random_seed=run.random_seed,
                output_dir=run.directory,
            ),
            job.task,
            self.model,
            strategy=job.strategy,
            make_batches=batches.train(
                features,
                batch_size=config.train_batch_size,
                seed=run.random_seed,
                lengths=job.lengths,
            ),
            num_examples=job.num_examples or len(features),
            warm_start=self.warm_start,
            data_settings={
                "random_seed": run.random_seed,
                **job.all_data_settings,
            },
            evaluate=evaluate if config.eval_every_steps else None,
            rate_multiplier=finetuning.layer_rates(
                job.start.config.num_hidden_layers, config.layer_decay
            ),
        )

    def _batches(self, features: Features, batch_size: int) -> Callable:
        return batches.predict(
            features, batch_size=batch_size, lengths=self.job.lengths
        )


def open_start(
    config: finetuning_config.FinetuningConfig,
) -> finetuning.Start:
    """Finds what the flags say to start from."""
    return finetuning.open_start(
        output_dir=config.output_dir,
        init_checkpoint=config.init_checkpoint,
        bert_config_file=config.bert_config_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        bilstm_size=config.bilstm_size,
        max_seq_length=config.max_seq_length,
    )


def open_strategy(
    config: finetuning_config.FinetuningConfig,
    start: finetuning.Start,
    **batch_sizes: int,
) -> Any:
    """Makes the devices ready, as the last thing before work begins.

    Checks what they must fit, and notes the flags in output_dir. `batch_sizes`
    are those besides training's and prediction's, by flag.
    """
    model_files.check_output_dir(config.output_dir, start.config)
    strategy = assembly.make_strategy(config)
    assembly.check_batch_sizes(
        config,
        strategy,
        train_batch_size=config.train_batch_size,
        predict_batch_size=config.predict_batch_size,
        **batch_sizes,
    )
    config_flags.write_run_config(config, config.output_dir)
    return strategy


def open_files(
    config: finetuning_config.FinetuningConfig, job: Job
) -> run_files.RunFiles:
    """Says where the files go that a job leaves."""
    return run_files.RunFiles(
        output_dir=config.output_dir,
        tokenizer=job.start.tokenizer,
        settings=dataclasses.asdict(config),
        given=config_flags.given(config),
        results=grid.Results(config.output_dir),
        is_chief=assembly.is_chief(job.strategy),
    )


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
    if len(runs) > 1:
        for run in runs:
            _reuse(job, run, results)
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
        fitted = job.fit(config.random_seed)
        model_files.warm_start(fitted.model, config.output_dir)
    return fitted, results.best["step"]


def load(job: Job) -> tuple[Fitted, int]:
    """Loads what --output_dir or --init_checkpoint holds, and its step.

    Raises:
      InputError: there is none, or it is an encoder without the task's head.
    """
    config = job.config
    fitted = job.fit(config.random_seed)
    # 1 what a training has kept, 2 how far one has come that has not ended,
    # 3 a model of other making, 4 what is named.
    kept = grid.kept(config.output_dir)
    is_here = model_files.is_here(config.output_dir)
    if kept is None or not is_here:
        step = training.restore(config, fitted.model, config.output_dir)
        if step is not None:
            return fitted, step
    weights = config.output_dir if is_here else job.start.init_checkpoint
    model_files.require_weights(weights)
    model_files.require_all(
        model_files.warm_start(fitted.model, weights), weights
    )
    return fitted, kept["step"] if kept is not None else 0


def _reuse(job: Job, run: grid.Run, results: grid.Results) -> None:
    """Takes over what a run has ended with, if it has."""
    done = run.result()
    if done is not None:
        run.check(done, {**job.config.outcome, **job.all_data_settings})
        results.add(run, done)


def _finish(
    job: Job,
    run: grid.Run,
    results: grid.Results,
    save_model: Callable[[Any], None],
) -> Fitted:
    """Trains a run to its end, and keeps its model if it is the best."""
    config = job.config
    fitted = job.fit(run.random_seed)
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


def _train_one(fitted: Fitted, run: grid.Run, *, judge: bool) -> dict[str, Any]:
    """Returns what the run ends with: step, seconds, values."""
    started = time.monotonic()
    step = fitted.train(run)
    # Of a run that was stopped and had ended already when it was resumed.
    before = (run.result() or {"seconds": 0.0})["seconds"]
    seconds = before + time.monotonic() - started
    values = dict(fitted.judge().values) if judge else {}
    job = fitted.job
    settings = {**job.config.outcome, **job.all_data_settings}
    return {
        "step": step,
        "seconds": seconds,
        "values": values,
        "settings": settings,
    }
