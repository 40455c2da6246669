"""Opens a model directory or a released checkpoint as a task's graph.

What the flags do not give is what the model was trained with: run_config.json
beside the weights holds the flags of its training. Without it, the defaults of
the training commands apply.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
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
from jobs import assembly, finetuning, run_config, run_directory
from modeling import encoder, models
from tasks.classification import objective, sentence_tasks
from tasks.features import feature_extraction
from tasks.ner import ner_data, ner_job
from tasks.ner import tagging as tagging_lib
from tasks.squad import decoding, squad_job, windowing
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
class OpenedGraph:
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


def open_graph(model_dir: str, options: Options) -> OpenedGraph:
    """Loads a model with its weights as the graph of its task.

    Args:
      model_dir: a model directory or a released checkpoint.
      options: the flags.

    Raises:
      InputError: there is no model, or it is of another task.
    """
    source = checkpoint_sources.read(model_dir)
    task = options.task or task_of(model_dir, source)
    opened = OpenedModel(
        model_dir,
        task,
        source,
        max_seq_length=options.max_seq_length,
        precision=options.precision,
    )
    length, tokenizer = opened.max_seq_length, opened.start.tokenizer
    graph, settings = getattr(_Graphs(opened, options), task)()
    logging.info("%s: %s of up to %d tokens", model_dir, task, length)
    return OpenedGraph(
        graph=graph,
        tokenizer=tokenizer,
        max_seq_length=length,
        settings=settings,
        source={
            "model": os.path.basename(os.path.abspath(model_dir)),
            "weights": os.path.basename(source.path),
            "vocabulary_sha256": tokenizer.vocabulary.sha256,
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


class OpenedModel:
    """A checkpoint with all that its task needs.

    Attributes:
      path: of the checkpoint.
      task: as in export.json.
      source: the same, opened.
      trained: the flags of the training, if they are known.
      max_seq_length: the given length, or that of the training, or the default.
      start: the model and its tokenizer.
      config: the flags of a command that predicts with it.
    """

    def __init__(
        self,
        path: str,
        task: str,
        source: checkpoint_sources.Source,
        *,
        max_seq_length: int | None,
        precision: str,
        batch_size: int = 32,
    ):
        """Finds the files of a model; max_seq_length is None if not given."""
        if source.config is None:
            raise errors.InputError(
                f"{path}: no {model_directory.CONFIG} or "
                f"{model_directory.RELEASED_CONFIG} beside the weights"
            )
        self.path, self.task, self.source = path, task, source
        self.trained = run_directory.flags(source.folder)
        if max_seq_length is None:
            max_seq_length = source.config.max_position_embeddings
            if task != "fill_mask":  # fill_mask.py uses all positions.
                usual = _MAX_SEQ_LENGTH.get(task, _USUAL_LENGTH)
                trained = self.trained.get("max_seq_length", usual)
                max_seq_length = min(trained, max_seq_length)
        self.max_seq_length = max_seq_length
        self.start = pretrained.open_start(
            output_dir=None, init_checkpoint=path, max_seq_length=max_seq_length
        )
        self.config = run_config.FinetuningConfig(
            output_dir=source.directory,
            init_checkpoint=path,
            max_seq_length=max_seq_length,
            predict_batch_size=batch_size,
            precision=precision,
            strategy="one_device",
        )

    def build(
        self, task: Any, make_model: Any, **parts: Any
    ) -> finetuning.TaskModel:
        """Builds a model without its weights, as the commands do.

        Args:
          task: an inference.Task.
          make_model: see finetuning.Job.
          **parts: further attributes of finetuning.Job.
        """
        job = finetuning.Job(
            config=self.config,
            start=self.start,
            strategy=assembly.make_strategy(self.config, None),
            task=task,
            make_model=make_model,
            features=None,
            evaluate=None,
            data_settings={},
            evaluation_settings=dict,
            **parts,
        )
        return job.build(seed=0)

    def load(
        self, task: Any, make_model: Any, **parts: Any
    ) -> finetuning.TaskModel:
        """Builds a model that was trained for the task, with its weights.

        See `build`.
        """
        task_model = self.build(task, make_model, **parts)
        task_model.assign(self.start.init_checkpoint)
        return task_model

    def sentence_model(
        self, task: str | None, label_names: list[str] | None
    ) -> tuple[finetuning.TaskModel, str, Sequence[str]]:
        """Returns a sentence model, its kind, and a label per output.

        Args:
          task: one of SENTENCE_TASKS, or None for that of the model.
          label_names: of a model that does not name its classes, or None.

        Raises:
          InputError: the model is none, or is of another kind.
        """
        known = task_files.Known(
            labels=self.start.labels, problem_type=self.start.problem_type
        ).with_names(label_names)
        kind = task_files.kind(SENTENCE_TASKS.get(task or ""), known)
        if _SCORES not in self.source.tensors:
            raise errors.InputError(
                f"{self.path}: has not been trained for this task "
                f"({_SCORES} is missing)"
            )
        count = self.source.tensors[_SCORES].shape[0]
        labels = known.labels or examples.unnamed(count)
        if len(labels) != count:
            raise errors.InputError(
                f"{self.path}: the model has {count} outputs, but "
                f"{len(labels)} labels"
            )
        return self.load_kind(kind, count), kind, labels

    def load_kind(self, kind: str, num_classes: int) -> finetuning.TaskModel:
        """Returns the model of a kind of data.examples."""
        make_model = functools.partial(
            objective.make_model,
            self.start.config,
            kind=kind,
            num_classes=num_classes,
        )
        return self.load(objective.ClassificationTask(kind), make_model)

    def tagger(
        self, label_names: list[str] | None
    ) -> tuple[finetuning.TaskModel, ner_data.NerData]:
        """Returns a tagger, with its CRF if it has one, and its labels."""
        known = task_files.Known(labels=self.start.labels, problem_type=None)
        labels = known.with_names(label_names).labels
        if labels is None:
            raise errors.InputError(
                f"{self.path}: its config has no labels; --label_names (in "
                "Python: labels=) names them"
            )
        folder = self.source.folder
        data = ner_data.NerData(
            files=None,
            read=None,
            labels=labels,
            scheme=None,
            true_case=ner_data.load_true_case(folder),
        )
        has_crf = tagging_lib.has_crf(folder)
        parts = ner_job.model_parts(self.start, data, has_crf=has_crf)
        return self.load(tagging_lib.TaggingTask(), **parts), data

    def answerer(
        self, given: Mapping[str, Any]
    ) -> tuple[finetuning.TaskModel, squad_job.SquadData, dict[str, Any]]:
        """Returns a model of SQuAD, how it answers, and that by flag.

        Args:
          given: flags of run_squad.py -> value, or None if it is not given.
        """
        stored = task_files.read_settings(self.source.folder)
        defaults = {
            k: self.trained.get(k, x) for k, x in SQUAD_DEFAULTS.items()
        }
        settings = dataclasses.asdict(stored or task_files.SquadSettings())
        settings |= defaults
        settings |= {k: x for k, x in given.items() if x is not None}
        if settings["null_score_diff_threshold"] is None:
            settings["null_score_diff_threshold"] = 0.0
        if self.max_seq_length <= settings["max_query_length"] + 3:
            raise errors.InputError(
                f"max_seq_length={self.max_seq_length}: must be greater than "
                f"max_query_length={settings['max_query_length']} + 3"
            )
        rules = dict(settings)
        data = squad_job.SquadData(
            train=None,
            predict=None,
            threshold=rules.pop("null_score_diff_threshold"),
            sizes=windowing.WindowSizes(
                max_seq_length=self.max_seq_length,
                doc_stride=rules.pop("doc_stride"),
                max_query_length=rules.pop("max_query_length"),
            ),
            rules=decoding.AnswerRules(**rules),
            list_all=False,
        )
        make_model = functools.partial(
            models.QuestionAnsweringModel, self.start.config
        )
        return self.load(squad_job.SpanTask(), make_model), data, settings

    def embedder(
        self, *, layer: int, pooling: str, normalize: bool
    ) -> finetuning.TaskModel:
        """Returns the encoder, whose predictions are vectors of texts."""
        start = self.start
        task = feature_extraction.ExtractionTask(
            feature_extraction.parse_layers(str(layer), start.config),
            pooling=pooling,
            normalize=normalize,
        )

        def make_model(*, attention: str, dtype: Any, **_: Any) -> Any:
            return encoder.make_encoder(
                start.config, attention=attention, dtype=dtype
            )

        task_model = self.build(task, make_model)
        pretrained.assign(
            task_model.model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        return task_model


class _Graphs:
    """Builds the graph of each task; the methods have the tasks' names."""

    def __init__(self, opened: OpenedModel, options: Options):
        self._opened = opened
        self._options = options
        self._common = {"max_seq_length": opened.max_seq_length}
        self._tokenizer = opened.start.tokenizer

    def classification(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the kind of task that the model is for."""
        task_model, kind, labels = self._opened.sentence_model(
            self._options.task, self._options.label_names
        )
        has_pairs = self._options.text_pair
        if has_pairs is None:
            has_pairs = sentence_tasks.has_pairs(self._opened.trained)
        graph = sentences.SentenceGraph(
            kind,
            task_model.model,
            self._tokenizer,
            labels=labels,
            has_pairs=has_pairs,
            **self._common,
        )
        return graph, {}

    regression = multilabel = classification

    def multiple_choice(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of multiple choice."""
        model = self._opened.load_kind(examples.MULTIPLE_CHOICE, 1).model
        graph = sentences.MultipleChoiceGraph(
            model, self._tokenizer, **self._common
        )
        return graph, {}

    def token_classification(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of a tagger."""
        task_model, data = self._opened.tagger(self._options.label_names)
        graph = tagging.TaggingGraph(
            task_model.model,
            self._tokenizer,
            labels=data.labels,
            document_context=self._options.document_context == "maximal",
            true_case=data.true_case,
            **self._common,
        )
        return graph, {"document_context": self._options.document_context}

    def question_answering(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of a model of SQuAD 1.1 or 2.0."""
        task_model, data, settings = self._opened.answerer(self._options.squad)
        graph = question_answering.AnswerGraph(
            task_model.model,
            self._tokenizer,
            sizes=data.sizes,
            rules=data.rules,
            threshold=data.threshold,
        )
        return graph, settings

    def fill_mask(self) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the masked-LM head."""
        dtype = assembly.dtype_policy(self._opened.config)
        model, _ = pretrained.load_masked_lm(self._opened.path, dtype)
        top_k = self._options.top_k
        graph = masked_words.FillMaskGraph(
            model, self._tokenizer, top_k=top_k, **self._common
        )
        return graph, {"top_k": top_k}

    def sentence_embedding(
        self,
    ) -> tuple[saved_model.TextGraph, dict[str, Any]]:
        """Returns the graph of the encoder's vectors."""
        names = ("layer", "pooling", "normalize")
        settings = {name: getattr(self._options, name) for name in names}
        task_model = self._opened.embedder(**settings)
        graph = sentences.EmbeddingGraph(
            task_model.job.task,
            task_model.model,
            self._tokenizer,
            **self._common,
        )
        return graph, settings
