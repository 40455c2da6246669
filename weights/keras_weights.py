"""Weights in the form of Keras 2: those of transformers' TensorFlow models.

    tf_model.h5         written by save_pretrained and read by transformers 4
    weights.h5          written by save_weights or save of a Keras model that
                        has such an encoder as a layer
    model.safetensors   of save_pretrained(safe_serialization=True)
    cp.ckpt.index       TensorFlow's checkpoint, of save_weights or the callback
                        ModelCheckpoint

A name has the scopes of a variable, here without and with the name of the
model, which `stored_weights.unscoped` finds:

    bert/encoder/layer_._0/attention/self/query/kernel:0
    tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

HDF5 has such a variable in a group for each layer of the model, and one that
two layers share in both groups. A checkpoint names the attributes of objects:

    bert/encoder/layer/0/attention/self_attention/query/kernel
    mlm/predictions/bias

Kernels are [inputs, outputs].
"""

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping

import h5py
import numpy as np

from foundation import copies, errors
from weights import tensorflow_checkpoints
from weights.stored_weights import StoredTensor

HDF5 = "tf_model.h5"
_VARIABLE = ":0"
# Groups of a file of `save`; one of `save_weights` has the layers themselves.
_MODEL = "model_weights"
# The last part of a name, where transformers' PyTorch models have another.
_LAST = {
    "kernel": "weight",
    "embeddings": "weight",
    "gamma": "weight",
    "beta": "bias",
}
# Of a checkpoint.
_ENCODER = "encoder/layer/0/attention/self_attention/query/kernel"
_OF_TRAINING = re.compile(r"(.*/)?(optimizer/.*|keras_api/.*|save_counter)")
# Names of attributes, and the scopes of the same variables.
_SCOPES = (
    (r"\bembeddings/weight$", "embeddings/word_embeddings/weight"),
    (r"\bembeddings/embeddings$", "embeddings/position_embeddings/weight"),
    (r"\btoken_type_embeddings$", "token_type_embeddings/weight"),
    (r"/self_attention/", "/self/"),
    (r"/(dense|bert)_output/", "/output/"),
    (r"\b(mlm|nsp)/(?=predictions/|seq_relationship/)", "cls/"),
)


def read_hdf5(path: str) -> dict[str, StoredTensor]:
    """Lists the variables of an HDF5 file; their values are read later.

    Raises:
      InputError: the file is damaged, has no variables of Keras 2, or has
        values in other files.
    """
    copy = copies.local(path)

    def read(name: str) -> np.ndarray:
        with _opened(path, copy) as file:
            return file[name][()]

    tensors: dict[str, StoredTensor] = {}
    elsewhere: list[str] = []

    def add(name: str, found: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(found, h5py.Dataset) or not name.endswith(_VARIABLE):
            return
        if found.is_virtual or found.external:
            elsewhere.append(name)
        _, _, variable = name.partition("/")  # Without the group of its layer.
        load = functools.partial(read, found.name)
        tensors[variable] = StoredTensor(
            variable, found.shape, found.dtype.name, load
        )

    with _opened(path, copy) as file:
        of_model = file.get(_MODEL)
        root = of_model if isinstance(of_model, h5py.Group) else file
        root.visititems(add)
    if elsewhere:
        raise errors.InputError(
            f"{path}: the values of {elsewhere[0]} are in another file"
        )
    if not tensors:
        raise errors.InputError(
            f"{path}: an HDF5 file, but without variables as Keras 2 and "
            "transformers' TensorFlow models name them (.../kernel:0)"
        )
    return tensors


@contextlib.contextmanager
def _opened(path: str, copy: str) -> Iterator[h5py.File]:
    """Opens a file on this disk; `path` is its name in messages."""
    try:
        # Some disks have no locks, and nothing is written.
        with h5py.File(copy, "r", locking=False) as file:
            yield file
    # HDF5's errors for what it cannot decode.
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        with open(copy, "rb") as readable:  # Says what the system refuses.
            readable.read(1)
        raise errors.InputError(
            f"{path}: truncated, or not an HDF5 file ({error!s:.150})"
        ) from error


def variables_of_objects(
    stored: Mapping[str, StoredTensor],
) -> dict[str, StoredTensor]:
    """Returns the variables of a checkpoint under the names of other files.

    Those of the training are left out. Without an encoder of transformers the
    result is {}.

    Args:
      stored: name in the checkpoint -> tensor.
    """
    variables = {}
    has_encoder = False
    for name, path in tensorflow_checkpoints.attributes(stored).items():
        if _OF_TRAINING.fullmatch(path):
            continue
        has_encoder |= path.endswith(_ENCODER)
        for attributes, scopes in _SCOPES:
            path = re.sub(attributes, scopes, path)
        variables[path + _VARIABLE] = stored[name]
    return variables if has_encoder else {}


def in_form_of_torch(
    stored: Mapping[str, StoredTensor],
) -> Mapping[str, StoredTensor]:
    """Returns tensors under the names, and in the layout, of PyTorch models.

    Tensors of a file without names of Keras 2 are returned as they are.

    Args:
      stored: name in the file -> tensor.
    """
    if not any(name.endswith(_VARIABLE) for name in stored):
        return stored
    return {
        _torch_name(name): (
            tensor.rearranged(np.transpose)
            if name.endswith("/kernel:0")
            else tensor
        )
        for name, tensor in stored.items()
    }


def _torch_name(name: str) -> str:
    *scopes, variable = name.removesuffix(_VARIABLE).split("/")
    parts: list[str] = []
    for scope in scopes:
        # mlm___cls is cls in PyTorch, and layer_._0 is layer.0.
        parts += scope.rpartition("___")[2].split("_._")
    return ".".join([*parts, _LAST.get(variable, variable)])
