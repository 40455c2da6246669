"""What run_squad.py learns, predicts, combines and is asked.

sets = open_sets(config, start.init_checkpoint)
job = open_job(config, start, sets)         # judged by --predict_file
ask(config, task_model, sets)                   # --question, --interactive
combine(config)                             # --ensemble_dirs
"""

import dataclasses
import functools
import sys
from typing import Any

from absl import logging

from data.features import Features
from data.tokenization.wordpiece import Tokenizer
from foundation import config_flags, errors, file_system
from jobs import finetuning, grid, run_files, typed
from tasks.squad import (
    dataset,
    decoding,
    ensemble,
    prompt,
    span_task,
    squad_outputs,
    squad_windows,
)
from weights import model_files, task_files, warm_start


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sets:
    """What is learned, what is predicted, and how the model is asked.

    Attributes:
      output_dir: of the run.
      train: the questions to learn, if any.
      predict: those to predict, if any.
      with_negative: whether there may be no answer.
      threshold: null odds above which there is none, if given or stored.
    """

    output_dir: str
    train: dataset.Questions | None
    predict: dataset.Questions | None
    with_negative: bool
    threshold: float | None

    @property
    def seeks_threshold(self) -> bool:
        """Whether training is to end with a threshold for the model."""
        return (
            self.with_negative
            and self.threshold is None
            and self.train is not None
            and self.predict is not None
            and squad_outputs.can_tell(self.predict)
        )

    @property
    def known_threshold(self) -> float | None:
        """What questions are judged by that cannot tell; None in 1.1.

        It is read when it is needed, as training stores it anew.
        """
        if not self.with_negative or self.threshold is not None:
            return self.threshold
        stored = task_files.settings_of_model(self.output_dir)
        known = stored.null_score_diff_threshold if stored else None
        return 0.0 if known is None else known


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """The sets as a model sees them, each made once."""

    config: Any
    sets: Sets
    tokenizer: Tokenizer

    @functools.cached_property
    def learned(self) -> Features:
        """The windows to learn from."""
        keeps = self.config.write_records
        return squad_windows.training_features(
            self.sets.train,
            self.tokenizer,
            sizes(self.config),
            self.config.output_dir if keeps else None,
            name_all=self.config.verbose_logging,
        )

    @functools.cached_property
    def windows(self) -> squad_windows.Windows:
        """The windows to predict."""
        return squad_windows.prediction_windows(
            self.sets.predict, self.tokenizer, sizes(self.config)
        )

    def evaluate(
        self, task_model: finetuning.TaskModel
    ) -> squad_outputs.Evaluation:
        """Predicts with a model, and scores that if it can be scored."""
        batch_size = self.config.predict_batch_size
        reader = make_reader(self.config, task_model, self.sets, batch_size)
        logits = reader.logits(self.windows)
        return squad_outputs.evaluate(
            self.sets.predict,
            reader.decode(self.sets.predict, self.windows, logits),
            with_negative=self.sets.with_negative,
            threshold=self.sets.threshold,
            otherwise=self.sets.known_threshold or 0.0,
            source=squad_outputs.Source(
                self.windows, sizes(self.config), logits
            ),
        )


def open_sets(config: Any, stored: task_files.SquadSettings | None) -> Sets:
    """Reads the files.

    Args:
      config: the flags.
      stored: with the model, if anything is.
    """
    stored = stored or task_files.SquadSettings()
    with_negative = config.version_2_with_negative
    if with_negative is None:
        with_negative = stored.version_2_with_negative
    threshold = config.null_score_diff_threshold
    if threshold is not None and not with_negative:
        raise errors.InputError(
            "--null_score_diff_threshold: needs --version_2_with_negative"
        )
    if threshold is None and not config.do_train:
        threshold = stored.null_score_diff_threshold
    train, predict = None, None
    if config.do_train:
        train = dataset.read(config.train_file)
        dataset.check_version(
            train,
            "train_file",
            with_negative=with_negative,
            must_say=True,
            is_given=config.version_2_with_negative is not None,
        )
        train = dataset.for_training(train, name_all=config.verbose_logging)
    if config.predict_file:
        predict = dataset.read(config.predict_file)
        dataset.check_version(
            predict, "predict_file", with_negative=with_negative
        )
        if config.do_train and config.needs_evaluation:
            dataset.require_answers(predict, "predict_file")
    return Sets(
        output_dir=config.output_dir,
        train=train,
        predict=predict,
        with_negative=with_negative,
        threshold=threshold if with_negative else None,
    )


def open_job(
    config: Any, start: warm_start.Start, sets: Sets
) -> finetuning.Job:
    """Makes ready what trains and judges."""
    strategy = finetuning.open_strategy(config, start)
    work = Work(config=config, sets=sets, tokenizer=start.tokenizer)
    train = sets.train
    return finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=span_task.QuestionAnsweringTask(),
        make_model=functools.partial(span_task.make_model, start.config),
        # There is only one set to train on.
        features=lambda split: work.learned,
        evaluate=work.evaluate,
        data_settings=squad_windows.fingerprint(train, sizes(config)),
        evaluation_settings=lambda: {
            "predict_file": squad_windows.digests(sets.predict),
            "null_score_diff_threshold": sets.threshold,
            **dataclasses.asdict(limits(config, sets)),
        },
        # As released, questions and not windows make an epoch.
        num_examples=len(train) if train else None,
    )


def make_reader(
    config: Any,
    task_model: finetuning.TaskModel,
    sets: Sets,
    batch_size: int,
) -> prompt.Reader:
    """Makes what asks a model."""
    return prompt.Reader(
        lambda features: task_model.predictions(features, batch_size),
        task_model.job.start.tokenizer,
        sizes=sizes(config),
        limits=limits(config, sets),
        threshold=sets.known_threshold,
    )


def sizes(config: Any) -> squad_windows.Sizes:
    """Returns those of windows."""
    return squad_windows.Sizes(
        max_seq_length=config.max_seq_length,
        doc_stride=config.doc_stride,
        max_query_length=config.max_query_length,
    )


def limits(config: Any, sets: Sets) -> decoding.Limits:
    """Returns what may be an answer."""
    return decoding.Limits(
        n_best_size=config.n_best_size,
        max_answer_length=config.max_answer_length,
        exact_answers=config.exact_answers,
        version_2_with_negative=sets.with_negative,
    )


def ask(config: Any, task_model: finetuning.TaskModel, sets: Sets) -> None:
    """Answers --question, then what is typed."""
    replicas = task_model.job.strategy.num_replicas_in_sync
    reader = make_reader(config, task_model, sets, replicas)
    if config.question:
        found = reader.ask(config.question, config.context)
        sys.stdout.write(f"{prompt.describe(found, config.context)}\n")
    if config.interactive:
        read = typed.reader(sys.stdin, sys.stdout)
        prompt.talk(reader, read, sys.stdout, config.context)


def combine(config: Any) -> None:
    """Makes one prediction of several runs'."""
    members = ensemble.open_members(_ensemble_dirs(config), sizes=sizes(config))
    with_negative = config.version_2_with_negative
    if with_negative is None:
        with_negative = any(member.with_negative for member in members)
    stored = task_files.SquadSettings(version_2_with_negative=with_negative)
    sets = open_sets(config, stored)
    made = ensemble.combine(
        members,
        sets.predict,
        limits=limits(config, sets),
        threshold=sets.threshold,
        found_before=_found_before(config),
    )
    # The windows are the members', whatever the flags say.
    told = dataclasses.replace(config, **dataclasses.asdict(members[0].sizes))
    config_flags.write_run_config(told, config.output_dir)
    files = run_files.RunFiles(
        output_dir=config.output_dir,
        tokenizer=members[0].tokenizer,
        settings=dataclasses.asdict(told),
        given=config_flags.given(config),
        results=grid.Results(config.output_dir),
    )
    record = squad_outputs.OutputWriter(
        files, with_negative=sets.with_negative, threshold=made.threshold
    )
    record.predictions(made)


def _found_before(config: Any) -> float | None:
    """Returns the threshold that the same runs' combination has been given."""
    stored = task_files.read_settings(config.output_dir)
    told = run_files.flags(config.output_dir)
    if stored is None or told.get("ensemble_dirs") != config.ensemble_dirs:
        return None
    return stored.null_score_diff_threshold


def _ensemble_dirs(config: Any) -> list[str]:
    """Returns the folders of runs, none of which may be written to."""
    names = [name.strip() for name in config.ensemble_dirs.split(",")]
    names = [name for name in names if name]
    output_dir = file_system.real(config.output_dir)
    if not names:
        raise errors.InputError("--ensemble_dirs: names no folder")
    is_member = output_dir in map(file_system.real, names)
    if is_member or model_files.is_here(output_dir):
        raise errors.InputError(
            f"--output_dir={config.output_dir} holds a run: the answers of "
            "--ensemble_dirs need a folder of their own"
        )
    return names


# ----------------------------------------------------------------------
# Finds the settings that are stored with a model.


def find_settings(
    output_dir: str, init_checkpoint: str | None
) -> task_files.SquadSettings | None:
    """Reads what is stored with the model that a run starts from or asks.

    Args:
      output_dir: its model comes first, as its weights do. What an earlier
        prediction without a model has left there comes last, if it asked the
        same model.
      init_checkpoint: a model directory, or a file or checkpoint in one.
    """
    found = task_files.settings_of_model(output_dir)
    if found is None and init_checkpoint is not None:
        found = task_files.read_settings(file_system.folder_of(init_checkpoint))
    return found or _left(output_dir, init_checkpoint)


def _left(
    output_dir: str, init_checkpoint: str | None
) -> task_files.SquadSettings | None:
    """Reads what the last prediction in a folder found out about a model."""
    found = task_files.read_settings(output_dir)
    asked = run_files.flags(output_dir).get("init_checkpoint")
    if found is None or None in (asked, init_checkpoint):
        return None
    if file_system.real(asked) != file_system.real(init_checkpoint):
        return None
    logging.info(
        "%s: as the last prediction there found out: %s",
        task_files.SQUAD_SETTINGS,
        found,
    )
    return found
