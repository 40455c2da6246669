"""Reads pytorch_model.bin, where torch is installed, without unpickling code.

torch is no dependency: only `torch.load(weights_only=True)` is a safe reader of
these files, and whoever has none gets the line that converts them elsewhere.
"""

import importlib
import importlib.util
from typing import Any

import errors
from modeling.stored_weights import StoredTensor

NAME = "pytorch_model.bin"
_CONVERT = (
    "python -c \"import torch, safetensors.torch as s; w = torch.load('{name}',"
    " weights_only=True, map_location='cpu'); s.save_file({{k: v.clone()"
    " for k, v in w.items()}}, 'model.safetensors')\""
)


def read(path: str) -> dict[str, StoredTensor]:
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
    return {name: _tensor(torch, name, value) for name, value in state.items()}


def _tensor(torch: Any, name: str, value: Any) -> StoredTensor:
    """Describes one tensor of torch's."""
    dtype = str(value.dtype).removeprefix("torch.")

    def read():
        wide = value.to(torch.float32) if value.is_floating_point() else value
        return wide.numpy()

    return StoredTensor(name, tuple(value.shape), dtype, read)
