"""A sentence task as a fine-tuning job, and the prediction of its sets.

`make_job` joins the task, its data and its model. `predict` predicts a set of
any size as a stream, from which `sentence_outputs` writes the files. Standard
input is predicted to standard output, in the form of predictions.tsv.
"""

import contextlib
import functools
from typing import Any

import numpy as np
from absl import logging

from data import examples, features, text_files
from data.examples import Example
from data.features import Features
from foundation import errors
from jobs import finetuning, run_config, run_directory, streaming
from tasks.classification import objective, sentence_outputs, sentence_tasks
from tasks.classification.sentence_files import DEV, TRAIN
from training import metric_writer
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
    def features_of(split: str) -> Features:
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
            split: task_model.predict(features_of(split), eval_batch_size)[
                "logits"
            ]
            for split in task.dev_splits
        }
        lengths = features_of(task.dev_splits[0]).lengths
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
        features=features_of,
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


def predict(
    task: sentence_tasks.SentenceTask,
    split: str,
    task_model: finetuning.TaskModel,
    files: run_directory.RunFiles,
    *,
    glue_submission: str | None = None,
    wnli_majority: bool = False,
) -> None:
    """Predicts a set; writes the predictions, and its metrics if it has labels.

    Args:
      task: has the set.
      split: a test set, or a development set.
      task_model: the model.
      files: of the run.
      glue_submission: directory of the files for GLUE's server, if any.
      wnli_majority: predict WNLI's most frequent label there.
    """
    texts = task.read(split)
    if texts.path == text_files.STANDARD_INPUT:
        output = streaming.StandardOutput(
            sentence_outputs.PREDICTIONS,
            sentence_outputs.predictions_head(task),
        )
        return _stream(texts, task, task_model, output)
    label_ids = None if split.startswith(DEV) else _label_ids(task, split)
    majority = None
    if wnli_majority:
        majority = sentence_outputs.majority_label(task.read(TRAIN))
    blocks = task_model.open_blocks(
        f"predict_{split}.incomplete",
        {
            "max_seq_length": task_model.job.config.max_seq_length,
            "task_name": task.name,
            "labels": list(task.labels),
            "wnli_majority": majority,
        },
    )
    _stream(texts, task, task_model, blocks, majority)
    if blocks is None:
        return
    if split.startswith(DEV):
        glue_submission = None
    written = sentence_outputs.write_predictions(
        blocks, task, split, files.output_dir, glue_submission
    )
    if label_ids is not None:
        logits = b"".join(blocks.parts(sentence_outputs.LOGITS))
        logits = np.frombuffer(logits, np.float32)
        logits = logits.reshape(len(label_ids), -1)
        found = task.metrics_of(logits, label_ids)
        logging.info("results on %s: %s", split, metric_writer.in_words(found))
        values = {f"{split}_{name}": value for name, value in found.items()}
        run_directory.write_values(written["scores"], values)
        data = {split: task.describe(split)}
        files.add_scores(split, data=data, metrics=values)
    blocks.remove()


def _stream(
    texts: examples.Examples,
    task: sentence_tasks.SentenceTask,
    task_model: finetuning.TaskModel,
    store: streaming.Store | None,
    majority: str | None = None,
) -> None:
    """Predicts a set block by block."""
    config, tokenizer = task_model.job.config, task_model.job.start.tokenizer
    batch_size = config.predict_batch_size
    is_endless = texts.path == text_files.STANDARD_INPUT
    name = "standard input" if is_endless else texts.path
    statistics = features.TokenizationStatistics()
    encoded_blocks = 0

    def encode(block: list[Example]) -> Features:
        nonlocal encoded_blocks
        found = sentence_tasks.encode(
            block,
            tokenizer,
            max_seq_length=config.max_seq_length,
            statistics=statistics,
        )
        encoded_blocks += 1
        if encoded_blocks == 1:  # A wrong vocabulary is seen before hours.
            statistics.warn(name, config.max_seq_length)
        return found

    def logits_of(encoded: Features) -> np.ndarray:
        return task_model.predict(encoded, batch_size)["logits"]

    def make_parts(
        block: list[Example], encoded: Features, logits: np.ndarray
    ) -> dict[str, bytes]:
        del encoded
        return sentence_outputs.prediction_parts(
            task, block, logits, majority=majority
        )

    streaming.run(
        texts,
        key=lambda example: example.key,
        encode=encode,
        predict=logits_of,
        make_parts=make_parts,
        store=store,
        # Complete batches, so that none is filled up.
        block_items=-(-streaming.BLOCK_ITEMS // batch_size) * batch_size,
        total=None if is_endless else texts.count,
    )
    if encoded_blocks > 1:
        statistics.warn(name, config.max_seq_length)


def _label_ids(
    task: sentence_tasks.SentenceTask, split: str
) -> np.ndarray | None:
    """Returns the labels of a test set, None unless all examples have one.

    Logs why there are none; a warning if some examples have one.
    """
    texts = task.read(split, is_labeled=True)
    try:
        return examples.encode_labels(texts, task.kind, task.labels)
    except errors.InputError as error:
        level = logging.WARNING if _has_label(texts, task) else logging.INFO
        logging.log(level, "no metrics of the test set: %s", error)
        return None


def _has_label(
    texts: examples.Examples, task: sentence_tasks.SentenceTask
) -> bool:
    """Returns whether some example has a label of the task."""
    with contextlib.suppress(errors.InputError):  # Of a row without the column.
        for example in texts:
            with contextlib.suppress(errors.InputError):
                examples.encode_labels([example], task.kind, task.labels)
                return True
    return False
