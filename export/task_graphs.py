"""Opens a model directory or a released checkpoint as a task's graph.

What the flags do not give is what the model was trained with: run_config.json
beside the weights holds the flags of its training. Without it, the defaults of
the training commands apply.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import logging

from data import examples
from data.tokenization import wordpiece
from export import (
    masked_words,
    question_answering,
    saved_model,
    sentences,
    tagging,
)
from foundation import errors
from jobs import run_directory
from modeling import crf, encoder, models
from tasks.classification import sentence_tasks
from tasks.features import feature_extraction
from tasks.ner import conll, ner_data
from tasks.ner import tagging as tagging_lib
from tasks.squad import decoding, windowing
from training import precision
from weights import (
    checkpoint_sources,
    model_directory,
    pretrained,
    task_files,
)

_BY_ARCHITECTURE = {
    "BertForSequenceClassification": "classification",
    "BertForMultipleChoice": "multiple_choice",
    "BertForQuestionAnswering": "question_answering",
    "BertForTokenClassification": "token_classification",
    "BertForMaskedLM": "fill_mask",
    "BertForPreTraining": "fill_mask",
    "BertLMHeadModel": "fill_mask",
}
SENTENCE_TASKS = {task: kind for kind, task in sentences.TASKS.items()}
_MASKED_LM = "cls/predictions/transform/dense/kernel"
_SPANS, _SCORES = "cls/squad/output_weights", "output_weights"
# The flags of run_squad.py and their defaults.
SQUAD_DEFAULTS = {
    "doc_stride": 128,
    "max_query_length": 64,
    "n_best_size": 20,
    "max_answer_length": 30,
    "exact_answers": False,
}
_MAX_SEQ_LENGTH = {"question_answering": 384}  # As in run_squad.py.
_USUAL_LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of an export; None if they are not given.

    Attributes:
      task: as in export.json.
      max_seq_length: in tokens.
      precision: "float32" or "bfloat16".
      text_pair: whether a sentence task has pairs of texts.
      label_names: the classes in the order of the model's outputs.
      squad: flags of run_squad.py -> value, or None if it is not given.
      document_context: "none" or "maximal"; see run_ner.py.
      top_k: words for each mask.
      pooling: how token vectors become the vector of a text.
      layer: the layer of the vectors; -1 is the last.
      normalize: whether vectors have length 1.
    """

    task: str | None
    max_seq_length: int | None
    precision: str
    text_pair: bool | None
    label_names: list[str] | None
    squad: Mapping[str, Any]
    document_context: str
    top_k: int
    pooling: str
    layer: int
    normalize: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A task's graph, and what is written about it.

    Attributes:
      graph: the task.
      tokenizer: of the model.
      max_seq_length: in tokens.
      settings: of the task.
      source: describes the model.
    """

    graph: saved_model.TextGraph
    tokenizer: wordpiece.Tokenizer
    max_seq_length: int
    settings: Mapping[str, Any]
    source: Mapping[str, Any]


def open_graph(model_dir: str, options: Options) -> Opened:
    """Loads a model with its weights as the graph of its task.

    Args:
      model_dir: a model directory or a released checkpoint.
      options: the flags.

    Raises:
      InputError: there is no model, or it is of another task.
    """
    source = checkpoint_sources.read(model_dir)
    trained = run_directory.flags(source.folder)
    task = options.task or task_of(model_dir, source)
    if source.config is None:
        raise errors.InputError(
            f"--model_dir={model_dir}: no {model_directory.CONFIG} or "
            f"{model_directory.RELEASED_CONFIG} beside the weights"
        )
    length = max_seq_length(task, options.max_seq_length, trained, source)
    start = pretrained.open_start(
        output_dir=None, init_checkpoint=model_dir, max_seq_length=length
    )
    loader = _Loader(model_dir, source, start, options, trained, length)
    graph, settings = getattr(loader, task)()
    logging.info("%s: %s of up to %d tokens", model_dir, task, length)
    return Opened(
        graph=graph,
        tokenizer=start.tokenizer,
        max_seq_length=length,
        settings=settings,
        source={
            "model": os.path.basename(os.path.abspath(model_dir)),
            "weights": os.path.basename(source.path),
            "vocabulary_sha256": start.tokenizer.vocabulary.sha256,
        },
    )


def task_of(model_dir: str, source: checkpoint_sources.Source) -> str:
    """Returns the task of a model's head.

    It is "classification" for every kind of sentence task.
    """
    architecture = source.settings.architecture
    if architecture in _BY_ARCHITECTURE:
        return _BY_ARCHITECTURE[architecture]
    if _SPANS in source.tensors:
        return "question_answering"
    if _SCORES in source.tensors:
        raise errors.InputError(
            f"--model_dir={model_dir}: has a head of an unknown task; --task "
            "names it"
        )
    is_language_model = _MASKED_LM in source.tensors
    return "fill_mask" if is_language_model else "sentence_embedding"


def max_seq_length(
    task: str,
    given: int | None,
    trained: Mapping[str, Any],
    source: checkpoint_sources.Source,
) -> int:
    """Returns the given length, or that of the training, or the default.

    Args:
      task: as in export.json.
      given: None if it is not given.
      trained: the flags of the training, if they are known.
      source: the model.
    """
    if given is not None:
        return given
    positions = source.config.max_position_embeddings
    if task == "fill_mask":  # fill_mask.py uses all positions.
        return positions
    usual = _MAX_SEQ_LENGTH.get(task, _USUAL_LENGTH)
    return min(trained.get("max_seq_length", usual), positions)


def sentence_task(
    source: checkpoint_sources.Source,
    start: pretrained.Start,
    *,
    task: str | None,
    label_names: list[str] | None,
) -> tuple[str, Sequence[str]]:
    """Returns the kind of a sentence model's task, and a label per output.

    Args:
      source: the model.
      start: the same, opened.
      task: one of SENTENCE_TASKS, or None for that of the model.
      label_names: of a model that does not name its classes, or None.

    Raises:
      InputError: the model is none, or is of another kind.
    """
    known = task_files.Known(
        labels=start.labels, problem_type=start.problem_type
    ).with_names(label_names)
    kind = task_files.kind(SENTENCE_TASKS.get(task or ""), known)
    if _SCORES not in source.tensors:
        raise _wrong_task(source.path, _SCORES)
    count = source.tensors[_SCORES].shape[0]
    labels = known.labels or examples.unnamed(count)
    if len(labels) != count:
        raise errors.InputError(
            f"{source.path}: the model has {count} outputs, but "
            f"{len(labels)} labels"
        )
    return kind, labels


def _wrong_task(model_dir: str, missing: str) -> errors.InputError:
    return errors.InputError(
        f"{model_dir}: has not been trained for this task "
        f"({missing} is missing)"
    )


class _Loader:
    """Builds the graph of each task; the methods have the tasks' names."""

    def __init__(
        self,
        model_dir: str,
        source: checkpoint_sources.Source,
        start: pretrained.Start,
        options: Options,
        trained: Mapping[str, Any],
        max_seq_length: int,
    ):
        self._model_dir = model_dir
        self._source = source
        self._start = start
        self._options = options
        self._trained = trained
        self._length = max_seq_length
        self._dtype = precision.policy(options.precision)

    def classification(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the kind of task that the model is for."""
        kind, labels = sentence_task(
            self._source,
            self._start,
            task=self._options.task,
            label_names=self._options.label_names,
        )
        has_pairs = self._options.text_pair
        if has_pairs is None:
            has_pairs = sentence_tasks.has_pairs(self._trained)
        graph = sentences.SentenceGraph(
            kind,
            self._load(models.ClassificationModel, num_classes=len(labels)),
            self._start.tokenizer,
            labels=labels,
            has_pairs=has_pairs,
            max_seq_length=self._length,
        )
        return graph, {}

    regression = multilabel = classification

    def multiple_choice(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of multiple choice."""
        graph = sentences.MultipleChoiceGraph(
            self._load(models.MultipleChoiceModel),
            self._start.tokenizer,
            max_seq_length=self._length,
        )
        return graph, {}

    def token_classification(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of a tagger, with its CRF if it has one."""
        folder = self._source.folder
        labels = (
            task_files.Known(labels=self._start.labels, problem_type=None)
            .with_names(self._options.label_names)
            .labels
        )
        if labels is None:
            raise errors.InputError(
                f"--model_dir={self._model_dir}: its config has no labels; "
                "--label_names names them"
            )
        count = {"num_classes": len(labels)}
        if tagging_lib.has_crf(folder):
            scheme = conll.scheme_of(labels)
            model = self._load(
                crf.CrfTaggingModel,
                lambda model: tagging_lib.load_crf(model, labels, folder),
                forbidden=tagging_lib.forbidden(labels, scheme),
                **count,
            )
        else:
            model = self._load(models.TaggingModel, **count)
        context = self._options.document_context == "maximal"
        graph = tagging.TaggingGraph(
            model,
            self._start.tokenizer,
            labels=labels,
            document_context=context,
            true_case=ner_data.load_true_case(folder),
            max_seq_length=self._length,
        )
        return graph, {"document_context": self._options.document_context}

    def question_answering(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of a model of SQuAD 1.1 or 2.0."""
        folder = self._source.folder
        stored = task_files.read_settings(folder) or task_files.SquadSettings()
        settings = {
            **dataclasses.asdict(stored),
            **{
                name: self._trained.get(name, default)
                for name, default in SQUAD_DEFAULTS.items()
            },
            **{k: v for k, v in self._options.squad.items() if v is not None},
        }
        if settings["null_score_diff_threshold"] is None:
            settings["null_score_diff_threshold"] = 0.0
        names = ("doc_stride", "max_query_length")
        sizes = {name: settings[name] for name in names}
        names = ("n_best_size", "max_answer_length", "exact_answers")
        rules = {name: settings[name] for name in names}
        if self._length <= settings["max_query_length"] + 3:
            raise errors.InputError(
                f"--max_seq_length={self._length}: must be greater than "
                f"--max_query_length={settings['max_query_length']} + 3"
            )
        graph = question_answering.AnswerGraph(
            self._load(models.QuestionAnsweringModel),
            self._start.tokenizer,
            sizes=windowing.WindowSizes(max_seq_length=self._length, **sizes),
            rules=decoding.AnswerRules(
                version_2_with_negative=settings["version_2_with_negative"],
                **rules,
            ),
            threshold=settings["null_score_diff_threshold"],
        )
        return graph, settings

    def fill_mask(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the masked-LM head."""
        model, _ = pretrained.load_masked_lm(self._model_dir, self._dtype)
        graph = masked_words.FillMaskGraph(
            model,
            self._start.tokenizer,
            top_k=self._options.top_k,
            max_seq_length=self._length,
        )
        return graph, {"top_k": self._options.top_k}

    def sentence_embedding(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the encoder's vectors."""
        options, start = self._options, self._start
        model = encoder.make_encoder(
            start.config, attention=start.attention, dtype=self._dtype
        )
        pretrained.assign(
            model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        settings = {
            "layer": options.layer,
            "pooling": options.pooling,
            "normalize": options.normalize,
        }
        graph = sentences.EmbeddingGraph(
            feature_extraction.ExtractionTask(
                feature_extraction.parse_layers(
                    str(options.layer), start.config
                ),
                pooling=options.pooling,
                normalize=options.normalize,
            ),
            model,
            start.tokenizer,
            max_seq_length=self._length,
        )
        return graph, settings

    def _load(
        self,
        make_model: Any,
        load_extra_weights: Callable[[Any], Collection[str]] | None = None,
        **arguments: Any,
    ) -> Any:
        """Makes a model of a task and assigns its weights.

        Args:
          make_model: one of modeling.models, or the model with a CRF.
          load_extra_weights: assigns weights from other files, and returns
            the paths of these variables.
          **arguments: of make_model.

        Raises:
          InputError: the weights were not trained for the task.
        """
        start = self._start
        model = make_model(
            start.config,
            attention=start.attention,
            bilstm_size=start.bilstm_size,
            dtype=self._dtype,
            **arguments,
        )
        model_directory.check_task(model, start.init_checkpoint)
        report = pretrained.assign(
            model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        extra = load_extra_weights(model) if load_extra_weights else ()
        missing = [path for path in report.initialized if path not in extra]
        if missing:
            raise _wrong_task(self._model_dir, missing[0])
        return model
