"""Tags sets and raw text with the model of run_ner.py.

output_dir/predictions_test.txt   CoNLL's columns, as conlleval reads them
output_dir/entities.jsonl         of --text_file, by characters
"""

import dataclasses
import os
import sys
from typing import Any

import numpy as np
from absl import logging

import finetuning_job
import quiet  # noqa: F401
from data import conll, tagging, tagging_text
from data.features import Features
from modeling import crf
from tasks import ner_data, ner_results, report, tagging_crf
from tasks import tagging as tagging_task
from tasks import tagging_text as entity_text

TEST = ner_data.TEST
ENTITIES = "entities.jsonl"


def uses_crf(config: Any) -> bool:
    """Tells whether the model has a CRF, or is to have one."""
    if config.do_train or config.crf:
        return config.crf
    folders = (config.output_dir, config.init_checkpoint)
    return any(tagging_crf.is_here(folder) for folder in folders)


def tag(
    data: ner_data.NerData,
    fitted: finetuning_job.Fitted,
    sentences: conll.Sentences | str,
    features: Features,
    batch_size: int,
) -> tuple[np.ndarray, list[str]]:
    """Returns the logits [W, C] of words, a set's or others, and their tags."""
    logits = tagging_task.word_logits(
        features, len(data.labels), fitted.predictions(features, batch_size)
    )
    if isinstance(sentences, str):
        sentences = data.read(sentences)
    if isinstance(fitted.model, crf.CrfTaggingModel):
        tags = tagging_crf.best_tags(
            fitted.model, logits, sentences.row_splits, data.labels
        )
        return logits, tags
    return logits, tagging_task.best_tags(logits, data.labels)


def predict(
    config: Any,
    data: ner_data.NerData,
    fitted: finetuning_job.Fitted,
    record: ner_results.Record,
) -> None:
    """Tags the test set and the raw text, if there are any."""
    size = config.predict_batch_size
    files = {TEST: config.test_file}
    if ner_data.find(TEST, config.data_dir, files) is not None:
        logits, tags = tag(data, fitted, TEST, fitted.job.features(TEST), size)
        if data.read(TEST).tags is not None:
            record.test(ner_results.judge(data, TEST, logits, tags))
        else:
            guessed = ner_results.predicted_tags(data, TEST, tags)
            record.predictions(TEST, guessed)
    if config.text_file is not None:
        with open(config.text_file, encoding="utf-8", newline="\n") as file:
            lines = file.read().removesuffix("\n").split("\n")
        text, found = find_entities(config, data, fitted, lines)
        path = os.path.join(config.output_dir, ENTITIES)
        report.write_text(path, "".join(entity_text.json_lines(text, found)))
        logging.info("%s: %d lines", path, len(lines))


def find_entities(
    config: Any,
    data: ner_data.NerData,
    fitted: finetuning_job.Fitted,
    lines: list[str],
) -> tuple[tagging_text.Text, list[list[dict[str, Any]]]]:
    """Returns lines split into words, and the entities of each."""
    text = tagging_text.split(config.text_file or "standard input", lines)
    if not text.sentences.words:
        return text, [[] for _ in lines]
    features = tagging.encode(
        fitted.job.start.tokenizer,
        text.sentences,
        None,
        **dataclasses.asdict(config.context),
    )
    size = config.predict_batch_size
    logits, tags = tag(data, fitted, text.sentences, features, size)
    numbers = [data.labels.index(t) for t in tags]
    log_shares = tagging_task.log_softmax(logits)
    shares = np.exp(log_shares[np.arange(len(numbers)), numbers])
    return text, entity_text.lines(text, tags, shares)


def talk(
    config: Any, data: ner_data.NerData, fitted: finetuning_job.Fitted
) -> None:
    """Shows the entities of every line that is typed, or comes by a pipe."""
    if sys.stdin.isatty():
        print("Type a text; Ctrl-D ends.", file=sys.stderr)
    for line in sys.stdin:
        line = line.strip()
        _, (found,) = find_entities(config, data, fitted, [line])
        print(entity_text.marked(line, found), flush=True)
