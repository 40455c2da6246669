"""Trains taggers on a frozen encoder's activations: --features of run_ner.py.

    output_dir/activations/train.float16     computed once for all choices
    output_dir/features/<choice>/            a run of its own, with its report
    output_dir/feature_results.txt, .json    the table

Every finished choice leaves result.json in its folder; an interrupted table
goes on where it was.
"""

import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import errors
import finetuning_job
import tensorflow_setup  # noqa: F401
from data import example_records, length_groups
from data.features import Features
from modeling import bilstm
from tasks import (
    batches,
    feature_based,
    feature_extraction,
    feature_store,
    grid,
    model_files,
    ner_data,
    ner_results,
    report,
    tagging,
)
from training import assembly, config_flags, prediction
from training import finetuning as training

TRAIN, DEV, TEST = ner_data.TRAIN, ner_data.DEV, ner_data.TEST
RESULTS = "feature_results"
LABELS = "labels.json"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FeatureJob:
    """What all choices have in common.

    Attributes:
      config: of run_ner.py.
      data: the sets.
      job: has the encoder's start, its devices and the windows.
      splits: the sets that are used, TRAIN among them where one trains.
      layers: that any of the choices reads.
    """

    config: Any
    data: ner_data.NerData
    job: finetuning_job.Job
    splits: Sequence[str]
    layers: Sequence[int]

    @functools.cached_property
    def encoder(self) -> Any:
        """The frozen encoder."""
        start = self.job.start
        model_files.require_weights(start.init_checkpoint)
        with self.job.strategy.scope():
            model = feature_extraction.make_encoder(
                start.config,
                attention=start.attention,
                dtype=assembly.dtype_policy(self.config),
            )
        model_files.warm_start(
            model,
            start.init_checkpoint,
            do_lower_case=start.tokenizer.settings["do_lower_case"],
        )
        return model

    @functools.cached_property
    def weights(self) -> str:
        """The digest of the encoder's weights."""
        return feature_store.digest(self.encoder)

    @functools.cache  # noqa: B019
    def store(self, split: str) -> feature_store.Store:
        """Returns a set's activations."""
        features = self.job.features(split)
        tokenizer = self.job.start.tokenizer

        def compute(layers):
            predictor = prediction.Predictor(
                feature_store.StackTask(layers),
                self.encoder,
                strategy=self.job.strategy,
                jit_compile=assembly.uses_xla(self.config),
            )
            size = self.config.predict_batch_size
            make = batches.predict(
                features, batch_size=size, lengths=self.job.lengths
            )
            return predictor.batches(make)

        return feature_store.prepare(
            os.path.join(self.config.output_dir, "activations", split),
            self.layers,
            {
                "words": ner_data.digest(
                    self.data.words(self.data.read(split))
                ),
                "tokenizer": example_records.tokenizer_job(tokenizer),
                "context": dataclasses.asdict(self.config.context),
                "weights": self.weights,
            },
            features=features,
            hidden_size=self.job.start.config.hidden_size,
            compute=compute,
        )

    @functools.cache  # noqa: B019
    def sentences(self, split: str) -> Features:
        """Returns a set's words as rows."""
        return feature_based.sentence_features(
            self.data.read(split), self.data.label_ids(split)
        )

    @functools.cached_property
    def lengths(self) -> list[int]:
        """The lengths that batches of sentences may have."""
        longest = max(self.sentences(s).lengths.max() for s in self.splits)
        return length_groups.permitted_lengths(int(longest))


def read_labels(output_dir: str) -> list[str] | None:
    """Returns what an earlier run has learned, None if there was none."""
    path = os.path.join(output_dir, "features", LABELS)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def run(config: Any, data: ner_data.NerData, job: finetuning_job.Job) -> None:
    """Trains and judges every choice, and writes the table."""
    layers = job.start.config.num_hidden_layers
    chosen = feature_based.choices(config.features, layers)
    splits = [TRAIN] if config.do_train else []
    splits += [DEV] if config.do_eval else []
    splits += [TEST] if config.do_predict and data.has(TEST) else []
    common = FeatureJob(
        config=config,
        data=data,
        job=job,
        splits=splits,
        layers=feature_based.layers_of(chosen),
    )
    path = os.path.join(config.output_dir, "features", LABELS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    report.write_text(path, json.dumps(list(data.labels)) + "\n")
    found = {c.name: _run_choice(common, c) for c in chosen}
    _write_table(config.output_dir, found)


def _run_choice(common: FeatureJob, choice) -> dict[str, Any]:
    """Returns what a choice ends with: seconds, and each set's values."""
    config = common.config
    folder = os.path.join(config.output_dir, "features", choice.name)
    os.makedirs(folder, exist_ok=True)
    cell = grid.Run(
        learning_rate=config.lstm_learning_rate,
        random_seed=config.random_seed,
        directory=folder,
    )
    before = cell.result()
    if before is not None and set(common.splits) <= {*before["values"], TRAIN}:
        return before
    model = _make_model(common, choice)
    started = time.monotonic()
    step = _train(common, choice, model, folder)
    seconds = time.monotonic() - started
    seconds += before["seconds"] if before is not None else 0.0
    results = grid.Results(folder)
    files = dataclasses.replace(
        finetuning_job.open_files(config, common.job),
        output_dir=folder,
        given=config_flags.given(config) | {"features": choice.name},
        results=results,
    )
    record = ner_results.Record(files, common.data)
    done = {"step": step, "seconds": seconds, "values": {}}
    if config.do_train:  # Else there is a model card already.
        results.add(cell, done)
    for split in common.splits:
        if split != TRAIN:
            done["values"][split] = _judge(
                common, choice, model, split, record, step
            )
    cell.finish(done)
    return done


def _judge(common, choice, model, split, record, step) -> dict[str, float]:
    """Writes what a model makes of a set; returns the metrics, if any."""
    data = common.data
    logits = _logits(common, choice, model, split)
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


def _make_model(common: FeatureJob, choice) -> bilstm.BiLstmTagger:
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


def _train(common: FeatureJob, choice, model, folder: str) -> int:
    """Trains, or loads what was trained; returns the step."""
    config, job = common.config, common.job
    if not config.do_train:
        step = training.restore(config, model, folder)
        if step is None:
            raise errors.InputError(
                f"--features={choice.name}: {folder} has no checkpoint, and "
                "--do_train is not given"
            )
        return step
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
            "train_batch_size": config.train_batch_size,
            "random_seed": config.random_seed,
            **job.data_settings,
        },
    )


def _logits(common: FeatureJob, choice, model, split: str) -> np.ndarray:
    """Returns float32 [W, C] of a set."""
    features = common.sentences(split)
    make = batches.predict(
        features,
        batch_size=common.config.eval_batch_size,
        lengths=common.lengths,
    )
    predictor = prediction.Predictor(
        tagging.TaggingTask(), model, strategy=common.job.strategy
    )
    make = feature_based.with_activations(
        make, common.store(split), choice.layers
    )
    return tagging.word_logits(
        features, len(common.data.labels), predictor.batches(make)
    )


def _write_table(output_dir: str, found: Mapping[str, Any]) -> None:
    """Writes feature_results, and shows it."""
    sets = [
        s
        for s in (DEV, TEST)
        if any(done["values"].get(s) for done in found.values())
    ]
    names = [f"{s} {n}" for s in sets for n in ("precision", "recall", "f1")]
    rows = []
    for name, done in found.items():
        values = done["values"]
        cells = [
            f"{100 * values[s][n]:.2f}" if n in values.get(s, ()) else "-"
            for s in sets
            for n in ("precision", "recall", "f1")
        ]
        rows.append([name, *cells, f"{done['seconds']:.0f}"])
    text = grid.text(["features", *names, "seconds"], rows)
    path = os.path.join(output_dir, RESULTS)
    report.write_text(f"{path}.txt", text + "\n")
    report.write_text(f"{path}.json", json.dumps(dict(found), indent=2) + "\n")
    sys.stdout.write(text + "\n")
