"""Loads an exported model and calls it with batches of several requests.

    rows of one request
        -> parts of rows of similar length (`Servable.split`)
        -> a batch with the parts of other requests (`Servable.run`)
        -> one result for each row, in the request's order (`join`)

TensorFlow's batch function makes the batches: a batch grows while the one
before it is computed. Each class of lengths has batches of its own, because the
graph pads a batch to its longest row.
"""

import dataclasses
import functools
import itertools
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import json_format, message
from tensorflow.python.saved_model import loader_impl

from export import saved_model
from foundation import errors, file_system, metadata, tensor_files

DEFAULT_SIGNATURE = "serving_default"
_SAVED_MODEL = "saved_model.pb"
_NAME = re.compile(r"[\w.-]+")
# Upper bounds of the length classes in bytes of UTF-8. A token of English text
# has about 5 bytes with its space, of Chinese 3. TensorFlow optimizes a graph
# for each class, which takes a second or two.
_LENGTH_CLASSES = (48, 96, 192, 384, 768, 1536)
_BYTES_PER_TOKEN = 5
_LEAST_BYTES_PER_TOKEN = 3  # Of a serialized tf.Example with three features.
# Inputs with further dimensions, such as the number of endings, are batched
# with inputs of the same dimensions. More shapes than these are not batched.
_MAX_SHAPES = 16
# The input of signatures that take serialized tf.Examples.
_RECORDS = "examples"
# What precedes and what is the number of a row in a line of `input_checks`.
_ROW = re.compile(r"([\w.]+: row )(\d+)")
# TensorFlow's error about a feature of a tf.Example.
_FEATURE_ERROR = re.compile(r"Key: (\S+), Index: (\d+)\.\s+(.+)")
# Names of BatchFunction operations; those with the same name have one queue.
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How the rows of concurrent requests are batched.

    Attributes:
      max_batch_size: rows of a batch; 0 computes every request by itself.
      timeout_ms: the time that a row waits for others while the model is idle;
        while it is not, rows wait for it anyway.
      max_queued: the most calls that wait at the same time.
      num_concurrent: batches of one length class that are computed at the same
        time. While they are, the next one grows. More than one makes batches
        smaller, which gains only if each is computed by few threads.
    """

    max_batch_size: int = 32
    timeout_ms: float = 0.0
    max_queued: int = 256
    num_concurrent: int = 1


class Part(NamedTuple):
    """Some rows of a request.

    Attributes:
      rows: int [n], their numbers in the request.
      inputs: name -> array [n, ...].
      length_class: of their longest row.
    """

    rows: np.ndarray
    inputs: dict[str, np.ndarray]
    length_class: int


@dataclasses.dataclass(frozen=True)
class _Description:
    """The keys of export.json that are used."""

    task: str | None = None
    max_seq_length: metadata.Size = _LENGTH_CLASSES[-1]


class Servable:
    """An exported model, called by any number of threads.

    Attributes:
      name: in the addresses of the server.
      version: number of the version's directory; 1 without one.
      description: the contents of export.json; {} without that file.
      metadata: the signatures in the JSON form of TensorFlow Serving. Read when
        the model is loaded: the directory may be replaced later.
    """

    def __init__(
        self, name: str, directory: str, settings: BatchSettings | None = None
    ):
        """Loads a SavedModel.

        Args:
          name: in the addresses of the server.
          directory: of the SavedModel, or of numbered directories, of which the
            highest is loaded, as TensorFlow Serving does.
          settings: of the batches.

        Raises:
          InputError: there is no SavedModel, or it has no default signature
            whose inputs have rows.
        """
        # Registers the operations of the tokenizer.
        import tensorflow_text  # noqa: F401

        self.name = name
        self.version, self._directory = _find_version(directory)
        path = os.path.join(self._directory, saved_model.DESCRIPTION)
        self.description = metadata.read_object(path, _Description) or {}
        self._settings = settings or BatchSettings()
        for folder, _, names in tf.io.gfile.walk(self._directory):
            for file in names:
                file_system.refuse_pointer(os.path.join(folder, file))
        try:
            loadable = tensor_files.without_pattern(self._directory, self)
            self._model = tf.saved_model.load(loadable)
            self.metadata = _read_metadata(self._directory)
        except (tf.errors.OpError, OSError, *tensor_files.DAMAGES) as error:
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise errors.InputError(
                f"{self._directory}: cannot be loaded: {line}"
            ) from error
        signatures = {
            key: Signature(self._model.signatures[key])
            for key in self._model.signatures
        }
        self.signatures = {k: x for k, x in signatures.items() if x.has_rows}
        if DEFAULT_SIGNATURE not in self.signatures:
            raise errors.InputError(
                f"{self._directory}: has no signature {DEFAULT_SIGNATURE} "
                "whose inputs have rows"
            )
        # Longer texts are cut, or split into windows of this length.
        longest = self.description.get("max_seq_length", _LENGTH_CLASSES[-1])
        self._bounds = [
            bound
            for bound in _LENGTH_CLASSES
            if bound < longest * _BYTES_PER_TOKEN
        ]
        with tf.device("CPU"):
            self._num_batches = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._batched: dict[Any, Callable] = {}
        self._lock = threading.Lock()

    @property
    def task(self) -> str | None:
        """The task in export.json; None without that file."""
        return self.description.get("task")

    @property
    def num_batches(self) -> int:
        """The number of batches that were computed."""
        return int(self._num_batches.numpy())

    def warm_up(self) -> None:
        """Predicts a row with every graph, which takes longer the first time.

        A SavedModel of another program may refuse the row, with a warning.

        Raises:
          InputError: a model of this project cannot predict it.
        """
        signature = self.signatures[DEFAULT_SIGNATURE]
        inputs = {
            name: np.full(
                [1, *(n or 2 for n in spec.shape[1:])],
                b"[MASK]" if spec.dtype == tf.string else 1,
                spec.dtype.as_numpy_dtype,
            )
            for name, spec in signature.inputs.items()
        }
        (part,) = self.split(inputs)
        for length_class in range(len(self._bounds) + 1):
            part = part._replace(length_class=length_class)
            try:
                self.run(DEFAULT_SIGNATURE, part)
            except errors.InputError as error:
                if self.description:
                    raise
                logging.warning("%s: not prepared: %s", self.name, error)
                return

    def split(self, inputs: Mapping[str, np.ndarray]) -> list[Part]:
        """Cuts the rows of a request into parts of similar length.

        Args:
          inputs: name -> array [N, ...]; N is not 0.
        """
        lengths = sum(_row_lengths(values) for values in inputs.values())
        classes = np.searchsorted(self._bounds, lengths)
        order = np.argsort(lengths, kind="stable")
        size = self._settings.max_batch_size or len(order)
        parts = []
        # np.split of the sorted rows where the class changes.
        changes = np.flatnonzero(np.diff(classes[order])) + 1
        for rows in np.split(order, changes):
            for first in range(0, len(rows), size):
                chosen = rows[first : first + size]
                values = {name: x[chosen] for name, x in inputs.items()}
                parts.append(Part(chosen, values, int(classes[chosen[0]])))
        return parts

    def run(self, signature_name: str, part: Part) -> dict[str, np.ndarray]:
        """Computes a part, together with parts of other threads.

        Returns:
          Output's name -> array [n, ...].

        Raises:
          InputError: the model refuses the inputs.
        """
        signature = self.signatures[signature_name]
        with tf.device("CPU"):
            tensors = [
                tf.constant(part.inputs[name], spec.dtype)
                for name, spec in signature.inputs.items()
            ]
        batched = self._batch_function(signature_name, part)
        if batched is not None:
            try:
                return _to_numpy(signature, batched(*tensors))
            except (tf.errors.OpError, UnicodeDecodeError):
                # A row of another request may be the cause.
                pass
        try:
            return _to_numpy(signature, self._call(signature, *tensors))
        except tf.errors.InvalidArgumentError as error:
            line = _unparsed(part) or _in_request(_reason(error), part.rows)
            raise errors.InputError(line) from error
        except UnicodeDecodeError as error:
            # TensorFlow's line has bytes of the request that are not UTF-8.
            line = _unparsed(part) or "the model refuses bytes of the request"
            raise errors.InputError(line) from error

    def _call(self, signature: "Signature", *tensors: tf.Tensor) -> list:
        self._num_batches.assign_add(1)
        return signature(*tensors)

    def _batch_function(
        self, signature_name: str, part: Part
    ) -> Callable | None:
        """Returns the function that batches such parts; None for no batches."""
        if not self._settings.max_batch_size:
            return None
        names = self.signatures[signature_name].inputs
        shapes = tuple(part.inputs[name].shape[1:] for name in names)
        key = signature_name, part.length_class, shapes
        if key in self._batched:
            return self._batched[key]
        with self._lock:
            known = {k[2] for k in self._batched if k[0] == signature_name}
            if len(known - {shapes}) >= _MAX_SHAPES:
                return None
            if key not in self._batched:
                self._batched[key] = self._make_batch_function(
                    self.signatures[signature_name], shapes
                )
            return self._batched[key]

    def _make_batch_function(
        self, signature: "Signature", shapes: Sequence[tuple[int, ...]]
    ) -> Callable:
        batch = tf.nondifferentiable_batch_function(
            num_batch_threads=self._settings.num_concurrent,
            max_batch_size=self._settings.max_batch_size,
            batch_timeout_micros=int(1000 * self._settings.timeout_ms),
            max_enqueued_batches=self._settings.max_queued,
            autograph=False,
        )(functools.partial(self._call, signature))

        def call(*tensors):
            with tf.name_scope(f"batched_{next(_numbers)}"):
                return batch(*tensors)

        specs = [
            tf.TensorSpec([None, *shape], spec.dtype)
            for shape, spec in zip(
                shapes, signature.inputs.values(), strict=True
            )
        ]
        function = tf.function(call, input_signature=specs, autograph=False)
        return function.get_concrete_function()


class Signature:
    """A function of a SavedModel that maps batches to batches.

    Attributes:
      inputs: name -> TensorSpec [None, ...].
      outputs: name -> TensorSpec [None, ...].
    """

    def __init__(self, function: Any):
        """Wraps one of the signatures of a loaded SavedModel."""
        self._function = function
        specs = function.structured_input_signature[1]
        self.inputs = {name: specs[name] for name in sorted(specs)}
        self.outputs = dict(sorted(function.structured_outputs.items()))

    @property
    def has_rows(self) -> bool:
        """Whether there are inputs, and each has a known number of axes."""
        ranks = [spec.shape.rank for spec in self.inputs.values()]
        return bool(ranks) and all(ranks)

    def num_values(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Returns about the most values that the outputs can have.

        Axes of unknown length have that of the inputs; a text has a token for
        every three bytes.

        Args:
          inputs: name -> array [N, ...].
        """
        count = len(next(iter(inputs.values())))
        num_tokens = max(
            int(_row_lengths(x).sum()) // _LEAST_BYTES_PER_TOKEN
            if x.dtype == object
            else x.size
            for x in inputs.values()
        )
        total = 0
        for spec in self.outputs.values():
            shape = spec.shape[1:].as_list() if spec.shape.rank else []
            known = math.prod(n for n in shape if n is not None)
            total += known * (num_tokens if None in shape else count)
        return total

    def __call__(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """Maps the inputs to the outputs, both in the order of their names."""
        found = self._function(**dict(zip(self.inputs, tensors, strict=True)))
        return [found[name] for name in self.outputs]


def join(
    parts: Sequence[Part], results: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, list[np.ndarray]]:
    """Returns output's name -> one array for each row of the request.

    Args:
      parts: of `Servable.split`.
      results: of `Servable.run`, for each part.
    """
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    joined = {}
    for name in results[0]:
        # With "...", the row of a vector is an array, too.
        values = [
            result[name][i, ...]
            for part, result in zip(parts, results, strict=True)
            for i in range(len(part.rows))
        ]
        joined[name] = [values[i] for i in order]
    return joined


def set_threads(threads_per_batch: int) -> int:
    """Sets how many threads compute a batch, before the first computation.

    Args:
      threads_per_batch: 0 for all cores.

    Returns:
      How many batches the cores can compute at the same time, at most 4: each
      of TensorFlow's threads for batches wakes up every millisecond.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads_per_batch)
    cores = os.cpu_count() or 1
    return max(1, min(4, cores // (threads_per_batch or cores)))


def open_all(
    models: str, settings: BatchSettings | None = None
) -> dict[str, Servable]:
    """Loads the models that a flag names.

    Args:
      models: comma-separated directories, each optionally with its name as in
        "sentiment=exports/sst2"; by default the name is that of the directory.
      settings: of the batches.

    Raises:
      InputError: a model cannot be loaded, or two have one name.
    """
    found: dict[str, str] = {}
    items = file_system.split_names(models, _is_named_folder)
    for item in items or [""]:
        name, is_named, directory = item.partition("=")
        if not is_named:
            directory = name
            name = os.path.basename(directory.rstrip("/"))
        if not _NAME.fullmatch(name):
            raise errors.InputError(
                f"--models={models}: {name!r} is no name of a model; write "
                "NAME=DIRECTORY with letters, digits, _, - and ."
            )
        if name in found:
            raise errors.InputError(
                f"--models={models}: two models are named {name}; write "
                "NAME=DIRECTORY"
            )
        found[name] = directory
    return {
        name: Servable(name, directory, settings)
        for name, directory in found.items()
    }


def _is_named_folder(item: str) -> bool:
    """Returns whether the directory of "name=directory" exists."""
    name, _, directory = item.partition("=")
    return file_system.is_folder(directory or name)


def _read_metadata(directory: str) -> dict[str, Any]:
    """Returns the signatures in the JSON form of TensorFlow Serving."""
    graph = loader_impl.parse_saved_model(directory).meta_graphs[0]
    return {
        key: json_format.MessageToDict(
            signature,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for key, signature in graph.signature_def.items()
    }


def _find_version(directory: str) -> tuple[int, str]:
    """Returns the version and the directory of the SavedModel."""
    # export_model.py may have been killed while it replaced one.
    file_system.restore_folder(directory)
    if file_system.is_file(os.path.join(directory, _SAVED_MODEL)):
        return 1, directory
    versions = []
    if file_system.is_folder(directory):
        file_system.restore_folders(directory)
        names = (name.rstrip("/") for name in tf.io.gfile.listdir(directory))
        versions = [int(name) for name in names if name.isdecimal()]
    for version in sorted(versions, reverse=True):
        path = os.path.join(directory, str(version))
        if file_system.is_file(os.path.join(path, _SAVED_MODEL)):
            return version, path
    raise errors.InputError(
        f"--models: there is no {_SAVED_MODEL} in {directory}; export_model.py "
        "writes one"
    )


def _row_lengths(values: np.ndarray) -> np.ndarray:
    """Returns the bytes of each row's texts, int [N]; 0 for numbers."""
    count = len(values)
    if values.dtype != object:
        return np.zeros(count, np.int64)
    lengths = np.fromiter(map(len, values.ravel()), np.int64, values.size)
    return lengths.reshape(count, -1).sum(axis=1)


def _to_numpy(
    signature: Signature, tensors: Sequence[tf.Tensor]
) -> dict[str, np.ndarray]:
    return {
        name: tensor.numpy()
        for name, tensor in zip(signature.outputs, tensors, strict=True)
    }


def _reason(error: tf.errors.OpError) -> str:
    """Returns the line of an error in the graph that says what is wrong."""
    text = str(error.message)
    found = re.search(r"assertion failed: \[(.*?)\](\s|$)", text, re.DOTALL)
    if found:
        return found[1]
    found = _FEATURE_ERROR.search(text)
    if found:
        return f"{found[1]}: row {found[2]}: {found[3]}"
    lines = [line for line in text.splitlines() if line.strip()]
    # TensorFlow's trace of the graph comes first.
    known = ("Graph execution error", "Detected at", "node ", "<stack traces")
    lines = [line for line in lines if not line.strip().startswith(known)]
    return lines[0].strip() if lines else "the model refuses the request"


def _in_request(line: str, rows: np.ndarray) -> str:
    """Replaces a row's number in a part by that in the request.

    Args:
      line: of `input_checks` or another one; "NAME: row 2: ..." is changed.
      rows: of the part.
    """
    found = _ROW.match(line)
    if not found or int(found[2]) >= len(rows):
        return line
    return f"{found[1]}{rows[int(found[2])]}{line[found.end() :]}"


def _unparsed(part: Part) -> str | None:
    """Returns the line about the first row that is no record, if there is one.

    TensorFlow quotes the record instead of its number.
    """
    if list(part.inputs) != [_RECORDS]:
        return None
    for row, record in zip(part.rows, part.inputs[_RECORDS], strict=True):
        try:
            tf.train.Example.FromString(record)
        except message.DecodeError:
            return f"{_RECORDS}: row {row}: is no serialized tf.Example"
    return None
