"""The JSON of TensorFlow Serving's REST API.

By row:     {"instances": [{"text": "a"}, {"text": "b"}]}
            {"instances": [["a", "its pair"]]}, inputs in their order
            {"predictions": [{"label": ..., "score": ...}, {...}]}
By column:  {"inputs": {"text": ["a", "b"]}}
            {"outputs": {"label": [...], "score": [...]}}

A signature with one input also takes values without its name, and a signature
with one output returns values without its name. Bytes that are not UTF-8 are
written as {"b64": "..."} in both directions.

Results by row have no padding; results by column are padded to the longest row
of the request, with "", 0 or, of places in a text, -1.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foundation import errors
from serving import served_model

_KEYS = {"signature_name", "instances", "inputs"}
# Output -> its value in padding, if that is neither "" nor 0.
_FILLS = {"start": -1, "end": -1}


class Request(NamedTuple):
    """A parsed request.

    Attributes:
      signature_name: the name of the function to call.
      inputs: name -> array [N, ...]; texts are bytes in an array of objects.
      by_row: whether the response is by row.
    """

    signature_name: str
    inputs: dict[str, np.ndarray]
    by_row: bool


def parse(
    body: bytes, signatures: Mapping[str, served_model.Signature]
) -> Request:
    """Parses the body of a request.

    Args:
      body: JSON.
      signatures: name -> function of the model.

    Raises:
      InputError: the body does not fit the signature.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.InputError(f"the request is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise errors.InputError("the request is not a JSON object")
    unknown = sorted(request.keys() - _KEYS)
    if unknown:
        raise errors.InputError(
            f"{unknown[0]!r} is unknown in a request, which has "
            f"{errors.listed(sorted(_KEYS))}"
        )
    if ("instances" in request) == ("inputs" in request):
        raise errors.InputError(
            'the request needs either "instances" or "inputs"'
        )
    name = request.get("signature_name")
    if name is None or name == "":
        name = served_model.DEFAULT_SIGNATURE
    if not isinstance(name, str) or name not in signatures:
        raise errors.InputError(
            f"signature_name must be one of {', '.join(sorted(signatures))}"
        )
    specs = signatures[name].inputs
    by_row = "instances" in request
    if by_row:
        columns = _columns(request["instances"], list(specs))
    else:
        columns = request["inputs"]
        if len(specs) == 1 and not _is_named(columns):
            columns = {next(iter(specs)): columns}
    if not isinstance(columns, dict) or columns.keys() != specs.keys():
        raise _wrong_names("inputs", specs)
    inputs = {k: _array(k, columns[k], specs[k]) for k in specs}
    counts = {len(values) for values in inputs.values()}
    if len(counts) > 1:
        raise errors.InputError("the inputs differ in their number of rows")
    if counts == {0}:
        raise errors.InputError("the request has no rows")
    return Request(name, inputs, by_row)


def _columns(instances: Any, names: Sequence[str]) -> dict[str, list]:
    if not isinstance(instances, list):
        raise errors.InputError('"instances" is not a list')
    if len(names) == 1 and not any(map(_is_named, instances)):
        return {names[0]: instances}
    rows = [
        dict(zip(names, row, strict=True))
        if isinstance(row, list) and len(row) == len(names)
        else row
        for row in instances
    ]
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != set(names):
            raise _wrong_names(f"instances[{number}]", names)
    return {name: [row[name] for row in rows] for name in names}


def _is_named(value: Any) -> bool:
    """Returns whether a value is an object with names of inputs."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _wrong_names(where: str, names: Iterable[str]) -> errors.InputError:
    listed = ", ".join(f'"{name}"' for name in names)
    return errors.InputError(f"{where}: must be an object with {listed}")


def _array(name: str, values: Any, spec: served_model.Spec) -> np.ndarray:
    """Converts nested lists to an array of the shape of an input."""
    expected = (None, *spec.shape)
    shape: list[int] = []
    cells = [values]
    for depth in range(len(expected)):
        if not all(isinstance(x, list) for x in cells):
            raise errors.InputError(
                f"{name}: needs lists nested {len(expected)} deep, one "
                "value for each row"
                if depth
                else f"{name}: must be a list of rows"
            )
        sizes = [len(x) for x in cells]
        if len(set(sizes)) > 1:
            number = next(i for i, x in enumerate(sizes) if x != sizes[0])
            row = number * shape[0] // len(cells)
            raise errors.InputError(
                f"{name}: row {row}: the lists differ in length: "
                f"{sizes[number]}, that of row 0 {sizes[0]}"
            )
        shape.append(max(sizes, default=0))
        cells = [x for values in cells for x in values]
    if any(
        n not in (None, size) for n, size in zip(expected, shape, strict=True)
    ):
        raise errors.InputError(
            f"{name}: has the shape {shape}, not {list(expected)}"
        )
    array = np.empty(len(cells), spec.dtype)
    convert = _bytes if spec.dtype == object else _number_reader(spec.dtype)
    try:
        for number, value in enumerate(cells):
            array[number] = convert(value)
    except (ValueError, OverflowError) as error:
        row = number * shape[0] // len(cells)
        raise errors.InputError(f"{name}: row {row}: {error}") from error
    return array.reshape(shape)


def _number_reader(dtype: np.dtype) -> Callable[[Any], Any]:
    """Returns a function that raises ValueError if a value is none of a type.

    A number that is too large for a float raises OverflowError.
    """
    is_integer, is_bool = dtype.kind in "iu", dtype.kind == "b"
    kinds: Any = bool if is_bool else int if is_integer else (int, float)
    bounds = np.iinfo(dtype) if is_integer else None

    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or isinstance(value, bool) != is_bool:
            raise ValueError(f"{_shown(value)} is no {dtype.name}")
        if bounds is not None and not bounds.min <= value <= bounds.max:
            raise ValueError(
                f"{_shown(value)} is too large for {dtype.name}, from "
                f"{bounds.min} to {bounds.max}"
            )
        return value

    return read


def _bytes(value: Any) -> bytes:
    """Returns the bytes of a text; raises ValueError if it is none."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("has half of a surrogate pair") from error
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("is not base64") from error
    raise ValueError(f"{_shown(value)} is no text")


def _shown(value: Any) -> str:
    if isinstance(value, (list, dict)):
        # It may be nested too deeply to be written.
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def response(rows: Sequence[Mapping[str, Any]], *, by_row: bool) -> bytes:
    """Returns the body of a response.

    Args:
      rows: output's name -> a JSON value or an array, for each row.
      by_row: whether the request was by row.
    """
    names = list(rows[0])
    if by_row:
        values = [*rows]
        if len(names) == 1:
            values = [row[names[0]] for row in rows]
        return b'{"predictions": %s}' % _list(values)
    columns = {
        name: _padded([row[name] for row in rows], name) for name in names
    }
    outputs = {name: _list(column) for name, column in columns.items()}
    if len(outputs) == 1:
        return b'{"outputs": %s}' % next(iter(outputs.values()))
    named = [b"%s: %s" % (_encoded(key), x) for key, x in outputs.items()]
    return b'{"outputs": {%s}}' % b", ".join(named)


def _list(values: Sequence[Any]) -> bytes:
    """Returns the JSON of a list.

    Value by value: other threads can run between them, but not while one call
    encodes them all.
    """
    return b"[%s]" % b", ".join(map(_encoded, values))


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_listed)


def _listed(value: Any) -> Any:
    """Returns an array, or a number of NumPy, as JSON values."""
    return _texts(value.tolist()) if value.dtype == object else value.tolist()


def _texts(values: Any) -> Any:
    if isinstance(values, list):
        return [_texts(x) for x in values]
    if not isinstance(values, bytes):
        return values
    try:
        return values.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(values).decode("ascii")}


def _padded(values: list, name: str) -> list:
    """Returns rows with lists of one length, padded with "", 0 or -1."""
    if hasattr(values[0], "dtype"):
        if len({x.shape for x in values}) == 1:
            return values
        values = [_listed(x) for x in values]
    sizes: list[int] = []

    def measure(value: Any, depth: int) -> Any:
        """Returns a leaf, if there is one."""
        if not isinstance(value, list):
            return value
        if len(sizes) == depth:
            sizes.append(0)
        sizes[depth] = max(sizes[depth], len(value))
        leaves = [measure(x, depth + 1) for x in value]
        return next((x for x in leaves if x is not None), None)

    leaves = [measure(x, 0) for x in values]
    leaf = next((x for x in leaves if x is not None), 0)
    fill: Any = "" if isinstance(leaf, str) else _FILLS.get(name, 0)

    def filled(value: Any, depth: int) -> Any:
        if depth == len(sizes):
            return value
        value = [filled(x, depth + 1) for x in value]
        nothing = fill
        for size in reversed(sizes[depth + 1 :]):
            nothing = [nothing] * size
        return value + [nothing] * (sizes[depth] - len(value))

    return [filled(x, 0) for x in values]
