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
        reason = _reason(error)
    raise errors.InputError(f"{where}: {reason}")


def _reason(error: Exception) -> str:
    """Returns what is wrong, with the path of the key in front."""
    if isinstance(error, UnicodeEncodeError):
        return f"the key {error.object!r} is not Unicode text"
    what, _, place = str(error).replace("`", "").partition(" - at ")
    what = what.replace(_UNICODE, "of Unicode characters")
    if what.startswith(("Expected", "Invalid", "Object")):
        what = what[0].lower() + what[1:]
    # Where msgspec writes [...] it does not know the key.
    key = place.partition("$")[2].partition("[...]")[0].lstrip(".")
    return f"{key}: {what}" if key else what
