"""Opens a model directory or a released checkpoint, to predict with it.

Options that are not given have the values of the model's training, which
run.json beside the weights holds. Without it, the defaults of the training
commands apply.
"""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from data.features import Features
from finetuning import devices, network, record
from foundation import config_flags, errors
from serving import predictors
from serving.settings import ModelOptions
from training import settings as training_settings
from weights import checkpoint_sources, kinds, pretrained, task_files

_MASKED_LM = "cls/predictions/transform/dense/kernel"
_SPANS, _SCORES = "cls/squad/output_weights", "output_weights"
# The flags of a training that also apply to a model with a new head.
_OF_TEXTS = ("max_seq_length", "long_texts", "doc_stride")


class OpenedModel:
    """A model with the weights of its checkpoint.

    Attributes:
      path, options: what was given.
      source: the checkpoint, which is read once.
      start: its files: hyperparameters, tokenizer, labels.
      remembered: the flags of the training, {} if they are unknown.
      task: the given task, or that of the head: "classification" of all
        sentence models; `setup` has their kind.
      max_seq_length: the given length, or that of the training, or the default.
      setup: what is known of the model.
      head: what it computes.
      network: the model and its predictions.
      model: the Keras model.
      predictor: texts to results.
    """

    def __init__(self, path: str, options: ModelOptions):
        """Loads a model.

        Args:
          path: a model directory or a released checkpoint.
          options: how it is opened.

        Raises:
          InputError: there is no model, it was not trained for the task, or an
            option does not fit.
        """
        self.path, self.options = path, options
        new_head = options.new_head
        if new_head and not options.task:
            raise errors.InputError("new_head: task= names what it is for")
        self.source = source = checkpoint_sources.read(path)
        self.task = options.task or _task_of(path, source)
        kind = predictors.PREDICTORS.get(self.task, predictors.OwnTask)
        self._check_options(kind)
        trained = kinds.task_of(source.settings.architecture)
        ours = kinds.ARCHITECTURES.get(self.task)
        fits = not trained or ours == kinds.ARCHITECTURES[trained]
        if ours and not fits and not new_head:
            raise errors.InputError(
                f"task={self.task}: {path} has been trained for another "
                f"task, {trained}"
            )
        self.start = start = pretrained.open_start(
            output_dir=None,
            init_checkpoint=source,
            max_seq_length=options.max_seq_length,
        )
        self.remembered = {
            name: value
            for name, value in record.RunRecord(source.folder).flags.items()
            if name in _OF_TEXTS or not new_head
        }
        positions, usual = start.config.max_position_embeddings, 0
        if kind.usual_length:
            usual = self.remembered.get("max_seq_length") or kind.usual_length
        length = min(usual or positions, positions)
        self.max_seq_length = options.max_seq_length or length
        values, self.head = kind.open(self)
        values = {
            "task": self.task,
            "max_seq_length": self.max_seq_length,
            **values,
        }
        self.network = self._network(values["max_seq_length"])
        self.model = self.network.model
        self.setup = predictors.Setup(
            name=path,
            config=start.config,
            tokenizer=start.tokenizer,
            left_to_right=start.settings.attention == "left_to_right",
            scores=self.head.constants(self.model) or None,
            **values,
        )
        self.predictor: Any = kind(self.setup, self._run)
        inputs = self.predictor.inputs
        if len(inputs) > 1 and start.config.type_vocab_size < 2:
            raise errors.InputError(
                f"{path}: {' and '.join(inputs)} need 2 segments, but "
                "type_vocab_size of the model is 1"
            )
        logging.info(
            "%s: %s of up to %d tokens",
            path,
            self.setup.task,
            self.setup.max_seq_length,
        )

    def _run(self, features: Any) -> dict[str, Any]:
        """See predictors.Runner."""
        if not isinstance(features, Features):
            return self.logits(features)
        return self.network.predict(
            features, self.options.batch_size, pads=False
        )

    def _check_options(self, kind: type[predictors.Predictor]) -> None:
        """Refuses options that have no effect on a kind of task."""
        given = config_flags.given(self.options)
        for name in (x for x in given if x not in kind.options):
            tasks = [
                task
                for task, other in predictors.PREDICTORS.items()
                if name in other.options
            ]
            if tasks:
                raise errors.InputError(
                    f"--{name}: only for {', '.join(tasks)}; the task of "
                    f"{self.path} is {self.task}"
                )

    def _network(self, max_seq_length: int) -> network.Network:
        """Builds the model with its weights."""
        start = self.start
        built = network.Network(
            self.head,
            start.config,
            devices=devices.open_devices(
                config_flags.build(
                    training_settings.Devices,
                    precision=self.options.precision,
                    strategy="one_device",
                ),
                None,
            ),
            max_seq_length=max_seq_length,
            seed=0,
            attention=start.settings.attention,
            bilstm_size=start.settings.bilstm_size,
        )
        if self.options.new_head:
            pretrained.assign(
                built.model,
                self.source,
                tokenizer=start.tokenizer,
                new_output_layer=True,
            )
        else:
            built.load(self.source, start.tokenizer)
        return built

    @functools.cached_property
    def classes(self) -> task_files.ModelClasses:
        """The classes of the model, with the given names."""
        options, settings = self.options, self.start.settings
        known = task_files.ModelClasses(labels=None, problem_type=None)
        if not options.new_head:
            known = task_files.ModelClasses(
                labels=settings.labels,
                problem_type=settings.problem_type,
                num_outputs=self.start.num_outputs,
            )
        return known.with_names(options.label_names, trains=options.new_head)

    def logits(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Maps a batch of features to the outputs of the model."""
        return self.head.predict(self.model, features)

    @functools.cached_property
    def traced_logits(self) -> Any:
        """`logits`, traced once for all graphs that call it."""
        return tf.function(self.logits, autograph=False)


def _task_of(path: str, source: checkpoint_sources.Source) -> str:
    """Returns the task of a model's head.

    It is "classification" for every kind of sentence task.
    """
    architecture = source.settings.architecture
    if (trained := kinds.task_of(architecture)) is not None:
        return trained
    if _SPANS in source.tensors:
        return "question_answering"
    if _SCORES in source.tensors:
        raise errors.InputError(
            f"{path}: has a head of an unknown task; --task (in Python: "
            "task=) names it"
        )
    if _MASKED_LM in source.tensors:
        return "fill_mask"
    if architecture is not None and source.others:
        errors.warn_once(
            f"{path}: its head is unknown ({architecture}, with "
            f"{errors.listed(source.others)}) and not used; the task is taken "
            "to be sentence_embedding"
        )
    return "sentence_embedding"
