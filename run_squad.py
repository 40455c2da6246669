"""Answers questions from a paragraph: trains, predicts, scores, can be asked.

As in google-research/bert's README (F1 88.5 and exact match 81.2 on SQuAD 1.1):

    python run_squad.py --init_checkpoint=uncased_L-12_H-768_A-12 \
        --do_train --train_file=train-v1.1.json \
        --do_predict --predict_file=dev-v1.1.json \
        --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2 \
        --output_dir=squad

SQuAD 2.0, where a paragraph may hold no answer: the threshold is found on
--predict_file, applied and stored with the model.

    python run_squad.py --version_2_with_negative --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --do_train --do_predict ...

Seven runs as one, and a model that answers at the prompt:

    python run_squad.py --ensemble_dirs=run1,run2,run3 \
        --predict_file=dev-v1.1.json --output_dir=ensemble
    python run_squad.py --output_dir=squad --interactive

Killed and started again, training goes on from its last checkpoint.
"""

import dataclasses
import functools
import sys

import finetuning_job
import tensorflow_setup  # noqa: F401
from data import squad
from tasks import (
    finetuning,
    grid,
    question_answering,
    run_files,
    squad_ask,
    squad_decoding,
    squad_ensemble,
    squad_predictions,
    squad_results,
    squad_sets,
)
from training import config_flags, finetuning_config, run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(finetuning_config.FinetuningConfig):
    """Everything run_squad.py needs to know."""

    train_file: str | None = field(
        "SQuAD's JSON; several files between commas.", None
    )
    predict_file: str | None = field(
        "SQuAD's JSON; its answers, if it has any, are what is scored.", None
    )
    max_seq_length: int = field("Pieces of a window.", 384)
    doc_stride: int = field("Pieces from one window's start to the next.", 128)
    max_query_length: int = field("Pieces; longer questions are cut.", 64)
    n_best_size: int = field("Answers in nbest_predictions.json.", 20)
    max_answer_length: int = field("Pieces of an answer, at most.", 30)
    version_2_with_negative: bool | None = field(
        "Whether there may be no answer, as in SQuAD 2.0; without it, as the "
        "model was trained, else False.",
        None,
    )
    null_score_diff_threshold: float | None = field(
        "Above these odds nothing is answered; without it, the best one on "
        "--predict_file after training, else the one stored with the model.",
        None,
    )
    exact_answers: bool = field(
        "Answer with the characters of the pieces, not as google-research/bert "
        "projects them: for scripts that put no spaces between words.",
        False,
    )
    verbose_logging: bool = field(
        "Name all questions that are left out.", False
    )
    ensemble_dirs: str | None = field(
        "Folders of runs, between commas, whose answers become one.", None
    )
    question: str | None = field("Asked about --context.", None)
    context: str | None = field("A paragraph.", None)
    interactive: bool = field("Answer at the prompt.", False)

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        for name in ("doc_stride", "max_query_length", "n_best_size"):
            run_config.require(self, name, minimum=1)
        run_config.require(self, "max_answer_length", minimum=1)
        if self.max_seq_length <= self.max_query_length + 3:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length}: must be greater than "
                f"--max_query_length={self.max_query_length} + 3"
            )
        if self.do_train and not self.train_file:
            raise ValueError("--do_train needs --train_file")
        predicts = self.do_predict or self.ensemble_dirs
        if self.do_train and self.needs_evaluation:
            predicts = True
        if predicts and not self.predict_file:
            raise ValueError(
                "--predict_file is needed to predict, for ensembles, grids "
                "and --eval_every_steps"
            )
        if self.question and not self.context:
            raise ValueError("--question needs --context")
        asks = self.question or self.interactive
        if not (self.do_train or predicts or asks):
            raise ValueError(
                "at least one of --do_train, --do_predict, --ensemble_dirs, "
                "--interactive and --question must be given"
            )
        if self.ensemble_dirs and (self.do_train or self.do_predict or asks):
            raise ValueError(
                "--ensemble_dirs only combines what runs have left"
            )

    @property
    def sizes(self) -> squad_sets.Sizes:
        """Those of windows."""
        return squad_sets.Sizes(
            max_seq_length=self.max_seq_length,
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sets:
    """What is learned, what is predicted, and how the model is asked."""

    train: squad.Questions | None
    predict: squad.Questions | None
    with_negative: bool
    threshold: float | None

    @property
    def known_threshold(self) -> float | None:
        """What a question without company is judged by; None in 1.1."""
        return (self.threshold or 0.0) if self.with_negative else None


def main(config: SquadConfig) -> None:
    """Opens everything, then trains, predicts and answers as asked."""
    if config.ensemble_dirs:
        combine(config)
        return
    start = finetuning_job.open_start(config)
    sets = open_sets(config, start.init_checkpoint)
    job = open_job(config, start, sets)
    files = finetuning_job.open_files(config, job)
    record = squad_results.Record(
        files,
        trained_on=sets.train,
        with_negative=sets.with_negative,
        threshold=sets.threshold,
    )
    if config.do_train:
        fitted, step = finetuning_job.train(
            job, files.results, record.save_model
        )
    else:
        fitted, step = finetuning_job.load(job)
    if config.do_predict:
        made = fitted.judge()
        record.predictions(made, step)
        sets = dataclasses.replace(sets, threshold=made.threshold)
    if config.question or config.interactive:
        ask(config, fitted, sets)


def open_sets(config: SquadConfig, *directories: str | None) -> Sets:
    """Reads the files, and what is stored with a model in a directory.

    That in output_dir comes first, as its weights do.
    """
    stored = squad_predictions.Settings()
    for directory in (config.output_dir, *directories):
        if stored == squad_predictions.Settings():
            stored = squad_predictions.read_settings(directory)
    with_negative = config.version_2_with_negative
    if with_negative is None:
        with_negative = stored.version_2_with_negative
    train, predict = None, None
    if config.do_train:
        train = squad.read(config.train_file)
        squad.check_version(
            train, "train_file", with_negative=with_negative, must_say=True
        )
        train = squad.for_training(train, name_all=config.verbose_logging)
    if config.predict_file:
        predict = squad.read(config.predict_file)
        squad.check_version(
            predict, "predict_file", with_negative=with_negative
        )
        if config.do_train and config.needs_evaluation:
            squad.require_answers(predict, "predict_file")
    threshold = config.null_score_diff_threshold
    if threshold is None and not config.do_train:
        threshold = stored.null_score_diff_threshold
    return Sets(
        train=train,
        predict=predict,
        with_negative=with_negative,
        threshold=threshold if with_negative else None,
    )


def open_job(
    config: SquadConfig, start: finetuning.Start, sets: Sets
) -> finetuning_job.Job:
    """Makes ready what trains and judges."""
    strategy = finetuning_job.open_strategy(config, start)
    records_dir = config.output_dir if config.write_records else None

    @functools.cache
    def features(split: str):
        del split  # There is only one set to train on.
        return squad_sets.training_features(
            sets.train, start.tokenizer, config.sizes, records_dir
        )

    @functools.cache
    def windows():
        return squad_sets.prediction_windows(
            sets.predict, start.tokenizer, config.sizes, records_dir
        )

    def judge(fitted: finetuning_job.Fitted) -> squad_predictions.Judgment:
        reader = make_reader(config, fitted, sets, config.predict_batch_size)
        logits = reader.logits(windows())
        return squad_predictions.judge(
            sets.predict,
            reader.decode(sets.predict, windows(), logits),
            with_negative=sets.with_negative,
            threshold=sets.threshold,
            windows=windows(),
            logits=logits,
        )

    train = sets.train
    return finetuning_job.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=question_answering.QuestionAnsweringTask(),
        make_model=functools.partial(
            question_answering.make_model, start.config
        ),
        features=features,
        judge=judge,
        data_settings=squad_sets.fingerprint(train, config.sizes),
        # As released, questions and not windows make an epoch.
        num_examples=len(train) if train else None,
    )


def make_reader(
    config: SquadConfig,
    fitted: finetuning_job.Fitted,
    sets: Sets,
    batch_size: int,
) -> squad_ask.Reader:
    """Makes what asks a model."""
    return squad_ask.Reader(
        lambda features: fitted.predictions(features, batch_size),
        fitted.job.start.tokenizer,
        sizes=config.sizes,
        limits=limits(config, sets),
        threshold=sets.known_threshold,
    )


def limits(config: SquadConfig, sets: Sets) -> squad_decoding.Limits:
    """Returns what may be an answer."""
    return squad_decoding.Limits(
        n_best_size=config.n_best_size,
        max_answer_length=config.max_answer_length,
        exact_answers=config.exact_answers,
        version_2_with_negative=sets.with_negative,
    )


def ask(config: SquadConfig, fitted: finetuning_job.Fitted, sets: Sets) -> None:
    """Answers --question, then what is typed."""
    replicas = fitted.job.strategy.num_replicas_in_sync
    reader = make_reader(config, fitted, sets, replicas)
    if config.question:
        found = reader.ask(config.question, config.context)
        print(squad_ask.describe(found, config.context))
    if config.interactive:
        squad_ask.talk(reader, sys.stdin, sys.stdout, config.context)


def combine(config: SquadConfig) -> None:
    """Makes one prediction of several runs'."""
    directories = config.ensemble_dirs.split(",")
    sets = open_sets(config, *directories)
    made = squad_ensemble.combine(
        directories,
        sets.predict,
        sizes=config.sizes,
        limits=limits(config, sets),
        threshold=sets.threshold,
    )
    config_flags.write_run_config(config, config.output_dir)
    files = run_files.RunFiles(
        output_dir=config.output_dir,
        settings=dataclasses.asdict(config),
        given=config_flags.given(config),
        results=grid.Results(config.output_dir),
    )
    record = squad_results.Record(
        files, with_negative=sets.with_negative, threshold=sets.threshold
    )
    record.predictions(made)


if __name__ == "__main__":
    config_flags.run(SquadConfig, main)
