"""The files of sentence-transformers, which tell how vectors are made of texts.

    modules.json                        the steps, in order, and their folders
    config.json, model.safetensors      the encoder, here or in 0_Transformer/
    sentence_bert_config.json           max_seq_length, do_lower_case
    1_Pooling/config.json               pooling_mode
    2_Dense/config.json                 activation_function
    2_Dense/model.safetensors           linear.weight [O, I], linear.bias [O]
    config_sentence_transformers.json   default_prompt_name, truncate_dim

`read` returns the steps as `SentenceModules`, or refuses a step that this
project does not compute; `write` writes them beside an encoder. tokenizer_files
reads do_lower_case, because it belongs to the tokenizer whatever the task is.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from absl import logging

from foundation import atomic, errors, file_system, metadata
from weights import model_directory, stored_weights, tokenizer_files

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
# sentence-transformers' names of poolings, in the order in which old files,
# which have a flag for each, join several.
POOLINGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
NO_POOLING = "none"
# Classes of torch.nn.
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "Sigmoid", "SiLU")
_SUPPORTED = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")
_ORDER = re.compile("Transformer Pooling( Dense)*( Normalize)?")
_Length: Any = Annotated[int, msgspec.Meta(ge=3)] | float
_TRANSFORMER_FOLDER = "0_Transformer"
_NO_LIMIT = 10**30  # As transformers writes it.


class Dense(NamedTuple):
    """A layer on the vector of a text.

    kernel: float32 [I, O].
    bias: float32 [O], zeros if the file has none.
    activation: one of ACTIVATIONS.
    """

    kernel: np.ndarray
    bias: np.ndarray
    activation: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceModules:
    """How the vector of a text is made of those of its tokens.

    Attributes:
      folder: folder of modules.json; None without one.
      pooling: names of POOLINGS with commas, whose vectors are joined; or
        "none" for the vectors of all tokens.
      dense: layers on the pooled vector.
      normalize: whether the result has length 1.
      max_seq_length: the most tokens of a text; None if it is not known.
      truncate_dim: how many numbers of the result are used; None for all.
    """

    folder: str | None = None
    pooling: str = "mean"
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    max_seq_length: int | None = None
    truncate_dim: int | None = None

    def with_flags(self, **given: Any) -> "SentenceModules":
        """Returns the modules with the flags that are not None.

        Logs a warning for a flag that differs from what modules.json says.
        """
        given = {k: value for k, value in given.items() if value is not None}
        for name, value in given.items():
            current = getattr(self, name)
            if self.folder is not None and current not in (value, None):
                logging.warning(
                    f"--{name}={value} is used, given or by default; the files "
                    f"of sentence-transformers in {self.folder} say {current}"
                )
        return dataclasses.replace(self, **given)

    @property
    def dense_digest(self) -> str:
        """The SHA-256 of the dense layers."""
        parts = (
            repr(x.kernel.shape).encode()
            + x.activation.encode()
            + x.kernel.tobytes()
            + x.bias.tobytes()
            for x in self.dense
        )
        return hashlib.sha256(b"".join(parts)).hexdigest()

    @property
    def is_pooled(self) -> bool:
        """Whether a text has one vector."""
        return self.pooling != NO_POOLING

    def vector_size(self, hidden_size: int) -> int:
        """Returns the size of a vector for the encoder's hidden size.

        Raises:
          InputError: a dense layer takes vectors of another size.
        """
        size = hidden_size * len(self.pooling.split(","))
        for dense in self.dense:
            inputs, outputs = dense.kernel.shape
            if inputs != size:
                raise errors.InputError(
                    f"{self.folder}: a dense layer takes {inputs} numbers, but "
                    f"the step before it (--pooling={self.pooling}) gives "
                    f"{size}"
                )
            size = outputs
        return min(size, self.truncate_dim or size)


def open_modules(
    folder: str,
    *,
    pooling: str | None,
    normalize: bool | None,
    max_seq_length: int | None,
) -> SentenceModules:
    """Returns how vectors are made, by the flags and the files.

    The arguments are flags; None for what the files say, or for the mean of all
    tokens without files. `folder` is that of the encoder's weights.

    Raises:
      InputError: a file is damaged, or has a step that is not supported.
    """
    is_pooled = pooling != NO_POOLING
    modules = read(folder) if is_pooled else SentenceModules()
    return modules.with_flags(
        pooling=pooling, normalize=normalize, max_seq_length=max_seq_length
    )


def transformer_folder(directory: str) -> str | None:
    """Returns the folder of the encoder if modules.json names another one."""
    folder = os.path.join(directory, _TRANSFORMER_FOLDER)
    return folder if _root(folder) == directory else None


def _root(folder: str) -> str | None:
    """Returns the folder of modules.json for the folder of the weights."""
    parent, name = os.path.split(folder)
    for root in (folder, parent) if name == _TRANSFORMER_FOLDER else (folder,):
        if file_system.is_file(os.path.join(root, MODULES)):
            return root
    return None


def read(folder: str) -> SentenceModules:
    """Reads the modules of the encoder whose weights are in a folder.

    Returns:
      The modules; the defaults without modules.json, or if it has no step after
      the encoder.

    Raises:
      InputError: a file is damaged, or has a step that is not supported.
    """
    root = _root(folder)
    if root is None:
        return SentenceModules()
    modules = [x for x in _modules(root) if x[0] != "Dropout"]
    kinds = [kind for kind, _ in modules]
    if kinds == ["Transformer"]:
        return SentenceModules()
    if not _ORDER.fullmatch(" ".join(kinds)):
        raise errors.InputError(
            f"{root}: its {MODULES} has {', '.join(kinds)}; only Transformer, "
            "Pooling, Dense and Normalize in this order are supported"
        )
    settings = _prompts(root)
    prompt = (settings.prompts or {}).get(settings.default_prompt_name or "")
    if prompt:
        logging.warning(
            f"{root}: sentence-transformers puts {prompt!r} before every "
            "text. The texts are taken as they are: begin them with it"
        )
    return SentenceModules(
        folder=root,
        pooling=_pooling(os.path.join(modules[1][1], model_directory.CONFIG)),
        dense=tuple(
            _dense(place) for kind, place in modules if kind == "Dense"
        ),
        normalize="Normalize" in kinds,
        max_seq_length=_max_seq_length(folder),
        truncate_dim=settings.truncate_dim,
    )


def write(folder: str, modules: SentenceModules, hidden_size: int) -> None:
    """Writes the modules, without Dense, for an encoder in a folder.

    modules.json is the last file: where it is, those that it names are, too.

    Args:
      folder: folder of the encoder's weights.
      modules: how vectors are made; `max_seq_length` is written if known.
      hidden_size: hidden size of the encoder.
    """
    steps = ["Transformer", "Pooling"] + ["Normalize"] * modules.normalize
    places = ["", *(f"{i}_{name}" for i, name in enumerate(steps) if i)]
    names = modules.pooling.split(",")
    pooling = {
        "word_embedding_dimension": hidden_size,
        **{flag: name in names for name, flag in POOLINGS.items()},
        "include_prompt": True,
    }
    length = modules.max_seq_length
    files = {
        os.path.join(places[1], model_directory.CONFIG): pooling,
        tokenizer_files.SENTENCES: length and _sentence_settings(length),
        PROMPTS: {"prompts": {}, "similarity_fn_name": "cosine"},
        MODULES: _entries(zip(steps, places, strict=True)),
    }
    for place in places:
        file_system.make_folder(os.path.join(folder, place))
    for name, value in files.items():
        if value is not None:
            atomic.write_json(os.path.join(folder, name), value)


def files_of_copy(folder: str) -> dict[str, bytes]:
    """Returns the files that a copy of an encoder needs to make its vectors.

    Args:
      folder: the folder of the encoder's weights; those of the copy are beside
        modules.json.

    Returns:
      Relative path -> content; {} without modules.json.

    Raises:
      InputError: see `read`.
    """
    root = _root(folder)
    if root is None:
        return {}
    modules = [
        (kind, "" if kind == "Transformer" else os.path.relpath(place, root))
        for kind, place in _modules(root)
    ]
    names = [PROMPTS]
    for _, place in filter(lambda module: module[1], modules):
        names += [os.path.join(place, model_directory.CONFIG)]
        names += [os.path.join(place, model_directory.WEIGHTS)]
    files = {
        name: file_system.read(os.path.join(root, name))
        for name in names
        if file_system.is_file(os.path.join(root, name))
    }
    length = _max_seq_length(folder)
    sentences = _sentence_settings(None if length == _NO_LIMIT else length)
    written = {MODULES: _entries(modules), tokenizer_files.SENTENCES: sentences}
    for name, value in written.items():
        files[name] = (json.dumps(value, indent=2) + "\n").encode()
    return files


def _entries(modules: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Returns modules.json, of the class and the folder of each module."""
    return [
        {
            "idx": i,
            "name": str(i),
            "path": place,
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, (kind, place) in enumerate(modules)
    ]


def _sentence_settings(max_seq_length: int | None) -> dict[str, Any]:
    """Returns sentence_bert_config.json; the tokenizer lower-cases."""
    return {"max_seq_length": max_seq_length, "do_lower_case": False}


@dataclasses.dataclass(frozen=True)
class _Module:
    """A module in modules.json; its path cannot lead out of the folder."""

    path: Annotated[str, msgspec.Meta(pattern=r"\A(?!/)(?!.*\.\.)")]
    type: str


def _modules(root: str) -> list[tuple[str, str]]:
    """Returns the class and the folder of each module of modules.json."""
    path = os.path.join(root, MODULES)
    modules = []
    for module in metadata.read(path, list[_Module]):
        project, *_, kind = module.type.split(".")
        if project != "sentence_transformers" or kind not in _SUPPORTED:
            raise errors.InputError(
                f"{path}: {module.type} is not supported, only "
                f"{', '.join(_SUPPORTED)} of sentence_transformers; without "
                "its entry, vectors are made without it"
            )
        modules.append((kind, os.path.join(root, module.path)))
    return modules


@dataclasses.dataclass(frozen=True)
class _PoolingConfig:
    """The config of a Pooling module."""

    pooling_mode: str | list[str] | None = None


def _pooling(path: str) -> str:
    """Returns the names of a Pooling module's config, with commas."""
    values = metadata.read(path, metadata.Object)
    names = metadata.convert(values, _PoolingConfig, path).pooling_mode
    if names is None:  # Of old files.
        # Mean is the default where its flag is missing.
        values = {POOLINGS["mean"]: True} | values
        known = [x for x, flag in POOLINGS.items() if values.get(flag)]
        flags = {x for x in values if x.startswith("pooling_mode_")}
        unknown = sorted(flags - {*POOLINGS.values()})
        names = known + [flag for flag in unknown if values[flag]]
    names = [names] if isinstance(names, str) else names
    if not names or {*names} - {*POOLINGS}:
        raise errors.InputError(
            f"{path}: pooling_mode is {json.dumps(names)}; supported are "
            f"{', '.join(POOLINGS)}"
        )
    return ",".join(names)


@dataclasses.dataclass(frozen=True)
class _DenseConfig:
    """The config of a Dense module."""

    activation_function: str = "torch.nn.Tanh"
    use_residual: bool = False


def _dense(folder: str) -> Dense:
    """Reads a Dense module: its config and its weights."""
    path = os.path.join(folder, model_directory.CONFIG)
    config = metadata.read(path, _DenseConfig)
    project, _, activation = config.activation_function.rpartition(".")
    if (
        not project.startswith("torch.")
        or activation not in ACTIVATIONS
        or config.use_residual
    ):
        raise errors.InputError(
            f"{path}: only layers with {', '.join(ACTIVATIONS)} of torch.nn "
            "and without use_residual are supported"
        )
    file = os.path.join(folder, model_directory.WEIGHTS)
    if not file_system.is_file(file):
        raise errors.InputError(
            f"{file}: no such file; weights in other files, such as "
            f"{model_directory.TORCH_WEIGHTS}, are not read: save the model as "
            "safetensors with sentence-transformers"
        )
    stored = model_directory.read_safetensors(file)
    kernel = stored_weights.values(file, stored["linear.weight"]).T
    bias = np.zeros(kernel.shape[1:], np.float32)
    if "linear.bias" in stored:
        bias = stored_weights.values(file, stored["linear.bias"])
    return Dense(np.ascontiguousarray(kernel), bias, activation)


def _max_seq_length(folder: str) -> int:
    """Returns the maximum number of tokens; it may exceed the positions."""
    for name, key in (
        (tokenizer_files.SENTENCES, "max_seq_length"),
        (tokenizer_files.SETTINGS, "model_max_length"),
    ):
        path = os.path.join(folder, name)
        stored = metadata.read_if_present(path, metadata.Object) or {}
        value = stored.get(key)
        if value is not None:
            length = metadata.convert(value, _Length, f"{path}: {key}")
            return int(min(length, _NO_LIMIT))
    return _NO_LIMIT


@dataclasses.dataclass(frozen=True)
class _Prompts:
    """What is read of config_sentence_transformers.json."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: metadata.Size | None = None
    activation_fn: str | None = None


def _prompts(root: str) -> _Prompts:
    found = metadata.read_if_present(os.path.join(root, PROMPTS), _Prompts)
    return found or _Prompts()


def keeps_logit(directory: str) -> bool:
    """Returns whether a CrossEncoder's score is its output as it is.

    Otherwise, the score of one output is its sigmoid.
    """
    path = os.path.join(directory, model_directory.CONFIG)
    config = metadata.read_if_present(path, metadata.Object) or {}
    settings = config.get("sentence_transformers")
    names = (
        _prompts(directory).activation_fn,
        settings.get("activation_fn") if isinstance(settings, dict) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    activation = str(next(filter(None, names), "torch.nn.Sigmoid"))
    if not re.fullmatch(r"torch\..*\.(Identity|Sigmoid)", activation):
        errors.warn_once(
            f"{directory}: scores are sigmoids; the model's {activation} is "
            "not supported"
        )
    return re.fullmatch(r"torch\..*\.Identity", activation) is not None
