"""Hugging Face checkpoints: safetensors files, and PyTorch state dicts.

    model.safetensors               all tensors in one file, or
    model.safetensors.index.json    which of several files has which tensor
    pytorch_model.bin               a pickle, read if torch is installed

`match` translates names and layout to ours.
"""

import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors

from foundation import errors, file_system
from weights import stored_weights
from weights.stored_weights import Matched, StoredTensor

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
_FLOATS = ("F16", "BF16", "F32", "F64")
_DECODER = "cls.predictions.decoder.weight"
_BIAS = "cls.predictions.bias"
# torch is no dependency: users without it convert the file elsewhere.
_CONVERT = (
    "python -c \"import torch, safetensors.torch as s; w = torch.load('{name}',"
    " weights_only=True, map_location='cpu'); s.save_file({{k: v.clone()"
    " for k, v in w.items()}}, 'model.safetensors')\""
)


def read_index(index: str) -> dict[str, StoredTensor]:
    """Lists the tensors that an index names, in the files beside it.

    Raises:
        InputError: the index or a file is damaged, or does not have a tensor.
    """
    directory = os.path.dirname(index)
    values = file_system.read_json(index)
    weight_map = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(weight_map, dict):
        raise errors.InputError(f"{index}: no weight_map in it")
    files: dict[str, dict[str, StoredTensor]] = {}
    tensors = {}
    for name, file in weight_map.items():
        # A name without "/" cannot lead out of the directory.
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+", file):
            raise errors.InputError(f"{index}: {file!r} is no file name")
        if file not in files:
            path = os.path.join(directory, file)
            if not file_system.exists(path):
                raise errors.InputError(f"{directory}: {file} is missing")
            files[file] = read_file(path)
        if name not in files[file]:
            raise errors.InputError(f"{index}: {file} has no {name}")
        tensors[name] = files[file][name]
    return tensors


def read_file(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a safetensors file; their values are read later.

    Raises:
        InputError: the file is truncated or damaged.
    """
    copy = file_system.local(path)

    def read(name: str, dtype: str) -> np.ndarray:
        if dtype not in _FLOATS:
            raise errors.InputError(
                f"{path}: {name} is {dtype}; weights must be floats: "
                f"{', '.join(_FLOATS)}"
            )
        # A mapped file must not change, so it is opened for one tensor only.
        with safetensors.safe_open(copy, framework="np") as file:
            value = file.get_tensor(name)
        return value.astype(np.float32) if dtype == "BF16" else value

    try:
        with safetensors.safe_open(copy, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            kinds = {
                name: (tuple(found.get_shape()), found.get_dtype())
                for name, found in slices.items()
            }
    except safetensors.SafetensorError as error:
        raise errors.InputError(
            f"{path}: truncated, or not a safetensors file ({error!s:.150})"
        ) from error
    return {
        name: StoredTensor(
            name, shape, dtype, functools.partial(read, name, dtype)
        )
        for name, (shape, dtype) in kinds.items()
    }


def read_torch_file(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a PyTorch state dict, without unpickling code.

    Raises:
      InputError: torch is not installed, or the file holds other objects.
    """
    if importlib.util.find_spec("torch") is None:
        raise errors.InputError(
            f"{path} is a pickle, which only torch can read, and torch is not "
            "installed; where it is, run: " + _CONVERT.format(name=path)
        )
    torch = importlib.import_module("torch")
    try:
        state = torch.load(
            file_system.local(path), map_location="cpu", weights_only=True
        )
    except OSError:
        raise
    except Exception as error:  # The unpickler raises many types.
        reason = str(error).strip().splitlines()[0]
        raise errors.InputError(
            f"{path}: torch refuses it: {reason:.200}"
        ) from error
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


def match(where: str, stored: Mapping[str, StoredTensor]) -> Matched:
    """Translates the tensors of a transformers checkpoint to our paths.

    Raises:
      InputError: two tensors of the file are the same weight.
    """
    tensors: dict[str, StoredTensor] = {}
    others = {}
    for name, tensor in stored.items():
        known = name
        if name == "cls.predictions.decoder.bias" and _BIAS not in stored:
            known = _BIAS  # The file may hold either of the two tied tensors.
        if stored_weights.is_derived(known):
            continue
        row = stored_weights.by_hugging_face(known)
        if row is None:
            others[name] = tensor
            continue
        if row.path in tensors:
            raise errors.InputError(
                f"{where}: {tensors[row.path].name} and {name} are the same "
                "weight"
            )
        tensors[row.path] = tensor.transposed() if row.is_transposed else tensor
    decoder = stored.get(_DECODER)
    words = tensors.get("bert/embeddings/word_embeddings")
    if decoder and words:
        is_tied = decoder.shape == words.shape and np.array_equal(
            decoder.read(), words.read()
        )
        if not is_tied:
            others[_DECODER] = decoder
    return Matched(tensors, others)
