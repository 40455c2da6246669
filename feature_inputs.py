"""What taggers of features read: sets, and a frozen encoder's activations."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import finetuning_job
import tensorflow_setup  # noqa: F401
from data import conll_tags, example_records, length_groups
from data.features import Features
from tasks import (
    feature_based,
    feature_extraction,
    feature_store,
    model_files,
    ner_data,
)
from training import assembly
from training import finetuning as training

if TYPE_CHECKING:
    from run_ner import NerConfig

# Flags that a tagger's weights depend on, besides data and encoder.
_TRAINED_BY = (
    "train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_train_hours",
    "warmup_proportion",
    "optimizer",
    "bias_correction",
    "random_seed",
    "precision",
    "lstm_dropout",
    "lstm_learning_rate",
)


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
    job: finetuning_job.Job
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
    def encoder(self) -> finetuning_job.Fitted:
        """The frozen encoder."""
        start = self.job.start
        model_files.require_weights(start.init_checkpoint)

        def make(*, attention: str, dtype: str, **unused: Any) -> Any:
            return feature_extraction.make_encoder(
                start.config, attention=attention, dtype=dtype
            )

        task = feature_store.StackTask(self.layers)
        job = dataclasses.replace(self.job, task=task, make_model=make)
        fitted = job.fit(self.config.random_seed)
        model_files.warm_start(
            fitted.model,
            start.init_checkpoint,
            do_lower_case=start.tokenizer.settings["do_lower_case"],
        )
        return fitted

    @functools.cached_property
    def weights(self) -> str:
        """The digest of the encoder's weights."""
        return feature_store.digest(self.encoder.model)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What decides, by flag, how taggers are trained, as far as known."""
        tokenizer = self.job.start.tokenizer
        settings = {
            "init_checkpoint": self.weights,
            "vocab_file": example_records.tokenizer_job(tokenizer),
            "lstm_size": self.config.lstm_size,
            "model_scheme": conll_tags.scheme_of(self.data.labels),
            "entity_types": sorted(self.data.labels),
        }
        if not self.config.do_train:
            return settings
        flags = {name: getattr(self.config, name) for name in _TRAINED_BY}
        return {**settings, **flags, **self.job.data_settings}

    def made_from(self, split: str) -> dict[str, Any]:
        """Returns what decides, besides the tagger, a set's values."""
        return {
            "file": self.data.digest(split),
            "scheme": self.data.scheme_of(split),
            **self._read_as(split),
        }

    def store(self, split: str) -> feature_store.Store:
        """Returns a set's activations."""
        features = self.job.features(split)
        size = self.config.predict_batch_size
        tokenizer = self.job.start.tokenizer
        return feature_store.prepare(
            os.path.join(self.config.output_dir, "activations", split),
            self.layers,
            {
                "tokenizer": example_records.tokenizer_job(tokenizer),
                "weights": self.weights,
                **self._read_as(split),
            },
            features=features,
            hidden_size=self.job.start.config.hidden_size,
            compute=lambda _: self.encoder.predictions(features, size),
        )

    def sentences(self, split: str) -> Features:
        """Returns a set's words as rows."""
        return feature_based.sentence_features(
            self.data.read(split), self.data.label_ids(split)
        )

    @functools.cached_property
    def lengths(self) -> list[int]:
        """The lengths that batches of sentences may have."""
        longest = max(self.sentences(s).lengths.max() for s in self.splits)
        step = training.length_step(self.config, self.job.strategy)
        return length_groups.permitted_lengths(int(longest), step)

    def _read_as(self, split: str) -> dict[str, Any]:
        return {
            "words": self.data.digest_of_words(split),
            "context": dataclasses.asdict(self.config.context),
            "precision": assembly.dtype_policy(self.config),
        }
