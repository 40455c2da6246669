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
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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
_VECTOR = "sentence_embedding"  # The vector's name between modules.
_TRANSFORMER_FOLDER = "0_Transformer"
_NO_LIMIT = 10**30  # As transformers writes it.
_WEIGHTS = {"weight": "linear.weight", "bias": "linear.bias"}


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
        digest = hashlib.sha256()
        for dense in self.dense:
            digest.update(repr(dense.kernel.shape).encode())
            digest.update(dense.activation.encode())
            digest.update(dense.kernel.tobytes() + dense.bias.tobytes())
        return digest.hexdigest()

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
    modules = SentenceModules()
    if pooling != NO_POOLING:
        modules = read(folder)
    elif _root(folder) is not None:
        logging.info(
            f"{folder}: the files of sentence-transformers make one vector of "
            "a text; they are not used with --pooling=none"
        )
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
    path = os.path.join(root, MODULES)
    modules = _modules(path)
    if [kind for kind, _ in modules] == ["Transformer"]:
        return SentenceModules()
    kinds = [kind for kind, _ in modules if kind != "Dropout"]
    is_normalized = "Normalize" in kinds
    count = kinds.count("Dense")
    expected = ["Transformer", "Pooling"] + ["Dense"] * count
    if kinds != expected + ["Normalize"] * is_normalized:
        raise errors.InputError(
            f"{path}: {', '.join(kinds)}; only Transformer, Pooling, Dense and "
            "Normalize in this order are supported"
        )
    (pooling,) = [place for kind, place in modules if kind == "Pooling"]
    for kind, place in modules:
        if kind == "Normalize":
            settings = os.path.join(place, model_directory.CONFIG)
            _check_names(settings, _object(settings))
    _warn_of_prompt(root)
    return SentenceModules(
        folder=root,
        pooling=_pooling(os.path.join(pooling, model_directory.CONFIG)),
        dense=tuple(
            _dense(place) for kind, place in modules if kind == "Dense"
        ),
        normalize=is_normalized,
        max_seq_length=_max_seq_length(folder),
        truncate_dim=_truncate_dim(root),
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
    for place in places:
        file_system.make_folder(os.path.join(folder, place))
    names = modules.pooling.split(",")
    pooling = {
        "word_embedding_dimension": hidden_size,
        **{flag: name in names for name, flag in POOLINGS.items()},
        "include_prompt": True,
    }
    atomic.write_json(
        os.path.join(folder, places[1], model_directory.CONFIG), pooling
    )
    if modules.max_seq_length is not None:
        atomic.write_json(
            os.path.join(folder, tokenizer_files.SENTENCES),
            _sentence_settings(modules.max_seq_length),
        )
    similarity = {"prompts": {}, "similarity_fn_name": "cosine"}
    atomic.write_json(os.path.join(folder, PROMPTS), similarity)
    entries = _entries(zip(steps, places, strict=True))
    atomic.write_json(os.path.join(folder, MODULES), entries)


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
    modules = _modules(os.path.join(root, MODULES))
    paths = [os.path.join(root, PROMPTS)]
    for kind, place in modules:
        if kind != "Transformer":
            names = (model_directory.CONFIG, model_directory.WEIGHTS)
            paths += [os.path.join(place, name) for name in names]
    files = {
        os.path.relpath(path, root): file_system.read(path)
        for path in paths
        if file_system.is_file(path)
    }
    length = _max_seq_length(folder)
    written = {
        MODULES: _entries(
            (
                kind,
                "" if kind == "Transformer" else os.path.relpath(place, root),
            )
            for kind, place in modules
        ),
        tokenizer_files.SENTENCES: _sentence_settings(
            None if length == _NO_LIMIT else length
        ),
    }
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


def _modules(path: str) -> list[tuple[str, str]]:
    """Returns the class and the folder of each module of modules.json."""
    root = os.path.dirname(path)
    entries = file_system.read_json(path)
    if not isinstance(entries, list) or not entries:
        raise errors.InputError(f"{path}: not a list of modules")
    modules = []
    for entry in entries:
        entry = entry if isinstance(entry, dict) else {}
        place, name = entry.get("path"), entry.get("type")
        if (
            not isinstance(place, str)
            or not isinstance(name, str)
            or os.path.isabs(place)
            or ".." in place.split("/")
        ):
            raise errors.InputError(
                f"{path}: {json.dumps(entry)} is no module with a type and a "
                "path in this folder"
            )
        parts = name.split(".")
        project, kind = parts[0], parts[-1]
        supported = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")
        if project != "sentence_transformers" or kind not in supported:
            raise errors.InputError(
                f"{path}: {name} is not supported, only "
                f"{', '.join(supported)} of sentence_transformers; without "
                "its entry, vectors are made without it"
            )
        modules.append((kind, os.path.join(root, place)))
    return modules


def _pooling(path: str) -> str:
    """Returns the names of a Pooling module's config, with commas."""
    if not file_system.is_file(path):
        raise errors.InputError(
            f"{path}: no such file, but {MODULES} names its folder"
        )
    values = _object(path)
    mode = values.get("pooling_mode")
    if mode is None:
        flags = [x for x in values if x.startswith("pooling_mode_")]
        unknown = [x for x in flags if x not in POOLINGS.values()]
        if any(values[name] for name in unknown):
            raise errors.InputError(f"{path}: {unknown[0]} is not supported")
        mode = [k for k, flag in POOLINGS.items() if values.get(flag)]
        # Mean is the default where its flag is missing.
        if not mode and POOLINGS["mean"] in values:
            raise errors.InputError(f"{path}: no pooling_mode is true")
    names = [mode] if isinstance(mode, str) else mode or ["mean"]
    if not isinstance(names, list) or not all(
        isinstance(x, str) and x in POOLINGS for x in names
    ):
        raise errors.InputError(
            f"{path}: pooling_mode is {json.dumps(mode)}; supported are "
            f"{', '.join(POOLINGS)}"
        )
    return ",".join(names)


def _dense(folder: str) -> Dense:
    """Reads a Dense module: its config and its weights."""
    path = os.path.join(folder, model_directory.CONFIG)
    config = _object(path)
    _check_names(path, config)
    if config.get("use_residual"):
        raise errors.InputError(f"{path}: use_residual is not supported")
    name = config.get("activation_function", "torch.nn.Tanh")
    project, _, activation = str(name).rpartition(".")
    if not project.startswith("torch.") or activation not in ACTIVATIONS:
        raise errors.InputError(
            f"{path}: activation_function is {name}; supported are "
            f"{', '.join(ACTIVATIONS)} of torch.nn"
        )
    file = os.path.join(folder, model_directory.WEIGHTS)
    if not file_system.is_file(file):
        raise errors.InputError(
            f"{file}: no such file; weights in other files, such as "
            f"{model_directory.TORCH_WEIGHTS}, are not read: save the model as "
            "safetensors with sentence-transformers"
        )
    stored = model_directory.read_safetensors(file)
    weight = stored.get(_WEIGHTS["weight"])
    has_bias = config.get("bias", True)
    names = {*_WEIGHTS.values()} if has_bias else {_WEIGHTS["weight"]}
    if weight is None or {*stored} != names or len(weight.shape) != 2:
        raise errors.InputError(
            f"{file}: holds {', '.join(stored)}; a dense layer has the matrix "
            f"{' and '.join(sorted(names, reverse=True))}"
        )
    kernel = stored_weights.values(file, weight).T
    bias = np.zeros(kernel.shape[1:], np.float32)
    if has_bias:
        bias = stored_weights.values(file, stored[_WEIGHTS["bias"]])
    sizes = config.get("in_features"), config.get("out_features")
    if kernel.shape != sizes or bias.shape != kernel.shape[1:]:
        raise errors.InputError(
            f"{file}: the weights are {list(kernel.T.shape)} and "
            f"{list(bias.shape)}, but {path} says in_features={sizes[0]} and "
            f"out_features={sizes[1]}"
        )
    return Dense(np.ascontiguousarray(kernel), bias, activation)


def _check_names(path: str, config: Mapping[str, Any]) -> None:
    """Refuses a module on something else than the vector of a text."""
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise errors.InputError(
                f"{path}: {key} is {json.dumps(config[key])}; only {_VECTOR} "
                "is supported"
            )


def _max_seq_length(folder: str) -> int:
    """Returns the maximum number of tokens; it may exceed the positions."""
    for name, key in (
        (tokenizer_files.SENTENCES, "max_seq_length"),
        (tokenizer_files.SETTINGS, "model_max_length"),
    ):
        path = os.path.join(folder, name)
        value = _object(path).get(key)
        if value is None:
            continue
        if isinstance(value, bool | str | list | dict) or not value >= 3:
            raise errors.InputError(
                f"{path}: {key} is {json.dumps(value)}, not a number of tokens "
                "from 3"
            )
        return int(min(value, _NO_LIMIT))
    return _NO_LIMIT


def _truncate_dim(root: str) -> int | None:
    path = os.path.join(root, PROMPTS)
    value = _object(path).get("truncate_dim")
    if value is not None and (type(value) is not int or value < 1):
        raise errors.InputError(
            f"{path}: truncate_dim is {json.dumps(value)}, not a number from 1"
        )
    return value


def _warn_of_prompt(root: str) -> None:
    """Warns of a text that sentence-transformers puts before every text."""
    path = os.path.join(root, PROMPTS)
    values = _object(path)
    prompts = values.get("prompts")
    name = values.get("default_prompt_name")
    if (
        isinstance(prompts, dict)
        and isinstance(name, str)
        and prompts.get(name)
    ):
        logging.warning(
            f"{path}: sentence-transformers puts {prompts[name]!r} before "
            "every text. The texts are taken as they are: begin them with it"
        )


def keeps_logit(directory: str) -> bool:
    """Returns whether a CrossEncoder's score is its output as it is.

    Otherwise, the score of one output is its sigmoid.
    """
    config = _object(os.path.join(directory, model_directory.CONFIG))
    prompts = _object(os.path.join(directory, PROMPTS))
    settings = config.get("sentence_transformers")
    names = (
        prompts.get("activation_fn"),
        settings.get("activation_fn") if isinstance(settings, dict) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    activation = next((x for x in names if isinstance(x, str)), "")
    module, _, function = activation.rpartition(".")
    is_known = module.split(".")[0] == "torch"
    if activation and not (is_known and function in ("Identity", "Sigmoid")):
        errors.warn_once(
            f"{directory}: scores are sigmoids; the model's {activation} is "
            "not supported"
        )
    return is_known and function == "Identity"


def _object(path: str) -> metadata.Object:
    """Returns the JSON object in a file, {} without the file."""
    return metadata.read_if_present(path, metadata.Object) or {}
