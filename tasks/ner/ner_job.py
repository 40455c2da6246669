"""Tagging as a fine-tuning job: words -> windows -> model -> tags of words."""

import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from data.features import Features
from data.tokenization.wordpiece import Tokenizer
from foundation import errors, file_system
from jobs import finetuning, run_config, typed
from modeling import crf, models
from tasks.ner import (
    conll,
    feature_based,
    ner_data,
    outputs,
    raw_text,
    tagging,
    windowing,
)
from tasks.ner.ner_data import DEV, TEST, TRAIN
from weights import model_directory, pretrained, task_files

_STDIN = "standard input"


def open_job(
    config: run_config.FinetuningConfig, options: ner_data.NerOptions
) -> tuple[ner_data.NerData, finetuning.Job]:
    """Reads and checks the files, and returns the job on them."""
    start = finetuning.open_start(config)
    data = _open_data(config, options, start.labels)
    forms = _open_true_case(config, options, data, start.tokenizer)
    data = dataclasses.replace(data, true_case=forms)
    has_crf = _has_crf(config, options)
    strategy = finetuning.open_strategy(
        config, start, eval_batch_size=options.eval_batch_size
    )

    @functools.cache
    def features(split: str) -> Features:
        made = ner_data.prepare(
            data,
            split,
            start.tokenizer,
            options.windows,
            records_dir=config.output_dir if config.write_records else None,
        )
        if has_crf and split == TRAIN:
            sentences = data.split(split).sentences
            made = tagging.with_boundaries(made, sentences)
        return made

    def evaluate(task_model: finetuning.TaskModel) -> outputs.Evaluation:
        logits, tags = _tag(
            data,
            task_model,
            data.split(DEV).sentences,
            features(DEV),
            options.eval_batch_size,
        )
        return outputs.evaluate(data, DEV, logits, tags)

    settings = dataclasses.asdict(options.windows)
    if config.do_train:
        settings["train_file"] = data.split(TRAIN).model_digest
    job = finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=tagging.TaggingTask(),
        features=features,
        evaluate=evaluate,
        data_settings=settings,
        evaluation_settings=lambda: {"dev_file": data.split(DEV).digest},
        **_modeling(start, data, has_crf=has_crf),
    )
    return data, job


def _open_data(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    known_labels: Sequence[str] | None,
) -> ner_data.NerData:
    """Reads the files that are used, and checks their tags."""
    if options.tagger is not None:
        file_system.refuse_remote(
            config.output_dir,
            "output_dir",
            "--features maps activations into memory",
        )
        known_labels = feature_based.read_labels(config.output_dir)
    data = ner_data.open_data(
        options.files,
        tag_scheme=options.tag_scheme,
        model_scheme=options.model_scheme,
        types=options.types,
        known_labels=None if config.do_train else known_labels,
        former_labels=known_labels,
    )
    tagged = [TRAIN] if config.do_train else []
    if options.do_eval or (config.do_train and config.needs_evaluation):
        tagged.append(DEV)
    used = list(tagged)
    if config.do_predict and data.has(TEST):
        used.append(TEST)
    elif config.do_predict and data.text is None:
        raise errors.InputError("--do_predict needs --test_file or --text_file")
    ner_data.check(data, tagged=tagged, used=used, settings=options.windows)
    return data


def _weights_folder(
    config: run_config.FinetuningConfig, options: ner_data.NerOptions
) -> str | None:
    """Returns the directory of the weights of a model that is not trained."""
    if (
        options.tagger is not None
        or model_directory.has_checkpoints(config.output_dir)
        or model_directory.has_model(config.output_dir)
    ):
        return config.output_dir
    path = config.init_checkpoint
    return None if path is None else file_system.folder_of(path)


def _has_crf(
    config: run_config.FinetuningConfig, options: ner_data.NerOptions
) -> bool:
    """Returns whether the model has a CRF."""
    folder = None if config.do_train else _weights_folder(config, options)
    if tagging.has_crf(folder):
        return True
    # A checkpoint in output_dir contains the CRF, without crf.json.
    is_checkpoint = (
        folder == config.output_dir and not model_directory.has_model(folder)
    )
    if options.crf and not (config.do_train or is_checkpoint):
        raise errors.InputError(
            f"--crf: no {task_files.CRF} in {folder or config.output_dir}; "
            "the flag applies to training"
        )
    return options.crf


def _open_true_case(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    data: ner_data.NerData,
    tokenizer: Tokenizer,
) -> dict[str, str] | None:
    """Returns the words' usual forms, if the model reads sentences in them."""
    if config.do_train:
        if not options.true_case:
            return None
        if tokenizer.settings["do_lower_case"]:
            raise errors.InputError(
                "--true_case: the model is uncased and ignores capitals"
            )
        return ner_data.learn_true_case(data.read(TRAIN))
    folder = _weights_folder(config, options)
    path = os.path.join(folder or "", task_files.TRUE_CASE)
    if folder is not None and file_system.exists(path):
        return file_system.read_json(path)
    if options.true_case:
        raise errors.InputError(
            f"--true_case: no {task_files.TRUE_CASE} in "
            f"{folder or config.output_dir}; the flag applies to training"
        )
    return None


def _modeling(
    start: pretrained.Start, data: ner_data.NerData, *, has_crf: bool
) -> dict[str, Any]:
    """Returns the model as arguments of finetuning.Job."""
    count = len(data.labels)
    if not has_crf:
        make_model = functools.partial(
            models.TaggingModel, start.config, num_classes=count
        )
        return {"make_model": make_model}
    scheme = conll.PLAIN if data.is_plain else conll.scheme_of(data.labels)

    def load(model: crf.CrfTaggingModel, directory: str) -> list[str]:
        return tagging.load_crf(model, data.labels, directory)

    make_model = functools.partial(
        crf.CrfTaggingModel,
        start.config,
        num_classes=count,
        forbidden=tagging.forbidden(data.labels, scheme),
    )
    return {"make_model": make_model, "load_extra_weights": load}


def _tag(
    data: ner_data.NerData,
    task_model: finetuning.TaskModel,
    sentences: conll.Sentences,
    features: Features,
    batch_size: int,
) -> tuple[np.ndarray, list[str]]:
    """Returns the logits [W, C] and the predicted labels of W words."""
    logits = tagging.word_logits(
        features, len(data.labels), task_model.predictions(features, batch_size)
    )
    return logits, tagging.best_tags(
        task_model.model, logits, sentences.row_splits, data.labels
    )


def predict(
    data: ner_data.NerData,
    options: ner_data.NerOptions,
    task_model: finetuning.TaskModel,
    writer: outputs.OutputWriter,
) -> None:
    """Predicts the tags of the test set and the entities of raw text."""
    if data.has(TEST):
        sentences = data.split(TEST).sentences
        logits, tags = _tag(
            data,
            task_model,
            sentences,
            task_model.job.features(TEST),
            task_model.job.config.predict_batch_size,
        )
        if sentences.tags is not None:
            writer.write_test(outputs.evaluate(data, TEST, logits, tags))
        else:
            writer.write_predictions(TEST, tags)
    if data.text is not None:
        text = raw_text.split_lines(options.files.text_file, data.text)
        entities = _find_entities(data, options.windows, task_model, text)
        writer.write_entities(text, entities)


def _find_entities(
    data: ner_data.NerData,
    settings: windowing.WindowSettings,
    task_model: finetuning.TaskModel,
    text: raw_text.Text,
) -> list[list[dict[str, Any]]]:
    """Returns the entities of each line of raw text."""
    sentences = text.sentences
    if not sentences.words:
        return [[] for _ in text.texts]
    read = sentences
    if data.true_case is not None:
        read = ner_data.apply_true_case(sentences, data.true_case)
    tokenizer = task_model.job.start.tokenizer
    features = windowing.encode(tokenizer, read, None, settings)
    batch_size = task_model.job.config.predict_batch_size
    logits, tags = _tag(data, task_model, sentences, features, batch_size)
    label_ids = [data.labels.index(tag) for tag in tags]
    probabilities = scipy.special.softmax(logits.astype(np.float64), axis=1)
    return raw_text.find_entities(
        text,
        tags,
        probabilities[np.arange(len(tags)), label_ids],
        is_plain=data.is_plain,
    )


def prompt(
    data: ner_data.NerData,
    options: ner_data.NerOptions,
    task_model: finetuning.TaskModel,
) -> None:
    """Prints the entities of each line of standard input."""
    if sys.stdin.isatty():
        sys.stderr.write("Type a text; Ctrl-D ends.\n")
    for number, raw in enumerate(typed.lines(sys.stdin, sys.stdout), 1):
        line = file_system.decode(raw, _STDIN, number).strip()
        text = raw_text.split_lines(_STDIN, [line])
        (found,) = _find_entities(data, options.windows, task_model, text)
        sys.stdout.write(f"{raw_text.marked(line, found)}\n")
        sys.stdout.flush()
