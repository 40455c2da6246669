"""Opens a model directory or a released checkpoint, to predict with it.

Options that are not given have the values of the model's training, which
run.json beside the weights holds. Without it, the defaults of the
training commands apply.
"""

import dataclasses
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data import examples
from finetuning import devices, network, record
from finetuning.head import Head
from foundation import config_flags, errors
from modeling import heads, layers, variables
from serving import predictors
from tasks.classification import heads as sentence_heads
from tasks.classification import label_kinds, tables
from tasks.classification.settings import windows_of
from tasks.features import extraction
from tasks.features import heads as feature_heads
from tasks.ner import heads as taggers
from tasks.ner import tagging
from tasks.squad import heads as squad_heads
from tasks.squad.settings import AnswerSettings
from tasks.squad.task import check_threshold
from training import settings as training_settings
from weights import (
    checkpoint_sources,
    kinds,
    model_directory,
    pretrained,
    sentence_modules,
    stored_weights,
    task_files,
    tokenizer_files,
)

_MASKED_LM = "cls/predictions/transform/dense/kernel"
_ENCODER = "BertModel"  # Without a head.
_SPANS, _SCORES = "cls/squad/output_weights", "output_weights"
# Of models whose training is not known.
_MAX_SEQ_LENGTH = {"question_answering": AnswerSettings().max_seq_length}
_USUAL_LENGTH = 128
# Option -> the tasks on which it has an effect, if not on all.
_SENTENCES = tuple(
    kinds.KINDS[name].export_name for name in kinds.SENTENCE_KINDS
)
_TASKS_OF = {
    "labels": (*_SENTENCES, "token_classification"),
    "text_pair": _SENTENCES,
    "new_head": tuple(
        name
        for name in kinds.EXPORT_NAMES
        if name not in ("fill_mask", "sentence_embedding")
    ),
    "document_context": ("token_classification",),
    "top_k": ("fill_mask",),
    "pooling": ("sentence_embedding",),
    "layer": ("sentence_embedding",),
    "normalize": ("sentence_embedding",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a model is opened: the arguments of `api.load`, which explains them.

    None is what the model itself determines.

    Attributes:
      text_pair: whether the graph of a sentence task takes pairs of texts;
        `api.load` does not have it.
      squad: flags of run_squad.py -> value, or None if it is not given.
    """

    task: str | None = None
    max_seq_length: int | None = None
    batch_size: int = 32
    precision: str = "float32"
    labels: Sequence[str] | None = None
    new_head: bool = False
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
            is_integer = isinstance(value, numbers.Integral)
            if not is_integer or isinstance(value, bool) or value < least:
                raise errors.InputError(
                    f"{name}={value!r}: must be an integer, at least {least}"
                )
        for name in ("new_head", "document_context", "text_pair", "normalize"):
            if (value := getattr(self, name)) not in (None, True, False):
                raise errors.InputError(
                    f"{name}={value!r}: must be True or False"
                )
        # A dictionary has another order than its numbers, a set has none.
        if self.labels is not None and (
            not isinstance(self.labels, list | tuple)
            or not all(isinstance(x, str) for x in self.labels)
        ):
            raise errors.InputError(
                f"labels={self.labels!r:.80}: must be a list of names, in the "
                "order of the outputs"
            )
        known = sentence_modules.POOLINGS
        pooling = self.pooling
        if pooling is not None and not {*str(pooling).split(",")} <= {*known}:
            raise errors.InputError(
                f"pooling={self.pooling!r}: none of {', '.join(known)}"
            )


class Loaded(NamedTuple):
    """A model with the weights of its checkpoint.

    Attributes:
      setup: what is known of it.
      head: what it computes, a Head; None of a masked LM.
      network: the model and its predictions; None of a masked LM.
      model: the Keras model.
    """

    setup: predictors.Setup
    head: Any
    network: network.Network | None
    model: Any


class OpenedModel:
    """A checkpoint with all that its task needs.

    Attributes:
      path: the path that was given.
      options: the options that were given.
      task: an export_name of weights.kinds. Without options.task, it is
        "classification" also for regression and multi-label models;
        `sentence_model` returns the kind.
      source: the checkpoint.
      trained: the flags of the training, if they are known.
      max_seq_length: the given length, or that of the training, or the default.
      modules: how sentence embeddings are made; None for other tasks.
      start: the model and its tokenizer.
    """

    def __init__(self, path: str, options: Options):
        """Finds the files of a model directory or a released checkpoint.

        Raises:
          InputError: there is no model, or its head is of an unknown task.
        """
        source = checkpoint_sources.read(path)
        if options.new_head and not options.task:
            raise errors.InputError("new_head: task= names what it is for")
        task = options.task or _task_of(path, source)
        if task not in kinds.EXPORT_NAMES:
            raise errors.InputError(
                f"task={task!r}: none of {', '.join(kinds.EXPORT_NAMES)}"
            )
        theirs = kinds.by_architecture(source.settings.architecture)
        ours = kinds.BY_EXPORT_NAME[task].architecture
        if theirs and ours not in (None, theirs.architecture):
            if not options.new_head:
                raise errors.InputError(
                    f"task={task}: {path} has been trained for another task, "
                    f"{theirs.export_name}"
                )
        if source.config is None:
            raise errors.InputError(
                f"{path}: no {model_directory.CONFIG} or "
                f"{model_directory.RELEASED_CONFIG} beside the weights"
            )
        if not tokenizer_files.has_vocabulary(source.directory):
            missing = tokenizer_files.no_vocabulary(source.directory)
            raise errors.InputError(f"{missing}; put it there")
        self.path, self.options = path, options
        self.task, self.source = task, source
        max_seq_length = options.max_seq_length
        self.start = pretrained.open_start(
            output_dir=None,
            init_checkpoint=source,
            max_seq_length=max_seq_length,
        )
        self.trained = record.RunRecord(source.folder).flags
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
        self._devices = devices.open_devices(
            config_flags.build(
                training_settings.Devices,
                precision=options.precision,
                strategy="one_device",
            ),
            None,
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
    def flags_of_texts(self) -> dict[str, Any]:
        """The flags of the training that also apply to a copy of the model.

        With new_head, the training was for another task.
        """
        if not self.options.new_head:
            return dict(self.trained)
        names = ("long_texts", "doc_stride")
        return {k: x for k, x in self.trained.items() if k in names}

    @property
    def description(self) -> dict[str, str]:
        """What export.json tells of the model."""
        return {
            "model": os.path.basename(os.path.abspath(self.path)),
            "weights": os.path.basename(self.source.path),
            "vocabulary_sha256": self.start.tokenizer.vocabulary.sha256,
        }

    def _network(self, head: Head) -> network.Network:
        """Builds a model with its weights.

        It was trained for its task, except with new_head; an encoder was not.
        """
        start = self.start
        built = network.Network(
            head,
            start.config,
            devices=self._devices,
            max_seq_length=self.max_seq_length,
            seed=0,
            attention=start.attention,
            bilstm_size=start.bilstm_size,
        )
        if self.options.new_head or self.task == kinds.SENTENCE_EMBEDDING:
            pretrained.assign(
                built.model,
                start.init_checkpoint,
                tokenizer=start.tokenizer,
                new_output_layer=self.options.new_head,
            )
        else:
            built.load(start.init_checkpoint, start.tokenizer)
        return built

    def _classes(self) -> task_files.ModelClasses:
        """Returns the classes of the model, with the given names."""
        labels = self.options.labels
        if self.options.new_head:
            return task_files.ModelClasses(
                labels=None, problem_type=None
            ).with_names(list(labels) if labels else None, trains=True)
        known = task_files.ModelClasses(
            labels=self.start.labels,
            problem_type=self.start.problem_type,
            num_outputs=self.start.num_outputs,
        )
        return known.with_names(list(labels) if labels else None)

    def load(self) -> Loaded:
        """Loads the model with its head.

        Raises:
          InputError: the model has no such head, or an option does not fit.
        """
        task = kinds.BY_EXPORT_NAME[self.task]
        if self.task == kinds.FILL_MASK:
            model, _ = pretrained.load_masked_lm(
                self.path, self._devices.dtype_policy
            )
            setup = self._setup(settings={"top_k": self.options.top_k})
            return Loaded(setup, None, None, model)
        if self.task == kinds.SENTENCE_EMBEDDING:
            setup, head = self._embedder()
        elif self.task == kinds.QUESTION_ANSWERING:
            setup, head = self._answerer()
        elif self.task == kinds.TOKEN_CLASSIFICATION:
            setup, head = self._tagger()
        elif task.name == examples.MULTIPLE_CHOICE:
            setup = self._setup()
            head = sentence_heads.head_of(label_kinds.Choice(()))
        else:
            setup, head = self._sentences()
        built = self._network(head)
        if setup.task == kinds.TOKEN_CLASSIFICATION:
            scores = tagging.scores_of(built.model)
            setup = dataclasses.replace(setup, scores=scores)
        return Loaded(setup, head, built, built.model)

    def _setup(self, **values: Any) -> predictors.Setup:
        return predictors.Setup(
            name=self.path,
            config=self.start.config,
            tokenizer=self.start.tokenizer,
            max_seq_length=self.max_seq_length,
            left_to_right=self.start.attention == "left_to_right",
            **({"task": self.task} | values),
        )

    def _sentences(self) -> tuple[predictors.Setup, Head]:
        """Returns the setup and the head of a sentence model.

        Raises:
          InputError: the model is none, or is of another kind.
        """
        known = self._classes()
        given = self.options.task
        kind = task_files.kind(
            kinds.BY_EXPORT_NAME[given].name if given else None, known
        )
        if not self.options.new_head and _SCORES not in self.source.tensors:
            raise errors.InputError(
                f"{self.path}: has not been trained for this task "
                f"({_SCORES} is missing; in Python, new_head=True adds it)"
            )
        is_regression = kind == examples.REGRESSION
        if not is_regression:
            known.check()
        labels = known.labels
        if not labels and self.options.new_head:
            if not is_regression:
                raise errors.InputError("new_head: labels= names its classes")
            labels = examples.unnamed(1)
        elif not labels:
            count = self.source.tensors[_SCORES].shape[0]
            labels = examples.unnamed(count)
        pooling, windows = windows_of(self.trained, self.max_seq_length) or (
            None,
            None,
        )
        has_pairs = self.options.text_pair
        if has_pairs is None and "task_name" in self.flags_of_texts:
            has_pairs = tables.has_pairs(self.trained)
        setup = self._setup(
            task=kinds.KINDS[kind].export_name,
            labels=None if is_regression else list(labels),
            settings={"windows": list(windows)} if windows else {},
            are_pairs=has_pairs,
        )
        labeled = label_kinds.KINDS[kind](() if is_regression else labels)
        return setup, sentence_heads.head_of(labeled, window_pooling=pooling)

    def _tagger(self) -> tuple[predictors.Setup, Head]:
        """Returns the setup and the head of a tagger.

        Raises:
          InputError: the model has no labels.
        """
        known = self._classes()
        known.check()
        labels = known.labels
        if not labels:
            raise errors.InputError(
                f"{self.path}: its config has no labels; --label_names (in "
                "Python: labels=) names them"
            )
        context = "maximal" if self.options.document_context else "none"
        setup = self._setup(
            labels=list(labels), settings={"document_context": context}
        )
        has_crf = tagging.has_crf(self.source.folder)
        return setup, taggers.head_of(labels, has_crf=has_crf)

    def _answerer(self) -> tuple[predictors.Setup, Head]:
        """Returns the setup and the head of a model of SQuAD.

        Raises:
          InputError: options.squad has an unknown flag, or max_seq_length is
            too small.
        """
        values: dict[str, Any] = AnswerSettings().besides_length
        for name in values:
            if self.trained.get(name) is not None:
                values[name] = self.trained[name]
        stored = task_files.read_settings(self.source.folder)
        stored = stored or task_files.SquadSettings()
        values["version_2_with_negative"] = stored.version_2_with_negative
        values["null_score_diff_threshold"] = (
            stored.null_score_diff_threshold or 0.0
        )
        given = self.options.squad
        for name in given:
            if name not in values:
                raise errors.InputError(
                    f"squad: {name!r} is none of {', '.join(values)}"
                )
        values |= {k: x for k, x in given.items() if x is not None}
        with_negative = values["version_2_with_negative"]
        check_threshold(
            given.get("null_score_diff_threshold"), with_negative=with_negative
        )
        try:
            settings = config_flags.build(
                AnswerSettings, max_seq_length=self.max_seq_length, **values
            )
        except ValueError as error:
            raise errors.InputError(str(error)) from error
        setup = self._setup(settings=settings.besides_length)
        return setup, squad_heads.SpanHead()

    def _embedder(self) -> tuple[predictors.Setup, Head]:
        """Returns the setup and the head of an encoder.

        Raises:
          InputError: the dense layers of sentence-transformers do not fit.
        """
        modules, config = self.modules, self.start.config
        assert modules is not None  # The task is sentence_embedding.
        layer, size = self.options.layer, config.hidden_size
        if modules.is_pooled:  # Refuses modules that differ.
            size = modules.vector_size(size)
        head = feature_heads.LayersHead(
            extraction.parse_layers(str(layer), config), modules
        )
        setup = self._setup(
            settings={
                "layer": layer,
                "pooling": modules.pooling,
                "normalize": modules.normalize,
                "size": size,
            }
        )
        return setup, head

    def pooler(self) -> layers.Dense | None:
        """Returns the pooler of a model without a head, if it has one."""
        size = self.start.config.hidden_size
        return self._stored(
            layers.Dense(
                "bert/pooler/dense", size, size, self._maker, activation="tanh"
            )
        )

    def next_sentence(self) -> heads.ScoreHead | None:
        """Returns the head of next sentences, if the model has one."""
        size = self.start.config.hidden_size
        return self._stored(
            heads.ScoreHead("cls/seq_relationship/", 2, size, self._maker)
        )

    @property
    def _maker(self) -> variables.Maker:
        dtype = self._devices.dtype_policy
        return variables.Maker(stddev=0.0, seed=0, dtype=dtype)

    def _stored(self, layer: Any) -> Any:
        """Returns a layer with its weights of the checkpoint; None if none."""
        tensors = self.source.tensors
        paths = [variable.path for variable in layer.weights]
        if not {*paths} <= {*tensors}:
            return None
        own = {path: tensors[path] for path in paths}
        stored_weights.assign(layer, own, where=self.source.path)
        return layer


def _task_of(model_dir: str, source: checkpoint_sources.Source) -> str:
    """Returns the task of a model's head.

    It is "classification" for every kind of sentence task.
    """
    architecture = source.settings.architecture
    if (kind := kinds.by_architecture(architecture)) is not None:
        return kind.export_name
    if _SPANS in source.tensors:
        return "question_answering"
    if _SCORES in source.tensors:
        raise errors.InputError(
            f"{model_dir}: has a head of an unknown task; --task (in Python: "
            "task=) names it"
        )
    if _MASKED_LM in source.tensors:
        return "fill_mask"
    if architecture not in (None, _ENCODER) and source.others:
        errors.warn_once(
            f"{model_dir}: its head is unknown ({architecture}, with "
            f"{errors.listed(source.others)}) and not used; the task is taken "
            "to be sentence_embedding"
        )
    return "sentence_embedding"
