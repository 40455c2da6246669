"""Joins a sentence task, its data and its model into a fine-tuning job."""

import functools
from typing import Any

from data.features import Features
from jobs import finetuning, run_config
from tasks.classification import objective, sentence_outputs, sentence_tasks
from tasks.classification.sentence_files import TRAIN
from weights import pretrained, task_files


def make_job(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    task: sentence_tasks.SentenceTask,
    strategy: Any,
    *,
    eval_batch_size: int,
) -> finetuning.Job:
    """Makes the job that trains and evaluates models of a task.

    Args:
      config: the flags of any fine-tuning job.
      start: the pre-trained model and its tokenizer.
      task: what is learned.
      strategy: the devices.
      eval_batch_size: over all replicas.
    """

    @functools.cache
    def features(split: str) -> Features:
        return sentence_tasks.tokenize(
            task,
            split,
            start.tokenizer,
            max_seq_length=config.max_seq_length,
            records_dir=finetuning.records_dir(config, strategy),
        )

    def evaluate(
        task_model: finetuning.TaskModel,
    ) -> sentence_outputs.Evaluation:
        logits = {
            split: task_model.predict(features(split), eval_batch_size)[
                "logits"
            ]
            for split in task.dev_splits
        }
        lengths = features(task.dev_splits[0]).lengths
        return sentence_outputs.evaluate(task, logits, lengths)

    return finetuning.Job(
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
        data_settings={
            "task_name": task.name,
            "train_file": task.read(TRAIN).digest,
            "problem_type": task.kind,
        }
        if config.do_train
        else {},
        evaluation_settings=lambda: {
            "dev_file": " ".join(task.read(x).digest for x in task.dev_splits)
        },
        task_settings={
            "labels": task.names,
            "problem_type": task_files.PROBLEM_TYPES[task.kind],
        },
    )
