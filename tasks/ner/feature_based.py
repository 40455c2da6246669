"""Trains taggers on a frozen encoder's activations: --features of run_ner.py.

    output_dir/activations/train.float16     computed once for all choices
    output_dir/features/<choice>/            a run of its own, with its report
    output_dir/feature_results.txt, .json    the table

Every finished choice leaves result.json in its folder; an interrupted table
goes on where it was. What it was made from decides what of it still stands.
"""

import dataclasses
import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from data import features as features_lib
from data import length_groups
from data.features import Features
from foundation import config_flags, errors, file_system
from jobs import assembly, finetuning, grid
from modeling import encoder, lstm
from tasks.ner import activation_store, conll, ner_data, ner_outputs, tagging
from training import prediction
from weights import pretrained

# ----------------------------------------------------------------------
# The paper's feature-based approach (its Table 7): which layers, what batches.
#
# embeddings, second_to_last, last   one layer
# concat_last_four                   four, side by side
# weighted_sum_last_four, _all       their learned mean

CHOICES = (
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_last_four",
    "concat_last_four",
    "weighted_sum_all",
)
ALL = "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What the tagger reads of the encoder.

    Attributes:
      name: of CHOICES.
      layers: 0 is the embeddings, L the last.
      is_mixed: whether they become one by a learned mean.
    """

    name: str
    layers: tuple[int, ...]
    is_mixed: bool


def choices(name: str, num_layers: int) -> list[Choice]:
    """Returns what --features means for an encoder of L layers."""
    if name == ALL:
        return [choice for n in CHOICES for choice in choices(n, num_layers)]
    last = num_layers
    layers = {
        "embeddings": (0,),
        "second_to_last": (last - 1,),
        "last": (last,),
        "weighted_sum_last_four": tuple(range(last - 3, last + 1)),
        "concat_last_four": tuple(range(last - 3, last + 1)),
        "weighted_sum_all": tuple(range(1, last + 1)),
    }[name]
    if layers[0] < 0 or (len(layers) == 4 and layers[0] < 1):
        raise errors.InputError(
            f"--features={name}: the model has only {num_layers} layer(s)"
        )
    is_mixed = name.startswith("weighted_sum")
    return [Choice(name=name, layers=layers, is_mixed=is_mixed)]


def layers_of(chosen: Sequence[Choice]) -> list[int]:
    """Returns the layers that any of them reads, sorted."""
    return sorted({layer for choice in chosen for layer in choice.layers})


def sentence_features(
    sentences: conll.Sentences, label_ids: np.ndarray | None
) -> Features:
    """Returns sentences as rows of words' numbers, called input_ids.

    Args:
      sentences: the words.
      label_ids: int [W], or None for zeros.
    """
    numbers = np.arange(len(sentences.words))
    if label_ids is None:
        label_ids = np.zeros_like(numbers)
    return Features(
        row_splits=sentences.row_splits,
        ragged={"input_ids": numbers, "label_ids": label_ids},
    )


def with_activations(
    make_batches: Callable[..., tf.data.Dataset],
    store: activation_store.Store,
    layers: Sequence[int],
) -> Callable[..., tf.data.Dataset]:
    """Puts activations [B, S, J, H] in the place of the words' numbers."""
    shape = (len(layers), store.hidden_size)

    def look_up(words):
        return store.gather(words, layers)

    def replace(batch):
        batch = dict(batch)
        words = batch.pop("input_ids")
        values = tf.numpy_function(look_up, [words], tf.float16, stateful=False)
        batch["activations"] = tf.ensure_shape(values, (*words.shape, *shape))
        return batch

    def make(**options) -> tf.data.Dataset:
        return make_batches(**options).map(replace).prefetch(2)

    return make


# ----------------------------------------------------------------------
# What taggers of features read: sets, and a frozen encoder's activations.

if TYPE_CHECKING:
    NerConfig = Any


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """What all choices have in common.

    Attributes:
      config: of run_ner.py.
      data: the sets.
      job: has the encoder's start, its devices and the windows.
      splits: the sets that are used, TRAIN among them where one trains.
      layers: that any of the choices reads.
    """

    config: "NerConfig"
    data: ner_data.NerData
    job: finetuning.Job
    splits: Sequence[str]
    layers: Sequence[int]

    def __post_init__(self):
        """Keeps what is asked for often."""
        for name in ("store", "sentences"):
            cached = functools.cache(getattr(self, name))
            object.__setattr__(self, name, cached)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes."""
        return assembly.is_chief(self.job.strategy)

    @functools.cached_property
    def encoder(self) -> finetuning.TaskModel:
        """The frozen encoder."""
        start = self.job.start
        pretrained.require_weights(start.init_checkpoint)

        def make(*, attention: str, dtype: str, **unused: Any) -> Any:
            return encoder.make_encoder(
                start.config, attention=attention, dtype=dtype
            )

        task = activation_store.StackTask(self.layers)
        job = dataclasses.replace(self.job, task=task, make_model=make)
        task_model = job.build(self.config.random_seed)
        pretrained.assign(
            task_model.model,
            start.init_checkpoint,
            do_lower_case=start.tokenizer.settings["do_lower_case"],
        )
        return task_model

    @functools.cached_property
    def weights(self) -> str:
        """The digest of the encoder's weights."""
        return activation_store.digest(self.encoder.model)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What decides, by flag, how taggers are trained, as far as known."""
        tokenizer = self.job.start.tokenizer
        settings = {
            "init_checkpoint": self.weights,
            "vocab_file": features_lib.tokenizer_job(tokenizer),
            "do_lower_case": tokenizer.settings["do_lower_case"],
            "lstm_size": self.config.lstm_size,
            "model_scheme": conll.scheme_of(self.data.labels),
            "entity_types": sorted(self.data.labels),
        }
        if not self.config.do_train:
            return settings
        flags = assembly.flag_values(self.config, "records", "result")
        del flags["learning_rate"]  # In its place --lstm_learning_rate is used.
        return {**flags, **self.job.data_settings, **settings}

    def made_from(self, split: str) -> dict[str, Any]:
        """Returns what decides, besides the tagger, a set's values."""
        return {
            "file": self.data.digest(split),
            "scheme": self.data.scheme_of(split),
            **self._read_as(split),
        }

    def store(self, split: str) -> activation_store.Store:
        """Returns a set's activations."""
        features = self.job.features(split)
        size = self.config.predict_batch_size
        tokenizer = self.job.start.tokenizer
        return activation_store.prepare(
            os.path.join(self.config.output_dir, "activations", split),
            self.layers,
            {
                "tokenizer": features_lib.tokenizer_job(tokenizer),
                "weights": self.weights,
                **self._read_as(split),
            },
            features=features,
            hidden_size=self.job.start.config.hidden_size,
            compute=lambda _: self.encoder.predictions(features, size),
        )

    def sentences(self, split: str) -> Features:
        """Returns a set's words as rows."""
        return sentence_features(
            self.data.read(split), self.data.label_ids(split)
        )

    @functools.cached_property
    def lengths(self) -> list[int]:
        """The lengths that batches of sentences may have."""
        longest = max(self.sentences(s).lengths.max() for s in self.splits)
        step = finetuning.length_step(self.config, self.job.strategy)
        return length_groups.permitted_lengths(int(longest), step)

    def _read_as(self, split: str) -> dict[str, Any]:
        return {
            "words": self.data.digest_of_words(split),
            "context": dataclasses.asdict(self.config.context),
            "precision": assembly.dtype_policy(self.config),
        }


# ----------------------------------------------------------------------
# What a choice of features ended with, and the table of all choices.
#
#     features/<choice>/result.json   {"step": 8000, "seconds": 301.2,
#         "values": {"dev": {"f1": 0.95, ...}},
#         "made_from": {"train": {"lstm_size": 768, ...}, "dev": {...}}}
#
# A set's values stand as long as what they were made from does; a tagger is
# never taken for one that was trained otherwise.

NAME = "result.json"
TABLE = "feature_results"
_OF_SPANS = ("precision", "recall", "f1")
_OF_PLAIN_TAGS = ("accuracy", "f1_macro")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a choice ended with.

    Attributes:
      step: the last one of training.
      seconds: that training took.
      values: metrics of each set; {} of one without tags.
      made_from: JSON values by flag that decide how the tagger was trained,
        under TRAIN, and what each set's values are, under its name.
    """

    step: int
    seconds: float
    values: Mapping[str, Mapping[str, float]]
    made_from: Mapping[str, Mapping[str, Any]]

    def has(self, split: str, made_from: Mapping[str, Any]) -> bool:
        """Tells whether a set's values are there and current."""
        known = self.made_from.get(split)
        return split in self.values and known == _plain(made_from)

    def add(
        self, split: str, values: Mapping[str, float], made_from: Mapping
    ) -> "Result":
        """Returns the result with a set's values."""
        return dataclasses.replace(
            self,
            values={**self.values, split: dict(values)},
            made_from={**self.made_from, split: _plain(made_from)},
        )

    def write(self, folder: str) -> None:
        """Writes result.json."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        file_system.write_text(os.path.join(folder, NAME), text + "\n")


def trained(step: int, seconds: float, settings: Mapping[str, Any]) -> Result:
    """Returns the result of a tagger that no set was tried on yet."""
    return Result(
        step=step,
        seconds=seconds,
        values={},
        made_from={TRAIN: _plain(settings)},
    )


def read(folder: str) -> Result | None:
    """Returns what a choice ended with, None if it has not, or long ago."""
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        return None
    found = file_system.read_json(path)
    if TRAIN not in found.get("made_from", {}):
        return None
    return Result(**found)


def check(folder: str, result: Result, settings: Mapping[str, Any]) -> None:
    """Refuses settings, by flag, that a tagger was not trained with.

    Raises:
      InputError: it names the first flag that differs.
    """
    before, now = result.made_from[TRAIN], _plain(settings)
    for flag in now:
        if flag in before and before[flag] != now[flag]:
            raise errors.InputError(
                f"{_differs(flag, before[flag], now[flag])}: {folder} holds a "
                "trained tagger; choose another --output_dir, or remove it"
            )


def write_table(
    output_dir: str, found: Mapping[str, Result], splits: Sequence[str]
) -> str:
    """Writes feature_results.txt and .json; returns the former's text.

    Args:
      output_dir: of the run.
      found: what each choice ended with.
      splits: the sets that may have scores, in the order of the columns.
    """
    shown = [s for s in splits if any(r.values.get(s) for r in found.values())]
    pairs = [(s, n) for s in shown for n in _scores(found.values(), s)]
    rows = [
        [choice, *_cells(result, pairs), f"{result.seconds:.0f}"]
        for choice, result in found.items()
    ]
    header = ["features", *(f"{s} {n}" for s, n in pairs), "seconds"]
    text = grid.runs_text(header, rows)
    path = os.path.join(output_dir, TABLE)
    record = {}
    for choice, result in found.items():
        record[choice] = dataclasses.asdict(result)
        del record[choice]["made_from"]
    file_system.write_text(f"{path}.txt", text + "\n")
    file_system.write_text(f"{path}.json", json.dumps(record, indent=2) + "\n")
    return text


def _scores(results: Iterable[Result], split: str) -> tuple[str, ...]:
    """Returns the names of a set's columns."""
    has_spans = any(_OF_SPANS[-1] in r.values.get(split, {}) for r in results)
    return _OF_SPANS if has_spans else _OF_PLAIN_TAGS


def _cells(result: Result, pairs) -> list[str]:
    values = [result.values.get(split, {}).get(name) for split, name in pairs]
    return ["-" if x is None else f"{100 * x:.2f}" for x in values]


def _differs(flag: str, before: Any, now: Any) -> str:
    """Says how a flag differs; of what a file holds, only that it does."""
    if isinstance(now, dict) or len(str(now)) > 60:
        return f"--{flag} is another"
    return f"--{flag} was {before}, is {now}"


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values as they are read again from JSON."""
    return json.loads(json.dumps(dict(values)))


if TYPE_CHECKING:
    NerConfig = Any

TRAIN, DEV, TEST = ner_data.TRAIN, ner_data.DEV, ner_data.TEST
LABELS = "labels.json"


def read_labels(output_dir: str) -> list[str] | None:
    """Returns what an earlier run has learned, None if there was none."""
    path = os.path.join(output_dir, "features", LABELS)
    if not os.path.exists(path):
        return None
    return file_system.read_json(path)


def run(
    config: "NerConfig", data: ner_data.NerData, job: finetuning.Job
) -> None:
    """Trains and judges every choice, and writes the table."""
    layers = job.start.config.num_hidden_layers
    chosen = choices(config.features, layers)
    splits = [TRAIN] if config.do_train else []
    splits += [DEV] if config.do_eval else []
    splits += [TEST] if config.do_predict and data.has(TEST) else []
    common = Inputs(
        config=config,
        data=data,
        job=job,
        splits=splits,
        layers=layers_of(chosen),
    )
    before = {c.name: read(_folder(config, c)) for c in chosen}
    for choice in chosen:
        if before[choice.name] is not None:
            check(_folder(config, choice), before[choice.name], common.settings)
    if config.do_train:
        assembly.write_run_config(config, job.strategy)
    path = os.path.join(config.output_dir, "features", LABELS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if common.is_chief:
        file_system.write_text(path, json.dumps(list(data.labels)) + "\n")
    found = {c.name: _run_choice(common, c, before[c.name]) for c in chosen}
    if common.is_chief:
        text = write_table(config.output_dir, found, (DEV, TEST))
        sys.stdout.write(text + "\n")


def _folder(config: "NerConfig", choice: Choice) -> str:
    return os.path.join(config.output_dir, "features", choice.name)


def _run_choice(
    common: Inputs,
    choice: Choice,
    before: Result | None,
) -> Result:
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
    common: Inputs,
    choice: Choice,
    model: lstm.BiLstmTagger,
    before: Result | None,
) -> Result:
    """Trains, or loads what was trained."""
    config = common.config
    folder = _folder(config, choice)
    if before is not None or not config.do_train:
        step = finetuning.restore(config, model, folder)
        if before is not None and step == before.step:
            return before
        if step is not None and not config.do_train:
            return trained(step, 0.0, common.settings)
    if not config.do_train:
        raise errors.InputError(
            f"--features={choice.name}: {folder} has no checkpoint, and "
            "--do_train is not given"
        )
    step = _train(common, choice, model, folder)
    seconds = finetuning.training_seconds(folder)
    return trained(step, seconds, common.settings)


def _record(
    common: Inputs,
    choice: Choice,
    result: Result,
    *,
    is_new: bool,
) -> ner_outputs.OutputWriter:
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
        finetuning.open_files(config, common.job),
        output_dir=folder,
        given=_given(config) | {"features": choice.name},
        results=results,
    )
    return ner_outputs.OutputWriter(files, common.data)


def _given(config: "NerConfig") -> dict[str, Any]:
    """Returns the flags for a card: of both rates the one that is used."""
    given = config_flags.given(config)
    given.pop("learning_rate", None)
    return given | {"lstm_learning_rate": config.lstm_learning_rate}


def _judge(
    common: Inputs,
    logits: np.ndarray,
    split: str,
    record: ner_outputs.OutputWriter,
    step: int,
) -> dict[str, float]:
    """Writes what a model makes of a set; returns the metrics, if any."""
    data = common.data
    tags = tagging.best_tags(logits, data.labels)
    if data.read(split).tags is None:
        guessed = ner_outputs.predicted_tags(data, split, tags)
        record.predictions(split, guessed)
        return {}
    found = ner_outputs.evaluate(data, split, logits, tags)
    if split == DEV:
        record.evaluation(found, step)
    else:
        record.test(found)
    return found.values


def _make_model(common: Inputs, choice: Choice) -> lstm.BiLstmTagger:
    config = common.config
    with common.job.strategy.scope():
        return lstm.BiLstmTagger(
            num_layers=len(choice.layers),
            hidden_size=common.job.start.config.hidden_size,
            is_mixed=choice.is_mixed,
            num_classes=len(common.data.labels),
            size=config.lstm_size,
            rate=config.lstm_dropout,
            seed=config.random_seed,
        )


def _train(
    common: Inputs,
    choice: Choice,
    model: lstm.BiLstmTagger,
    folder: str,
) -> int:
    """Trains from where it was; returns the last step."""
    config, job = common.config, common.job
    cell = config.run(
        learning_rate=config.lstm_learning_rate,
        random_seed=config.random_seed,
        output_dir=folder,
    )
    make = length_groups.endless_batches(
        common.sentences(TRAIN),
        batch_size=config.train_batch_size,
        seed=config.random_seed,
        lengths=common.lengths,
    )
    return finetuning.train_epochs(
        config,
        dataclasses.replace(cell, precision="float32"),
        tagging.TaggingTask(),
        model,
        strategy=job.strategy,
        make_batches=with_activations(make, common.store(TRAIN), choice.layers),
        num_examples=len(common.sentences(TRAIN)),
        warm_start=lambda: None,
        settings=assembly.settings_of(
            config,
            {**common.settings, "learning_rate": config.lstm_learning_rate},
            fixed=["init_checkpoint"],
        ),
    )


def _logits(
    common: Inputs,
    choice: Choice,
    predictor: prediction.Predictor,
    split: str,
) -> np.ndarray:
    """Returns float32 [W, C] of a set."""
    features = common.sentences(split)
    make = length_groups.ordered_batches(
        features,
        batch_size=common.config.eval_batch_size,
        lengths=common.lengths,
    )
    make = with_activations(make, common.store(split), choice.layers)
    return tagging.word_logits(
        features, len(common.data.labels), predictor.batches(make)
    )
