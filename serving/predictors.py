"""Texts to results, once for every task: in Python, over HTTP, by any engine.

    items -> features -> Runner, a model -> outputs -> results

An item is a text or a pair, as `bert.load(...).predict` takes it. A Runner is a
Keras model in this process, a SavedModel or an ONNX model. A subclass of
Predictor has all that is particular to a kind of task: how its model is opened,
what it takes and gives, and which graph a SavedModel has for it.
"""

import abc
import dataclasses
import importlib
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec
import numpy as np

from data import features as features_lib
from data.features import Features
from data.tokenization import plain_wordpiece, vocabulary
from finetuning import given_model
from finetuning import task as tasks
from foundation import config_flags, errors, metadata
from modeling.config import BertConfig
from serving.served_model import (
    FLOAT,
    FLOATS,
    INT,
    PLACES,
    TEXT,
    TEXTS,
    Spec,
)
from tasks.classification import label_kinds, tables
from tasks.classification.settings import windows_of
from tasks.features import extraction
from tasks.squad import answering
from tasks.squad import task as squad_task
from tasks.squad.settings import AnswerSettings
from weights import kinds, sentence_modules, stored_weights, task_files

Outputs = dict[str, np.ndarray]
# Maps the features of N rows of T tokens to outputs [N, ...], or [T, ...] if
# the predictor is `per_token`; that of fill_mask maps a batch to a batch.
Runner = Callable[[Any], Outputs]
_BATCH_SIZE = 32


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


class Item(NamedTuple):
    """What `predict` takes a list of: its name and type."""

    name: str
    type: Any

    def listed(self, inputs: Any) -> list:
        """Returns the inputs as a list.

        Raises:
          InputError: they are no list of such items.
        """
        # A table yields the names of its columns, a dictionary its keys.
        if (
            isinstance(inputs, str | Mapping | Set)
            or getattr(inputs, "ndim", 1) != 1
            or not isinstance(inputs, Iterable)
        ):
            raise errors.InputError(f"a list is needed, not {shown(inputs)}")
        inputs = list(inputs)
        for x in inputs:
            try:
                msgspec.convert(x, self.type)
            except msgspec.ValidationError as error:
                raise errors.InputError(
                    f"{shown(x)} is not {self.name}"
                ) from error
        return inputs


def shown(value: Any) -> str:
    """Returns the beginning of a value, on one line."""
    return " ".join(repr(value)[:60].split())


A_TEXT = Item("a text", str)
_TEXT_OR_PAIR = Item("a text or a pair of texts", str | tuple[str, str])
_QUESTION = Item("a pair (question, paragraph)", tuple[str, str])
_CHOICE = Item("a pair (beginning, [ending, ...])", tuple[str, list[str]])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Description:
    """What export.json says of a model.

    Attributes:
      task: see weights.kinds.ARCHITECTURES.
      max_seq_length: the most tokens of a text, or of a window.
      labels: names of the classes, or None.
      settings: how the task is computed; see the predictors.
      are_pairs: whether texts are pairs, of a sentence task; None for either.
    """

    task: str
    max_seq_length: metadata.Size
    labels: list[str] | None = None
    settings: metadata.Object = dataclasses.field(default_factory=dict)
    are_pairs: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Setup(Description):
    """What a predictor knows of a model, besides how it is computed.

    Attributes:
      name: what messages call the model.
      config: the hyperparameters.
      tokenizer: tokenizer of the model.
      left_to_right: whether tokens see only those before them.
      scores: the scores of tag sequences of a CRF, or None.
    """

    name: str
    config: BertConfig
    tokenizer: plain_wordpiece.PlainTokenizer
    left_to_right: bool = False
    scores: Any = None

    @property
    def windows(self) -> features_lib.Windows | None:
        """How long texts of a sentence task are divided; None if cut."""
        sizes = self.settings.get("windows")
        return features_lib.Windows(*sizes) if sizes else None


class Predictor(abc.ABC):
    """A kind of task: how it is opened, what it takes and what it gives.

    Attributes:
      tasks: its names, values of --task.
      options: fields of ModelOptions that have an effect, besides those that
        have one on all kinds.
      usual_length: the most tokens of a text, if the training is not known;
        None for all positions, which do not depend on the training.
      item: what `predict` takes a list of.
      encoded_item: what `features` takes a list of.
      inputs: the names of an item's parts over HTTP.
      outputs: the names of a result's parts over HTTP, and their form.
      has_sequences: whether an example has several sequences.
      per_token: whether the model has outputs for each token.
      flags: flags of commands with which they read texts as this model.
    """

    tasks: Sequence[str]
    options: Sequence[str] = ()
    usual_length: int | None = 128
    item = encoded_item = _TEXT_OR_PAIR
    inputs: Sequence[str] = ("text",)
    outputs: Mapping[str, Spec]
    has_sequences = False
    per_token = False

    def __init__(self, setup: Setup, run: Runner):
        """Takes what is known of a model, and what computes it."""
        self.setup, self.run = setup, run
        self.tokenizer: Any = setup.tokenizer
        self.flags: dict[str, Any] = {"max_seq_length": setup.max_seq_length}

    @classmethod
    @abc.abstractmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """Returns values of the Setup and the Head of a model.

        Args:
          opened: an opened_model.OpenedModel, whose files have been read.

        Raises:
          InputError: the model has no such head, or an option does not fit.
        """

    @abc.abstractmethod
    def predict(self, items: list) -> Any:
        """Returns one result for each of N > 0 items."""

    def row(self, result: Any) -> dict[str, Any]:
        """Returns a result as `outputs`, JSON values or arrays."""
        return result._asdict()

    def features(self, items: list) -> Features:
        """Returns the features of items."""
        pairs = [(x, "") if isinstance(x, str) else x for x in items]
        first, second = map(list, zip(*pairs, strict=True))
        return self._encoded(first, second)

    def _encoded(
        self, first: list[str], second: list[str], num_choices: int = 0
    ) -> Features:
        """Returns the features of N pairs; warns of what is lost of texts."""
        tokenizer, length = self.setup.tokenizer, self.setup.max_seq_length
        sizes, limit = self.setup.windows, f"max_seq_length={length} tokens"
        stride, most = sizes or (1, 1)
        rows, is_cut = [], False
        for pair in zip(first, second, strict=True):
            a, b = (tasks.token_ids(self.tokenizer, x) for x in pair)
            row = tasks.windows(
                tokenizer, a, b, length, stride=stride, most=most + 1
            )
            size = len(a) + len(b) + 2 + bool(b)
            is_cut |= len(row) > most if sizes else size > length
            rows.append(row[:most])
        if is_cut:
            limit = f"{most} windows of {limit}" if sizes else limit
            errors.warn_once(
                f"{self.setup.name}: a text, perhaps several, has more than "
                f"{limit} and is cut"
            )
        # What the tokenizer splits, and other tokenizers do not.
        special = {vocabulary.CLS, vocabulary.SEP, vocabulary.MASK}
        for token in special.difference(self.tokenizer.vocabulary.added):
            if any(token in text for text in itertools.chain(first, second)):
                errors.warn_once(
                    f"{self.setup.name}: a text, perhaps several, contains "
                    f"{token}, which is read as a word in brackets; a pair is "
                    "given as (text, text)"
                )
        return features_lib.from_sequences(
            rows, num_choices=num_choices, are_windows=sizes is not None
        )

    def _output(self, items: list) -> np.ndarray:
        """Returns the only output of the model, [N, ...]."""
        (values,) = self.run(self.features(items)).values()
        return values


_OF_LABELS = {
    "classification": label_kinds.OneLabel,
    "regression": label_kinds.Value,
    "multilabel": label_kinds.AnyLabels,
}


class _Sentences(Predictor):
    """Classification, regression and classification with several labels.

    Settings: windows, [stride, most], if long texts are divided.
    """

    tasks = tuple(_OF_LABELS)
    options = "label_names", "text_pair", "new_head"

    def __init__(self, setup: Setup, run: Runner):
        """See Predictor."""
        super().__init__(setup, run)
        kind = _OF_LABELS[setup.task]
        self._kind = kind(setup.labels or ())
        self.has_sequences = setup.windows is not None
        if setup.are_pairs:
            self.inputs = "text", "text_pair"
        lists = {"labels": TEXTS, "probabilities": FLOATS}
        self.outputs = {
            label_kinds.Value: {"score": FLOAT},
            label_kinds.AnyLabels: lists,
            label_kinds.OneLabel: {"label": TEXT, "score": FLOAT} | lists,
        }[kind]

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor."""
        from tasks.classification import heads

        given, trained = opened.options.task, opened.remembered
        count, classes = opened.start.num_outputs, opened.classes
        kind = task_files.kind(
            _OF_LABELS[given].name if given else None, classes
        )
        task = next(x for x in _OF_LABELS if _OF_LABELS[x].name == kind)
        if count is None and not opened.options.new_head:
            raise errors.InputError(
                f"{opened.path}: has not been trained for this task "
                "(output_weights is missing; in Python, new_head=True adds it)"
            )
        labels: list[str] = []
        if kind != kinds.REGRESSION:
            classes.check()
            unnamed = () if opened.options.new_head else kinds.unnamed(count)
            labels = list(classes.labels or unnamed)
            if not labels:
                raise errors.InputError("new_head: labels= names its classes")
        length = opened.max_seq_length
        pooling, windows = windows_of(trained, length) or (None, None)
        are_pairs = opened.options.text_pair
        if are_pairs is None and "task_name" in trained:
            are_pairs = tables.has_pairs(trained)
        values = {
            "task": task,
            "labels": labels or None,
            "settings": {"windows": list(windows)} if windows else {},
            "are_pairs": are_pairs,
        }
        of_labels = _OF_LABELS[task](labels)
        return values, heads.head_of(of_labels, window_pooling=pooling)

    def features(self, items: list) -> Features:
        """See Predictor.

        Raises:
          InputError: the model was trained on pairs, and one is none; or the
            other way round.
        """
        for x in items:
            if isinstance(x, str) == self.setup.are_pairs:
                is_single = isinstance(x, str)
                raise errors.InputError(
                    f"{shown(x)}: {self.setup.name} was trained on "
                    f"{'pairs of' if is_single else 'single'} texts"
                )
        return super().features(items)

    def predict(self, items: list) -> list:
        """Returns Classifications, Labels, or floats of a regression."""
        logits, kind = self._output(items), self._kind
        rows = kind.probabilities(logits).tolist()
        if isinstance(kind, label_kinds.Value):
            return [value for (value,) in rows]
        named = [dict(zip(kind.labels, row, strict=True)) for row in rows]
        found = zip(kind.decide(logits), named, strict=True)
        if isinstance(kind, label_kinds.AnyLabels):
            names = np.array(kind.labels)
            return [Labels(names[x > 0].tolist(), row) for x, row in found]
        labels = ((kind.text(x), row) for x, row in found)
        return [Classification(x, row[x], row) for x, row in labels]

    def row(self, result: Any) -> dict[str, Any]:
        """See Predictor."""
        if "probabilities" not in self.outputs:
            return {"score": result}
        return {name: getattr(result, name, None) for name in self.outputs} | {
            "labels": list(result.probabilities),
            "probabilities": list(result.probabilities.values()),
        }


class _MultipleChoice(Predictor):
    """Choices of one of K endings; K is the same for all items."""

    tasks = ("multiple_choice",)
    options = ("new_head",)
    item = encoded_item = _CHOICE
    inputs = "context", "endings"
    outputs = {"choice": INT, "probabilities": FLOATS}
    has_sequences = True

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor."""
        from tasks.classification import heads

        return {}, heads.head_of(label_kinds.Choice(()))

    def features(self, items: list) -> Features:
        """See Predictor."""
        counts = {len(endings) for _, endings in items}
        if len(counts) > 1 or 0 in counts:
            raise errors.InputError("all need the same number of endings")
        (count,) = counts
        return self._encoded(
            [context for context, _ in items for _ in range(count)],
            [ending for _, endings in items for ending in endings],
            num_choices=count,
        )

    def predict(self, items: list) -> list[Choice]:
        """See Predictor."""
        logits, kind = self._output(items), label_kinds.Choice(())
        rows = kind.probabilities(logits).tolist()
        return list(map(Choice, kind.decide(logits)[:, 0].tolist(), rows))


class _QuestionAnswering(Predictor):
    """Answers to questions about paragraphs.

    Settings: the flags of AnswerSettings, without max_seq_length.
    """

    tasks = ("question_answering",)
    options = (*AnswerSettings().besides_length, "new_head")
    usual_length = AnswerSettings().max_seq_length
    item = _QUESTION
    inputs = "question", "context"
    outputs = {
        **{"answer": TEXT, "start": INT, "end": INT, "score": FLOAT},
        **{"answers": TEXTS, "scores": FLOATS},
    }
    per_token = True

    def __init__(self, setup: Setup, run: Runner):
        """See Predictor."""
        super().__init__(setup, run)
        self.settings = config_flags.build(
            AnswerSettings,
            max_seq_length=setup.max_seq_length,
            **setup.settings,
        )
        self.flags = config_flags.flat_values(self.settings)
        self._answerer = answering.Answerer(setup.tokenizer, self.settings)

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor; a threshold is that of the model's files."""
        from tasks.squad import heads

        names = AnswerSettings().besides_length
        options = vars(opened.options)
        given = {x: options[x] for x in config_flags.chosen(opened.options)}
        stored = task_files.read_settings(opened.source.folder)
        stored = stored or task_files.SQUAD_1
        values = {**opened.remembered, **dataclasses.asdict(stored), **given}
        squad_task.check_threshold(
            given.get("null_score_diff_threshold"),
            with_negative=bool(values["version_2_with_negative"]),
        )
        settings = config_flags.build(
            AnswerSettings,
            max_seq_length=opened.max_seq_length,
            **{x: values[x] for x in names if values.get(x) is not None},
        )
        return {"settings": settings.besides_length}, heads.SpanHead()

    def predict(self, items: list) -> list[Answer]:
        """See Predictor."""
        results = []
        for entry, answers in self._answerer.answers(items, self.run):
            # Without a span, the text may be "empty".
            best = [
                (x.text if x.span else "", x.probability)
                for x in answers.entries
            ]
            span = entry.span or (-1, -1)
            results.append(Answer(entry.text, entry.probability, *span, best))
        return results

    def row(self, result: Answer) -> dict[str, Any]:
        """See Predictor."""
        return result._asdict() | {
            "answers": [text for text, _ in result.answers],
            "scores": [probability for _, probability in result.answers],
        }


class _TokenClassification(Predictor):
    """Entities of texts.

    Settings: document_context, see tasks.ner.windowing.
    """

    tasks = ("token_classification",)
    options = "label_names", "document_context", "new_head"
    item = A_TEXT
    outputs = {
        **{"entity": TEXTS, "entity_type": TEXTS},
        **{"start": PLACES, "end": PLACES, "score": FLOATS},
    }
    per_token = True

    def __init__(self, setup: Setup, run: Runner):
        """See Predictor."""
        import foundation.tensorflow_setup  # noqa: F401
        from tasks.ner import tagger, windowing

        super().__init__(setup, run)
        self.flags |= setup.settings
        self._tagger = tagger.Tagger(
            windows=windowing.Windows(setup.max_seq_length, **setup.settings),
            tokenizer=setup.tokenizer,
            labels=setup.labels or [],
            predict=run,
            scores=setup.scores,
        )

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor."""
        from tasks.ner import heads, tagging

        opened.classes.check()
        labels = list(opened.classes.labels or ())
        if not labels:
            raise errors.InputError(
                f"{opened.path}: its config has no labels; --label_names (in "
                "Python: labels=) names them"
            )
        context = {"document_context": opened.options.document_context}
        has_crf = tagging.has_crf(opened.source.folder)
        head = heads.head_of(labels, has_crf=has_crf)
        return {"labels": labels, "settings": context}, head

    def predict(self, items: list) -> list[list[Entity]]:
        """See Predictor."""
        names = "text", "type", "probability", "start", "end"
        return [
            [Entity(*(x[k] for k in names)) for x in row]
            for row in self._tagger(items)
        ]

    def row(self, result: list[Entity]) -> dict[str, Any]:
        """See Predictor."""
        parts = {"entity": "text", "entity_type": "type"}
        return {
            name: [getattr(x, parts.get(name, name)) for x in result]
            for name in self.outputs
        }


class _FillMask(Predictor):
    """The best words for each [MASK] of texts.

    Settings: top_k. `run` maps a batch of features, masked_lm_positions [B, P]
    among them, to the logits of words [B, P, V].
    """

    tasks = ("fill_mask",)
    options = ("top_k",)
    usual_length = None
    item = A_TEXT
    outputs = {
        "words": Spec((None, None), np.dtype(object)),
        "probabilities": Spec((None, None), np.dtype("f4")),
    }

    def __init__(self, setup: Setup, run: Runner):
        """See Predictor."""
        import foundation.tensorflow_setup  # noqa: F401
        from tasks.fill_mask import masked_words

        super().__init__(setup, run)
        self.flags = {}  # All positions, whatever flags say.
        self._filler = masked_words.MaskFiller(
            lambda batch: types.SimpleNamespace(
                masked_lm_logits=next(iter(run(batch).values()))
            ),
            setup.tokenizer,
            left_to_right=setup.left_to_right,
            max_length=setup.max_seq_length,
        )
        self.tokenizer = self._filler.tokenizer

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor."""
        from serving import heads

        if untied := opened.source.untied_decoder:
            raise errors.InputError(f"{opened.path}: {untied}")
        if stored_weights.MASKED_LM[0].path not in opened.source.tensors:
            raise errors.InputError(
                f"{opened.path}: has no masked-LM head, which only pre-trained "
                "models have, e.g. hf://google-bert/bert-base-uncased or the "
                "--output_dir of run_pretraining.py"
            )
        settings = {"top_k": opened.options.top_k}
        return {"settings": settings}, heads.MaskedLmHead()

    def predict(self, items: list) -> list[list[list[Word]]]:
        """See Predictor."""
        filled = self._filler.fill(items, top_k=self.setup.settings["top_k"])
        return [
            [[Word(*candidate) for candidate in mask] for mask in masks]
            for masks in filled
        ]

    def row(self, result: list[list[Word]]) -> dict[str, Any]:
        """See Predictor."""
        return {
            "words": [[x.word for x in mask] for mask in result],
            "probabilities": [[x.probability for x in mask] for mask in result],
        }


class _SentenceEmbedding(Predictor):
    """Vectors of texts, or of pairs of texts.

    Settings: layer, pooling, normalize, and size, that of a vector.
    """

    tasks = ("sentence_embedding",)
    options = "pooling", "layer", "normalize"

    def __init__(self, setup: Setup, run: Runner):
        """See Predictor."""
        super().__init__(setup, run)
        size = setup.settings["size"]
        self.outputs = {"embedding": Spec((size,), np.dtype("f4"))}

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor."""
        from serving import heads

        options, config = opened.options, opened.start.config
        layer = options.layer
        extraction.check_layers([layer], config, "layer")
        modules = sentence_modules.open_modules(
            opened.source.folder,
            pooling=options.pooling,
            normalize=options.normalize,
            max_seq_length=options.max_seq_length,
        )
        settings = {
            "layer": layer,
            "pooling": modules.pooling,
            "normalize": modules.normalize,
            "size": modules.vector_size(config.hidden_size),
        }
        length = modules.max_seq_length or opened.max_seq_length
        length = min(length, config.max_position_embeddings)
        values = {"settings": settings, "max_seq_length": length}
        return values, heads.EmbeddingHead([layer], modules)

    def predict(self, items: list) -> np.ndarray:
        """Returns float32 [N, size]."""
        return self._output(items)

    def row(self, result: np.ndarray) -> dict[str, Any]:
        """See Predictor."""
        return {"embedding": result}


class OwnTask(Predictor):
    """A finetuning.task.Task of the user, "module:Class": token ids alone."""

    tasks = inputs = ()

    @classmethod
    def open(cls, opened: Any) -> tuple[dict[str, Any], Any]:
        """See Predictor; the directory is one that the task has trained."""
        module, _, name = opened.task.partition(":")
        try:
            own = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise errors.InputError(f"--task={opened.task}: {error}") from error
        flags = config_flags.build(
            own.Flags,
            output_dir=opened.path,
            max_seq_length=opened.max_seq_length,
            do_predict=True,
        )
        model, flags = given_model.find(flags, own.added_tokens)
        # No set is read.
        flags = config_flags.replace_unchecked(flags, do_predict=False)
        task = own(flags, model)
        return {"labels": task.labels}, task.head()

    def predict(self, items: list) -> Any:
        """Refuses items: the task itself knows how they are read."""
        raise errors.InputError(
            f"{self.setup.task}: its command predicts; export_model.py exports "
            "it with a signature of token ids"
        )


# Task -> class of its predictor: the one table of the kinds of tasks.
PREDICTORS: Mapping[str, type[Predictor]] = {
    task: predictor
    for predictor in (
        _Sentences,
        _MultipleChoice,
        _QuestionAnswering,
        _TokenClassification,
        _FillMask,
        _SentenceEmbedding,
    )
    for task in predictor.tasks
}


def of_batches(setup: Setup, run: Callable[[Outputs], Outputs]) -> Predictor:
    """Returns a predictor whose model computes one batch of features."""
    kind = PREDICTORS[setup.task]
    if issubclass(kind, _FillMask):
        return kind(setup, run)

    def batches(features: Features) -> Iterator[Outputs]:
        order = np.argsort(features.lengths, kind="stable")
        for first in range(0, len(order), _BATCH_SIZE):
            rows = order[first : first + _BATCH_SIZE]
            length = int(features.lengths[rows].max())
            outputs = run(features.batch(rows, length))
            if not kind.per_token:
                outputs = {name: x[:, None] for name, x in outputs.items()}
            yield {"example_index": rows, **outputs}

    def run_all(features: Features) -> Outputs:
        rows = np.arange(len(features) + 1)  # One value for each row.
        splits = features.row_splits if kind.per_token else rows
        return features_lib.by_token(batches(features), splits)

    return kind(setup, run_all)
