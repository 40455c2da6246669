"""A model on its devices: built, loaded, restored, predicting, saved."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
from absl import logging

from data import features as features_lib
from data import length_groups
from data.features import Features
from data.tokenization import wordpiece
from finetuning import devices as devices_lib
from finetuning import given_model
from finetuning import head as heads
from foundation import errors
from modeling.config import BertConfig
from training import inference, loop
from training import strategy as strategies
from weights import checkpoint_sources, pretrained, task_files


class Network:
    """An encoder with a head.

    Attributes:
      head: what it computes on the encoder.
      devices: the devices.
      model: the Keras model.
    """

    def __init__(
        self,
        head: heads.Head,
        config: BertConfig,
        *,
        devices: devices_lib.Devices,
        max_seq_length: int,
        **options: Any,
    ):
        """Builds the model with random weights.

        Args:
          head: what it computes on the encoder.
          config: the hyperparameters.
          devices: the devices.
          max_seq_length: length of the longest sequence, in tokens.
          **options: see Head.build.
        """
        self.head, self.devices = head, devices
        self.lengths = devices.batch_lengths(max_seq_length)
        self._strategy = devices.strategy
        with devices.strategy.scope():
            self.model = head.build(
                config, dtype=devices.dtype_policy, **options
            )
        self._predictors: dict[inference.Objective, inference.Predictor] = {}

    def warm_start(
        self, start: pretrained.Start, *, labels: Sequence[str] | None
    ) -> None:
        """Assigns the pre-trained weights that a training starts from.

        If they are of other `labels` than the head's, or of these in another
        order, the output layer is new. Labels without names may be the head's.
        """
        own = list(self.head.labels or ())
        classes = task_files.ModelClasses(labels=labels, problem_type=None)
        is_new = labels is not None and bool(
            len(labels) != max(len(own), 1)
            or (own and task_files.ordered(classes.names or own, own) != own)
        )
        if is_new:
            logging.info(
                "a new output layer is trained for %s; the model to start from "
                "has one for %s",
                errors.listed(own or ["one value"]),
                errors.listed(labels or ()),
            )
        pretrained.assign(
            self.model,
            start.init_checkpoint,
            tokenizer=start.tokenizer,
            init_layers=start.init_layers,
            new_output_layer=is_new,
        )
        if start.init_checkpoint is not None and not is_new:
            self._load_files(start.init_checkpoint)

    def load(
        self,
        weights: str | checkpoint_sources.Source | None,
        tokenizer: wordpiece.Tokenizer | None = None,
    ) -> None:
        """Assigns the weights of a model that was trained for the task.

        Args:
          weights: a model directory or a checkpoint, also one that was read
            already; None is refused.
          tokenizer: tokenizer of the texts, which must be the model's.

        Raises:
          InputError: weights is None or was not trained for the task.
        """
        weights = pretrained.require_weights(weights)
        report = pretrained.assign(self.model, weights, tokenizer=tokenizer)
        assert report is not None  # There are weights.
        loaded = self._load_files(weights)
        if missing := [x for x in report.initialized if x not in loaded]:
            raise errors.InputError(
                f"{getattr(weights, 'path', weights)} has not been trained for "
                f"this task: {errors.listed(missing)} are missing; --do_train"
            )

    def _load_files(
        self, weights: str | checkpoint_sources.Source
    ) -> Sequence[str]:
        folder = (
            given_model.folder_of(weights)
            if isinstance(weights, str)
            else weights.folder
        )
        return self.head.load_files(self.model, folder)

    def restore(self, directory: str) -> int:
        """Assigns the last checkpoint of a training; returns its step.

        The step is 0 if the directory has no checkpoint.
        """
        return loop.restore_model(self.model, directory) or 0

    def predict(
        self,
        features: Features,
        batch_size: int,
        *,
        weights_change: bool = False,
        pads: bool = True,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs by name, and the constants of the head.

        Args:
          features: R rows of T tokens.
          batch_size: rows per batch.
          weights_change: see Predictor.while_weights_change.
          pads: whether fewer rows than a batch are computed as a full one; only
            on one CPU, where rows take time, it makes a difference.

        Returns:
          Arrays [R, ...] in the order of the rows; [T, ...] of the tokens, if
          the head is `per_token`, both of Head.prepare's features.
        """
        constants = {
            name: keras.ops.convert_to_numpy(value)
            for name, value in self.head.constants(self.model).items()
        }
        if not len(features):
            return constants
        features = self.head.prepare(self, features, batch_size)
        batches = self.batches(features, batch_size, pads=pads)
        predictor = self.predictor(self.head)
        with (
            predictor.while_weights_change()
            if weights_change
            else nullcontext()
        ):
            if not self.head.per_token:
                return predictor(batches, len(features)) | constants
            values = predictor.batches(batches, len(features))
            tokens = features_lib.by_token(values, features.row_splits)
            return tokens | constants

    def lengths_of(self, features: Features) -> list[int]:
        """Returns the lengths that batches of features may have.

        Those of Head.prepare may be longer than sequences of tokens.
        """
        longest = int(features.lengths.max(initial=0))
        if longest <= self.lengths[-1]:
            return self.lengths
        return self.devices.batch_lengths(longest)

    def predictor(self, objective: inference.Objective) -> inference.Predictor:
        """Returns the one predictor of the head, or of another objective."""
        if objective not in self._predictors:
            self._predictors[objective] = inference.Predictor(
                objective,
                self.model,
                strategy=self._strategy,
                jit_compile=self.devices.uses_xla,
            )
        return self._predictors[objective]

    def batches(
        self, features: Features, batch_size: int, *, pads: bool = True
    ) -> length_groups.OrderedBatches:
        """Returns batches of all rows; the longest are first. See `predict`."""
        if not pads and strategies.is_one_cpu(self._strategy):
            batch_size = min(batch_size, len(features))
        lengths = self.lengths_of(features)
        return length_groups.OrderedBatches(
            features, batch_size=batch_size, lengths=lengths
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of the weights."""
        return digest_of(self.model)


def digest_of(model: Any) -> str:
    """Returns the SHA-256 of a model's weights."""
    sha = hashlib.sha256()
    for variable in model.weights:
        sha.update(keras.ops.convert_to_numpy(variable).tobytes())
    return sha.hexdigest()
