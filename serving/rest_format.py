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
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from foundation import errors
from serving import served_model

_LARGEST = (1 << 63) - 1  # Of the bounds that msgspec checks.
# The end of its errors: where the value is, in a list of rows.
_PLACE = re.compile(r" - at `\$(?:\[(\d+)\])?.*`$")


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request."""

    signature_name: str | None = None
    instances: list | None = None
    inputs: Any = None


class _Bytes(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that may be no text, in base64."""

    b64: bytes


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
        request = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise errors.InputError(f"the request: {error}") from error
    if (request.instances is None) == (request.inputs is None):
        raise errors.InputError(
            'the request needs either "instances" or "inputs"'
        )
    name = request.signature_name or served_model.DEFAULT_SIGNATURE
    if name not in signatures:
        raise errors.InputError(
            f"signature_name must be one of {', '.join(sorted(signatures))}"
        )
    specs = signatures[name].inputs
    columns = request.inputs
    if request.instances is not None:
        columns = _columns(request.instances, list(specs))
    elif len(specs) == 1 and not _is_named(columns):
        columns = {next(iter(specs)): columns}
    if not isinstance(columns, dict) or columns.keys() != specs.keys():
        raise _wrong_names("inputs", specs)
    inputs = {k: _array(k, columns[k], specs[k]) for k in specs}
    counts = {len(values) for values in inputs.values()}
    if len(counts) > 1:
        raise errors.InputError("the inputs differ in their number of rows")
    if counts == {0}:
        raise errors.InputError("the request has no rows")
    return Request(name, inputs, request.instances is not None)


def _columns(instances: list, names: Sequence[str]) -> dict[str, list]:
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


@functools.cache
def _type_of(spec: served_model.Spec) -> Any:
    """Returns the type of an input's rows, nested lists."""
    kind: Any = {"O": str | _Bytes, "b": bool}.get(spec.dtype.kind, float)
    if spec.dtype.kind in "iu":
        bounds = np.iinfo(spec.dtype)
        largest = min(int(bounds.max), _LARGEST)
        kind = Annotated[int, msgspec.Meta(ge=int(bounds.min), le=largest)]
    for _ in (None, *spec.shape):
        kind = list[kind]
    return kind


def _array(name: str, values: Any, spec: served_model.Spec) -> np.ndarray:
    """Converts nested lists to an array of the shape of an input."""
    try:
        rows = msgspec.convert(values, _type_of(spec))
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        where = f"row {place[1]}: " if place and place[1] else ""
        line = _PLACE.sub("", str(error)).replace("`object`", "`{b64}`")
        raise errors.InputError(f"{name}: {where}{line}") from error
    # Lists that differ in length stay lists in the array.
    array, expected = np.array(rows, object), [None, *spec.shape]
    if rows and array.ndim != len(expected):
        shapes = [np.array(row, object).shape for row in rows]
        row = next((i for i, x in enumerate(shapes) if x != shapes[0]), 0)
        raise errors.InputError(
            f"{name}: row {row}: the lists differ in length, or from those of "
            "row 0"
        )
    pairs = zip(expected, array.shape, strict=False)
    if any(n not in (None, size) for n, size in pairs):
        shape = list(array.shape)
        raise errors.InputError(
            f"{name}: has the shape {shape}, not {expected}"
        )
    if spec.dtype != object:
        return array.astype(spec.dtype)
    return np.frompyfunc(
        lambda x: x.encode() if isinstance(x, str) else x.b64, 1, 1
    )(array)


def response(
    rows: Sequence[Mapping[str, Any]],
    outputs: Mapping[str, served_model.Spec],
    *,
    by_row: bool,
) -> bytes:
    """Returns the body of a response.

    Args:
      rows: output's name -> a JSON value or an array, for each row.
      outputs: name -> form.
      by_row: whether the request was by row.
    """
    names = list(rows[0])
    if by_row:
        values = [*rows] if len(names) > 1 else [row[names[0]] for row in rows]
        return b'{"predictions": %s}' % _list(values)
    columns = {
        name: _column([row[name] for row in rows], outputs[name])
        for name in names
    }
    if len(columns) == 1:
        return b'{"outputs": %s}' % columns[names[0]]
    named = [b"%s: %s" % (_encoded(key), x) for key, x in columns.items()]
    return b'{"outputs": {%s}}' % b", ".join(named)


def _column(values: list, spec: served_model.Spec) -> bytes:
    """Returns the JSON of a column, with lists of one length at each depth."""
    shapes = {getattr(x, "shape", None) for x in values}
    if len(shapes) > 1 or None in shapes:
        values = [_listed(x) if hasattr(x, "dtype") else x for x in values]
        fill = "" if spec.dtype == object else spec.fill
        values = _padded(values, _sizes(values), fill)
    return _list(values)


def _sizes(value: Any) -> list[int]:
    """Returns the length of the longest list at each depth."""
    if not isinstance(value, list):
        return []
    inner = itertools.zip_longest(*map(_sizes, value), fillvalue=0)
    return [len(value), *map(max, inner)]


def _padded(value: Any, sizes: list[int], fill: Any) -> Any:
    if not sizes:
        return value
    size, *inner = sizes
    blanks: list[Any] = [[] if inner else fill] * (size - len(value))
    return [_padded(x, inner, fill) for x in value + blanks]


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
