"""Models in Python: load one, predict, tokenize, or get a Keras model.

`bert.py` is the face of this module. `load` takes a model directory of any
task, or a released checkpoint in TensorFlow's or Hugging Face's form. The
results are those of the commands, whose code computes them; docs/python.md
shows every task.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

# Before Keras, which imports TensorFlow.
import foundation.tensorflow_setup  # noqa: F401

# isort: split
import keras
import numpy as np
from absl import logging

from data import examples
from data import features as features_lib
from data.features import Features
from data.tokenization import plain_wordpiece, vocabulary
from foundation import atomic, config_flags, errors
from jobs.task_model import TaskModel
from serving import keras_layers, opened_model
from serving.opened_model import OpenedModel
from tasks.classification import outcomes, tables
from tasks.fill_mask import masked_words
from tasks.ner import tagging
from tasks.ner.tagger import Tagger
from tasks.squad import answering
from weights import kinds, model_directory, task_files


class Token(NamedTuple):
    """A token and its characters [start, end) in the text."""

    token: str
    id: int
    start: int
    end: int


class Classification(NamedTuple):
    """The most probable label, its probability, and those of all labels."""

    label: str
    score: float
    probabilities: dict[str, float]


class Labels(NamedTuple):
    """The labels with a probability above 0.5, and those of all labels."""

    labels: list[str]
    probabilities: dict[str, float]


class Choice(NamedTuple):
    """The number of the best ending, and the probabilities of all."""

    choice: int
    probabilities: list[float]


class Answer(NamedTuple):
    """An answer, "" for none; `start` and `end` are -1 then.

    `start` and `end` are its characters in the paragraph, which are the answer
    up to white space; `score` is its probability among `answers`, the best
    texts with theirs.
    """

    answer: str
    score: float
    start: int
    end: int
    answers: list[tuple[str, float]]


class Entity(NamedTuple):
    """An entity, its characters [start, end) in the text, its probability."""

    text: str
    type: str
    score: float
    start: int
    end: int


class Word(NamedTuple):
    """A token for a [MASK] and its probability."""

    word: str
    probability: float


class _Item(NamedTuple):
    """What `predict` takes a list of: its name, and a test of one item."""

    name: str
    fits: Callable[[Any], bool]

    def listed(self, inputs: Any) -> list:
        """Returns the inputs as a list.

        Raises:
          InputError: they are no list of such items.
        """
        # A table yields the names of its columns, a dictionary its keys.
        has_names = (
            isinstance(inputs, str | Mapping | Set)
            or getattr(inputs, "ndim", 1) != 1
        )
        if has_names or not isinstance(inputs, Iterable):
            raise errors.InputError(f"a list is needed, not {_shown(inputs)}")
        inputs = list(inputs)
        for x in inputs:
            if not self.fits(x):
                raise errors.InputError(f"{_shown(x)} is not {self.name}")
        return inputs


def _shown(value: Any) -> str:
    """Returns the beginning of a value, on one line."""
    return " ".join(repr(value)[:60].split())


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not _is_text(x)


def _is_pair(x: Any) -> bool:
    return _is_sequence(x) and len(x) == 2 and all(map(_is_text, x))


def _is_choice(x: Any) -> bool:
    is_pair = _is_sequence(x) and len(x) == 2 and _is_text(x[0])
    return is_pair and _is_sequence(x[1]) and all(map(_is_text, x[1]))


_TEXT = _Item("a text", _is_text)
_TEXT_OR_PAIR = _Item(
    "a text or a pair of texts", lambda x: _is_text(x) or _is_pair(x)
)
_QUESTION = _Item("a pair (question, paragraph)", _is_pair)
_CHOICE = _Item("a pair (beginning, [ending, ...])", _is_choice)


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
    if not isinstance(path, str | os.PathLike):
        raise errors.InputError(f"a path of text is needed, not {_shown(path)}")
    options = opened_model.Options(
        task=task,
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        precision=precision,
        labels=labels,
        new_head=new_head,
        squad=squad or {},
        document_context=document_context,
        top_k=top_k,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
    )
    opened = opened_model.OpenedModel(os.fspath(path), options)
    opened.check_options()
    return MODELS[opened.task](opened)


class Model:
    """What the models of all tasks have.

    Attributes:
      task: one of the keys of MODELS.
      max_seq_length: the most tokens of a sequence; longer texts are cut,
        paragraphs are split into windows, and fill_mask refuses longer texts.
      tokenizer: tokenizer of the model.
      labels: names of the outputs of a classifier or tagger, else None.
    """

    labels: list[str] | None = None
    _task_model: TaskModel  # Of all tasks but fill_mask.
    _problem_type: str | None = None
    _windows: features_lib.Windows | None = None
    _item = _encoded_item = _TEXT_OR_PAIR
    # What the tokenizer splits, and other tokenizers do not.
    _bracketed: Sequence[str] = (
        vocabulary.CLS,
        vocabulary.SEP,
        vocabulary.MASK,
    )

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        self._options, self._path = opened.options, opened.path
        self._config = opened.start.config
        self.task = opened.task
        self.max_seq_length = opened.max_seq_length
        self.tokenizer = opened.start.tokenizer
        self._trained = opened.flags_of_texts

    def __repr__(self) -> str:
        """Names the model, its task, its labels and its size."""
        config, labels = self._config, ""
        if self.labels:
            labels = f", labels {errors.listed(self.labels)}"
        return (
            f"<{self.task} model of {self._path}{labels}: "
            f"{config.num_hidden_layers} layers, H={config.hidden_size}, "
            f"V={config.vocab_size}, max_seq_length={self.max_seq_length}>"
        )

    def predict(self, inputs: Sequence) -> Sequence | np.ndarray:
        """Returns one result for each input, in order; see the class.

        Args:
          inputs: texts or pairs of texts; of multiple choice (beginning,
            [ending, ...]), of question answering (question, paragraph).

        Raises:
          InputError: the model cannot read an input.
        """
        inputs = self._item.listed(inputs)
        return self._predict(inputs) if inputs else self._no_results()

    def _no_results(self) -> Sequence | np.ndarray:
        return []

    def _predict(self, inputs: list) -> Sequence | np.ndarray:
        raise NotImplementedError

    def _task_outputs(self, inputs: list) -> np.ndarray:
        """Returns the logits or vectors of inputs, float32 [N, ...]."""
        (outputs,) = self._task_model.predict(
            self._features(inputs), self._options.batch_size, pads=False
        ).values()
        return outputs

    def tokenize(self, texts: Sequence[str]) -> list[list[Token]]:
        """Returns the tokens of texts, without [CLS] and [SEP]."""
        encoded = self.tokenizer.encode_with_offsets(_TEXT.listed(texts))
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
        inputs = self._encoded_item.listed(inputs)
        if not inputs:
            raise errors.InputError("encode: no inputs")
        features = self._features(inputs)
        length = int(features.lengths.max(initial=0))
        return features.batch(np.arange(len(features)), length)

    def _features(self, texts: list) -> Features:
        pairs = [(x, "") if isinstance(x, str) else x for x in texts]
        first, second = map(list, zip(*pairs, strict=True))
        return self._encoded(first, second)

    def _encoded(
        self, first: list[str], second: list[str], num_choices: int = 0
    ) -> Features:
        """Returns the features of N pairs; warns of what is lost of texts."""
        statistics = features_lib.TokenizationStatistics()
        features = features_lib.encode(
            self.tokenizer,
            first,
            second,
            max_seq_length=self.max_seq_length,
            num_choices=num_choices,
            windows=self._windows,
            statistics=statistics,
        )
        if statistics.num_cut:
            limit = f"max_seq_length={self.max_seq_length} tokens"
            if self._windows is not None:
                limit = f"{self._windows.most} windows of {limit}"
            errors.warn_once(
                f"{self._path}: a text, perhaps several, has more than {limit} "
                "and is cut"
            )
        for token in self._bracketed:
            if any(token in text for text in itertools.chain(first, second)):
                errors.warn_once(
                    f"{self._path}: a text, perhaps several, contains {token}, "
                    "which is read as a word in brackets; a pair is given as "
                    "(text, text)"
                )
        return features

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

    def make_keras_model(
        self, *, hidden_states: bool = False, attentions: bool = False
    ) -> keras.Model:
        """Returns a Keras model with more outputs than `keras_model`.

        Args:
          hidden_states: whether "hidden_states" is an output, a list of L + 1
            times [B, S, H]: of the embeddings and of each layer.
          attentions: whether "attentions" is one, a list of L times [B, N, S,
            S]: the probabilities of each layer, computed a second time.
        """
        return keras_layers.functional(
            self._model,
            self.task,
            hidden_states=hidden_states,
            attentions=attentions,
            **self._encoder_outputs(),
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
        if model_directory.has_model(directory):
            if not overwrite:
                raise errors.InputError(
                    f"save {directory}: a model is there, and overwrite=False"
                )
            logging.warning("%s: the model there is replaced", directory)
        model_directory.save(
            getattr(self._model, "tagger", self._model),  # Of one with a CRF.
            directory,
            self.tokenizer,
            labels=self.labels,
            problem_type=self._problem_type,
        )
        self._save_settings(directory)
        flags = {**self._trained, **self._flags()}
        if flags:  # As a training leaves them: commands read texts as now.
            atomic.write_json(
                os.path.join(directory, config_flags.RUN_CONFIG),
                flags | {"do_train": True},
            )

    def _save_settings(self, directory: str) -> None:
        """Writes what else the task needs."""

    def _flags(self) -> dict[str, Any]:
        """Returns flags of commands with which they read texts as this model.

        The other flags of its training are kept.
        """
        return {"max_seq_length": self.max_seq_length}

    @property
    def _model(self) -> Any:
        return self._task_model.model

    def _encoder_outputs(self) -> dict[str, Any]:
        """Returns what `functional` needs besides the model."""
        return {}


class SentenceModel(Model):
    """Labels or rates texts, or pairs of texts.

    It predicts a Classification for each; with several labels per text, Labels;
    of a regression, a float.
    """

    _are_pairs: bool | None = None  # Of the training.

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        loaded = opened.sentence_model()
        self._task_model, self._kind = loaded.task_model, loaded.kind
        self._windows = loaded.windows
        self.task = kinds.KINDS[loaded.kind].export_name
        self._problem_type = kinds.KINDS[loaded.kind].problem_type
        if "task_name" in self._trained:  # Else they are not known.
            self._are_pairs = tables.has_pairs(self._trained)
        if loaded.kind != examples.REGRESSION:
            self.labels = list(loaded.labels)

    def _features(self, texts: list) -> Features:
        for x in texts:
            if isinstance(x, str) == self._are_pairs:
                given, needed = "a pair of texts", "single texts"
                if self._are_pairs:
                    given, needed = "a single text", "pairs of texts"
                raise errors.InputError(
                    f"{_shown(x)} is {given}, but {self._path} was trained on "
                    f"{needed}"
                )
        return super()._features(texts)

    def _predict(self, inputs: list) -> list:
        logits = self._task_outputs(inputs)
        rows = outcomes.probabilities(self._kind, logits).tolist()
        if self.labels is None:  # Of a regression.
            return [row[0] for row in rows]
        labels, decisions = self.labels, outcomes.decisions(self._kind, logits)
        named = [dict(zip(labels, row, strict=True)) for row in rows]
        if self._kind == examples.MULTI_LABEL:
            return [
                Labels([labels[i] for i in np.flatnonzero(chosen)], row)
                for chosen, row in zip(decisions, named, strict=True)
            ]
        best = [labels[i] for i in decisions]
        return [
            Classification(label, row[label], row)
            for label, row in zip(best, named, strict=True)
        ]


class MultipleChoiceModel(Model):
    """Chooses one of K endings.

    It predicts a Choice for each (beginning, endings); K is the same for all.
    """

    _item = _encoded_item = _CHOICE

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        self._task_model = opened.multiple_choice_model()

    def _predict(self, inputs: list) -> list[Choice]:
        logits = self._task_outputs(inputs)
        kind = examples.MULTIPLE_CHOICE
        rows = outcomes.probabilities(kind, logits).tolist()
        decisions = outcomes.decisions(kind, logits).tolist()
        return list(map(Choice, decisions, rows))

    def _features(self, texts: list) -> Features:
        counts = {len(endings) for _, endings in texts}
        if len(counts) > 1 or 0 in counts:
            raise errors.InputError("all need the same number of endings")
        (count,) = counts
        return self._encoded(
            [context for context, _ in texts for _ in range(count)],
            [ending for _, endings in texts for ending in endings],
            num_choices=count,
        )


class QuestionAnsweringModel(Model):
    """Answers questions from paragraphs.

    It predicts an Answer for each (question, paragraph).
    """

    _item = _QUESTION

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        self._task_model, self._settings = opened.answerer()
        tokenizer = plain_wordpiece.PlainTokenizer(
            self.tokenizer.vocabulary, **self.tokenizer.settings
        )
        self._answerer = answering.Answerer(tokenizer, self._settings)

    def _predict(self, inputs: list) -> list[Answer]:
        results = []
        for entry, answers in self._answerer.answers(inputs, self._outputs):
            start, end = entry.span or (-1, -1)
            texts = [(x.text, x.probability) for x in answers.entries]
            results.append(
                Answer(entry.text, entry.probability, start, end, texts)
            )
        return results

    def _outputs(self, features: Features) -> dict[str, np.ndarray]:
        batches = self._task_model.predictions(
            features, self._task_model.config.predict_batch_size, pads=False
        )
        return features_lib.by_token(batches, features.row_splits)

    def _save_settings(self, directory: str) -> None:
        settings = task_files.SquadSettings(
            version_2_with_negative=bool(
                self._settings.version_2_with_negative
            ),
            null_score_diff_threshold=self._settings.threshold,
        )
        task_files.write_settings(directory, settings)

    def _flags(self) -> dict[str, Any]:
        return config_flags.flat_values(self._settings)


class TaggingModel(Model):
    """Finds entities in texts.

    It predicts a list of Entities for each text.
    """

    _item = _TEXT

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        self._task_model, self.labels = opened.tagger()
        self._tagger = Tagger(
            windows=opened.tagger_windows,
            tokenizer=self.tokenizer,
            labels=self.labels,
            predictions=lambda features: self._task_model.predictions(
                features, opened.options.batch_size, pads=False
            ),
            scores=tagging.scores_of(self._model),
        )

    def _predict(self, inputs: list) -> list[list[Entity]]:
        rows = self._tagger(inputs)
        return [
            [
                Entity(
                    text=x["text"],
                    type=x["type"],
                    score=x["probability"],
                    start=x["start"],
                    end=x["end"],
                )
                for x in row
            ]
            for row in rows
        ]

    def _save_settings(self, directory: str) -> None:
        tagging.save_crf(self._model, self.labels or (), directory)

    def _flags(self) -> dict[str, Any]:
        return dataclasses.asdict(self._tagger.windows)


class MaskedLanguageModel(Model):
    """Ranks the words for each [MASK].

    It predicts, for each text, one list of `top_k` Words for each [MASK].
    """

    _item = _TEXT
    _bracketed = (vocabulary.CLS, vocabulary.SEP)

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        self.tokenizer = masked_words.MaskTokenizer(
            self.tokenizer.vocabulary, **self.tokenizer.settings
        )
        self._masked_lm = opened.masked_lm()
        self._next_sentence = opened.next_sentence()
        self._pooler = opened.pooler() if self._next_sentence else None
        self._filler = masked_words.MaskFiller(
            self._masked_lm,
            self.tokenizer,
            left_to_right=opened.start.attention == "left_to_right",
            max_length=opened.max_seq_length,
        )

    def _predict(self, inputs: list) -> list[list[list[Word]]]:
        top_k = self._options.top_k
        return [
            [[Word(*candidate) for candidate in mask] for mask in masks]
            for masks in self._filler.fill(inputs, top_k=top_k)
        ]

    def _flags(self) -> dict[str, Any]:
        return {}  # All positions, whatever flags say.

    @property
    def _model(self) -> Any:
        return self._masked_lm

    def _encoder_outputs(self) -> dict[str, Any]:
        return {"pooler": self._pooler, "next_sentence": self._next_sentence}


class EmbeddingModel(Model):
    """Maps texts, or pairs of texts, to vectors, float32 [N, size].

    With one kind of pooling and without dense layers, `size` is H.
    """

    def __init__(self, opened: OpenedModel):
        """Use `load`."""
        super().__init__(opened)
        self._task_model, objective = opened.embedder()
        self._pooler = opened.pooler()
        self._vector_size = objective.vector_size

    def _predict(self, inputs: list) -> np.ndarray:
        return self._task_outputs(inputs)

    def _no_results(self) -> np.ndarray:
        return np.zeros((0, self._vector_size), np.float32)

    def save(
        self, directory: str | os.PathLike[str], *, overwrite: bool = True
    ) -> None:
        """Is refused: an encoder is the file that it was loaded from."""
        raise errors.InputError(
            f"save {os.fspath(directory)}: a sentence_embedding has no head to "
            "save; convert_checkpoint.py copies encoders"
        )

    def _encoder_outputs(self) -> dict[str, Any]:
        return {"layer": self._options.layer, "pooler": self._pooler}


# Task -> class of its models.
MODELS = {
    "classification": SentenceModel,
    "regression": SentenceModel,
    "multilabel": SentenceModel,
    "multiple_choice": MultipleChoiceModel,
    "question_answering": QuestionAnsweringModel,
    "token_classification": TaggingModel,
    "fill_mask": MaskedLanguageModel,
    "sentence_embedding": EmbeddingModel,
}
