"""Computes SavedModels with TensorFlow, for the server."""

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow.python.saved_model import loader_impl

from foundation import errors, file_system, metadata, tensor_files
from serving import served_directories, served_model

# The input of signatures that take serialized tf.Examples.
_RECORDS = "examples"
# TensorFlow's error about a feature of a tf.Example.
_FEATURE_ERROR = re.compile(r"Key: (\S+), Index: (\d+)\.\s+(.+)")


@dataclasses.dataclass(frozen=True)
class _Description:
    """The keys of export.json that are used."""

    task: str | None = None
    max_seq_length: metadata.Size | None = None


class Model:
    """A SavedModel; see `served_model.Model`.

    Attributes:
      functions: name -> function of the SavedModel, of those that are served.
    """

    def __init__(self, directory: str):
        """Loads a SavedModel.

        Raises:
          InputError: it is damaged, or has no default signature whose inputs
            have rows.
        """
        # Registers the operations of the tokenizer.
        import tensorflow_text  # noqa: F401

        path = os.path.join(directory, served_model.DESCRIPTION)
        self.description = metadata.read_object(path, _Description) or {}
        for folder, _, names in tf.io.gfile.walk(directory):
            for file in names:
                file_system.refuse_pointer(os.path.join(folder, file))
        try:
            loadable = tensor_files.without_pattern(directory, self)
            self._model = tf.saved_model.load(loadable)
            self.metadata = _read_metadata(directory)
        except (tf.errors.OpError, OSError, *tensor_files.DAMAGES) as error:
            raise errors.InputError(
                f"{directory}: cannot be loaded: {errors.reason(error)}"
            ) from error
        self.functions = {
            name: self._model.signatures[name]
            for name in self._model.signatures
            if _has_rows(self._model.signatures[name])
        }
        self.signatures = {
            name: signature(function)
            for name, function in self.functions.items()
        }
        if served_model.DEFAULT_SIGNATURE not in self.signatures:
            raise errors.InputError(
                f"{directory}: has no signature "
                f"{served_model.DEFAULT_SIGNATURE} whose inputs have rows"
            )

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """See `served_model.Model`."""
        with tf.device("CPU"):
            tensors = {
                name: tf.constant(inputs[name], tf.as_dtype(spec.dtype))
                for name, spec in self.signatures[signature_name].inputs.items()
            }
        try:
            outputs = self.functions[signature_name](**tensors)
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        except tf.errors.InvalidArgumentError as error:
            line = _unparsed(inputs) or reason(error)
            raise errors.InputError(line) from error
        except UnicodeDecodeError as error:
            # TensorFlow's line has bytes of the request that are not UTF-8.
            line = _unparsed(inputs) or "the model refuses bytes of the request"
            raise errors.InputError(line) from error


ENGINE = served_model.Engine(
    "tensorflow", served_directories.FILES["tensorflow"], Model
)


def set_threads(threads_per_batch: int) -> None:
    """Sets how many threads compute a batch, before the first computation.

    Args:
      threads_per_batch: the number of threads; 0 for all cores.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads_per_batch)


def signature(function: Any) -> served_model.Signature:
    """Returns the form of a function of a loaded SavedModel."""
    return served_model.Signature(
        _specs(function.structured_input_signature[1]),
        _specs(function.structured_outputs),
    )


def _specs(specs: Mapping[str, tf.TensorSpec]) -> dict[str, served_model.Spec]:
    return {
        name: served_model.Spec(
            tuple(spec.shape[1:].as_list()) if spec.shape.rank else (),
            np.dtype(spec.dtype.as_numpy_dtype),
        )
        for name, spec in sorted(specs.items())
    }


def _has_rows(function: Any) -> bool:
    """Whether there are inputs, and each has a known number of axes."""
    specs = function.structured_input_signature[1]
    return bool(specs) and all(spec.shape.rank for spec in specs.values())


def _read_metadata(directory: str) -> dict[str, Any]:
    """Returns the signatures in the JSON form of TensorFlow Serving."""
    graph = loader_impl.parse_saved_model(directory).meta_graphs[0]
    return {
        name: json_format.MessageToDict(
            definition,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for name, definition in graph.signature_def.items()
    }


def reason(error: tf.errors.OpError) -> str:
    """Returns the line of an error in the graph that says what is wrong."""
    text = str(error.message)
    match = re.search(r"assertion failed: \[(.*?)\](\s|$)", text, re.DOTALL)
    if match:
        return match[1]
    match = _FEATURE_ERROR.search(text)
    if match:
        return f"{match[1]}: row {match[2]}: {match[3]}"
    return errors.reason(error)


def _unparsed(inputs: Mapping[str, np.ndarray]) -> str | None:
    """Returns the line about the first row that is no record, if there is one.

    TensorFlow quotes the record instead of its number.
    """
    if list(inputs) != [_RECORDS]:
        return None
    for row, record in enumerate(inputs[_RECORDS]):
        try:
            tf.train.Example.FromString(record)
        except message.DecodeError:
            return f"{_RECORDS}: row {row}: is no serialized tf.Example"
    return None
