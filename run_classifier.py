r"""Trains, evaluates and predicts sentence tasks: GLUE, XNLI, SWAG, your own.

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
from typing import Literal

import foundation.tensorflow_setup  # noqa: F401
from data.features import Features
from foundation import config_flags
from jobs import finetuning, run_config
from tasks.classification import objective, sentence_outputs, sentence_tasks
from weights import task_files, warm_start

field = config_flags.field
TRAIN, DEV, TEST = sentence_tasks.TRAIN, sentence_tasks.DEV, sentence_tasks.TEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(run_config.FinetuningConfig):
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
    problem_type: (
        Literal["classification", "regression", "multi_label"] | None
    ) = field(
        "Of your own files; without it, what --init_checkpoint was trained "
        "for, else classification.",
        None,
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
        given = config_flags.given(self)
        sentence_tasks.refuse_idle_flags(self.task_name, given)
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "at least one of --do_train, --do_eval and --do_predict must "
                "be given"
            )
        run_config.require(self, "eval_batch_size", minimum=1)
        if self.glue_submission and not self.do_predict:
            raise ValueError("--glue_submission needs --do_predict")
        if self.wnli_majority and not self.glue_submission:
            raise ValueError("--wnli_majority needs --glue_submission")


def main(config: ClassifierConfig) -> None:
    """Opens everything, then trains, evaluates and predicts as asked."""
    task, job = open_job(config)
    files = finetuning.open_files(config, job)
    record = sentence_outputs.OutputWriter(files, task)
    if config.do_train:
        task_model, step = finetuning.train_grid(
            job, files.results, record.save_model
        )
    else:
        task_model, step = finetuning.load(job)
    if config.do_eval:
        record.evaluation(task_model.evaluate(), step)
    for split in task.test_splits if config.do_predict else ():
        size = config.predict_batch_size
        record.predictions(
            split,
            task_model.predict(job.features(split), size)["logits"],
            glue_submission=config.glue_submission,
            wnli_majority=config.wnli_majority,
        )


def open_job(
    config: ClassifierConfig,
) -> tuple[sentence_tasks.SentenceTask, finetuning.Job]:
    """Finds and checks everything before anything takes time."""
    start = finetuning.open_start(config)
    task = open_task(config, start)
    strategy = finetuning.open_strategy(
        config, start, eval_batch_size=config.eval_batch_size
    )

    @functools.cache
    def features(split: str) -> Features:
        return sentence_tasks.prepare(
            task,
            split,
            start.tokenizer,
            max_seq_length=config.max_seq_length,
            records_dir=config.output_dir if config.write_records else None,
        )

    def evaluate(
        task_model: finetuning.TaskModel,
    ) -> sentence_outputs.Evaluation:
        size = config.eval_batch_size
        logits = {
            split: task_model.predict(features(split), size)["logits"]
            for split in task.dev_splits
        }
        lengths = features(task.dev_splits[0]).lengths
        return sentence_outputs.evaluate(task, logits, lengths)

    settings = sentence_tasks.fingerprint(task) if config.do_train else {}
    job = finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=objective.ClassificationTask(task.kind),
        make_model=functools.partial(
            objective.make_model,
            start.config,
            kind=task.kind,
            num_classes=task.num_classes,
        ),
        features=features,
        evaluate=evaluate,
        data_settings=settings,
        evaluation_settings=functools.partial(
            sentence_tasks.dev_fingerprint, task
        ),
    )
    return task, job


def open_task(
    config: ClassifierConfig, start: warm_start.Start
) -> sentence_tasks.SentenceTask:
    """Opens the task's files, and reads those that the run needs."""
    known = task_files.Known(
        labels=start.labels, problem_type=start.problem_type
    )
    problem_type = config.problem_type
    if config.do_train:  # For other labels, and for what it is told to be.
        problem_type = problem_type or known.kind
    task = sentence_tasks.open_task(
        config.task_name,
        data_dir=config.data_dir,
        files={
            split: getattr(config, f"{split}_file")
            for split in (TRAIN, DEV, TEST)
        },
        columns=sentence_tasks.Columns(
            text=config.text_column,
            text_pair=config.text_pair_column,
            label=config.label_column,
            id=config.id_column,
        ),
        problem_type=problem_type,
        language=config.language,
        known=None if config.do_train else known,
    )
    if config.do_train:  # A head of the same classes keeps their places.
        labels = known.in_order_if_its_own(task.labels)
        task = dataclasses.replace(task, labels=labels)
    sentence_tasks.check(
        task,
        train=config.do_train,
        dev=config.do_eval or (config.do_train and config.needs_evaluation),
        test=config.do_predict,
    )
    if config.wnli_majority and task.name == "wnli":
        task.read(TRAIN)  # Whose most frequent label it is.
    return task


if __name__ == "__main__":
    config_flags.run(ClassifierConfig, main)
