"""What the server needs of an engine: a loaded model, and how it is loaded.

    engine = tensorflow_engine.ENGINE      or another one
    model = engine.load("exported/sst2")   the directory has engine.file
    model.predict("serving_default", {"text": texts})
        -> [{"label": label, ...}, ...]

`servable` batches the calls of several requests, `rest_format` and `server`
translate HTTP. None of these three imports TensorFlow: an engine without it
keeps it out of the process.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

DESCRIPTION = "export.json"  # In the directory of a model of this project.
DEFAULT_SIGNATURE = "serving_default"
# TensorFlow's names of types that are not those of NumPy.
_TYPES = {
    "object": "STRING",
    "float16": "HALF",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}


class Spec(NamedTuple):
    """The form of an input or output.

    Attributes:
      shape: the lengths of the axes after that of rows; None for an axis of
        any length. () also for an output of any number of axes.
      dtype: the type of values; object for texts, which are bytes.
      fill: the number that pads rows of other lengths; texts have "".
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype
    fill: int = 0


TEXT, TEXTS = Spec((), np.dtype(object)), Spec((None,), np.dtype(object))
FLOAT, FLOATS = Spec((), np.dtype("f4")), Spec((None,), np.dtype("f4"))
INT, PLACES = Spec((), np.dtype("i4")), Spec((None,), np.dtype("i4"), -1)


class Signature(NamedTuple):
    """A function that maps batches to rows.

    Attributes:
      inputs: name -> form.
      outputs: name -> form.
    """

    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]

    def num_values(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Returns about the most values that the outputs can have.

        Axes of unknown length have that of the inputs; a text has no more
        tokens than bytes.

        Args:
          inputs: name -> array [N, ...].
        """
        count = len(next(iter(inputs.values())))
        num_tokens = max(
            int(row_lengths(x).sum()) if x.dtype == object else x.size
            for x in inputs.values()
        )
        total = 0
        for spec in self.outputs.values():
            known = math.prod(n for n in spec.shape if n is not None)
            total += known * (num_tokens if None in spec.shape else count)
        return total

    @property
    def metadata(self) -> dict[str, Any]:
        """The function in the JSON form of TensorFlow Serving."""
        return {
            "inputs": _infos(self.inputs),
            "outputs": _infos(self.outputs),
            "method_name": "",
        }


def _infos(specs: Mapping[str, Spec]) -> dict[str, Any]:
    def size(n: int | None) -> dict[str, str]:
        return {"size": str(-1 if n is None else n), "name": ""}

    return {
        name: {
            "name": name,
            "dtype": "DT_" + _TYPES.get(kind := spec.dtype.name, kind.upper()),
            "tensor_shape": {
                "dim": [size(n) for n in (None, *spec.shape)],
                "unknown_rank": False,
            },
        }
        for name, spec in specs.items()
    }


class Model(Protocol):
    """A loaded model.

    Attributes:
      task: see weights.kinds.ARCHITECTURES; None of other programs' models.
      max_seq_length: the most tokens of a text, or of a window; None if not
        known.
      signatures: name -> function, with DEFAULT_SIGNATURE among them.
    """

    task: str | None = None
    max_seq_length: int | None = None
    signatures: Mapping[str, Signature]

    def check(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> None:
        """Raises InputError, with the row's number, for values out of range."""
        return None

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> Sequence[Mapping[str, Any]]:
        """Computes a batch; any number of threads call it.

        Args:
          signature_name: one of `signatures`.
          inputs: name -> array [n, ...], n > 0, that fits the Spec and that
            `check` accepts.

        Returns:
          n rows: output's name -> a JSON value or an array.

        Raises:
          InputError: the model refuses the inputs.
        """


class Engine(NamedTuple):
    """What computes models.

    Attributes:
      file: the name of a file that every model of the engine has.
      load: maps a directory to its model; raises InputError.
    """

    file: str
    load: Callable[[str], Model]


def row_lengths(values: np.ndarray) -> np.ndarray:
    """Returns the bytes of each row's texts, int [N]; 0 for numbers."""
    count = len(values)
    if values.dtype != object:
        return np.zeros(count, np.int64)
    lengths = np.fromiter(map(len, values.ravel()), np.int64, values.size)
    return lengths.reshape(count, -1).sum(axis=1)


def rows(outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns the rows of arrays [n, ...]."""
    count = len(next(iter(outputs.values())))
    # With "...", the row of a vector is an array, too.
    return [{k: x[i, ...] for k, x in outputs.items()} for i in range(count)]
