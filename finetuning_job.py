"""What fine-tuning runners do alike: what a job is, and how a model is asked.

A runner says what its task is; a job trains, asks and restores its models:

    job = Job(config=..., start=..., strategy=..., task=..., make_model=...,
              features=..., judge=..., data_settings=...)
    fitted, step = finetuning_grid.train(job, results, save_model)
    fitted, step = load(job)                           # or that
    values = fitted.judge().values
    logits = fitted.predict("test", batch_size)["logits"]
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from absl import logging

import errors
import tensorflow_setup  # noqa: F401
from data import length_groups
from data.features import Features
from modeling import model_directory
from tasks import (
    batches,
    file_system,
    finetuning,
    grid,
    model_files,
    run_files,
)
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
      judged_on: tells the development sets from any others, by flag; asked
        only if training looks at them.
      num_examples: that make an epoch, where features are parts of examples;
        None if every row of them is one.
      load_beside: assigns to a model what lies in a directory besides its
        weights, and returns the paths of those variables.
    """

    config: finetuning_config.FinetuningConfig
    start: finetuning.Start
    strategy: Any
    task: Any
    make_model: Callable[..., Any]
    features: Callable[[str], Features]
    judge: Callable[["Fitted"], Judgment]
    data_settings: Mapping[str, Any]
    judged_on: Callable[[], Mapping[str, Any]]
    num_examples: int | None = None
    load_beside: Callable[[Any, str], Collection[str]] | None = None

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

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What decides how a run ends, but for its rate and seed, by flag."""
        judged_on = self.judged_on() if self.config.needs_evaluation else {}
        return {**self.config.outcome, **self.all_data_settings, **judged_on}

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
        self._load_beside(job.start.init_checkpoint)

    def assign(self, weights: str | None) -> None:
        """Assigns the weights of a model that was trained for the task.

        Raises:
          InputError: there are none, or a part of the model is missing.
        """
        model_files.require_weights(weights)
        model_files.check_task(self.model, weights)
        report = model_files.warm_start(self.model, weights)
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
                # Its best step is the best on these.
                **(job.judged_on() if config.eval_every_steps else {}),
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
    """Finds what the flags say to start from.

    Where nothing is trained, a model in output_dir is asked, and its labels and
    tokenizer are meant, not those of what it was trained from; see load. What
    is trained never starts from there: a grid's next run would from its best.
    """
    init_checkpoint = config.init_checkpoint
    if config.do_train:
        model_files.check_not_the_start(
            config.output_dir, init_checkpoint, is_grid=config.is_grid
        )
    elif model_files.is_here(config.output_dir):
        _tell_of_two(init_checkpoint, config.output_dir)
        init_checkpoint = None
    return finetuning.open_start(
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
    config: finetuning_config.FinetuningConfig,
    start: finetuning.Start,
    **batch_sizes: int,
) -> Any:
    """Makes the devices ready, as the last thing before work begins.

    Checks what they must fit, and notes the flags in output_dir, but for those
    of a question to what was trained there: training's stay, which are noted
    when it begins. `batch_sizes` are those besides training's and prediction's,
    by flag.
    """
    model_files.check_output_dir(config.output_dir, start.config)
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
    config: finetuning_config.FinetuningConfig, job: Job
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
            logging.info(
                "asked: the checkpoint of step %d in %s",
                step,
                config.output_dir,
            )
            return fitted, step
    fitted.assign(config.output_dir if is_here else job.start.init_checkpoint)
    return fitted, kept["step"] if kept is not None and is_here else 0
