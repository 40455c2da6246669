"""Opens a model directory or a released checkpoint, to predict with it.

Options that are not given have the values of the model's training, which
run_config.json beside the weights holds. Without it, the defaults of the
training commands apply.
"""

import dataclasses
import functools
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data import examples
from foundation import errors
from jobs import assembly, finetuning, run_config, run_directory
from modeling import encoder, models
from tasks.classification import objective
from tasks.features import feature_extraction
from tasks.ner import ner_data, ner_job, tagging
from tasks.squad import decoding, squad_job, windowing
from weights import (
    checkpoint_sources,
    model_directory,
    pretrained,
    sentence_modules,
    task_files,
    tokenizer_files,
)

# Kinds of data.examples -> tasks of sentences.
SENTENCE_TASKS = {
    examples.CLASSIFICATION: "classification",
    examples.REGRESSION: "regression",
    examples.MULTI_LABEL: "multilabel",
}
TASKS = (
    *SENTENCE_TASKS.values(),
    "multiple_choice",
    "question_answering",
    "token_classification",
    "fill_mask",
    "sentence_embedding",
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
_MASKED_LM = "cls/predictions/transform/dense/kernel"
_SPANS, _SCORES = "cls/squad/output_weights", "output_weights"
# Of models whose training is not known.
_MAX_SEQ_LENGTH = {"question_answering": windowing.WindowSizes().max_seq_length}
_USUAL_LENGTH = 128
# Option -> the tasks on which it has an effect, if not on all.
_TASKS_OF = {
    "labels": (*SENTENCE_TASKS.values(), "token_classification"),
    "text_pair": tuple(SENTENCE_TASKS.values()),
    "document_context": ("token_classification",),
    "top_k": ("fill_mask",),
    "pooling": ("sentence_embedding",),
    "layer": ("sentence_embedding",),
    "normalize": ("sentence_embedding",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a model is opened; None for what the model itself determines.

    Attributes:
      task: one of TASKS; by default that of the model's head.
      max_seq_length: in tokens; by default as the model was trained.
      batch_size: texts that are computed together, except in a graph.
      precision: "float32", "bfloat16", or "auto" for the faster one.
      labels: of a classifier or tagger whose checkpoint does not name them, in
        the order of the model's outputs.
      text_pair: whether the graph of a sentence task takes pairs of texts;
        `api.load` refuses it.
      squad: flags of run_squad.py -> value, or None if it is not given.
      document_context: whether a tagger reads the sentences around each one, as
        with --document_context=maximal.
      top_k: words for each [MASK].
      pooling: of embeddings: one of sentence_modules.POOLINGS, or several with
        commas, which are joined; "none", which `api.load` refuses, for the
        embeddings of all tokens. By default as the files of
        sentence-transformers say, "mean" without them.
      layer: of embeddings; -1 is the last.
      normalize: whether embeddings have length 1; by default as these files
        say, False without them.
    """

    task: str | None = None
    max_seq_length: int | None = None
    batch_size: int = 32
    precision: str = "float32"
    labels: Sequence[str] | None = None
    text_pair: bool | None = None
    squad: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    document_context: bool = False
    top_k: int = 5
    pooling: str | None = None
    layer: int = -1
    normalize: bool | None = None

    def __post_init__(self):
        """Checks the values.

        Raises:
          InputError: one is out of bounds.
        """
        for name, least in (
            ("batch_size", 1),
            ("max_seq_length", 3),
            ("top_k", 1),
        ):
            value = getattr(self, name)
            if value is None and name == "max_seq_length":
                continue
            if not isinstance(value, numbers.Integral) or value < least:
                raise errors.InputError(
                    f"{name}={value!r}: must be an integer, at least {least}"
                )
        known = sentence_modules.POOLINGS
        names = str(self.pooling).split(",")
        if self.pooling not in (None, sentence_modules.NO_POOLING) and not all(
            name in known for name in names
        ):
            raise errors.InputError(
                f"pooling={self.pooling!r}: none of {', '.join(known)}"
            )


class SentenceModel(NamedTuple):
    """A model of sentences or pairs.

    Attributes:
      task_model: the model.
      kind: one of data.examples.
      labels: of its outputs.
    """

    task_model: finetuning.TaskModel
    kind: str
    labels: Sequence[str]


class Answerer(NamedTuple):
    """A model of SQuAD.

    Attributes:
      task_model: the model.
      data: how it answers.
      settings: the same, flag of run_squad.py -> value.
    """

    task_model: finetuning.TaskModel
    data: squad_job.SquadData
    settings: dict[str, Any]


class OpenedModel:
    """A checkpoint with all that its task needs.

    Attributes:
      path: of the checkpoint.
      options: as given.
      task: one of TASKS. Without options.task, it is "classification" also for
        regression and multi-label models; `sentence_model` returns the kind.
      source: the checkpoint.
      trained: the flags of the training, if they are known.
      max_seq_length: the given length, or that of the training, or the default.
      modules: how sentence embeddings are made; None for other tasks.
      start: the model and its tokenizer.
      config: the flags of a command that predicts with it.
    """

    def __init__(self, path: str, options: Options):
        """Finds the files of a model.

        Args:
          path: a model directory, a released checkpoint, or its folder.
          options: what is given.

        Raises:
          InputError: there is no model, or its head is of an unknown task.
        """
        source = checkpoint_sources.read(path)
        task = options.task or _task_of(path, source)
        if task not in TASKS:
            raise errors.InputError(
                f"task={task!r}: none of {', '.join(TASKS)}"
            )
        if source.config is None:
            raise errors.InputError(
                f"{path}: no {model_directory.CONFIG} or "
                f"{model_directory.RELEASED_CONFIG} beside the weights"
            )
        if not tokenizer_files.has_vocabulary(source.directory):
            raise errors.InputError(
                f"{path}: no vocab.txt beside the weights; put it there"
            )
        self.path, self.options = path, options
        self.task, self.source = task, source
        self.trained = run_directory.flags(source.folder)
        max_seq_length = options.max_seq_length
        self.modules = None
        if task == "sentence_embedding":
            self.modules = sentence_modules.open_modules(
                source.folder,
                pooling=options.pooling,
                normalize=options.normalize,
                max_seq_length=max_seq_length,
            )
            if self.modules.max_seq_length and max_seq_length is None:
                max_seq_length = min(
                    self.modules.max_seq_length,
                    source.config.max_position_embeddings,
                )
        if max_seq_length is None:
            max_seq_length = source.config.max_position_embeddings
            if task != "fill_mask":  # fill_mask.py uses all positions.
                usual = _MAX_SEQ_LENGTH.get(task, _USUAL_LENGTH)
                trained = self.trained.get("max_seq_length") or usual
                max_seq_length = min(trained, max_seq_length)
        self.max_seq_length = max_seq_length
        self.start = pretrained.open_start(
            output_dir=None, init_checkpoint=path, max_seq_length=max_seq_length
        )
        self.config = run_config.FinetuningConfig(
            output_dir=source.directory,
            init_checkpoint=path,
            max_seq_length=max_seq_length,
            predict_batch_size=options.batch_size,
            precision=options.precision,
            strategy="one_device",
        )

    def check_options(self) -> None:
        """Refuses options that have no effect on the task.

        Raises:
          InputError: one has none.
        """
        options, usual = self.options, Options()
        tasks_of = {
            name: tasks
            for name, tasks in _TASKS_OF.items()
            if getattr(options, name) != getattr(usual, name)
        }
        for name, value in options.squad.items():
            if value is not None:
                tasks_of[name] = ("question_answering",)
        for name, tasks in tasks_of.items():
            if self.task not in tasks:
                flag = "label_names" if name == "labels" else name
                raise errors.InputError(
                    f"--{flag}: only for {', '.join(tasks)}; the task of "
                    f"{self.path} is {self.task}"
                )

    @property
    def description(self) -> dict[str, str]:
        """What export.json tells of the model."""
        return {
            "model": os.path.basename(os.path.abspath(self.path)),
            "weights": os.path.basename(self.source.path),
            "vocabulary_sha256": self.start.tokenizer.vocabulary.sha256,
        }

    def _build(
        self, task: Any, make_model: Any, **parts: Any
    ) -> finetuning.TaskModel:
        """Builds a model without its weights; see finetuning.Job."""
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

    def _load(
        self, task: Any, make_model: Any, **parts: Any
    ) -> finetuning.TaskModel:
        """Builds a model that was trained for the task, with its weights."""
        task_model = self._build(task, make_model, **parts)
        task_model.assign(self.start.init_checkpoint)
        return task_model

    def _classes(self) -> task_files.ModelClasses:
        """Returns the classes of the model, with the given names."""
        known = task_files.ModelClasses(
            labels=self.start.labels,
            problem_type=self.start.problem_type,
            num_outputs=self.start.num_outputs,
        )
        labels = self.options.labels
        return known.with_names(list(labels) if labels else None)

    def sentence_model(self) -> SentenceModel:
        """Returns a sentence model.

        Raises:
          InputError: the model is none, or is of another kind.
        """
        known = self._classes()
        kinds = {task: kind for kind, task in SENTENCE_TASKS.items()}
        kind = task_files.kind(kinds.get(self.options.task or ""), known)
        if _SCORES not in self.source.tensors:
            raise errors.InputError(
                f"{self.path}: has not been trained for this task "
                f"({_SCORES} is missing)"
            )
        count = self.source.tensors[_SCORES].shape[0]
        if kind != examples.REGRESSION:
            known.check()
        labels = known.labels or examples.unnamed(count)
        return SentenceModel(self._load_kind(kind, count), kind, labels)

    def multiple_choice_model(self) -> finetuning.TaskModel:
        """Returns a model that scores each of several endings."""
        return self._load_kind(examples.MULTIPLE_CHOICE, 1)

    def _load_kind(self, kind: str, num_classes: int) -> finetuning.TaskModel:
        """Returns the model of a kind of data.examples."""
        make_model = functools.partial(
            objective.make_model,
            self.start.config,
            kind=kind,
            num_classes=num_classes,
        )
        return self._load(objective.ClassificationTask(kind), make_model)

    def tagger(self) -> tuple[finetuning.TaskModel, ner_data.NerData]:
        """Returns a tagger, with its CRF if it has one, and its labels.

        Raises:
          InputError: the model has no labels, or was trained with --true_case.
        """
        folder = self.source.folder
        tagging.refuse_true_case(folder)
        known = self._classes()
        known.check()
        labels = known.labels
        if not labels:
            raise errors.InputError(
                f"{self.path}: its config has no labels; --label_names (in "
                "Python: labels=) names them"
            )
        data = ner_data.NerData(
            files=None, read=None, labels=labels, scheme=None
        )
        has_crf = tagging.has_crf(folder)
        parts = ner_job.model_parts(self.start, data, has_crf=has_crf)
        return self._load(tagging.TaggingTask(), **parts), data

    def answerer(self) -> Answerer:
        """Returns a model of SQuAD.

        Raises:
          InputError: options.squad has an unknown flag, or max_seq_length is
            too small.
        """
        defaults = dataclasses.asdict(windowing.WindowSizes())
        del defaults["max_seq_length"]  # It is an option of its own.
        defaults |= dataclasses.asdict(decoding.AnswerRules())
        settings = {k: self.trained.get(k, x) for k, x in defaults.items()}
        stored = task_files.read_settings(self.source.folder)
        settings |= dataclasses.asdict(stored or task_files.SquadSettings())
        given = self.options.squad
        for name in given:
            if name not in settings:
                raise errors.InputError(
                    f"squad: {name!r} is none of {', '.join(settings)}"
                )
        settings |= {k: x for k, x in given.items() if x is not None}
        squad_job.check_threshold(
            given.get("null_score_diff_threshold"),
            with_negative=settings["version_2_with_negative"],
        )
        if settings["null_score_diff_threshold"] is None:
            settings["null_score_diff_threshold"] = 0.0
        rules = dict(settings)
        sizes = windowing.WindowSizes(
            max_seq_length=self.max_seq_length,
            doc_stride=rules.pop("doc_stride"),
            max_query_length=rules.pop("max_query_length"),
        )
        sizes.check()
        threshold = rules.pop("null_score_diff_threshold")
        data = squad_job.SquadData(
            train=None,
            predict=None,
            threshold=threshold if rules["version_2_with_negative"] else None,
            sizes=sizes,
            rules=decoding.AnswerRules(**rules),
            verbose_logging=False,
        )
        make_model = functools.partial(
            models.QuestionAnsweringModel, self.start.config
        )
        task_model = self._load(squad_job.SpanTask(), make_model)
        return Answerer(task_model, data, settings)

    def masked_lm(self) -> models.PretrainingModel:
        """Returns the model with its masked-LM head."""
        dtype = assembly.dtype_policy(self.config)
        model, _ = pretrained.load_masked_lm(self.path, dtype)
        return model

    def embedder(self) -> finetuning.TaskModel:
        """Returns the encoder, whose predictions are vectors of texts."""
        start, options = self.start, self.options
        task = feature_extraction.ExtractionTask(
            feature_extraction.parse_layers(str(options.layer), start.config),
            self.modules,
        )
        task.vector_size(start.config.hidden_size)  # Refuses what differs.

        def make_model(*, attention: str, dtype: Any, **_: Any) -> Any:
            return encoder.make_encoder(
                start.config, attention=attention, dtype=dtype
            )

        task_model = self._build(task, make_model)
        pretrained.assign(
            task_model.model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        return task_model


def _task_of(model_dir: str, source: checkpoint_sources.Source) -> str:
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
            f"{model_dir}: has a head of an unknown task; --task (in Python: "
            "task=) names it"
        )
    is_language_model = _MASKED_LM in source.tensors
    return "fill_mask" if is_language_model else "sentence_embedding"
