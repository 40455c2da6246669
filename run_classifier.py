"""Trains, evaluates and predicts sentence tasks: GLUE, XNLI, SWAG, your own.

As in google-research/bert's README (84 to 88 % on MRPC's development set):

    python run_classifier.py --task_name=MRPC --data_dir=glue/MRPC \
        --do_train --do_eval --init_checkpoint=uncased_L-12_H-768_A-12 \
        --learning_rate=2e-5 --output_dir=mrpc

The paper's protocol, the best of a grid on the development set:

    python run_classifier.py --task_name=RTE --data_dir=glue/RTE \
        --init_checkpoint=uncased_L-24_H-1024_A-16 --do_train --do_eval \
        --learning_rate=5e-5,4e-5,3e-5,2e-5 --num_seeds=5 --output_dir=rte

A table of your own, seconds on a laptop with a small model:

    python run_classifier.py --task_name=csv --train_file=train.csv \
        --dev_file=dev.csv --text_column=review --label_column=stars \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=stars

Killed and started again, training goes on from its last checkpoint.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import quiet  # noqa: F401
from data import length_groups
from tasks import (
    batches,
    classification,
    finetuning,
    grid,
    model_files,
    sentence_results,
    sentence_tasks,
)
from training import (
    assembly,
    config_flags,
    finetuning_config,
    prediction,
    run_config,
)
from training import finetuning as training

field = config_flags.field
TRAIN, DEV, TEST = sentence_tasks.TRAIN, sentence_tasks.DEV, sentence_tasks.TEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(finetuning_config.FinetuningConfig):
    """Everything run_classifier.py needs to know."""

    task_name: str = field(
        "A task of GLUE, xnli, swag, or csv, tsv, jsonl for your own files."
    )
    data_dir: str | None = field("Folder of the task's released files.", None)
    train_file: str | None = field("In place of the released name.", None)
    dev_file: str | None = field("In place of the released name.", None)
    test_file: str | None = field("In place of the released name.", None)
    text_column: str = field("Of your own files: the text.", "text")
    text_pair_column: str | None = field(
        "Of your own files: the second text.", None
    )
    label_column: str = field("Of your own files: the label.", "label")
    id_column: str | None = field("Of your own files: the name.", None)
    problem_type: Literal["classification", "regression", "multi_label"] = (
        field("Of your own files.", "classification")
    )
    language: str = field("Of XNLI.", "zh")
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    eval_batch_size: int = field("Over all replicas.", 8)
    glue_submission: str | None = field(
        "Folder to write the test set's predictions to as GLUE's server wants "
        "them.",
        None,
    )
    wnli_majority: bool = field(
        "Submit WNLI's most frequent label, as the paper did.", False
    )

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "at least one of --do_train, --do_eval and --do_predict must "
                "be given"
            )
        run_config.require(self, "eval_batch_size", minimum=1)
        if self.glue_submission and not self.do_predict:
            raise ValueError("--glue_submission needs --do_predict")
        is_grid = len(self.learning_rates) * self.num_seeds > 1
        if is_grid and not self.do_train:
            raise ValueError("a grid of runs needs --do_train")

    @property
    def needs_evaluation(self) -> bool:
        """Whether training looks at the development set."""
        is_grid = len(self.learning_rates) * self.num_seeds > 1
        return is_grid or self.eval_every_steps > 0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """What all runs of the grid have in common."""

    config: ClassifierConfig
    start: finetuning.Start
    task: sentence_tasks.SentenceTask
    strategy: Any

    @functools.cache  # noqa: B019  # There is one job in a process.
    def features(self, split: str) -> Any:
        """Returns the features of a set, tokenized or read once."""
        config = self.config
        return sentence_tasks.prepare(
            self.task,
            split,
            self.start.tokenizer,
            max_seq_length=config.max_seq_length,
            records_dir=config.output_dir if config.write_records else None,
        )

    @property
    def lengths(self) -> list[int]:
        """The lengths that batches may have."""
        step = training.length_step(self.config, self.strategy)
        return length_groups.permitted_lengths(self.config.max_seq_length, step)

    def make_model(self, seed: int) -> "Fitted":
        """Makes the model with the random weights of a seed."""
        with self.strategy.scope():
            model = classification.make_model(
                self.start.config,
                kind=self.task.kind,
                num_classes=self.task.num_classes,
                attention=self.start.attention,
                recompute=self.config.recompute,
                seed=seed,
                dtype=assembly.dtype_policy(self.config),
            )
        task = classification.ClassificationTask(self.task.kind)
        predictor = prediction.Predictor(
            task,
            model,
            strategy=self.strategy,
            jit_compile=assembly.uses_xla(self.config),
        )
        return Fitted(job=self, task=task, model=model, predictor=predictor)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A model of the job, and how it is asked."""

    job: Job
    task: classification.ClassificationTask
    model: Any
    predictor: prediction.Predictor

    def warm_start(self) -> None:
        """Assigns the pre-trained weights."""
        job = self.job
        finetuning.warm_start(
            self.model, job.start, reinit_layers=job.config.reinit_layers
        )

    def logits(self, split: str, batch_size: int) -> Any:
        """Returns float32 [N, C] for a whole set."""
        features = self.job.features(split)
        make_batches = batches.predict(
            features, batch_size=batch_size, lengths=self.job.lengths
        )
        return self.predictor(make_batches, len(features))["logits"]

    def judge(self) -> sentence_results.Judgment:
        """Returns what the model makes of the development sets."""
        size = self.job.config.eval_batch_size
        task = self.job.task
        logits = {split: self.logits(split, size) for split in task.dev_splits}
        lengths = self.job.features(task.dev_splits[0]).lengths
        return sentence_results.judge(task, logits, lengths)

    def train(self, run: grid.Run) -> int:
        """Trains one run of the grid; returns its last step."""
        job, config = self.job, self.job.config
        features = job.features(TRAIN)
        evaluate: Callable | None = None
        if config.eval_every_steps:
            evaluate = lambda: self.judge().values  # noqa: E731
        return training.train(
            config,
            config.run(
                learning_rate=run.learning_rate,
                random_seed=run.random_seed,
                output_dir=run.directory,
            ),
            self.task,
            self.model,
            strategy=job.strategy,
            make_batches=batches.train(
                features,
                batch_size=config.train_batch_size,
                seed=run.random_seed,
                lengths=job.lengths,
            ),
            num_examples=len(features),
            warm_start=self.warm_start,
            data_settings={
                "train_batch_size": config.train_batch_size,
                "random_seed": run.random_seed,
                "max_seq_length": config.max_seq_length,
                **sentence_tasks.fingerprint(job.task),
            },
            evaluate=evaluate,
            rate_multiplier=finetuning.layer_rates(
                job.start.config.num_hidden_layers, config.layer_decay
            ),
        )


def main(config: ClassifierConfig) -> None:
    """Opens everything, then trains, evaluates and predicts as asked."""
    job = open_job(config)
    record = sentence_results.Record(
        output_dir=config.output_dir,
        task=job.task,
        start=job.start,
        config=config,
        is_chief=assembly.is_chief(job.strategy),
    )
    fitted, step = None, None
    if config.do_train:
        fitted, step = train_all(job, record)
    if not (config.do_eval or config.do_predict):
        return
    if fitted is None:
        fitted, step = load(job)
    if config.do_eval:
        record.evaluation(fitted.judge(), step)
    if config.do_predict:
        for split in job.task.test_splits:
            logits = fitted.logits(split, config.predict_batch_size)
            record.predictions(
                split,
                logits,
                glue_submission=config.glue_submission,
                wnli_majority=config.wnli_majority,
            )


def open_job(config: ClassifierConfig) -> Job:
    """Finds and checks everything before anything takes time."""
    start = finetuning.open_start(
        output_dir=config.output_dir,
        init_checkpoint=config.init_checkpoint,
        bert_config_file=config.bert_config_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        max_seq_length=config.max_seq_length,
    )
    files = {
        split: getattr(config, f"{split}_file") for split in (TRAIN, DEV, TEST)
    }
    task = sentence_tasks.open_task(
        config.task_name,
        data_dir=config.data_dir,
        files=files,
        columns=sentence_tasks.Columns(
            text=config.text_column,
            text_pair=config.text_pair_column,
            label=config.label_column,
            id=config.id_column,
        ),
        problem_type=config.problem_type,
        language=config.language,
        known_labels=start.labels,
    )
    sentence_tasks.check(
        task,
        train=config.do_train,
        dev=config.do_eval or (config.do_train and config.needs_evaluation),
        test=config.do_predict,
    )
    model_files.check_output_dir(config.output_dir, start.config)
    strategy = assembly.make_strategy(config)
    sizes = config.train_batch_size, config.eval_batch_size
    assembly.check_batch_sizes(
        config, strategy, *sizes, config.predict_batch_size
    )
    config_flags.write_run_config(config, config.output_dir)
    return Job(config=config, start=start, task=task, strategy=strategy)


def train_all(job: Job, record: sentence_results.Record) -> tuple[Fitted, int]:
    """Trains the grid, keeps the best model; returns it and its step."""
    config = job.config
    runs = grid.plan(config.learning_rates, config.seeds, config.output_dir)
    fitted, best = None, None
    for run in runs:
        done = run.result() if len(runs) > 1 else None
        if done is not None:
            record.add(run, done)
            continue
        fitted = job.make_model(run.random_seed)
        started = time.monotonic()
        step = fitted.train(run)
        before = (run.result() or {"seconds": 0.0})["seconds"]
        seconds = before + time.monotonic() - started
        values = fitted.judge().values if len(runs) > 1 else {}
        done = {"step": step, "seconds": seconds, "values": values}
        if record.add(run, done):
            record.save_model(fitted.model)
            best = run
        if assembly.is_chief(job.strategy):
            run.finish(done)
            if len(runs) > 1:
                sentence_results.remove_checkpoints(run.directory)
    if len(runs) > 1:
        sys.stdout.write(record.grid() + "\n")
    if fitted is None or best is not runs[-1]:
        fitted = job.make_model(config.random_seed)
        model_files.warm_start(fitted.model, config.output_dir)
    return fitted, record.best["step"]


def load(job: Job) -> tuple[Fitted, int]:
    """Loads what --output_dir or --init_checkpoint holds, and its step."""
    config = job.config
    fitted = job.make_model(config.random_seed)
    step = training.restore(config, fitted.model, config.output_dir)
    if step is not None:
        return fitted, step
    # 1 own checkpoint in output_dir, 2 own model there, 3 init_checkpoint.
    weights = job.start.init_checkpoint
    if model_files.is_here(config.output_dir):
        weights = config.output_dir
    model_files.require_weights(weights)
    model_files.warm_start(fitted.model, weights)
    return fitted, 0


if __name__ == "__main__":
    config_flags.run(ClassifierConfig, main)
