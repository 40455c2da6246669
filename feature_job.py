"""Trains taggers on a frozen encoder's activations: --features of run_ner.py.

    output_dir/activations/train.float16     computed once for all choices
    output_dir/features/<choice>/            a run of its own, with its report
    output_dir/feature_results.txt, .json    the table

Every finished choice leaves result.json in its folder; an interrupted table
goes on where it was. What it was made from decides what of it still stands.
"""

import dataclasses
import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import errors
import feature_inputs
import finetuning_job
import tensorflow_setup  # noqa: F401
from data import input_files
from modeling import bilstm
from tasks import (
    batches,
    feature_based,
    feature_results,
    file_system,
    grid,
    ner_data,
    ner_results,
    tagging,
)
from training import assembly, config_flags, prediction
from training import finetuning as training

if TYPE_CHECKING:
    from run_ner import NerConfig

TRAIN, DEV, TEST = ner_data.TRAIN, ner_data.DEV, ner_data.TEST
LABELS = "labels.json"
# What decides which records a step reads, and what they hold.
_OF_RECORDS = ("train_batch_size", "random_seed", "init_checkpoint")


def read_labels(output_dir: str) -> list[str] | None:
    """Returns what an earlier run has learned, None if there was none."""
    path = os.path.join(output_dir, "features", LABELS)
    if not os.path.exists(path):
        return None
    return input_files.read_json(path)


def run(
    config: "NerConfig", data: ner_data.NerData, job: finetuning_job.Job
) -> None:
    """Trains and judges every choice, and writes the table."""
    layers = job.start.config.num_hidden_layers
    chosen = feature_based.choices(config.features, layers)
    splits = [TRAIN] if config.do_train else []
    splits += [DEV] if config.do_eval else []
    splits += [TEST] if config.do_predict and data.has(TEST) else []
    common = feature_inputs.Inputs(
        config=config,
        data=data,
        job=job,
        splits=splits,
        layers=feature_based.layers_of(chosen),
    )
    before = {c.name: feature_results.read(_folder(config, c)) for c in chosen}
    for choice in chosen:
        if before[choice.name] is not None:
            feature_results.check(
                _folder(config, choice), before[choice.name], common.settings
            )
    if config.do_train:
        assembly.write_run_config(config, job.strategy)
    path = os.path.join(config.output_dir, "features", LABELS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if common.is_chief:
        file_system.write_text(path, json.dumps(list(data.labels)) + "\n")
    found = {c.name: _run_choice(common, c, before[c.name]) for c in chosen}
    if common.is_chief:
        text = feature_results.write_table(
            config.output_dir, found, (DEV, TEST)
        )
        sys.stdout.write(text + "\n")


def _folder(config: "NerConfig", choice: feature_based.Choice) -> str:
    return os.path.join(config.output_dir, "features", choice.name)


def _run_choice(
    common: feature_inputs.Inputs,
    choice: feature_based.Choice,
    before: feature_results.Result | None,
) -> feature_results.Result:
    """Returns what a choice ends with, of which some may stand already."""
    config = common.config
    folder = _folder(config, choice)
    made_from = {s: common.made_from(s) for s in common.splits if s != TRAIN}
    if before is not None:
        if all(before.has(*item) for item in made_from.items()):
            return before
    os.makedirs(folder, exist_ok=True)
    gc.collect()  # The former choice's model; see finetuning_grid.
    model = _make_model(common, choice)
    result = _fit(common, choice, model, before)
    is_kept = common.is_chief and (config.do_train or result is before)
    if is_kept:
        result.write(folder)
    is_new = config.do_train and result is not before
    record = _record(common, choice, result, is_new=is_new)
    predictor = prediction.Predictor(
        tagging.TaggingTask(), model, strategy=common.job.strategy
    )
    for split, origin in made_from.items():
        if result.has(split, origin):
            continue
        logits = _logits(common, choice, predictor, split)
        values = _judge(common, logits, split, record, result.step)
        result = result.add(split, values, origin)
        if is_kept:
            result.write(folder)
    return result


def _fit(
    common: feature_inputs.Inputs,
    choice: feature_based.Choice,
    model: bilstm.BiLstmTagger,
    before: feature_results.Result | None,
) -> feature_results.Result:
    """Trains, or loads what was trained."""
    config = common.config
    folder = _folder(config, choice)
    if before is not None or not config.do_train:
        step = training.restore(config, model, folder)
        if before is not None and step == before.step:
            return before
        if step is not None and not config.do_train:
            return feature_results.trained(step, 0.0, common.settings)
    if not config.do_train:
        raise errors.InputError(
            f"--features={choice.name}: {folder} has no checkpoint, and "
            "--do_train is not given"
        )
    step = _train(common, choice, model, folder)
    seconds = training.seconds(folder)
    return feature_results.trained(step, seconds, common.settings)


def _record(
    common: feature_inputs.Inputs,
    choice: feature_based.Choice,
    result: feature_results.Result,
    *,
    is_new: bool,
) -> ner_results.Record:
    """Returns what writes a choice's files."""
    config = common.config
    folder = _folder(config, choice)
    results = grid.Results(folder)
    if is_new:  # Else there is a model card already.
        cell = grid.Run(
            learning_rate=config.lstm_learning_rate,
            random_seed=config.random_seed,
            directory=folder,
        )
        results.add(cell, dataclasses.asdict(result))
    files = dataclasses.replace(
        finetuning_job.open_files(config, common.job),
        output_dir=folder,
        given=_given(config) | {"features": choice.name},
        results=results,
    )
    return ner_results.Record(files, common.data)


def _given(config: "NerConfig") -> dict[str, Any]:
    """Returns the flags for a card: of both rates the one that is used."""
    given = config_flags.given(config)
    given.pop("learning_rate", None)
    return given | {"lstm_learning_rate": config.lstm_learning_rate}


def _judge(
    common: feature_inputs.Inputs,
    logits: np.ndarray,
    split: str,
    record: ner_results.Record,
    step: int,
) -> dict[str, float]:
    """Writes what a model makes of a set; returns the metrics, if any."""
    data = common.data
    tags = tagging.best_tags(logits, data.labels)
    if data.read(split).tags is None:
        guessed = ner_results.predicted_tags(data, split, tags)
        record.predictions(split, guessed)
        return {}
    found = ner_results.judge(data, split, logits, tags)
    if split == DEV:
        record.evaluation(found, step)
    else:
        record.test(found)
    return found.values


def _make_model(
    common: feature_inputs.Inputs, choice: feature_based.Choice
) -> bilstm.BiLstmTagger:
    config = common.config
    with common.job.strategy.scope():
        return bilstm.BiLstmTagger(
            num_layers=len(choice.layers),
            hidden_size=common.job.start.config.hidden_size,
            is_mixed=choice.is_mixed,
            num_classes=len(common.data.labels),
            size=config.lstm_size,
            rate=config.lstm_dropout,
            seed=config.random_seed,
        )


def _train(
    common: feature_inputs.Inputs,
    choice: feature_based.Choice,
    model: bilstm.BiLstmTagger,
    folder: str,
) -> int:
    """Trains from where it was; returns the last step."""
    config, job = common.config, common.job
    cell = config.run(
        learning_rate=config.lstm_learning_rate,
        random_seed=config.random_seed,
        output_dir=folder,
    )
    make = batches.train(
        common.sentences(TRAIN),
        batch_size=config.train_batch_size,
        seed=config.random_seed,
        lengths=common.lengths,
    )
    return training.train(
        config,
        dataclasses.replace(cell, precision="float32"),
        tagging.TaggingTask(),
        model,
        strategy=job.strategy,
        make_batches=feature_based.with_activations(
            make, common.store(TRAIN), choice.layers
        ),
        num_examples=len(common.sentences(TRAIN)),
        warm_start=lambda: None,
        data_settings={
            **{name: common.settings[name] for name in _OF_RECORDS},
            **job.data_settings,
        },
    )


def _logits(
    common: feature_inputs.Inputs,
    choice: feature_based.Choice,
    predictor: prediction.Predictor,
    split: str,
) -> np.ndarray:
    """Returns float32 [W, C] of a set."""
    features = common.sentences(split)
    make = batches.predict(
        features,
        batch_size=common.config.eval_batch_size,
        lengths=common.lengths,
    )
    make = feature_based.with_activations(
        make, common.store(split), choice.layers
    )
    return tagging.word_logits(
        features, len(common.data.labels), predictor.batches(make)
    )
