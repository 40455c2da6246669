"""The JSON of TensorFlow Serving's REST API.

By row:     {"instances": [{"text": "a"}, {"text": "b"}]}
            {"predictions": [{"label": ..., "score": ...}, {...}]}
By column:  {"inputs": {"text": ["a", "b"]}}
            {"outputs": {"label": [...], "score": [...]}}

A signature with one input also takes values without its name, and a signature
with one output returns values without its name. Bytes that are not UTF-8 are
written as {"b64": "..."} in both directions.

Results by row have no padding; results by column are padded to the longest row
of the request, with "", 0 or -1 as in the exported model.
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
from weights import kinds

_KEYS = {"signature_name", "instances", "inputs"}


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
    for number, row in enumerate(instances):
        if not isinstance(row, dict) or row.keys() != set(names):
            raise _wrong_names(f"instances[{number}]", names)
    return {name: [row[name] for row in instances] for name in names}


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


def response(
    rows: Mapping[str, Sequence[np.ndarray]],
    *,
    by_row: bool,
    task: str | None = None,
) -> bytes:
    """Returns the body of a response.

    Args:
      rows: output's name -> one array for each row, as `servable.join` makes
        it.
      by_row: whether the request was by row.
      task: the task of the model, whose outputs may be padded; None if it is
        not known.
    """
    kind = kinds.BY_EXPORT_NAME.get(task or "")
    fills = kind.fills if kind else {}
    names = [name for name in kind.row_lists if name in rows] if kind else []
    if names:
        lists = list(zip(*(rows[name] for name in names), strict=True))
        # The answer "" has a probability, padding has none.
        sizes = [
            max(
                _num_real(x, fills.get(name, 0))
                for name, x in zip(names, values, strict=True)
            )
            for values in lists
        ]
        cut = {
            name: [x[:size] for x, size in zip(rows[name], sizes, strict=True)]
            for name in names
        }
        rows = {**rows, **cut}
    if by_row:
        columns = {key: [*map(_json, x)] for key, x in rows.items()}
        result = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        if len(columns) == 1:
            (result,) = columns.values()
        return b'{"predictions": %s}' % _list(result)
    outputs = {
        key: _list(_json(_stack(x, fills.get(key, 0))))
        for key, x in rows.items()
    }
    if len(outputs) == 1:
        return b'{"outputs": %s}' % next(iter(outputs.values()))
    named = [b"%s: %s" % (_encoded(key), x) for key, x in outputs.items()]
    return b'{"outputs": {%s}}' % b", ".join(named)


def _list(rows: Sequence[Any]) -> bytes:
    """Returns the JSON of a list.

    Row by row: other threads can run between the rows, but not while one call
    encodes them all.
    """
    return b"[%s]" % b", ".join(map(_encoded, rows))


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _num_real(values: np.ndarray, fill: int) -> int:
    """Returns the number of entries before padding, along the first axis."""
    entries = np.nonzero(values != _padding(values, fill))[0]
    return int(entries.max(initial=-1)) + 1


def _padding(values: np.ndarray, fill: int) -> Any:
    """Returns the value of an output in padding; texts have ""."""
    return b"" if values.dtype == object else fill


def _stack(rows: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """Joins rows to one array; the shorter ones are padded."""
    shape = np.max([row.shape for row in rows], axis=0).astype(int)
    stacked = np.full(
        [len(rows), *shape], _padding(rows[0], fill), rows[0].dtype
    )
    for number, row in enumerate(rows):
        # With "...", the cell gets the text in an array without axes, not the
        # array.
        cells: tuple[Any, ...] = (number, *map(slice, row.shape), ...)
        stacked[cells] = row
    return stacked


def _json(values: np.ndarray) -> Any:
    """Returns numbers and texts in nested lists."""
    if values.dtype != object:
        return values.tolist()
    return _texts(values.tolist())


def _texts(values: Any) -> Any:
    if isinstance(values, list):
        return [_texts(x) for x in values]
    try:
        return values.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(values).decode("ascii")}
