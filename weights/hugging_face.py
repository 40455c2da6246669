"""Reads safetensors files, trusting nothing that they say about themselves.

    8 bytes   length of the header, little endian
    header    JSON: name -> dtype, shape, [begin, end) within the data
    data      the tensors, raw

Every size is checked against the file's own before anything is allocated, and
half precision (float16, bfloat16) needs no torch. A model is one file, or
several named by an index.
"""

import importlib
import importlib.util
import json
import math
import os
import re
from typing import Any

import numpy as np

from foundation import errors
from modeling import config as bert_config
from weights.stored_weights import StoredTensor

NAME = "model.safetensors"
INDEX = f"{NAME}.index.json"
_LONGEST_HEADER = 100_000_000
_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
_NUMPY = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}


def is_here(directory: str) -> bool:
    """Tells whether a directory holds a model in this format."""
    names = (NAME, INDEX)
    return any(os.path.exists(os.path.join(directory, n)) for n in names)


def read_directory(directory: str) -> dict[str, StoredTensor]:
    """Lists the tensors of model.safetensors, or of its numbered parts."""
    path = os.path.join(directory, NAME)
    if os.path.exists(path):
        return read_file(path)
    index = os.path.join(directory, INDEX)
    if not os.path.exists(index):
        raise errors.InputError(f"{directory}: {NAME} is missing")
    values = bert_config.read_json(index)
    parts = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(parts, dict):
        raise errors.InputError(f"{index}: no weight_map in it")
    files: dict[str, dict[str, StoredTensor]] = {}
    tensors = {}
    for name, part in parts.items():
        # A part lies beside its index: no path out of the directory.
        if not isinstance(part, str) or not re.fullmatch(r"[\w.-]+", part):
            raise errors.InputError(f"{index}: {part!r} is no file name")
        if part not in files:
            path = os.path.join(directory, part)
            if not os.path.exists(path):
                raise errors.InputError(f"{directory}: {part} is missing")
            files[part] = read_file(path)
        if name not in files[part]:
            raise errors.InputError(f"{index}: {part} has no {name}")
        tensors[name] = files[part][name]
    return tensors


def read_file(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of one file; they are read when asked for.

    Raises:
        InputError: the file is truncated, or its header cannot be true.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise errors.InputError(
                f"{path}: truncated, or no safetensors file: its header of "
                f"{length} bytes does not fit into the file's {size}"
            )
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise errors.InputError(
            f"{path}: the header is not JSON ({error})"
        ) from error
    if not isinstance(header, dict):
        raise errors.InputError(f"{path}: the header is no JSON object")
    header.pop("__metadata__", None)
    start, end = 8 + length, 0
    places = {
        name: _place(path, name, entry, size - start)
        for name, entry in header.items()
    }
    for name, (begin, stop) in sorted(places.items(), key=lambda x: x[1]):
        if begin < end:
            raise errors.InputError(f"{path}: {name} overlaps another tensor")
        end = stop
    return {
        name: _tensor(path, name, entry, start + places[name][0])
        for name, entry in header.items()
    }


def _unique(pairs: list) -> dict:
    """Makes a JSON object; a name given twice is a trap."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands there twice")
    return values


def _place(path: str, name: str, entry: object, size: int) -> tuple[int, int]:
    """Checks one line of the header; returns where the tensor lies."""
    entry = entry if isinstance(entry, dict) else {}
    dtype, shape = entry.get("dtype"), entry.get("shape")
    offsets = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BYTES:
        raise errors.InputError(f"{path}: {name} has the dtype {dtype!r}")
    if not _are_sizes(shape) or len(shape) > 8:
        raise errors.InputError(f"{path}: {name} has the shape {shape!r:.80}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise errors.InputError(f"{path}: {name} lies at {offsets!r:.80}")
    begin, end = offsets
    if end > size:
        raise errors.InputError(
            f"{path}: truncated: {name} ends at byte {end} of {size}"
        )
    if end - begin != math.prod(shape) * _BYTES[dtype]:
        raise errors.InputError(
            f"{path}: {name} is {dtype} {shape}, but has {end - begin} bytes"
        )
    return begin, end


def _are_sizes(values: object) -> bool:
    """Tells whether this is a list of whole numbers from 0."""
    return isinstance(values, list) and all(
        type(value) is int and value >= 0 for value in values
    )


def _tensor(path: str, name: str, entry: dict, offset: int) -> StoredTensor:
    """Describes one tensor and how to read it."""
    dtype, shape = entry["dtype"], tuple(entry["shape"])

    def read() -> np.ndarray:
        if dtype not in _NUMPY:
            raise errors.InputError(
                f"{path}: {name} is {dtype}; weights must be floats"
            )
        count = math.prod(shape)
        value = np.fromfile(path, _NUMPY[dtype], count, offset=offset)
        if value.size != count:
            raise errors.InputError(f"{path}: truncated at {name}")
        if dtype == "BF16":  # The upper half of a float32.
            value = (value.astype(np.uint32) << 16).view(np.float32)
        return value.reshape(shape)

    return StoredTensor(name, shape, dtype, read)


# ----------------------------------------------------------------------
# Reads pytorch_model.bin, where torch is installed, without unpickling code.
#
# torch is no dependency: only `torch.load(weights_only=True)` is a safe reader
# of
# these files, and whoever has none gets the line that converts them elsewhere.

TORCH_NAME = "pytorch_model.bin"
_CONVERT = (
    "python -c \"import torch, safetensors.torch as s; w = torch.load('{name}',"
    " weights_only=True, map_location='cpu'); s.save_file({{k: v.clone()"
    " for k, v in w.items()}}, 'model.safetensors')\""
)


def read_torch_file(path: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a state dict.

    Raises:
      InputError: torch is missing, or the file is more or less than tensors.
    """
    if importlib.util.find_spec("torch") is None:
        raise errors.InputError(
            f"{path} is a pickle, which is read only through torch, and torch "
            "is not installed; where it is, run: " + _CONVERT.format(name=path)
        )
    torch = importlib.import_module("torch")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # Whatever the unpickler stumbles over.
        reason = str(error).strip().splitlines()[0]
        raise errors.InputError(
            f"{path}: torch refuses it: {reason:.200}"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor)
        for name, value in state.items()
    ):
        raise errors.InputError(f"{path}: not a mapping of names to tensors")
    return {
        name: _tensor_files(torch, name, value) for name, value in state.items()
    }


def _tensor_files(torch: Any, name: str, value: Any) -> StoredTensor:
    """Describes one tensor of torch's."""
    dtype = str(value.dtype).removeprefix("torch.")

    def read():
        wide = value.to(torch.float32) if value.is_floating_point() else value
        return wide.numpy()

    return StoredTensor(name, tuple(value.shape), dtype, read)
