"""The tensors of a checkpoint, and their assignment to a model's variables.

Each checkpoint format is read as a mapping of our paths to stored tensors.
Names and shapes are checked first; the values are read one tensor at a time.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import keras
import numpy as np

from foundation import errors
from weights import weight_names


class StoredTensor(NamedTuple):
    """One tensor of a file.

    name: As in the file.
    shape: Of what `read` returns.
    dtype: As the file's format calls it, for listings.
    read: Returns the values.
    """

    name: str
    shape: tuple
    dtype: str
    read: Callable[[], np.ndarray]

    def transposed(self) -> "StoredTensor":
        """Returns the transposed tensor."""
        return self._replace(shape=self.shape[::-1], read=lambda: self.read().T)


class Matched(NamedTuple):
    """The tensors of a checkpoint, sorted by purpose.

    tensors: Our path -> weight of BERT, in our layout.
    others: Name in the file -> tensor that is no weight of BERT.
    training_state: Name in the file -> optimizer slot or step.
    num_attention_heads: Of the encoder, where the shapes show it, else None.
    """

    tensors: dict[str, StoredTensor]
    others: dict[str, StoredTensor]
    training_state: Mapping[str, StoredTensor] = {}
    num_attention_heads: int | None = None


class Report(NamedTuple):
    """The result of assigning a checkpoint's tensors to a model.

    loaded: Paths of variables that got their values from the file.
    initialized: Paths of variables that the file lacks.
    left_over: Names of tensors that the model has no variable for.
    """

    loaded: list
    initialized: list
    left_over: list

    def summary(self) -> str:
        """Returns the report as one line."""
        parts = [f"{len(self.loaded)} variables loaded"]
        if self.initialized:
            parts.append("initialized: " + ", ".join(self.initialized))
        if self.left_over:
            shown, more = self.left_over[:1], len(self.left_over) - 1
            shown += [f"{more} other(s)"] if more else []
            parts.append("not used: " + " and ".join(shown))
        return "; ".join(parts)


def values(where: str, tensor: StoredTensor) -> np.ndarray:
    """Reads a weight as a contiguous array of finite float32.

    Raises:
        InputError: the tensor, in the file `where`, does not hold floats, or
            holds NaN or infinity.
    """
    value = tensor.read()
    if value.dtype.kind != "f":
        raise errors.InputError(
            f"{where}: {tensor.name} is {tensor.dtype}; weights must be floats"
        )
    value = np.ascontiguousarray(value, np.float32)
    # The sum is fast, and not finite if any value is not. It may overflow
    # though all values are finite; only then is each value checked.
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
    """Sets the model's variables; those that the file lacks keep their values.

    `tensors` are named by our paths, `others` are the file's other tensors, and
    `where` is the file.

    Raises:
        InputError: a shape differs, or the encoders differ. Only heads and the
            pooler may be missing or left over.
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
    """Raises InputError unless both have the same variables of an encoder."""
    ours = [path for path in wanted if weight_names.is_encoder(path)]
    theirs = [path for path in tensors if weight_names.is_encoder(path)]
    missing = [path for path in ours if path not in tensors]
    surplus = [path for path in theirs if path not in wanted]
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
            f"{where}: {tensors[surplus[0]].name} is not part of this model, "
            f"and neither are {len(surplus) - 1} more variables of the encoder"
        )


def check_shape(
    where: str, path: str, tensor: StoredTensor, wanted: tuple
) -> None:
    """Raises InputError if a tensor does not have the wanted shape."""
    if tuple(tensor.shape) == wanted:
        return
    advice = ""
    if not path.startswith(("bert/", "cls/predictions/")):
        advice = "; convert_checkpoint.py --drop_heads leaves heads out"
    raise errors.InputError(
        f"{where}: {tensor.name} is {list(tensor.shape)}, which does not fit "
        f"{path} {list(wanted)} of this model{advice}"
    )
