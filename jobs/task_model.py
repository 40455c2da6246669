"""A model for a task, and its predictions.

builder = Builder(config=config, start=source.start, strategy=strategy,
                  objective=objective, max_seq_length=128)
task_model = builder.build(seed=1)
task_model.assign("model_directory")
logits = task_model.predict(features, batch_size)["logits"]
"""

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from absl import logging

from data import features as features_lib
from data import length_groups
from data.features import Features
from foundation import errors, file_system
from jobs import assembly, run_config, run_directory, streaming
from training import inference, step
from training import strategy as strategies
from weights import model_directory, pretrained, task_files


class Objective(step.Objective, inference.Objective, Protocol):
    """What a task's model computes: its head, its loss and its predictions.

    Attributes:
      stored: JSON values that checkpoints store, because they tell the meaning
        of the model's outputs; the "labels" among them, if any.
    """

    @property
    def stored(self) -> Mapping[str, Any]:
        """See the class."""

    def make_model(self, **options: Any) -> Any:
        """Makes the model with random weights.

        Args:
          **options: attention, bilstm_size, recompute, seed and dtype, see
            modeling.models.
        """

    def load_files(self, model: Any, folder: str) -> Collection[str]:
        """Assigns weights from other files of a model directory.

        Returns:
          The paths of these variables.
        """


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Builder:
    """Builds the models of an objective.

    Attributes:
      config: the flags of devices, memory and prediction.
      start: the pre-trained model and its tokenizer.
      strategy: the devices.
      objective: what the model computes.
      max_seq_length: length of the model's inputs, in tokens.
    """

    config: run_config.FinetuningConfig
    start: pretrained.Start
    strategy: Any
    objective: Objective
    max_seq_length: int

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files."""
        return strategies.is_chief(self.strategy)

    @property
    def lengths(self) -> list[int]:
        """The lengths that batches may have."""
        return assembly.batch_lengths(
            self.config.devices,
            self.strategy,
            self.max_seq_length,
            group_by_length=self.config.group_by_length,
        )

    def build(self, seed: int) -> "TaskModel":
        """Builds a model with random weights of a seed, and its predictor."""
        with self.strategy.scope():
            model = self.objective.make_model(
                attention=self.start.attention,
                bilstm_size=self.start.bilstm_size,
                recompute=assembly.recomputed(self.config.loop),
                seed=seed,
                dtype=assembly.dtype_policy(self.config.devices),
            )
        predictor = inference.Predictor(
            self.objective,
            model,
            strategy=self.strategy,
            jit_compile=assembly.uses_xla(self.config.devices),
        )
        return TaskModel(builder=self, model=model, predictor=predictor)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskModel:
    """A model, and its predictor."""

    builder: Builder
    model: Any
    predictor: inference.Predictor

    @property
    def start(self) -> pretrained.Start:
        """The pre-trained model and its tokenizer."""
        return self.builder.start

    @property
    def config(self) -> run_config.FinetuningConfig:
        """The flags."""
        return self.builder.config

    def warm_start(self) -> None:
        """Assigns the pre-trained weights.

        If the model has been trained for other labels, or for these in another
        order, its output layer is not used.
        """
        start = self.start
        classes = task_files.ModelClasses(
            labels=start.labels, problem_type=None
        )
        labels = self.builder.objective.stored.get("labels") or ()
        needs_new_layer = classes.has_other_outputs(labels)
        if needs_new_layer:
            logging.info(
                "a new output layer is trained for %s; the model to start from "
                "has one for %s",
                ", ".join(labels),
                ", ".join(classes.names or ()),
            )
        pretrained.assign(
            self.model,
            start.init_checkpoint,
            tokenizer=start.tokenizer,
            init_layers=start.init_layers,
            reinit_layers=self.config.reinit_layers,
            new_output_layer=needs_new_layer,
        )
        if not needs_new_layer:
            self._load_files(start.init_checkpoint)

    def assign(self, weights: str | None) -> None:
        """Assigns the weights of a model that was trained for the task.

        Args:
          weights: a model directory or a checkpoint; None is refused.

        Raises:
          InputError: weights is None or was not trained for the task.
        """
        weights = pretrained.require_weights(weights)
        model_directory.check_task(self.model, weights)
        report = pretrained.assign(
            self.model, weights, tokenizer=self.start.tokenizer
        )
        loaded = self._load_files(weights)
        assert report is not None  # There are weights.
        missing = [path for path in report.initialized if path not in loaded]
        if missing:
            raise errors.InputError(
                f"{weights} has not been trained for this task: "
                f"{', '.join(missing)} are missing; --do_train"
            )

    def _load_files(self, weights: str | None) -> Collection[str]:
        if weights is None:
            return ()
        folder = file_system.folder_of(weights)
        return self.builder.objective.load_files(self.model, folder)

    def predict(
        self, features: Features, batch_size: int, *, pads: bool = True
    ) -> dict[str, np.ndarray]:
        """Returns the task's predictions, [N, ...] in the examples' order.

        Args:
          features: the examples.
          batch_size: examples per batch.
          pads: whether fewer examples than this are computed as a full batch;
            only on one CPU, where rows take time, it makes a difference.
        """
        return self.predictor(
            self._batches(features, batch_size, pads=pads), len(features)
        )

    def predictions(
        self, features: Features, batch_size: int, *, pads: bool = True
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields what `predict` returns, batch by batch."""
        return self.predictor.batches(
            self._batches(features, batch_size, pads=pads), len(features)
        )

    def _batches(
        self, features: Features, batch_size: int, *, pads: bool
    ) -> length_groups.OrderedBatches:
        self.start.check_segments(features)
        if not pads and strategies.is_one_cpu(self.builder.strategy):
            batch_size = min(batch_size, len(features))
        return length_groups.OrderedBatches(
            features, batch_size=batch_size, lengths=self.builder.lengths
        )

    def open_blocks(
        self, folder: str, settings: Mapping[str, Any]
    ) -> streaming.Blocks | None:
        """Opens the blocks of a prediction; None if this worker writes nothing.

        Args:
          folder: name of the blocks' folder in output_dir.
          settings: what the predictions depend on, besides the items, the model
            and its tokenizer; see streaming.Blocks.
        """
        builder, config = self.builder, self.config
        if not builder.is_chief:
            return None
        return streaming.Blocks(
            os.path.join(config.output_dir, folder),
            {
                "the model's weights": run_directory.weights_digest(self.model),
                "tokenizer": features_lib.tokenizer_recipe(
                    self.start.tokenizer
                ),
                "precision": assembly.dtype_policy(config.devices),
                "predict_batch_size": config.predict_batch_size,
                "use_xla": config.devices.use_xla,
                "lengths": builder.lengths,
                **settings,
            },
            continues=not strategies.is_multi_worker(builder.strategy),
            discards_changed=config.do_train,
        )
