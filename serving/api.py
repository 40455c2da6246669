"""Models in Python: load one, predict, tokenize, or get a Keras model.

`bert.py` is the face of this module. `load` takes a model directory of any
task, or a released checkpoint in TensorFlow's or Hugging Face's form. The
results are those of the commands, whose code computes them; docs/serving.md
shows every task.
"""

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Before Keras, which imports TensorFlow.
import foundation.tensorflow_setup  # noqa: F401

# isort: split
import keras
import numpy as np
from absl import logging

from finetuning import record
from foundation import atomic, config_flags, errors, file_system
from serving import keras_layers, opened_model, predictors, settings
from serving.opened_model import OpenedModel
from tasks.squad.settings import AnswerSettings
from weights import model_directory, task_files


class Token(NamedTuple):
    """A token and its characters [start, end) in the text."""

    token: str
    id: int
    start: int
    end: int


def load(
    path: str | os.PathLike[str],
    *,
    task: str | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    precision: str = "float32",
    labels: Sequence[str] | None = None,
    new_head: bool = False,
    squad: Mapping[str, Any] | None = None,
    document_context: bool = False,
    top_k: int = 5,
    pooling: str | None = None,
    layer: int = -1,
    normalize: bool | None = None,
) -> "Model":
    """Loads a model.

        model = bert.load("stars")
        model.predict(["A fine film."])
        bert.load("hf://google-bert/bert-base-uncased", task="fill_mask")

    Args:
      path: a model directory, a released checkpoint of TensorFlow or Hugging
        Face, its folder, or a name of the Hugging Face Hub after "hf://".
      task: classification, regression, multilabel, multiple_choice,
        question_answering, token_classification, fill_mask or
        sentence_embedding; by default that of the model's head.
      max_seq_length: the most tokens of a text, or of a window; by default as
        in training, else 128, 384 for questions, all positions for fill_mask.
      batch_size: the number of texts that are computed together.
      precision: "float32", "bfloat16", or "auto" for the faster one.
      labels: the names of the outputs if the checkpoint does not name them, or
        of a new head.
      new_head: whether the outputs get random weights, to be trained for
        `task`.
      squad: flags of run_squad.py for question_answering, e.g.
        {"doc_stride": 64}.
      document_context: whether a tagger reads the sentences around each one.
      top_k: the number of words for each [MASK] of fill_mask.
      pooling: how sentence_embedding makes vectors, e.g. "cls", "mean" or
        "cls,mean"; by default as the model's files say, else "mean".
      layer: the layer that vectors are made from; -1 is the last.
      normalize: whether vectors of sentence_embedding have length 1; by default
        as the model's files say, else False.

    Returns:
      A model with `predict`, `tokenize`, `encode`, `keras_model` and `save`.

    Raises:
      InputError: there is no model, it was not trained for the task, or an
        option does not fit. The message is one line.
    """
    names = AnswerSettings().besides_length
    if unknown := [x for x in squad or {} if x not in names]:
        raise errors.InputError(
            f"squad: {unknown[0]!r} is none of {', '.join(names)}"
        )
    options = config_flags.build(
        settings.LoadOptions,
        task=task,
        max_seq_length=max_seq_length,
        precision=precision,
        label_names=labels,
        document_context="maximal" if document_context else "none",
        top_k=top_k,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
        new_head=new_head,
        batch_size=batch_size,
        **squad or {},
    )
    return Model(opened_model.OpenedModel(os.fspath(path), options))


class Model:
    """A model of any task.

    Attributes:
      task: one of the tasks of `load`.
      max_seq_length: the most tokens of a sequence; longer texts are cut,
        paragraphs are split into windows, and fill_mask refuses longer texts.
      tokenizer: tokenizer of the model.
      labels: names of the outputs of a classifier or tagger, else None.
    """

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        self._opened, setup = opened, opened.setup
        self.task, self.labels = setup.task, setup.labels
        self.max_seq_length = setup.max_seq_length
        self.tokenizer = opened.predictor.tokenizer

    def __repr__(self) -> str:
        """Names the model, its task, its labels and its size."""
        config = self._opened.setup.config
        labels = self.labels and f", labels {errors.listed(self.labels)}"
        return (
            f"<{self.task} model of {self._opened.path}{labels or ''}: "
            f"{config.num_hidden_layers} layers, H={config.hidden_size}, "
            f"V={config.vocab_size}, max_seq_length={self.max_seq_length}>"
        )

    def predict(self, inputs: Sequence) -> Sequence | np.ndarray:
        """Returns one result for each input, in order.

        Args:
          inputs: texts or pairs of texts; of multiple choice (beginning,
            [ending, ...]), of question answering (question, paragraph).

        Returns:
          classification: Classifications; multilabel: Labels; regression:
          floats; multiple_choice: Choices; question_answering: Answers;
          token_classification: a list of Entities for each text; fill_mask: for
          each text, a list of `top_k` Words for each [MASK];
          sentence_embedding: float32 [N, size].

        Raises:
          InputError: the model cannot read an input.
        """
        inputs = self._opened.predictor.item.listed(inputs)
        if inputs:
            return self._opened.predictor.predict(inputs)
        if self.task == "sentence_embedding":
            size = self._opened.setup.settings["size"]
            return np.zeros((0, size), np.float32)
        return []

    def tokenize(self, texts: Sequence[str]) -> list[list[Token]]:
        """Returns the tokens of texts, without [CLS] and [SEP]."""
        encoded = self.tokenizer.encode_with_offsets(
            predictors.A_TEXT.listed(texts)
        )
        words = self.tokenizer.vocabulary.tokens
        columns = zip(encoded.ids, encoded.starts, encoded.ends, strict=True)
        tokens = [
            Token(words[i], int(i), int(start), int(end))
            for i, start, end in columns
        ]
        bounds = itertools.pairwise(encoded.row_splits.tolist())
        return [tokens[a:b] for a, b in bounds]

    def encode(self, inputs: Sequence) -> dict[str, np.ndarray]:
        """Returns the inputs of `keras_model`, padded to the longest text.

        Args:
          inputs: texts or pairs of texts; for multiple choice as in `predict`.

        Returns:
          input_ids, input_mask, segment_ids: int32 [B, S], or [B, K, S] of
          multiple choice.

        Raises:
          InputError: there are no inputs, or one cannot be read.
        """
        inputs = self._opened.predictor.encoded_item.listed(inputs)
        if not inputs:
            raise errors.InputError("encode: no inputs")
        features = self._opened.predictor.features(inputs)
        length = int(features.lengths.max(initial=0))
        return features.batch(np.arange(len(features)), length)

    @functools.cached_property
    def keras_model(self) -> keras.Model:
        """The model as a functional Keras model that takes tensors.

        It maps a dict as returned by `encode` to a dict of float32:

        masked_lm_logits [B, S, V] and, of a model with this head,
        next_sentence_logits [B, 2] of fill_mask; start_logits and end_logits
        [B, S] of question_answering; sequence_output [B, S, H] and, of a model
        with a pooler, pooled_output [B, H] of sentence_embedding; logits of the
        other tasks: [B, C], [B, K] of multiple_choice, [B, S, C] of
        token_classification.

        It has the weights of this model: after `fit`, `predict` uses them.
        """
        return self.make_keras_model()

    def make_keras_model(self, *, hidden_states: bool = False) -> keras.Model:
        """Returns a Keras model with more outputs than `keras_model`.

        Args:
          hidden_states: whether "hidden_states" is an output, a list of L + 1
            times [B, S, H]: of the embeddings and of each layer.
        """
        opened = self._opened
        return keras_layers.functional(
            opened.model,
            self.task,
            layer=opened.options.layer,
            tensors=opened.source.tensors,
            hidden_states=hidden_states,
        )

    def save(
        self, directory: str | os.PathLike[str], *, overwrite: bool = True
    ) -> None:
        """Writes a model directory, which commands and transformers read.

        Args:
          directory: is made if it does not exist.
          overwrite: whether to replace a model there, with a warning, as
            Keras' save does; with False, it is an error instead of a question.

        Raises:
          InputError: the model has no head; or overwrite is False and there is
            a model in the directory.
        """
        directory = os.fspath(directory)
        if self.task == "sentence_embedding":
            raise errors.InputError(
                f"save {directory}: a sentence_embedding has no head to save; "
                "convert_checkpoint.py copies encoders"
            )
        if model_directory.has_model(directory):
            if not overwrite:
                raise errors.InputError(
                    f"save {directory}: a model is there, and overwrite=False"
                )
            logging.warning("%s: the model there is replaced", directory)
        opened, flags = self._opened, self._opened.predictor.flags
        file_system.make_folder(directory)
        opened.head.save(opened.model, directory, self.tokenizer)
        if self.task == "question_answering":
            rules = opened.predictor.settings
            stored = task_files.SquadSettings(
                version_2_with_negative=bool(rules.version_2_with_negative),
                null_score_diff_threshold=rules.threshold,
            )
            task_files.write_settings(directory, stored)
        if flags := {**opened.remembered, **flags}:
            # As a training leaves them: commands read texts as now.
            atomic.write_json(
                os.path.join(directory, record.NAME), {"flags": flags}
            )
