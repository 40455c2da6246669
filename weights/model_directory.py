"""Model directories in the form of Hugging Face, which transformers loads.

    model.safetensors   the weights under Hugging Face's names
    config.json         hyperparameters in transformers' form, and `Settings`
    bert_config.json    the hyperparameters alone, in google-research/bert's
                        form
    vocab.txt, tokenizer_config.json    see tokenizer_files

Other projects may store the weights in other files:

    pytorch_model.bin                   a pickle, read if torch is installed
    *.index.json                        which of several files has which tensor

`save` writes a model. `match_hugging_face` translates the names and the layout
of the tensors that were read to ours.
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import safetensors
import safetensors.numpy
from absl import logging

from data.tokenization import wordpiece
from foundation import (
    atomic,
    copies,
    errors,
    file_system,
    hub,
    metadata,
    tensor_files,
)
from modeling.config import BertConfig
from weights import kinds, stored_weights, tokenizer_files
from weights.stored_weights import Matched, StoredTensor

WEIGHTS = "model.safetensors"
TORCH_WEIGHTS = "pytorch_model.bin"
INDEX = f"{WEIGHTS}.index.json"
TORCH_INDEX = f"{TORCH_WEIGHTS}.index.json"
RELEASED_CONFIG = "bert_config.json"
CONFIG = "config.json"
_CONFIGS = (RELEASED_CONFIG, CONFIG)
# Model -> the class of transformers with the same head.
_ARCHITECTURES = {
    "ClassificationModel": "BertForSequenceClassification",
    "DocumentModel": "BertForSequenceClassification",
    "MultipleChoiceModel": "BertForMultipleChoice",
    "QuestionAnsweringModel": "BertForQuestionAnswering",
    "TaggingModel": "BertForTokenClassification",
}
_DECODER = "cls.predictions.decoder.weight"
_DECODER_BIAS = "cls.predictions.decoder.bias"
_BIAS = "cls.predictions.bias"
_IN_ENCODER = ("bert.embeddings.", "bert.encoder.")
_Label = metadata.Text | int | float | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What config.json contains besides the hyperparameters.

    Attributes:
      architecture: the class of transformers with the same heads; "BertModel"
        if they are unknown.
      attention: "bidirectional" or "left_to_right", see modeling.encoder.
      bilstm_size: size of the BiLSTM under the head, which transformers does
        not know; 0 without one.
      labels: names of a classifier's or tagger's classes.
      problem_type: transformers' name for the kind of classification.
      pad_token_id: id of [PAD]; transformers does not train its embedding.
    """

    architecture: str | None = None
    attention: str = "bidirectional"
    bilstm_size: int = 0
    labels: Sequence[str] | None = None
    problem_type: str | None = None
    pad_token_id: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config:
    """The keys of config.json that become `Settings`."""

    architectures: list[str | None] | None = None
    bilstm_size: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 0
    bilstm_head: str | None = None
    id2label: dict[int, _Label] | None = None
    is_decoder: bool | None = None
    problem_type: str | None = None
    pad_token_id: metadata.Count | None = None


@dataclasses.dataclass(frozen=True)
class _Index:
    """The content of model.safetensors.index.json."""

    # A name without "/" cannot lead out of the directory.
    weight_map: dict[str, Annotated[str, msgspec.Meta(pattern=r"^\w[\w.-]*$")]]


def save(
    model: Any,
    directory: str | os.PathLike,
    tokenizer: wordpiece.Tokenizer | None = None,
    *,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> None:
    """Writes a model directory; each file is replaced atomically.

    Args:
        model: One of modeling.models.
        directory: On a disk or in a bucket.
        tokenizer: None writes no vocabulary, with a warning.
        labels: Names of the classes of a classifier or tagger.
        problem_type: See Settings; None is regression for one class.
    """
    directory = os.fspath(directory)
    name, count = architecture(model), getattr(model, "num_classes", None)
    if labels is None and count is not None:
        labels = kinds.unnamed(count)
    if name == "BertForSequenceClassification" and count == 1:
        problem_type = problem_type or "regression"
    settings = Settings(
        architecture=name,
        attention=model.bert.attention,
        bilstm_size=getattr(model, "bilstm_size", 0),
        labels=labels,
        problem_type=problem_type,
        pad_token_id=tokenizer.vocabulary.pad_id if tokenizer else 0,
    )
    file_system.make_folder(directory)
    if tokenizer is None:
        logging.warning(
            f"{directory} has no vocab.txt: the vocabulary is not known; "
            "--vocab_file names it"
        )
    else:
        max_length = model.config.max_position_embeddings
        tokenizer_files.save(tokenizer, directory, max_length=max_length)
    values = {variable.path: variable.numpy() for variable in model.weights}
    write(directory, model.config, values, settings)


def architecture(model: Any) -> str:
    """Returns the name of transformers' class with the same heads."""
    model = getattr(model, "tagger", model)  # Of a model with a CRF.
    name = type(model).__name__
    if name != "PretrainingModel":
        return _ARCHITECTURES.get(name, "BertModel")
    if model.next_sentence is not None:
        return "BertForPreTraining"
    is_causal = model.bert.attention == "left_to_right"
    return "BertLMHeadModel" if is_causal else "BertForMaskedLM"


def write(
    directory: str,
    config: BertConfig,
    values: Mapping[str, np.ndarray],
    settings: Settings,
    others: Mapping[str, StoredTensor] | None = None,
) -> None:
    """Writes both configs and the weights; `values` maps our paths to float32.

    `others` are tensors by name, which are written as they are. The weights are
    the last file: where they are, all others are complete. The directory, on a
    disk or in a bucket, is made if it is missing.
    """
    file_system.make_folder(directory)
    write_configs(directory, config, settings)
    tensors = {name: tensor.read() for name, tensor in (others or {}).items()}
    for path, value in values.items():
        row = stored_weights.by_path(path)
        tensors[stored_weights.stored_name(path)] = np.asarray(
            value.T if row and row.is_transposed else value,
            order="C",
        )
    weights = os.path.join(directory, WEIGHTS)
    # The library renames a file of its own to the temporary path.
    with atomic.replacing(weights) as temporary:
        # transformers refuses files that do not name a format.
        safetensors.numpy.save_file(tensors, temporary, {"format": "pt"})
        if not file_system.is_remote(directory):  # Else only we may read.
            shutil.copymode(os.path.join(directory, CONFIG), temporary)


def write_configs(
    directory: str, config: BertConfig, settings: Settings
) -> None:
    """Writes bert_config.json and config.json."""
    # With a BiLSTM, the file has more weights than the class of its head.
    head, size = settings.architecture, settings.bilstm_size
    labels = settings.labels
    numbered = None if labels is None else dict(enumerate(labels))
    optional: dict[str, Any] = {
        "is_decoder": settings.attention == "left_to_right" or None,
        "id2label": numbered,
        "label2id": numbered and {x: i for i, x in enumerate(labels or ())},
        "problem_type": settings.problem_type,
        "bilstm_size": size or None,
        "bilstm_head": head if size else None,
    }
    values = {
        "architectures": ["BertModel" if size else head],
        **config.to_hugging_face(),
        "pad_token_id": settings.pad_token_id,
        **{name: x for name, x in optional.items() if x is not None},
    }
    path = os.path.join(directory, RELEASED_CONFIG)
    atomic.write_json(path, config.to_dict())
    atomic.write_json(os.path.join(directory, CONFIG), values)


def read_config(
    directory: str,
    names: Sequence[str] = (CONFIG, RELEASED_CONFIG),
    *,
    of_tensorflow: bool = False,
) -> BertConfig | None:
    """Reads the first of these configs in a directory; None without any.

    See BertConfig.from_json_file.
    """
    paths = (os.path.join(directory, name) for name in names)
    path = next(filter(file_system.is_file, paths), None)
    if path is None:
        return None
    return BertConfig.from_json_file(path, of_tensorflow=of_tensorflow)


def read_settings(directory: str) -> Settings:
    """Reads the settings in config.json; without one, returns the defaults.

    Raises:
      InputError: they have wrong types.
    """
    path = os.path.join(directory, CONFIG)
    config = metadata.read_if_present(path, _Config) or _Config()
    architectures = [config.bilstm_head, *(config.architectures or ())]
    return Settings(
        architecture=next(filter(None, architectures), None),
        attention="left_to_right" if config.is_decoder else "bidirectional",
        bilstm_size=config.bilstm_size,
        labels=_labels(path, config),
        problem_type=config.problem_type,
        pad_token_id=config.pad_token_id or 0,
    )


def _labels(path: str, config: _Config) -> list[str] | None:
    """Returns the names of the classes, None if they are unknown."""
    names = config.id2label
    if names is None:  # transformers does not write its names of two classes.
        is_default = config.architectures == ["BertForSequenceClassification"]
        return kinds.unnamed(2) if is_default else None
    if sorted(names) != list(range(len(names))):
        errors.warn_once(
            f"{path}: id2label is not used, as it does not name the classes 0, "
            "1, ...: correct it, or use --label_names where a command has it"
        )
        return None
    return [str(names[i]) for i in range(len(names))]


def read_index(index: str) -> dict[str, StoredTensor]:
    """Lists the tensors that an index names, in the files beside it.

    Raises:
        InputError: the index or a file is damaged, or does not have a tensor.
    """
    directory = os.path.dirname(index)
    read = read_torch if index.endswith(TORCH_INDEX) else read_safetensors
    weight_map = metadata.read(index, _Index).weight_map
    files: dict[str, dict[str, StoredTensor]] = {}
    for file in sorted({*weight_map.values()}):
        path = os.path.join(directory, file)
        if not file_system.exists(path):
            raise errors.InputError(f"{directory}: {file} is missing")
        files[file] = read(path)
    for name, file in weight_map.items():
        if name not in files[file]:
            raise errors.InputError(f"{index}: {file} has no {name}")
    return {name: files[file][name] for name, file in weight_map.items()}


def read_safetensors(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a safetensors file; their values are read later.

    Raises:
        InputError: the file is truncated or damaged.
    """
    copy = copies.local(path)

    def read(name: str, dtype: str) -> np.ndarray:
        # A mapped file must not change, so it is opened for one tensor only.
        with _opened(copy) as file:
            value = file.get_tensor(name)
        return value.astype(np.float32) if dtype == "BF16" else value

    tensors = {}
    try:
        with _opened(copy) as file:
            for name in file.keys():
                entry = file.get_slice(name)
                shape, dtype = tuple(entry.get_shape()), entry.get_dtype()
                load = functools.partial(read, name, dtype)
                tensors[name] = StoredTensor(name, shape, dtype, load)
    except safetensors.SafetensorError as error:
        raise errors.InputError(
            f"{path}: truncated, or not a safetensors file ({error!s:.150})"
        ) from error
    return tensors


def _opened(path: str) -> Any:
    """Returns safetensors' reader of a file on this disk."""
    with open(path, "rb"):  # The library calls all failures a missing file.
        return safetensors.safe_open(path, framework="np")


def read_torch(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a PyTorch state dict, without unpickling code.

    Raises:
      InputError: torch is not installed, or the file holds other objects.
    """
    if importlib.util.find_spec("torch") is None:
        raise errors.InputError(
            f"{path} is a pickle, which only torch can read, and torch is not "
            "installed: pip install torch"
        )
    copy = copies.local(path)
    torch = importlib.import_module("torch")
    try:
        state = torch.load(copy, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # The unpickler raises many types.
        raise errors.InputError(
            f"{path}: torch refuses it: {errors.reason(error)}"
        ) from error
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]  # Beside the state of a training.
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor)
        for name, value in state.items()
    ):
        raise errors.InputError(f"{path}: not a mapping of names to tensors")

    def read(value: Any) -> np.ndarray:
        wide = value.to(torch.float32) if value.is_floating_point() else value
        return wide.numpy()

    return {
        name: StoredTensor(
            name,
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
            functools.partial(read, value),
        )
        for name, value in state.items()
    }


def match_hugging_face(
    where: str, stored: Mapping[str, StoredTensor]
) -> Matched:
    """Translates the tensors of a transformers checkpoint to our paths.

    The encoder may be in another scope than "bert.", such as "module.".

    Raises:
      InputError: there are two encoders, or the encoder has weights that
        BERT's does not have.
    """
    names = stored_weights.unscoped(where, stored, ".")
    if _BIAS not in names and _DECODER_BIAS in names:
        # The file may hold either of the two tied tensors.
        names[_BIAS] = names.pop(_DECODER_BIAS)
    tensors: dict[str, StoredTensor] = {}
    others: dict[str, StoredTensor] = {}
    for canonical, name in names.items():
        tensor, row = stored[name], stored_weights.by_hugging_face(canonical)
        if row is not None:
            is_kernel = row.is_transposed
            tensors[row.path] = (
                tensor.rearranged(np.transpose) if is_kernel else tensor
            )
        elif not stored_weights.is_derived(canonical):
            others[canonical] = tensor
    unknown = [names[x] for x in others if x.startswith(_IN_ENCODER)]
    if unknown:
        has_adapter = any(".lora_" in name for name in unknown)
        advice = "; merge the adapter with its weights first, with peft"
        raise errors.InputError(
            f"{where}: {unknown[0]}, one of {len(unknown)} weights that BERT's "
            "encoder does not have: it is another encoder"
            f"{advice if has_adapter else ''}"
        )
    decoder = stored.get(names.get(_DECODER, ""))
    words = tensors.get("bert/embeddings/word_embeddings")
    if decoder and words:
        is_tied = decoder.shape == words.shape and np.array_equal(
            decoder.read(), words.read()
        )
        others |= {} if is_tied else {_DECODER: decoder}
    return Matched(tensors, others, {})


def has_model(directory: str) -> bool:
    """Returns whether a run has written its model to a directory."""
    return file_system.exists(os.path.join(directory, WEIGHTS))


def check_not_the_start(
    output_dir: str, init_checkpoint: str | None, *, is_grid: bool = False
) -> None:
    """Refuses to train in the directory that --init_checkpoint is in.

    A directory with a run's checkpoints is resumed instead, whatever the run
    started from. A grid is not, because its runs have their own directories.
    """
    begun = file_system.exists(os.path.join(output_dir, tensor_files.POINTER))
    if init_checkpoint is None or (begun and not is_grid):
        return
    start = file_system.folder_of(hub.local(init_checkpoint))
    if file_system.real(start) == file_system.real(output_dir):
        raise errors.InputError(
            f"--output_dir={output_dir} contains --init_checkpoint, which "
            "training would overwrite; choose another"
        )


def check_output_dir(output_dir: str, config: BertConfig) -> None:
    """Refuses to overwrite a model with other hyperparameters."""
    folder = copies.local_folder(output_dir, _CONFIGS)
    existing = read_config(folder, [RELEASED_CONFIG]) or config
    for name, value in config.to_dict().items():
        if (other := getattr(existing, name)) != value:
            raise errors.InputError(
                f"--output_dir={output_dir} holds another model: its {name} "
                f"is {other}, not {value}"
            )
