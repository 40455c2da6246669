"""The paper's feature-based approach: taggers of frozen activations.

A choice (Table 7 of the paper) is the layers whose activations a BiLSTM reads:

    embeddings, second_to_last, last   one layer
    concat_last_four                   four layers, concatenated
    weighted_sum_last_four             their learned mean
    weighted_sum_all                   the learned mean of all layers

Files:

    output_dir/activations/train.float16
        [J, W, H]: layers, words, hidden units. A word has the activations of
        its first token. They are computed once for all choices
    output_dir/activations/train.float16.json
        the settings that they depend on; written last
    output_dir/features/<choice>/            a run of its own, with its report
    output_dir/features/<choice>/runs/*/     each of several runs, see jobs.grid
    .../result.json, output_dir/feature_results.txt and .json
        the results and their table, see feature_results

The runs of a choice are those of a grid of rates, seeds, batch sizes and epochs
(Table 7 has means of five seeds). Unlike a grid, which keeps its best model,
all runs keep their taggers, predictions and reports.

An interrupted command continues with the runs that are not finished.
Activations are reused if they are current and have all layers that are needed.
The metrics of a split are reused if made_from is unchanged. A tagger that was
trained with other settings is refused.
"""

import dataclasses
import functools
import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from data import features as features_lib
from data import length_groups
from data.features import Features
from foundation import (
    atomic,
    config_flags,
    errors,
    file_system,
    metadata,
    stamp,
)
from jobs import assembly, finetuning, grid, run_directory, runner
from jobs import source as model_source
from jobs.outputs import Outputs
from jobs.task_model import TaskModel
from modeling import encoder, lstm
from modeling.config import BertConfig
from tasks.ner import ner_data, outputs, settings, tag_spans, tagging, windowing
from tasks.ner.feature_results import Result, write_table
from tasks.ner.ner_data import DEV, TEST, TRAIN
from tasks.ner.task import NerTask
from training import inference, loop
from weights import pretrained

# Name of a choice -> the layers of an encoder whose last layer is L.
CHOICES: Mapping[str, Callable[[int], Sequence[int]]] = {
    "embeddings": lambda last: [0],
    "second_to_last": lambda last: [last - 1],
    "last": lambda last: [last],
    "weighted_sum_last_four": lambda last: range(last - 3, last + 1),
    "concat_last_four": lambda last: range(last - 3, last + 1),
    "weighted_sum_all": lambda last: range(1, last + 1),
}
_LABELS = "labels.json"
_ACTIVATIONS_VERSION = 1
_ACTIVATION_DTYPE = np.float16
_STACK = "activations"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The layers that a tagger reads.

    Attributes:
      name: a key of CHOICES.
      layers: numbers of layers: 0 is the embeddings, L the last layer.
      is_mixed: whether the tagger reads their learned mean.
    """

    name: str
    layers: tuple[int, ...]
    is_mixed: bool


def choices(name: str, num_layers: int) -> list[Choice]:
    """Returns the choices of --features for an encoder of L layers."""
    names = CHOICES if name == "all" else [name]
    chosen = []
    for name in names:
        layers = tuple(CHOICES[name](num_layers))
        if layers[0] < 0 or (len(layers) == 4 and layers[0] < 1):
            raise errors.InputError(
                f"--features={name}: the model has only {num_layers} layer(s)"
            )
        is_mixed = name.startswith("weighted_sum")
        chosen.append(Choice(name=name, layers=layers, is_mixed=is_mixed))
    return chosen


def layers_of(chosen: Sequence[Choice]) -> list[int]:
    """Returns the sorted layers of all choices."""
    return sorted({layer for choice in chosen for layer in choice.layers})


class StackObjective:
    """Predicts the activations of layers: 0 is the embeddings, L the last."""

    def __init__(self, config: BertConfig, layers: Sequence[int]):
        """Takes the encoder's hyperparameters and J layers."""
        self.config = config
        self.layers = list(layers)

    def make_model(self, *, attention: str, dtype: str, **unused: Any) -> Any:
        """Makes the encoder; see task_model.Objective."""
        return encoder.make_encoder(
            self.config, attention=attention, dtype=dtype
        )

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns float16 [B, S, J, H]."""
        outputs = model(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
        )
        states = [outputs.embedding_output, *outputs.all_encoder_layers]
        chosen = [ops.cast(states[i], "float16") for i in self.layers]
        return {_STACK: ops.stack(chosen, axis=2)}


class ActivationFile:
    """The activations of a set, mapped into memory from a file."""

    def __init__(self, values: np.ndarray, layers: Sequence[int]):
        """Takes the values [J, W, H] and the J layers."""
        self._values = values
        self._rows = {layer: i for i, layer in enumerate(layers)}

    @property
    def hidden_size(self) -> int:
        """H."""
        return self._values.shape[2]

    def gather(self, words: np.ndarray, layers: Sequence[int]) -> np.ndarray:
        """Returns float16 [..., J, H] of words, int [...]."""
        activations = [
            self._values[self._rows[layer]][words] for layer in layers
        ]
        return np.stack(activations, axis=-2)


def open_activation_file(
    path: str,
    layers: Sequence[int],
    made_from: stamp.Stamp,
    *,
    features: Features,
    hidden_size: int,
    compute: Callable[[], Iterable[Mapping[str, np.ndarray]]],
) -> ActivationFile:
    """Opens the activations of a set; computes them if they are not current.

    Args:
      path: the path without its ending.
      layers: the layers that are needed.
      made_from: what the activations depend on.
      features: features from windowing.encode.
      hidden_size: H.
      compute: function that returns batches of StackObjective's predictions.
    """
    path = f"{path}.{np.dtype(_ACTIVATION_DTYPE).name}"
    note = features_lib.read_sidecar(path)
    words = len(windowing.word_positions(features))
    is_current = (
        note.get("format_version") == _ACTIVATIONS_VERSION
        and made_from.is_same(note.get("job"))
        and set(layers) <= set(note.get("layers", ()))
        and file_system.exists(path)
        and os.path.getsize(path)
        == _activation_bytes(len(note["layers"]), words, hidden_size)
    )
    if is_current:
        layers = note["layers"]
        logging.info("%s: %d words, reused", path, words)
    shape = (len(layers), words, hidden_size)
    if not is_current:
        _write_activations(path, features, shape, compute())
        note = {
            "format_version": _ACTIVATIONS_VERSION,
            "layers": list(layers),
            "words": words,
            "hidden_size": hidden_size,
            "job": made_from.to_json(),
        }
        features_lib.write_sidecar(path, note)
        logging.info("%s: %d words, %d layers", path, words, len(layers))
    values = np.memmap(path, _ACTIVATION_DTYPE, "r", shape=shape)
    return ActivationFile(values, layers)


def _digest_with_paths(model: Any) -> str:
    """Returns the SHA-256 of the paths and values of a model's weights.

    run_directory.weights_digest covers the values only. It cannot replace this
    digest, which earlier commands have stored with activations and taggers:
    activations would be computed again, and taggers refused.
    """
    sha = hashlib.sha256()
    for variable in sorted(model.weights, key=lambda v: v.path):
        sha.update(variable.path.encode())
        values = keras.ops.convert_to_numpy(variable)
        sha.update(np.ascontiguousarray(values).data)
    return sha.hexdigest()


def _write_activations(
    path: str,
    features: Features,
    shape: tuple[int, int, int],
    batches: Iterable[Mapping[str, np.ndarray]],
) -> None:
    """Writes the activations [J, W, H] of words."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    features_lib.remove_sidecar(path)
    with atomic.replacing(path) as hidden:
        _allocate(hidden, _activation_bytes(*shape))
        values = np.memmap(hidden, _ACTIVATION_DTYPE, "r+", shape=shape)
        for words, stack in tagging.of_words(features, _STACK, batches):
            values[:, words] = stack.transpose(1, 0, 2)
        values.flush()


def _allocate(path: str, size: int) -> None:
    """Allocates a file. On a full disk, writing to a memory map would crash."""
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _activation_bytes(num_layers: int, words: int, hidden_size: int) -> int:
    """Returns the size of the activations [J, W, H] in bytes."""
    itemsize = np.dtype(_ACTIVATION_DTYPE).itemsize
    return num_layers * words * hidden_size * itemsize


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ActivationData:
    """The sets of all choices as sentences of activations.

    Attributes:
      config: the flags.
      task: the sets and their windows.
      job: the job, with the encoder to start from and the devices.
      splits: the splits that are used.
      layers: the layers of all choices.
    """

    config: settings.NerConfig
    task: NerTask
    job: finetuning.Job
    splits: Sequence[str]
    layers: Sequence[int]
    _files: dict[str, ActivationFile] = dataclasses.field(
        default_factory=dict, init=False
    )

    @property
    def data(self) -> ner_data.NerData:
        """The sets."""
        return self.task.data

    @property
    def start(self) -> pretrained.Start:
        """The encoder to start from, and its tokenizer."""
        return self.job.source.start

    @functools.cached_property
    def _encoder(self) -> TaskModel:
        """The frozen encoder."""
        start = self.start
        pretrained.require_weights(start.init_checkpoint)
        builder = dataclasses.replace(
            self.job.builder,
            # It only predicts.
            objective=StackObjective(start.config, self.layers),  # type: ignore[arg-type]
        )
        task_model = builder.build(self.config.random_seed)
        pretrained.assign(
            task_model.model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        return task_model

    @functools.cached_property
    def _weights(self) -> str:
        """The digest of the encoder's weights."""
        return _digest_with_paths(self._encoder.model)

    @property
    def _network(self) -> stamp.Stamp:
        """The settings that activations depend on besides the weights."""
        start = self.start
        values = start.config.to_dict() | {"attention": start.attention}
        values = {
            f"bert_config_file's {name}": value
            for name, value in values.items()
            if not name.endswith("dropout_prob")
        }
        return stamp.flags("result", values)

    @functools.cached_property
    def settings(self) -> stamp.Stamp:
        """The settings with which taggers are trained.

        A command that does not train has only some of them.
        """
        tokenizer = self.start.tokenizer
        records = {
            # The encoder's activations are what a tagger reads.
            "init_checkpoint": self._weights,
            "vocab_file": features_lib.tokenizer_recipe(tokenizer),
            "do_lower_case": tokenizer.settings["do_lower_case"],
        }
        result = {
            "lstm_size": self.config.bilstm.lstm_size,
            "model_scheme": tag_spans.scheme_of(self.data.labels),
            "entity_types": sorted(self.data.labels),
        }
        settings = stamp.flags("records", records) | self._network
        settings |= stamp.flags("result", result)
        if not self.config.do_train:
            return settings
        flags = config_flags.affecting(self.config, "records", "result")
        flags = flags.without("learning_rate")  # It is --lstm_learning_rate.
        data = stamp.flags("records", self.task.data_settings)
        return flags | data | settings

    def made_from(self, split: str) -> stamp.Stamp:
        """Returns the settings that the metrics of a split depend on.

        The tagger's settings are not among them.
        """
        tagged_set = self.data.split(split)
        values = {"file": tagged_set.digest, "scheme": tagged_set.scheme}
        return stamp.facts("evaluation", values) | self._inputs_of(split)

    def _inputs_of(self, split: str) -> stamp.Stamp:
        values = {
            "words": self.data.split(split).digest,
            "context": self.config.windows.values,
            "precision": assembly.dtype_policy(self.config.devices),
        }
        return stamp.facts("records", values)

    def sentences(self, split: str) -> Features:
        """Returns sentences whose input_ids are the numbers of their words."""
        tagged_set = self.data.split(split)
        numbers = np.arange(len(tagged_set.sentences.words))
        label_ids = tagged_set.label_ids
        if label_ids is None:
            label_ids = np.zeros_like(numbers)
        return Features(
            row_splits=tagged_set.sentences.row_splits,
            ragged={"input_ids": numbers, "label_ids": label_ids},
        )

    @functools.cached_property
    def lengths(self) -> list[int]:
        """The lengths that batches of sentences may have."""
        longest = max(self.sentences(s).lengths.max() for s in self.splits)
        builder = self.job.builder
        return dataclasses.replace(builder, max_seq_length=int(longest)).lengths

    def _file(self, split: str) -> ActivationFile:
        """Returns the activations of a split."""
        if split not in self._files:
            features = self.job.features(split)
            size = self.config.predict_batch_size
            tokenizer = self.start.tokenizer
            model = {
                "tokenizer": features_lib.tokenizer_recipe(tokenizer),
                "weights": self._weights,
            }
            self._files[split] = open_activation_file(
                os.path.join(self.config.output_dir, "activations", split),
                self.layers,
                stamp.facts("records", model)
                | self._network
                | self._inputs_of(split),
                features=features,
                hidden_size=self.start.config.hidden_size,
                compute=lambda: self._encoder.predictions(features, size),
            )
        return self._files[split]

    def with_activations(
        self,
        make_batches: Callable[..., tf.data.Dataset],
        split: str,
        layers: Sequence[int],
    ) -> Callable[..., tf.data.Dataset]:
        """Replaces the numbers of words with activations [B, S, J, H]."""
        file = self._file(split)
        shape = (len(layers), file.hidden_size)

        def look_up(words):
            return file.gather(words, layers)

        def replace(batch):
            batch = dict(batch)
            words = batch.pop("input_ids")
            values = tf.numpy_function(
                look_up, [words], tf.float16, stateful=False
            )
            values = tf.ensure_shape(values, (*words.shape, *shape))
            return batch | {"activations": values}

        def make(**options) -> tf.data.Dataset:
            return make_batches(**options).map(replace).prefetch(2)

        return make


def run(config: settings.NerConfig) -> None:
    """Trains and evaluates the tagger of each choice, and writes the table."""
    source = _source(config)
    config = source.with_trained_flags(config)
    task = NerTask(config, source)
    strategy = finetuning.open_run(config, source.start)
    job = runner.make_job(config, source, task, strategy)
    selected = choices(
        config.bilstm.features, source.start.config.num_hidden_layers
    )
    splits = [TRAIN] if config.do_train else []
    splits += [DEV] if config.do_eval else []
    splits += [TEST] if config.do_predict and task.data.has(TEST) else []
    activations = ActivationData(
        config=config,
        task=task,
        job=job,
        splits=splits,
        layers=layers_of(selected),
    )
    folder = os.path.join(config.output_dir, settings.TAGGERS)
    runs = [
        _ChoiceRun(choice, run, activations)
        for choice in selected
        for run in grid.plan(
            config.feature_axes,
            config.random_seed,
            os.path.join(folder, choice.name),
        )
    ]
    earlier_results = [Result.read(run.folder, run.settings) for run in runs]
    if config.do_train:
        for run, earlier in zip(runs, earlier_results, strict=True):
            if earlier is None:
                assembly.check_settings(run.folder, run.checkpoint_settings)
        assembly.write_run_config(config, strategy)
    os.makedirs(folder, exist_ok=True)
    if job.is_chief:
        text = json.dumps(list(task.data.labels)) + "\n"
        atomic.write_text(os.path.join(folder, _LABELS), text)
    results: dict[str, dict[grid.Run, Result]] = {}
    for run, earlier in zip(runs, earlier_results, strict=True):
        of_choice = results.setdefault(run.choice.name, {})
        of_choice[run.run] = run.finish(earlier)
    if job.is_chief:
        text = write_table(config.output_dir, results, (DEV, TEST))
        sys.stdout.write(text + "\n")
    run_directory.announce(config.output_dir)


def _source(config: settings.NerConfig) -> model_source.ModelSource:
    """Returns the encoder, with the labels of earlier taggers, if any."""
    source = model_source.resolve(config)
    path = os.path.join(config.output_dir, settings.TAGGERS, _LABELS)
    labels = metadata.read_if_present(path, list[metadata.Text])
    start = dataclasses.replace(source.start, labels=labels, num_outputs=None)
    return dataclasses.replace(source, start=start)


@dataclasses.dataclass(frozen=True, eq=False)
class _ChoiceRun:
    """A run of one choice."""

    choice: Choice
    run: grid.Run
    activations: ActivationData

    @property
    def folder(self) -> str:
        """The directory of the run."""
        return self.run.directory

    @functools.cached_property
    def flags(self) -> dict[str, Any]:
        """The flags in which runs differ, besides --features."""
        values = self.run.settings
        return {"lstm_learning_rate": values.pop("learning_rate"), **values}

    @property
    def settings(self) -> stamp.Stamp:
        """The settings with which the tagger is trained."""
        settings = self.activations.settings
        if not self.activations.config.do_train:
            return settings
        return settings.with_values(self.flags)

    @property
    def checkpoint_settings(self) -> stamp.Stamp:
        """The settings that the checkpoints of the run store."""
        settings = assembly.settings_of(
            self.activations.config,
            self.activations.job.builder.strategy,
            self.settings,
        )
        rate = {"learning_rate": self.run.learning_rate}
        return settings.with_values(rate)

    def finish(self, earlier: Result | None) -> Result:
        """Trains and evaluates; returns the result.

        Args:
          earlier: the result of an earlier command, if there is one.
        """
        activations, config = self.activations, self.activations.config
        job, tagger = activations.job, config.bilstm
        made_from = {
            split: activations.made_from(split)
            for split in activations.splits
            if split != TRAIN
        }
        if earlier is not None:
            if earlier.failed or all(
                self._is_done(earlier, *item) for item in made_from.items()
            ):
                return earlier
        if config.do_train:
            os.makedirs(self.folder, exist_ok=True)
        gc.collect()  # Frees the model of the previous choice.
        with job.builder.strategy.scope():
            model = lstm.BiLstmTagger(
                num_layers=len(self.choice.layers),
                hidden_size=activations.start.config.hidden_size,
                is_mixed=self.choice.is_mixed,
                num_classes=len(activations.data.labels),
                size=tagger.lstm_size,
                rate=tagger.lstm_dropout,
                seed=self.run.random_seed,
            )
        try:
            result = self._train_or_load(model, earlier)
        except loop.Diverged as error:
            if config.feature_axes.num_runs == 1:
                raise
            logging.warning("%s: %s", self.run.name, error.reason)
            result = Result.trained(
                error.step, error.seconds, self.settings, error.reason
            )
            if job.is_chief:
                result.write(self.folder)
            return result
        is_kept = job.is_chief and (config.do_train or result is earlier)
        if is_kept:
            result.write(self.folder)
        is_new = config.do_train and result is not earlier
        writer = self._open_writer(result, is_new=is_new)
        predictor = inference.Predictor(
            activations.task.objective, model, strategy=job.builder.strategy
        )
        for split, origin in made_from.items():
            if self._is_done(result, split, origin):
                continue
            values = self._evaluate(predictor, split, writer, result.step)
            result = result.add(split, values, origin)
            if is_kept:
                result.write(self.folder)
        return result

    def _is_done(
        self, result: Result, split: str, made_from: stamp.Stamp
    ) -> bool:
        """Returns whether a split has its metrics and its predictions."""
        path = os.path.join(self.folder, outputs.PREDICTIONS.format(split))
        return result.has(split, made_from) and file_system.exists(path)

    def _train_or_load(
        self, model: lstm.BiLstmTagger, earlier: Result | None
    ) -> Result:
        """Returns `earlier` if it fits the checkpoint, else a new result."""
        config, trained_with = self.activations.config, self.settings
        if earlier is not None or not config.do_train:
            step = finetuning.restore(config, model, self.folder)
            if earlier is not None and step == earlier.step:
                return earlier
            if step and not config.do_train:
                return Result.trained(step, 0.0, trained_with)
        if not config.do_train:
            several = os.path.join(self.folder, "runs")
            hint = ""
            if file_system.exists(several):
                hint = f"; {several} has several runs: repeat their flags"
            raise errors.InputError(
                f"--features={self.choice.name}: {self.folder} has no "
                f"checkpoint, and --do_train is not given{hint}"
            )
        step = self._train(model)
        return Result.trained(
            step, loop.training_seconds(self.folder), trained_with
        )

    def _train(self, model: lstm.BiLstmTagger) -> int:
        """Trains, from the last checkpoint if any; returns the last step."""
        activations, config = self.activations, self.activations.config
        sentences = activations.sentences(TRAIN)
        make_batches = length_groups.endless_batches(
            sentences,
            batch_size=self.run.train_batch_size,
            seed=self.run.random_seed,
            lengths=activations.lengths,
        )
        make_batches = activations.with_activations(
            make_batches, TRAIN, self.choice.layers
        )
        return finetuning.train_epochs(
            dataclasses.replace(
                activations.job.builder,
                config=config_flags.replace_unchecked(
                    config, precision="float32"
                ),
            ),
            model,
            self.run,
            make_batches=make_batches,
            num_examples=len(sentences),
            settings=self.checkpoint_settings,
        )

    def _evaluate(
        self,
        predictor: inference.Predictor,
        split: str,
        writer: Outputs,
        step: int,
    ) -> dict[str, float]:
        """Writes the predictions of a split; returns its metrics, if any."""
        activations, data = self.activations, self.activations.data
        sentences = activations.sentences(split)
        batches = length_groups.OrderedBatches(
            sentences,
            batch_size=activations.config.eval_batch_size,
            lengths=activations.lengths,
        )
        make_batches = activations.with_activations(
            batches.dataset, split, self.choice.layers
        )
        logits = tagging.word_logits(
            sentences, len(data.labels), predictor.batches(make_batches)
        )
        tags = [data.labels[i] for i in logits.argmax(axis=1)]
        tagged = data.split(split)
        predicted = tagged.convert(tags)
        predictions = outputs.columns(tagged, predicted)
        if split != DEV or tagged.sentences.tags is None:
            summary = data.summary(split)
            writer.write_files(
                {outputs.PREDICTIONS.format(split): predictions},
                set_name=run_directory.set_name([summary.path]),
                digest=summary.digest,
            )
        if tagged.sentences.tags is None:
            return {}
        evaluation = outputs.evaluate(data, split, logits, tags)
        if split == DEV:
            flags = writer.training_flags
            evaluated = activations.task.describe(evaluation, step, flags)
            writer.write_evaluation(evaluated)
        else:
            activations.task.write_test(
                writer, evaluation.text, evaluation.values
            )
        return evaluation.values

    def _open_writer(self, result: Result, *, is_new: bool) -> Outputs:
        activations, config = self.activations, self.activations.config
        results = grid.Results(self.folder)
        if is_new:  # Otherwise the folder has a model card.
            results.add(self.run, result.to_json())
        flags = card_flags(config, self.flags)
        writer = dataclasses.replace(
            runner.open_outputs(activations.job),
            output_dir=self.folder,
            given_flags=flags | {"features": self.choice.name},
            trains=is_new,
            results=results,
        )
        if is_new:
            card = activations.task.card(writer.training_flags)
            writer.begin_card(card, None)
        return writer


def card_flags(
    config: settings.NerConfig, run_flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the flags for a model card, with those of the tagger's run."""
    flags = config_flags.given(config)
    flags.pop("learning_rate", None)  # It is --lstm_learning_rate.
    flags.pop("num_seeds", None)
    if config.feature_axes.num_runs == 1:
        run_flags = {k: x for k, x in run_flags.items() if k != "random_seed"}
    return {**flags, **run_flags}
