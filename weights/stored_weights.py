"""Puts the weights of any checkpoint into a model, or says why not.

A checkpoint of whatever format becomes a mapping of our paths to stored
tensors; what each holds is read one at a time, after everything that can be
checked without reading has been.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import keras
import numpy as np

from foundation import errors
from weights import weight_names

_DECODER = "cls.predictions.decoder.weight"
_WORDS = "bert/embeddings/word_embeddings"


class StoredTensor(NamedTuple):
    """One tensor of a file.

    name: As the file has it.
    shape: After reading.
    dtype: As the file has it, for listings.
    read: Returns the values.
    """

    name: str
    shape: tuple
    dtype: str
    read: Callable[[], np.ndarray]


class Report(NamedTuple):
    """What became of the weights of a file and the variables of a model.

    loaded: Paths of variables that got their value from the file.
    initialized: Paths of variables that the file lacks.
    left_over: Names in the file that the model has no place for.
    """

    loaded: list
    initialized: list
    left_over: list

    def summary(self) -> str:
        """Says it in one line."""
        parts = [f"{len(self.loaded)} variables loaded"]
        if self.initialized:
            parts.append("initialized: " + ", ".join(self.initialized))
        if self.left_over:
            parts.append("not used: " + ", ".join(self.left_over))
        return "; ".join(parts)


class Matched(NamedTuple):
    """The tensors of a file, by whether BERT knows their names.

    tensors: Our path -> tensor in our layout.
    others: The file's name -> tensor that no BERT has a place for.
    """

    tensors: dict
    others: dict


def from_hugging_face(
    where: str, stored: Mapping[str, StoredTensor]
) -> Matched:
    """Renames and transposes what a transformers checkpoint holds."""
    tensors: dict[str, StoredTensor] = {}
    others = {}
    bias = "cls.predictions.bias"
    for name, tensor in stored.items():
        known = name
        if name == "cls.predictions.decoder.bias" and bias not in stored:
            known = bias  # Of the two tied tensors, either may be stored.
        if weight_names.is_derived(known):
            continue
        path, transpose = weight_names.from_hugging_face(known) or ("", False)
        if not path:
            others[name] = tensor
            continue
        if path in tensors:
            raise errors.InputError(
                f"{where}: {tensors[path].name} and {name} are the same weight"
            )
        tensors[path] = _transposed(tensor) if transpose else tensor
    decoder = stored.get(_DECODER)
    words = tensors.get(_WORDS)
    if decoder and words and not _is_same(decoder, words):
        others[decoder.name] = decoder  # Of a model that ties them not.
    return Matched(tensors, others)


def _is_same(one: StoredTensor, other: StoredTensor) -> bool:
    is_alike = one.shape == other.shape
    return is_alike and np.array_equal(one.read(), other.read())


def values(where: str, tensor: StoredTensor) -> np.ndarray:
    """Reads a weight as finite float32, in memory order."""
    value = tensor.read()
    if value.dtype.kind != "f":
        raise errors.InputError(
            f"{where}: {tensor.name} is {tensor.dtype}; weights must be floats"
        )
    value = np.ascontiguousarray(value, np.float32)
    # A sum is not finite if any of its parts is not; the other way round it
    # may overflow, so that only then each value is looked at.
    with np.errstate(over="ignore"):
        total = np.sum(value)
    if not np.isfinite(total) and not np.isfinite(value).all():
        raise errors.InputError(
            f"{where}: {tensor.name} holds NaN or infinite values"
        )
    return value


def assign(
    model: keras.Model,
    tensors: Mapping[str, StoredTensor],
    *,
    where: str,
    others: Mapping[str, StoredTensor] | None = None,
) -> Report:
    """Sets the model's variables; those that the file lacks keep theirs.

    Args:
        model: One of modeling.models.
        tensors: Our path -> what the file holds for it.
        where: The file, for messages.
        others: What else the file holds.

    Raises:
        InputError: a shape differs, or an encoder does not fit the model's:
            only heads and the pooler may be missing or left over.
    """
    variables = {variable.path: variable for variable in model.weights}
    check_encoder(where, tensors, variables)
    loaded, left_over = [], []
    for path, tensor in tensors.items():
        if path not in variables:
            left_over.append(tensor.name)
            continue
        check_shape(where, path, tensor, tuple(variables[path].shape))
        loaded.append(path)
    for path in loaded:
        variables[path].assign(values(where, tensors[path]))
    initialized = [path for path in variables if path not in tensors]
    return Report(loaded, initialized, [*left_over, *(others or ())])


def check_encoder(where: str, tensors: Mapping, wanted: Mapping) -> None:
    """Refuses an encoder with other layers than the wanted paths have."""
    ours = [path for path in wanted if weight_names.is_encoder(path)]
    missing = [path for path in ours if path not in tensors]
    surplus = [
        path
        for path in tensors
        if weight_names.is_encoder(path) and path not in wanted
    ]
    if ours and len(missing) == len(ours):
        raise errors.InputError(
            f"{where}: none of its weights belongs to a BERT encoder"
        )
    if missing:
        raise errors.InputError(
            f"{where}: {missing[0]} is missing, as are {len(missing) - 1} more "
            f"of the encoder's {len(ours)} variables"
        )
    if surplus:
        raise errors.InputError(
            f"{where}: {tensors[surplus[0]].name} has no place in this model, "
            f"nor have {len(surplus) - 1} more of that encoder's variables"
        )


def check_shape(
    where: str, path: str, tensor: StoredTensor, wanted: tuple
) -> None:
    """Refuses a tensor of another shape."""
    if tuple(tensor.shape) == wanted:
        return
    advice = ""
    if not path.startswith(("bert/", "cls/predictions/")):
        advice = "; convert_checkpoint.py --drop_heads leaves heads out"
    raise errors.InputError(
        f"{where}: {tensor.name} is {list(tensor.shape)}, which does not fit "
        f"{path} {list(wanted)} of this model{advice}"
    )


def _transposed(tensor: StoredTensor) -> StoredTensor:
    """Describes the transposed matrix."""
    return tensor._replace(
        shape=tuple(tensor.shape[::-1]), read=lambda: tensor.read().T
    )
