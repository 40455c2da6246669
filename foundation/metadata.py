"""JSON files of settings and records, read into the types they should have.

    @dataclasses.dataclass(frozen=True)
    class Kept:
        learning_rate: float
        step: metadata.Count

    metadata.read("out/kept.json", Kept)
        -> Kept(learning_rate=5e-05, step=500)
        or InputError: out/kept.json: step: expected int, got str

Types are those of msgspec: dataclasses, whose other keys are ignored, and
containers of JSON values. `msgspec.Meta` gives a type its bounds. Nothing is
converted: "5" is not a number.

Modules that are imported before the flags are parsed do not import this one.
"""

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from foundation import errors, file_system

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")

# Bounds that no real file exceeds, so that damaged ones cannot ask for all of
# the memory.
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Size = Annotated[int, msgspec.Meta(ge=1, le=10**7)]
# Lone surrogates cannot be written to a file or a terminal.
_UNICODE = r"matching regex '\\A[^\\ud800-\\udfff]*\\Z'"
Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\ud800-\udfff]*\Z")]
Object = dict[str, Any]
# Both are written as they were read: 1 and 1.0.
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Number = Whole | float
Finite = Whole | Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
# What msgspec names the place of an error: `$.shards[0].file`. It writes
# "[...]" for any key of a dict.
_STEP = re.compile(r"(\w+|\[\.\.\.\])|\[(\d+)\]")
_SOME_KEY = "[...]"


def read(path: str, kind: type[T]) -> T:
    """Returns the contents of a JSON file.

    Args:
      path: path of the file.
      kind: a type for msgspec, e.g. a dataclass or `dict[str, Count]`.

    Raises:
      InputError: the file is not JSON, or has other contents; names the file,
        the key and what was expected.
      OSError: there is no file.
    """
    return convert(file_system.read_json(path), kind, path)


def read_if_present(path: str, kind: type[T]) -> T | None:
    """Returns what `read` does, None if there is no file."""
    return read(path, kind) if file_system.is_file(path) else None


def read_closed(path: str, kind: type[D]) -> D | None:
    """Does the same as `read_if_present`, but refuses unknown keys.

    Args:
      path: path of the file.
      kind: a dataclass.

    Raises:
      InputError: see `read`.
    """
    value = read_if_present(path, kind)
    if value is not None:
        names = {field.name for field in dataclasses.fields(kind)}
        for key in read(path, Object).keys() - names:
            raise errors.InputError(f"{path}: unknown key {key!r}")
    return value


def read_object(path: str, kind: type) -> Object | None:
    """Returns the object of a JSON file as it is, None if there is no file.

    Args:
      path: path of the file.
      kind: the types of the keys that will be used; the others are kept.

    Raises:
      InputError: see `read`.
    """
    values = read_if_present(path, Object)
    if values is not None:
        convert(values, kind, path)
    return values


def convert(value: Any, kind: type[T], where: str) -> T:
    """Returns a value of `json.loads` as the type that it should have.

    Args:
      value: the value.
      kind: see `read`.
      where: the file, for the message.

    Raises:
      InputError: see `read`.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        reason = _reason(error, value, kind)
    raise errors.InputError(f"{where}: {reason}")


def _reason(error: Exception, value: Any, kind: Any) -> str:
    """Returns what is wrong, with the path of the key in front."""
    if isinstance(error, UnicodeEncodeError):
        return f"the key {error.object!r} is not Unicode text"
    what, _, place = str(error).partition(" - at ")
    what = what.replace("`", "").replace(_UNICODE, "of Unicode characters")
    if what.startswith(("Expected", "Invalid", "Object")):
        what = what[0].lower() + what[1:]
    steps: list[str | int] = []
    inner = value
    for key, number in _STEP.findall(place.partition("$")[2]):
        if key == _SOME_KEY:
            key = _wrong_key(inner, error, value, kind)
        steps.append(int(number) if number else key)
        inner = inner[steps[-1]]
    named = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in steps)
    return f"{named[1:]}: {what}" if named else what


def _wrong_key(mapping: dict, error: Exception, value: Any, kind: Any) -> str:
    """Returns the key that causes an error, which msgspec does not name.

    `mapping` is a part of `value`. If it has only a valid entry, there is
    another error or none.
    """
    entries = dict(mapping)
    try:
        for key, entry in entries.items():
            mapping.clear()
            mapping[key] = entry
            try:
                msgspec.convert(value, kind, str_keys=True)
            except (msgspec.ValidationError, UnicodeEncodeError) as other:
                if str(other) == str(error):
                    return key
        return _SOME_KEY
    finally:
        mapping.clear()
        mapping.update(entries)
