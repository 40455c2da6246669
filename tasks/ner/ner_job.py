"""Tags sets and raw text with the model of run_ner.py.

output_dir/predictions_test.txt   CoNLL's columns, as conlleval reads them; with
                                  tabs, where the file has them, by -d '\\t';
                                  IOBES as BIO2, since it knows no S-
output_dir/entities.jsonl         of --text_file, by characters
"""

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
from absl import logging

from data.features import Features
from data.tokenization.wordpiece import Tokenizer
from foundation import errors, file_system
from jobs import assembly, finetuning, typed
from modeling import crf, models
from modeling.config import BertConfig
from tasks.ner import (
    conll,
    ner_data,
    ner_outputs,
    ner_windows,
    raw_text,
    tagging,
)
from weights import model_directory, task_files

if TYPE_CHECKING:
    NerConfig = Any

TEST = ner_data.TEST
ENTITIES = "entities.jsonl"
TRUE_CASE = task_files.TRUE_CASE
_STDIN = "standard input"


def weights_folder(config: "NerConfig") -> str | None:
    """Returns where the weights of a model that is not trained now are from."""
    if (
        config.features != "none"
        or model_directory.has_checkpoints(config.output_dir)
        or model_directory.has_model(config.output_dir)
    ):
        return config.output_dir
    path = config.init_checkpoint
    return None if path is None else file_system.folder_of(path)


def uses_crf(config: "NerConfig") -> bool:
    """Tells whether the model has a CRF, or is to have one."""
    if config.do_train:
        return config.crf
    folder = weights_folder(config)
    if tagging.has_crf(folder):
        return True
    is_unfinished = (
        folder == config.output_dir and not model_directory.has_model(folder)
    )
    if config.crf and not is_unfinished:  # Else the checkpoint has it.
        raise errors.InputError(
            f"--crf: no {task_files.CRF} in {folder or config.output_dir}; "
            "it is a flag of training"
        )
    return config.crf


def modeling(
    config: BertConfig, data: ner_data.NerData, *, uses_crf: bool
) -> dict[str, Any]:
    """Returns the arguments of a job that say what is trained and how."""
    count = len(data.labels)
    if not uses_crf:
        return {
            "task": tagging.TaggingTask(),
            "make_model": functools.partial(
                models.TaggingModel, config, num_classes=count
            ),
        }
    scheme = conll.PLAIN
    if not data.is_plain:
        scheme = conll.scheme_of(data.labels)

    def load(model: crf.CrfTaggingModel, directory: str) -> list[str]:
        if not tagging.has_crf(directory):
            return []
        return tagging.load_crf(model, data.labels, directory)

    return {
        "task": tagging.CrfTask(),
        "make_model": functools.partial(
            crf.CrfTaggingModel,
            config,
            num_classes=count,
            forbidden=tagging.forbidden(data.labels, scheme),
        ),
        "load_beside": load,
    }


def with_true_case(
    config: "NerConfig", data: ner_data.NerData, tokenizer: Tokenizer
) -> ner_data.NerData:
    """Returns data whose lines in capitals are read otherwise, if asked to."""
    folder = weights_folder(config)
    path = os.path.join(folder or "", TRUE_CASE)
    if config.do_train:
        if not config.true_case:
            return data
        if tokenizer.settings["do_lower_case"]:
            raise errors.InputError(
                "--true_case: the model is uncased, and sees no capitals"
            )
        forms = ner_data.learn(data.read(ner_data.TRAIN))
    elif folder is not None and file_system.exists(path):
        forms = file_system.read_json(path)
    elif config.true_case:
        raise errors.InputError(
            f"--true_case: no {TRUE_CASE} in {folder or config.output_dir}; it "
            "is a flag of training"
        )
    else:
        return data
    words = functools.partial(ner_data.apply, forms=forms)
    return dataclasses.replace(data, words=words)


def save_true_case(
    config: "NerConfig", data: ner_data.NerData, job: finetuning.Job
) -> None:
    """Writes the words' forms beside what was trained; removes older ones."""
    if not (config.do_train and assembly.is_chief(job.strategy)):
        return
    path = os.path.join(config.output_dir, TRUE_CASE)
    if config.true_case:
        text = json.dumps(ner_data.learn(data.read(ner_data.TRAIN)))
        file_system.write_text(path, text + "\n")
    else:
        file_system.discard(path)


def tag(
    data: ner_data.NerData,
    task_model: finetuning.TaskModel,
    sentences: conll.Sentences | str,
    features: Features,
    batch_size: int,
) -> tuple[np.ndarray, list[str]]:
    """Returns the logits [W, C] of words, a set's or others, and their tags."""
    logits = tagging.word_logits(
        features, len(data.labels), task_model.predictions(features, batch_size)
    )
    if isinstance(sentences, str):
        sentences = data.read(sentences)
    if isinstance(task_model.model, crf.CrfTaggingModel):
        tags = tagging.best_sequences(
            task_model.model, logits, sentences.row_splits, data.labels
        )
        return logits, tags
    return logits, tagging.best_tags(logits, data.labels)


def predict(
    config: "NerConfig",
    data: ner_data.NerData,
    task_model: finetuning.TaskModel,
    record: ner_outputs.OutputWriter,
) -> None:
    """Tags the test set and the raw text, if there are any."""
    size = config.predict_batch_size
    if data.has(TEST):
        logits, tags = tag(
            data, task_model, TEST, task_model.job.features(TEST), size
        )
        if data.read(TEST).tags is not None:
            record.test(ner_outputs.evaluate(data, TEST, logits, tags))
        else:
            guessed = ner_outputs.predicted_tags(data, TEST, tags)
            record.predictions(TEST, guessed)
    if data.text is not None:
        text, found = find_entities(config, data, task_model, data.text)
        if assembly.is_chief(task_model.job.strategy):
            path = os.path.join(config.output_dir, ENTITIES)
            lines = raw_text.json_lines(text, found)
            file_system.write_text(path, "".join(lines))
            logging.info("%s: %d lines", path, len(data.text))


def find_entities(
    config: "NerConfig",
    data: ner_data.NerData,
    task_model: finetuning.TaskModel,
    lines: Sequence[str],
) -> tuple[raw_text.Text, list[list[dict[str, Any]]]]:
    """Returns lines split into words, and the entities of each."""
    text = raw_text.split(config.text_file or _STDIN, lines)
    if not text.sentences.words:
        return text, [[] for _ in lines]
    features = ner_windows.encode(
        task_model.job.start.tokenizer,
        data.words(text.sentences),
        None,
        **dataclasses.asdict(config.context),
    )
    size = config.predict_batch_size
    logits, tags = tag(data, task_model, text.sentences, features, size)
    numbers = [data.labels.index(t) for t in tags]
    shares = scipy.special.softmax(logits.astype(np.float64), axis=1)
    shares = shares[np.arange(len(numbers)), numbers]
    found = raw_text.lines(text, tags, shares, is_plain=data.is_plain)
    return text, found


def talk(
    config: "NerConfig",
    data: ner_data.NerData,
    task_model: finetuning.TaskModel,
) -> None:
    """Shows the entities of every line that is typed, or comes by a pipe."""
    if sys.stdin.isatty():
        sys.stderr.write("Type a text; Ctrl-D ends.\n")
    for number, raw in enumerate(typed.lines(sys.stdin, sys.stdout), 1):
        line = file_system.decode(raw, _STDIN, number).strip()
        _, (found,) = find_entities(config, data, task_model, [line])
        sys.stdout.write(f"{raw_text.marked(line, found)}\n")
        sys.stdout.flush()
