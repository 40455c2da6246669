"""Texts to results, once for every task: in Python, over HTTP, by any engine.

    items -> features -> `run`, a model -> outputs -> results

An item is a text or a pair, as `bert.load(...).predict` takes it. `run` is a
Keras model in this process, a SavedModel or an ONNX model: it maps features to
batches of outputs, each with `example_index`, the rows of the batch.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from data import examples
from data import features as features_lib
from data.features import Features
from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from finetuning import task as tasks
from foundation import config_flags, errors
from modeling.config import BertConfig
from serving.served_model import FLOAT, FLOATS, INT, INTS, TEXT, TEXTS, Spec
from tasks.classification import label_kinds
from tasks.squad import answering, decoding
from tasks.squad.settings import AnswerSettings
from weights import kinds

Outputs = dict[str, np.ndarray]
Run = Callable[[Features], Iterable[Outputs]]
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
            raise errors.InputError(f"a list is needed, not {shown(inputs)}")
        inputs = list(inputs)
        for x in inputs:
            if not self.fits(x):
                raise errors.InputError(f"{shown(x)} is not {self.name}")
        return inputs


def shown(value: Any) -> str:
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


A_TEXT = Item("a text", _is_text)
_TEXT_OR_PAIR = Item(
    "a text or a pair of texts", lambda x: _is_text(x) or _is_pair(x)
)
_QUESTION = Item("a pair (question, paragraph)", _is_pair)
_CHOICE = Item("a pair (beginning, [ending, ...])", _is_choice)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What a predictor knows of a model, besides how it is computed.

    Attributes:
      name: what messages call the model.
      task: an export_name of weights.kinds.
      config: the hyperparameters.
      tokenizer: tokenizer of the model.
      max_seq_length: the most tokens of a text, or of a window.
      labels: names of the classes, or None.
      settings: how the task is computed, JSON values; see the predictors.
      are_pairs: whether texts are pairs, of a sentence task; None for either.
      left_to_right: whether tokens see only those before them.
      scores: the scores of tag sequences of a CRF, or None.
    """

    name: str
    task: str
    config: BertConfig
    tokenizer: wordpiece.Tokenizer
    max_seq_length: int
    labels: list[str] | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    are_pairs: bool | None = None
    left_to_right: bool = False
    scores: Any = None

    @property
    def windows(self) -> features_lib.Windows | None:
        """How long texts of a sentence task are divided; None if cut."""
        sizes = self.settings.get("windows")
        return features_lib.Windows(*sizes) if sizes else None


class Predictor:
    """The items and the results of a task.

    Attributes:
      item: what `predict` takes a list of.
      encoded_item: what `features` takes a list of.
      inputs: the names of an item's parts over HTTP.
      outputs: the names of a result's parts over HTTP, and their form.
      flags: flags of commands with which they read texts as this model.
    """

    item = encoded_item = _TEXT_OR_PAIR
    inputs: Sequence[str] = ("text",)
    outputs: Mapping[str, Spec]
    # What the tokenizer splits, and other tokenizers do not.
    _bracketed: Sequence[str] = (
        vocabulary.CLS,
        vocabulary.SEP,
        vocabulary.MASK,
    )

    def __init__(self, setup: Setup, run: Run):
        """Takes what is known of a model, and what computes it."""
        self.setup, self.run = setup, run
        self.tokenizer = setup.tokenizer
        self.flags: dict[str, Any] = {"max_seq_length": setup.max_seq_length}

    def predict(self, items: list) -> Any:
        """Returns one result for each of N > 0 items."""
        raise NotImplementedError

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
        setup, windows, is_cut = self.setup, self.setup.windows, False
        length, rows = setup.max_seq_length, []
        pairs = zip(self._tokens(first), self._tokens(second), strict=True)
        for a, b in pairs:
            if windows is None:
                found = [tasks.sequence(self.tokenizer, a, b, length)]
                size = len(a) + len(b) + 2 + bool(b)
                is_cut |= len(found[0].ids) < size
            else:
                found = tasks.windows(
                    self.tokenizer,
                    *(a, b, length),
                    stride=windows.stride,
                    most=windows.most + 1,
                )
                is_cut |= len(found) > windows.most
                found = found[: windows.most]
            rows.append(found)
        features = features_lib.from_sequences(
            rows,
            num_choices=num_choices,
            are_windows=windows is not None,
        )
        if is_cut:
            limit = f"max_seq_length={setup.max_seq_length} tokens"
            if setup.windows is not None:
                limit = f"{setup.windows.most} windows of {limit}"
            errors.warn_once(
                f"{setup.name}: a text, perhaps several, has more than {limit} "
                "and is cut"
            )
        for token in self._bracketed:
            if any(token in text for text in itertools.chain(first, second)):
                errors.warn_once(
                    f"{setup.name}: a text, perhaps several, contains {token}, "
                    "which is read as a word in brackets; a pair is given as "
                    "(text, text)"
                )
        return features

    def _tokens(self, texts: list[str]) -> Iterator[list[int]]:
        """Yields the ids of the tokens of each text."""
        encoded = self.tokenizer.encode(texts)
        for a, b in itertools.pairwise(encoded.row_splits):
            yield encoded.ids[a:b].tolist()

    def _outputs(self, items: list) -> np.ndarray:
        """Returns the only output of the model, [N, ...]."""
        rows, parts = [], []
        for batch in self.run(self.features(items)):
            (values,) = (x for k, x in batch.items() if k != "example_index")
            rows.append(batch["example_index"])
            parts.append(values)
        return np.concatenate(parts)[np.argsort(np.concatenate(rows))]


class _Sentences(Predictor):
    """Classification, regression and classification with several labels.

    Settings: windows, [stride, most], if long texts are divided.
    """

    def __init__(self, setup: Setup, run: Run):
        """See Predictor."""
        super().__init__(setup, run)
        self._kind = kinds.BY_EXPORT_NAME[setup.task].name
        if setup.are_pairs:
            self.inputs = "text", "text_pair"
        lists = {"labels": TEXTS, "probabilities": FLOATS}
        self.outputs = {
            examples.REGRESSION: {"score": FLOAT},
            examples.MULTI_LABEL: lists,
            examples.CLASSIFICATION: {"label": TEXT, "score": FLOAT} | lists,
        }[self._kind]

    def features(self, items: list) -> Features:
        """See Predictor.

        Raises:
          InputError: the model was trained on pairs, and one is none; or the
            other way round.
        """
        for x in items:
            if isinstance(x, str) == self.setup.are_pairs:
                given, needed = "a pair of texts", "single texts"
                if self.setup.are_pairs:
                    given, needed = "a single text", "pairs of texts"
                raise errors.InputError(
                    f"{shown(x)} is {given}, but {self.setup.name} was "
                    f"trained on {needed}"
                )
        return super().features(items)

    def predict(self, items: list) -> list:
        """Returns Classifications, Labels, or floats of a regression."""
        logits, labels = self._outputs(items), self.setup.labels or []
        kind = label_kinds.KINDS[self._kind](labels)
        rows = kind.probabilities(logits).tolist()
        if self._kind == examples.REGRESSION:
            return [row[0] for row in rows]
        decisions = kind.decide(logits)
        named = [dict(zip(labels, row, strict=True)) for row in rows]
        if self._kind == examples.MULTI_LABEL:
            return [
                Labels([labels[i] for i in np.flatnonzero(chosen)], row)
                for chosen, row in zip(decisions, named, strict=True)
            ]
        best = [labels[i] for (i,) in decisions]
        return [
            Classification(label, row[label], row)
            for label, row in zip(best, named, strict=True)
        ]

    def row(self, result: Any) -> dict[str, Any]:
        """See Predictor."""
        if self._kind == examples.REGRESSION:
            return {"score": result}
        return {name: getattr(result, name, None) for name in self.outputs} | {
            "labels": list(result.probabilities),
            "probabilities": list(result.probabilities.values()),
        }


class _MultipleChoice(Predictor):
    """Choices of one of K endings; K is the same for all items."""

    item = encoded_item = _CHOICE
    inputs = "context", "endings"
    outputs = {"choice": INT, "probabilities": FLOATS}

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
        logits, kind = self._outputs(items), label_kinds.Choice(())
        rows = kind.probabilities(logits).tolist()
        return list(map(Choice, kind.decide(logits)[:, 0].tolist(), rows))


class _QuestionAnswering(Predictor):
    """Answers to questions about paragraphs.

    Settings: the flags of AnswerSettings, without max_seq_length.
    """

    item = _QUESTION
    inputs = "question", "context"
    outputs = {
        **{"answer": TEXT, "start": INT, "end": INT, "score": FLOAT},
        **{"answers": TEXTS, "scores": FLOATS},
    }

    def __init__(self, setup: Setup, run: Run):
        """See Predictor."""
        super().__init__(setup, run)
        settings = answer_settings(setup)
        self.flags = config_flags.flat_values(settings)
        tokenizer = plain_wordpiece.PlainTokenizer(
            setup.tokenizer.vocabulary, **setup.tokenizer.settings
        )
        self._answerer = answering.Answerer(tokenizer, settings)

    def predict(self, items: list) -> list[Answer]:
        """See Predictor."""
        results = []
        for entry, answers in self._answerer.answers(items, self._logits):
            start, end = entry.span or (-1, -1)
            texts = [
                # "empty" of a question without any span.
                ("" if x.text == decoding.NOTHING and not x.span else x.text)
                for x in answers.entries
            ]
            probabilities = [x.probability for x in answers.entries]
            best = list(zip(texts, probabilities, strict=True))
            results.append(
                Answer(entry.text, entry.probability, start, end, best)
            )
        return results

    def _logits(self, features: Features) -> Outputs:
        """Returns both logits of the tokens of all windows, float32 [T]."""
        batches = self.run(features)
        return features_lib.by_token(batches, features.row_splits)

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

    item = A_TEXT
    outputs = {
        **{"entity": TEXTS, "entity_type": TEXTS},
        **{"start": INTS, "end": INTS, "score": FLOATS},
    }

    def __init__(self, setup: Setup, run: Run):
        """See Predictor."""
        # These import Keras.
        from tasks.ner import tagger, windowing

        super().__init__(setup, run)
        labels = setup.labels or []
        context = setup.settings["document_context"]
        windows = windowing.Windows(setup.max_seq_length, context)
        self.flags["document_context"] = context
        self._tagger = tagger.Tagger(
            windows=windows,
            tokenizer=setup.tokenizer,
            labels=labels,
            predictions=run,
            scores=setup.scores,
        )

    def predict(self, items: list) -> list[list[Entity]]:
        """See Predictor."""
        rows = self._tagger(items)
        names = "text", "type", "probability", "start", "end"
        return [[Entity(*(x[k] for k in names)) for x in row] for row in rows]

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

    item = A_TEXT
    outputs = {
        "words": Spec((None, None), np.dtype(object)),
        "probabilities": Spec((None, None), np.dtype("f4")),
    }
    _bracketed = (vocabulary.CLS, vocabulary.SEP)

    def __init__(self, setup: Setup, run: Any):
        """See Predictor."""
        # Imports Keras.
        from tasks.fill_mask import masked_words

        super().__init__(setup, run)
        self.flags = {}  # All positions, whatever flags say.
        self._filler = masked_words.MaskFiller(
            _MaskedLm(run),
            setup.tokenizer,
            left_to_right=setup.left_to_right,
            max_length=setup.max_seq_length,
        )
        self.tokenizer = self._filler.tokenizer

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


class _Logits(NamedTuple):
    """What MaskFiller reads of a model's outputs."""

    masked_lm_logits: Any


class _MaskedLm(NamedTuple):
    """What MaskFiller calls, with features: a model."""

    run: Callable[[Outputs], Any]

    def __call__(self, features: Outputs) -> _Logits:
        """Computes the logits of masked words."""
        return _Logits(self.run(features))


class _SentenceEmbedding(Predictor):
    """Vectors of texts, or of pairs of texts.

    Settings: layer, pooling, normalize, and size, that of a vector.
    """

    def __init__(self, setup: Setup, run: Run):
        """See Predictor."""
        super().__init__(setup, run)
        size = setup.settings["size"]
        self.outputs = {"embedding": Spec((size,), np.dtype("f4"))}

    def predict(self, items: list) -> np.ndarray:
        """Returns float32 [N, size]."""
        return self._outputs(items)

    def row(self, result: np.ndarray) -> dict[str, Any]:
        """See Predictor."""
        return {"embedding": result}


def answer_settings(setup: Setup) -> AnswerSettings:
    """Returns how a model of SQuAD answers."""
    return config_flags.build(
        AnswerSettings, max_seq_length=setup.max_seq_length, **setup.settings
    )


# Task -> class of its predictor.
PREDICTORS: Mapping[str, type[Predictor]] = {
    "classification": _Sentences,
    "regression": _Sentences,
    "multilabel": _Sentences,
    "multiple_choice": _MultipleChoice,
    "question_answering": _QuestionAnswering,
    "token_classification": _TokenClassification,
    "fill_mask": _FillMask,
    "sentence_embedding": _SentenceEmbedding,
}


def make(setup: Setup, run: Any) -> Predictor:
    """Returns the predictor of a model's task."""
    return PREDICTORS[setup.task](setup, run)


def in_batches(run: Callable[[Outputs], Outputs]) -> Run:
    """Returns a function of features from one of batches of them."""
    return functools.partial(_batches, run)


def _batches(
    run: Callable[[Outputs], Outputs], features: Features
) -> Iterator[Outputs]:
    order = np.argsort(features.lengths, kind="stable")
    for first in range(0, len(order), _BATCH_SIZE):
        rows = order[first : first + _BATCH_SIZE]
        length = int(features.lengths[rows].max())
        outputs = run(features.batch(rows, length))
        yield {"example_index": rows, **outputs}
