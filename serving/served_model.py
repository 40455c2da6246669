"""What the server needs of an engine: a loaded model, and how it is loaded.

    engine = tensorflow_engine.ENGINE      or another one
    model = engine.load("exported/sst2")   the directory has engine.file
    model.predict("serving_default", {"text": texts})
        -> {"label": labels, ...}

`servable` batches the calls of several requests, `rest_format` and `server`
translate HTTP. None of these three imports TensorFlow: an engine without it
keeps it out of the process.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

DESCRIPTION = "export.json"  # In the directory of a model of this project.
DEFAULT_SIGNATURE = "serving_default"
# Names of the model's features -> names of TensorFlow Hub's encoders.
HUB_NAMES = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
_LEAST_BYTES_PER_TOKEN = 3  # Of a serialized tf.Example with three features.


class Spec(NamedTuple):
    """The form of an input or output.

    Attributes:
      shape: the lengths of the axes after that of rows; None for an axis of
        any length. () also for an output of any number of axes.
      dtype: the type of values; object for texts, which are bytes.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype


class Signature(NamedTuple):
    """A function that maps batches to batches.

    Attributes:
      inputs: name -> form, in the order of the names.
      outputs: name -> form, in the order of the names.
    """

    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]

    def num_values(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Returns about the most values that the outputs can have.

        Axes of unknown length have that of the inputs; a text has a token for
        every three bytes.

        Args:
          inputs: name -> array [N, ...].
        """
        count = len(next(iter(inputs.values())))
        num_tokens = max(
            int(row_lengths(x).sum()) // _LEAST_BYTES_PER_TOKEN
            if x.dtype == object
            else x.size
            for x in inputs.values()
        )
        total = 0
        for spec in self.outputs.values():
            known = math.prod(n for n in spec.shape if n is not None)
            total += known * (num_tokens if None in spec.shape else count)
        return total


class Model(Protocol):
    """A loaded model.

    Attributes:
      description: the contents of export.json; {} without that file.
      metadata: the signatures in the JSON form of TensorFlow Serving. Read when
        the model is loaded: the directory may be replaced later.
      signatures: name -> function, with DEFAULT_SIGNATURE among them.
    """

    @property
    def description(self) -> Mapping[str, Any]:
        """See the class."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """See the class."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """See the class."""

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Computes a batch; any number of threads call it.

        Args:
          signature_name: one of `signatures`.
          inputs: name -> array [n, ...], n > 0, that fits the Spec.

        Returns:
          Output's name -> array [n, ...], in the order of the names.

        Raises:
          InputError: the model refuses the inputs. "NAME: row 2: ..." names the
            row in `inputs`, from 0.
        """


class Engine(NamedTuple):
    """What computes models.

    Attributes:
      name: a value of --engine.
      file: the name of a file that every model of the engine has.
      load: maps a directory to its model; raises InputError.
    """

    name: str
    file: str
    load: Callable[[str], Model]


def row_lengths(values: np.ndarray) -> np.ndarray:
    """Returns the bytes of each row's texts, int [N]; 0 for numbers."""
    count = len(values)
    if values.dtype != object:
        return np.zeros(count, np.int64)
    lengths = np.fromiter(map(len, values.ravel()), np.int64, values.size)
    return lengths.reshape(count, -1).sum(axis=1)
