"""Opens a checkpoint of any kind, and lists or compares what it contains.

    .../bert_model.ckpt, model.ckpt-1000     TensorFlow, released TF1 names
    .../bert_model.ckpt-1, ckpt-5            TensorFlow 2, by Model Garden
    .../cp.ckpt, tf_model.h5                 Keras 2, see keras_weights
    a directory with model.safetensors       Hugging Face, and our own
    models--bert-base-cased                  a folder of the Hugging Face cache
    hf://google-bert/bert-base-cased         of the Hub; see foundation.hub
    a directory with 0_Transformer           sentence-transformers, see
                                             sentence_modules
    a directory with `checkpoint` or one .index; model.safetensors itself;
    pytorch_model.bin, if torch is installed

Each becomes a `Source`: tensors under our paths and in our layout, and the
files beside them. In a directory with several kinds, safetensors come first.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from foundation import copies, errors, file_system, hub
from modeling.config import BertConfig
from weights import (
    keras_weights,
    model_directory,
    sentence_modules,
    stored_weights,
    tensorflow_checkpoints,
    tokenizer_files,
)
from weights.stored_weights import Matched, StoredTensor

TENSORFLOW, TENSORFLOW_2 = "TensorFlow checkpoint", "Model Garden checkpoint"
SAFETENSORS, TORCH = "safetensors", "PyTorch state dict"
KERAS = "Keras 2 weights"
# How files end -> their kind, and what reads them.
_FILES = (
    ((".safetensors",), SAFETENSORS, model_directory.read_safetensors),
    ((model_directory.INDEX,), SAFETENSORS, model_directory.read_index),
    ((model_directory.TORCH_INDEX,), TORCH, model_directory.read_index),
    ((".h5", ".hdf5"), KERAS, keras_weights.read_hdf5),
    ((".bin", ".pt", ".pth"), TORCH, model_directory.read_torch),
)
# The files that are read beside weights.
_BESIDE = (
    model_directory.CONFIG,
    model_directory.RELEASED_CONFIG,
    tokenizer_files.VOCABULARY,
    tokenizer_files.SETTINGS,
    tokenizer_files.FAST,
    tokenizer_files.ADDED,
    tokenizer_files.SPECIAL_MAP,
    tokenizer_files.SENTENCES,
    sentence_modules.PROMPTS,
)
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_DECODER = ".decoder.weight"  # Of a masked-LM head.
_TENSORFLOW_FILE = re.compile(r"\.(?:meta|index|data-\d+-of-\d+)$")
# Hyperparameters that the shapes of the weights do not show.
_GELU = (
    " (gelu is the released tanh form, gelu_erf the one that Hugging Face "
    'calls "gelu")'
)
_NOT_IN_SHAPES = ("num_attention_heads", "hidden_act")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A checkpoint of any kind.

    The files of the weights are opened when the first of them is asked for, and
    its values are read one by one. Only TensorFlow's files need TensorFlow.

    Attributes:
      path: the file, or the prefix of TensorFlow's files.
      directory: directory of the config and the vocabulary; a local copy if the
        checkpoint is in a bucket.
      config: the one beside the weights; None without.
      settings: those beside the weights, or the defaults.
      open_file: returns the tensors.
    """

    path: str
    directory: str
    config: BertConfig | None
    settings: model_directory.Settings
    open_file: Callable[[], Matched]

    @functools.cached_property
    def matched(self) -> Matched:
        """The tensors."""
        return self.open_file()

    @property
    def needed_config(self) -> BertConfig:
        """The config; refuses weights without one."""
        if self.config is None:
            raise errors.InputError(
                f"{self.directory}: no {model_directory.CONFIG} or "
                f"{model_directory.RELEASED_CONFIG} beside the weights; put "
                "one there, or give --bert_config_file if the command has it"
            )
        return self.config

    @property
    def untied_decoder(self) -> str | None:
        """That the file has a masked-LM decoder of its own, if so."""
        found = next((x for x in self.others if x.endswith(_DECODER)), None)
        return found and (
            f"{found} differs from the word embeddings and is not used: BERT's "
            "masked-LM head uses the word embeddings themselves"
        )

    @property
    def folder(self) -> str:
        """The folder of the weights, on a disk or in a bucket."""
        return os.path.dirname(self.path) or "."

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """Our path -> weight of BERT."""
        return self.matched.tensors

    @property
    def others(self) -> dict[str, StoredTensor]:
        """Name in the file -> tensor that is no weight of BERT."""
        return self.matched.others


def read(path: str | Source) -> Source:
    """Finds a checkpoint, and reads the files beside the weights.

    Args:
      path: a file, the prefix of TensorFlow's files, or a directory; or what
        was read already, which is returned.

    Raises:
      InputError: there is no checkpoint. The weights are opened later, and
        raise it if they are damaged.
    """
    if isinstance(path, Source):
        return path
    path = hub.local(path.rstrip("/") or path)
    if file_system.is_folder(path):
        path = _in_directory(snapshot(path))
    for endings, kind, read_file in _FILES:
        if path.endswith(endings):
            if not file_system.exists(path):
                raise errors.InputError(
                    f"{path}: no such file, or a link to none"
                )
            return _source(
                path, functools.partial(_open_file, path, kind, read_file)
            )
    path = _prefix(path)
    return _source(
        path,
        functools.partial(_open_tensorflow, path),
        of_tensorflow=True,
    )


def _open_file(
    path: str, kind: str, read_file: Callable[[str], Any]
) -> Matched:
    stored = keras_weights.in_form_of_torch(read_file(path))
    matched = model_directory.match_hugging_face(path, stored)
    return matched._replace(kind=kind)


def _open_tensorflow(prefix: str) -> Matched:
    stored = tensorflow_checkpoints.read(prefix)
    if variables := keras_weights.variables_of_objects(stored):
        weights = keras_weights.in_form_of_torch(variables)
        matched = model_directory.match_hugging_face(prefix, weights)
        names = {tensor.name for tensor in variables.values()}
        rest = {name: x for name, x in stored.items() if name not in names}
        return matched._replace(training_state=rest, kind=KERAS)
    if tensorflow_checkpoints.OBJECT_GRAPH in stored:
        matched = tensorflow_checkpoints.match_model_garden(prefix, stored)
        return matched._replace(kind=TENSORFLOW_2)
    matched = tensorflow_checkpoints.match_tf1(prefix, stored)
    return matched._replace(kind=TENSORFLOW)


def snapshot(directory: str) -> str:
    """Returns the folder of the files if this is one of Hugging Face's cache.

    Raises:
      InputError: it has several snapshots, and refs/main names none of them.
    """
    snapshots = os.path.join(directory, "snapshots")
    if not file_system.is_folder(snapshots):
        return directory
    revisions = sorted(os.listdir(snapshots))
    main = os.path.join(directory, "refs", "main")
    named = file_system.read_text(main) if file_system.is_file(main) else ""
    revisions = [x for x in revisions if x == named.strip()] or revisions
    if len(revisions) != 1:
        raise errors.InputError(
            f"{directory}: {len(revisions)} snapshots and no refs/main that "
            "names one of them"
        )
    return os.path.join(snapshots, revisions[0])


def _in_directory(directory: str) -> str:
    """Returns the path of the checkpoint in a directory."""
    names = file_system.entries(directory)

    def first(*wanted: str) -> str | None:
        found = (os.path.join(directory, x) for x in wanted if x in names)
        return next(found, None)

    path = (
        first(model_directory.WEIGHTS, model_directory.INDEX)
        or tensorflow_checkpoints.find(directory)
        or first(
            keras_weights.HDF5,
            model_directory.TORCH_WEIGHTS,
            model_directory.TORCH_INDEX,
        )
    )
    if path is None:
        inner = sentence_modules.transformer_folder(directory)
        if inner is not None:
            return _in_directory(inner)
        raise errors.InputError(
            f"{directory}: no {model_directory.WEIGHTS}, no TensorFlow "
            f"checkpoint, {keras_weights.HDF5} or "
            f"{model_directory.TORCH_WEIGHTS} there{_what_is_in(directory)}"
        )
    if (adapter := first(*_ADAPTERS)) is not None:
        errors.warn_once(
            f"{adapter} is not used, only {path}; merge the adapter with its "
            "model first, with peft"
        )
    return path


def _what_is_in(folder: str) -> str:
    """Returns what a folder has instead of weights, for a message."""
    if not file_system.is_folder(folder):
        return ""
    names = sorted(file_system.entries(folder))
    return f"; {folder} has {errors.listed(names)}"


def _prefix(path: str) -> str:
    """Returns the prefix of TensorFlow's files, of which `path` may be one."""
    prefix = _TENSORFLOW_FILE.sub("", path)
    if file_system.exists(f"{prefix}.index"):
        return prefix
    is_file = file_system.is_file(path)
    what = "no such checkpoint or directory"
    raise errors.InputError(
        f"{path}: {'it is a file, but not of weights' if is_file else what}"
        f"{_what_is_in(os.path.dirname(path))}{hub.hint(path)}"
    )


def _source(
    path: str,
    open_file: Callable[[], Matched],
    *,
    of_tensorflow: bool = False,
) -> Source:
    """Adds the files beside the weights."""
    directory = copies.local_folder(os.path.dirname(path) or ".", _BESIDE)
    # The config of the project that wrote the weights comes first.
    names = (model_directory.CONFIG, model_directory.RELEASED_CONFIG)
    names = names[::-1] if of_tensorflow else names
    settings = model_directory.read_settings(directory)
    if (
        settings.problem_type is None
        and len(settings.labels or ()) == 1
        and sentence_modules.keeps_logit(directory)
    ):
        settings = dataclasses.replace(settings, problem_type="regression")
    return Source(
        path=path,
        directory=directory,
        config=model_directory.read_config(
            directory, names, of_tensorflow=of_tensorflow
        ),
        settings=settings,
        open_file=open_file,
    )


def check_config(source: Source, config: BertConfig) -> None:
    """Refuses weights whose config differs in what their shapes do not show.

    `config` is that of --bert_config_file, for the message.
    """
    theirs = {x: getattr(source.config, x, None) for x in _NOT_IN_SHAPES}
    if heads := source.matched.num_attention_heads:
        theirs["num_attention_heads"] = heads
    for name, value in theirs.items():
        ours = getattr(config, name)
        if value not in (ours, None):
            raise errors.InputError(
                f"{source.path} belongs to a model whose {name} is {value}, "
                f"but --bert_config_file says {ours}"
                f"{_GELU if name == 'hidden_act' else ''}"
            )


def with_layers(source: Source, layers: Sequence[int]) -> Source:
    """Returns a checkpoint whose encoder has only some of the layers.

    Args:
      source: the checkpoint.
      layers: their numbers, from 0, in the order in which they are used; () for
        all of them.

    Raises:
      InputError: there is no such layer.
    """
    if not layers:
        return source
    tensors = stored_weights.with_layers(source.path, source.tensors, layers)
    config = source.config
    return dataclasses.replace(
        source,
        config=config
        and dataclasses.replace(config, num_hidden_layers=len(layers)),
        open_file=lambda: source.matched._replace(tensors=tensors),
    )


def digest(path: str) -> str:
    """Returns the SHA-256 of the weights of a checkpoint of any kind.

    Raises:
      InputError: see `read`.
    """
    source, sha = read(path), hashlib.sha256()
    for name, tensor in sorted({**source.others, **source.tensors}.items()):
        sha.update(name.encode())
        sha.update(stored_weights.values(source.path, tensor).data)
    return sha.hexdigest()


def contents(source: Source) -> Iterator[str]:
    """Yields lines with names, shapes, types and parameter counts."""
    yield f"{source.path}: {source.matched.kind}"
    if source.config is not None:
        values = source.config.to_dict().items()
        yield "config: " + ", ".join(f"{k}={v}" for k, v in values)
    for path, tensor in sorted(source.tensors.items()):
        alias = "" if tensor.name == path else f"  <- {tensor.name}"
        yield _line(path, tensor) + alias
    for title, tensors in (
        ("not a weight of BERT", source.others),
        ("of training", source.matched.training_state),
    ):
        for name in sorted(tensors):
            yield f"{_line(name, tensors[name])}  ({title})"
    total = sum(math.prod(t.shape) for t in source.tensors.values())
    yield f"{len(source.tensors)} variables, {total:,} parameters"


def _line(name: str, tensor: StoredTensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"{name}  {tensor.dtype} [{shape}]  {math.prod(tensor.shape):,}"


def compare(
    one: Source, other: Source, tolerance: float
) -> tuple[list[str], bool]:
    """Compares the values of two checkpoints of any kinds.

    Returns:
      Lines on the variables and settings that differ, with a summary at the
      end; whether no value differs by more than the tolerance, and no setting.
    """
    lines, largest = [], 0.0
    ours, theirs = ({**x.others, **x.tensors} for x in (one, other))
    for path in sorted({*ours, *theirs}):
        if path not in ours or path not in theirs:
            having = one if path in ours else other
            lines.append(f"{path}  only in {having.path}")
            continue
        a = stored_weights.values(one.path, ours[path])
        b = stored_weights.values(other.path, theirs[path])
        if a.shape != b.shape:
            lines.append(f"{path}  {list(a.shape)} and {list(b.shape)}")
            largest = math.inf
        elif difference := float(np.max(np.abs(a - b), initial=0.0)):
            largest = max(largest, difference)
            lines.append(f"{path}  max |difference| {difference:.3g}")
    different = list(_differences(_beside(one), _beside(other)))
    lines += different
    common = len(ours.keys() & theirs.keys())
    # Tensors that are not BERT's may be left out.
    is_equal = (
        not different
        and one.tensors.keys() == other.tensors.keys()
        and largest <= tolerance
        and common > 0
    )
    verdict = "equal" if is_equal else "DIFFERENT"
    lines.append(
        f"{verdict}: {common} variables in both, max |difference| {largest:.3g}"
    )
    return lines, is_equal


def _beside(source: Source) -> dict[str, Any]:
    """Returns what predictions depend on besides weights, where it is known."""
    settings = source.settings
    values = {
        f"config: {name}": getattr(source.config, name, None)
        for name in _NOT_IN_SHAPES
    }
    if file_system.is_file(
        os.path.join(source.directory, model_directory.CONFIG)
    ):
        values["attention"] = settings.attention
    values |= {"labels": settings.labels, "problem_type": settings.problem_type}
    if tokenizer_files.has_vocabulary(source.directory):
        tokenizer = tokenizer_files.load(source.directory)
        known = tokenizer.settings | {"strip_accents": tokenizer.strips_accents}
        values |= {f"tokenizer: {name}": x for name, x in known.items()}
        values["tokens"] = tokenizer.vocabulary.tokens
    return {name: x for name, x in values.items() if x is not None}


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Yields a line on each value that differs, where both are known."""
    for name, a in ours.items():
        b = theirs.get(name, a)
        if a == b:
            continue
        if name == "tokens":
            pairs = enumerate(itertools.zip_longest(a, b))
            i, (a, b) = next(item for item in pairs if len({*item[1]}) > 1)
            name, a, b = f"vocabulary: token {i}", repr(a), repr(b)
        yield f"{name} is {a} and {b}"
