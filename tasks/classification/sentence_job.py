"""A sentence task as a fine-tuning job, and the predictions of its sets.

`make_job` joins the task, its data and its model. `predict` predicts a set of
any size as a stream and writes:

    test_results.tsv    probabilities [N, C], tab-separated, no header
    predictions.tsv     id, predicted label, probability of each label, with a
                        header; cells with tabs or line ends are quoted
    scores_test.txt     metrics of a test set that has labels
    swag_submission.csv number of the predicted ending
    <task>.tsv          index and prediction for GLUE's server;
                        submission.zip once all eleven files exist

Files of a second set end in its name, as in predictions_mismatched.tsv.
Standard input is predicted to standard output, in the form of predictions.tsv.
"""

import csv
import functools
import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import examples, features, text_files
from data.examples import Example
from data.features import Features
from foundation import errors, file_system
from jobs import finetuning, run_config, run_directory, streaming
from tasks.classification import objective, sentence_outputs, sentence_tasks
from tasks.classification.sentence_files import DEV, TRAIN
from training import metric_writer
from training import strategy as strategies
from weights import pretrained, task_files

_ARCHIVE = "submission.zip"
_MNLI_MISMATCHED = "MNLI-mm.tsv"
_MAX_STSB_SCORE = 5.0  # The scale of STS-B begins at 0.
# The parts of a block.
_RESULTS, _PREDICTIONS = "test_results", "predictions"
_SWAG, _GLUE, _LOGITS = "swag_submission", "glue", "logits"


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
        if strategies.is_multi_worker(task_model.job.strategy):
            raise errors.InputError(
                "--test_file=-: several workers cannot read the same input"
            )
        head = _tsv_line(["id", "label", *task.labels]).encode()
        output = streaming.StandardOutput(_PREDICTIONS, head)
        return _stream(texts, task, task_model, output)
    label_ids = None if split.startswith(DEV) else _label_ids(task, split)
    majority = majority_label(task.read(TRAIN)) if wnli_majority else None
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
    written = write(blocks, task, split, files.output_dir, glue_submission)
    if label_ids is not None:
        logits = np.frombuffer(b"".join(blocks.parts(_LOGITS)), np.float32)
        logits = logits.reshape(len(label_ids), -1)
        found = task.metrics_of(logits, label_ids)
        logging.info("results on %s: %s", split, metric_writer.in_words(found))
        values = {f"{split}_{name}": value for name, value in found.items()}
        lines = [f"{name} = {values[name]}" for name in sorted(values)]
        file_system.write_text(written["scores"], "\n".join(lines) + "\n")
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
    losses = features.Losses()
    encoded_blocks = 0

    def encode(block: list[Example]) -> Features:
        nonlocal encoded_blocks
        found = sentence_tasks.encode(
            block,
            tokenizer,
            max_seq_length=config.max_seq_length,
            losses=losses,
        )
        encoded_blocks += 1
        if encoded_blocks == 1:  # A wrong vocabulary is seen before hours.
            losses.warn(name, config.max_seq_length)
        return found

    def logits_of(encoded: Features) -> np.ndarray:
        return task_model.predict(encoded, batch_size)["logits"]

    def text(
        block: list[Example], encoded: Features, logits: np.ndarray
    ) -> dict[str, bytes]:
        del encoded
        return parts(task, block, logits, majority=majority)

    streaming.run(
        texts,
        encode=encode,
        predict=logits_of,
        text=text,
        to=store,
        # Complete batches, so that none is filled up.
        block_items=-(-streaming.BLOCK_ITEMS // batch_size) * batch_size,
        total=None if is_endless else texts.count,
    )
    if encoded_blocks > 1:
        losses.warn(name, config.max_seq_length)


def _label_ids(
    task: sentence_tasks.SentenceTask, split: str
) -> np.ndarray | None:
    """Returns the labels of a test set, None if it has none."""
    try:
        texts = task.read(split, is_labeled=True)
        return examples.encode_labels(texts, task.kind, task.labels)
    except errors.InputError as error:
        logging.info("No metrics of the test set: %s", error)
        return None


def parts(
    task: sentence_tasks.SentenceTask,
    block: Sequence[Example],
    logits: np.ndarray,
    *,
    majority: str | None = None,
) -> dict[str, bytes]:
    """Returns the lines of consecutive examples in each file of `write`.

    Args:
      task: gives the kind and the labels.
      block: the N examples.
      logits: float [N, C].
      majority: label for GLUE's server, instead of the predicted ones.
    """
    probabilities = [
        [repr(float(x)) for x in row]
        for row in objective.probabilities(task.kind, logits)
    ]
    names = objective.label_names(task.kind, task.labels, logits)
    guids = [example.guid for example in block]
    predictions = [
        _tsv_line([guid, name, *(row if task.labels else [])])
        for guid, name, row in zip(guids, names, probabilities, strict=True)
    ]
    lines = {
        _RESULTS: ["\t".join(row) + "\n" for row in probabilities],
        _PREDICTIONS: predictions,
    }
    if task.kind == examples.MULTIPLE_CHOICE:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(zip(guids, logits.argmax(axis=1), strict=True))
        lines[_SWAG] = [file.getvalue()]
    if sentence_tasks.TASKS[task.name].submission:
        if majority is not None:
            names = [majority] * len(names)
        elif task.kind == examples.REGRESSION:
            values = objective.decisions(task.kind, logits)
            values = np.clip(values, 0.0, _MAX_STSB_SCORE)
            names = [f"{value:.3f}" for value in values]
        pairs = zip(guids, names, strict=True)
        lines[_GLUE] = [f"{guid}\t{name}\n" for guid, name in pairs]
    found = {name: "".join(x).encode() for name, x in lines.items()}
    return found | {_LOGITS: logits.astype(np.float32).tobytes()}


def write(
    blocks: streaming.Blocks,
    task: sentence_tasks.SentenceTask,
    split: str,
    output_dir: str,
    glue_submission: str | None = None,
) -> dict[str, str]:
    """Writes the files of a predicted set; returns their paths.

    Args:
      blocks: of `parts`.
      task: has the set.
      split: the set.
      output_dir: of the run.
      glue_submission: directory of the files for GLUE's server, if any.

    Returns:
      Part -> path, and that of the "scores", which are not written.
    """
    texts = task.read(split)
    suffix = split if split.startswith(DEV) else split.partition("_")[2]
    if task.name == "ax":  # Predicted in the directory of MNLI's model.
        suffix = task.name
    suffix = f"_{suffix}" if suffix else ""
    names = {
        _RESULTS: f"test_results{suffix}.tsv",
        _PREDICTIONS: f"predictions{suffix}.tsv",
        "scores": f"scores_test{suffix}.txt",
    }
    run_directory.keep_other_sets(
        output_dir,
        list(names.values()),
        name=run_directory.set_name([texts.path]),
        digest=texts.digest,
    )
    if task.kind == examples.MULTIPLE_CHOICE:
        names[_SWAG] = "swag_submission.csv"
    paths = {x: os.path.join(output_dir, name) for x, name in names.items()}
    heads = {
        _PREDICTIONS: _tsv_line(["id", "label", *task.labels]).encode(),
        _SWAG: b"id,pred\n",
        _GLUE: b"index\tprediction\n",
    }
    if glue_submission and (name := _glue_file(task, split)):
        file_system.make_folder(glue_submission)
        paths[_GLUE] = os.path.join(glue_submission, name)
    for part in {*paths} - {"scores"}:
        blocks.write(part, paths[part], head=heads.get(part, b""))
    if _GLUE in paths:
        _archive(glue_submission)
    return paths


def _tsv_line(cells: Sequence[str]) -> str:
    """Returns a line that csv reads back as the same cells."""
    end = "\r\n"  # Before Python 3.13, csv quotes "\r" only if the end has it.
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator=end).writerow(cells)
    return file.getvalue().removesuffix(end) + "\n"


def _glue_file(task: sentence_tasks.SentenceTask, split: str) -> str | None:
    """Returns the name of a set's file for GLUE's server."""
    name = sentence_tasks.TASKS[task.name].submission
    if name is None:
        logging.warning("GLUE has no task %s", task.name)
    # --test_file may name the mismatched set.
    set_name = f"{split} {os.path.basename(task.read(split).path)}"
    if task.name == "mnli" and "mismatched" in set_name:
        return _MNLI_MISMATCHED
    return name


def _archive(directory: str) -> None:
    """Writes submission.zip if all files of GLUE exist."""
    paths = [os.path.join(directory, name) for name in submission_files()]
    missing = [
        os.path.basename(path) for path in paths if not file_system.exists(path)
    ]
    if missing:
        logging.info("%s: missing %s", directory, ", ".join(missing))
        return
    archive = os.path.join(directory, _ARCHIVE)
    with (
        file_system.replacing(archive, on_disk=True) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in paths:
            file.write(file_system.local(path), os.path.basename(path))
    logging.info("%s: complete", archive)


def submission_files() -> list[str]:
    """Returns the names of all files that GLUE's server expects."""
    names = [task.submission for task in sentence_tasks.TASKS.values()]
    return sorted([*filter(None, names), _MNLI_MISMATCHED])


def majority_label(texts: Iterable[Example]) -> str:
    """Returns the most frequent label; of equally frequent ones the first."""
    counts = Counter(example.label for example in texts)
    return min(counts, key=lambda label: (-counts[label], label))
