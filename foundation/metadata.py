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

from typing import Annotated, Any, TypeVar

import msgspec

from foundation import errors, file_system

T = TypeVar("T")

# Bounds that no real file exceeds, so that damaged ones cannot ask for all of
# the memory.
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Size = Annotated[int, msgspec.Meta(ge=1, le=10**7)]
# Lone surrogates cannot be written to a file or a terminal.
Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\ud800-\udfff]*\Z")]
_UNICODE = r"matching regex '\\A[^\\ud800-\\udfff]*\\Z'"
Object = dict[str, Any]
# Written as it was read: 1 and 1.0.
Finite = (
    Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    | Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
)


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
    values = file_system.parse_json(file_system.read(path), path)
    return convert(values, kind, path)


def read_if_present(path: str, kind: type[T]) -> T | None:
    """Returns what `read` does, None if there is no file."""
    return read(path, kind) if file_system.is_file(path) else None


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
        what, _, place = str(error).replace("`", "").partition(" - at $")
        what = what.replace(_UNICODE, "of Unicode characters")
    # Where msgspec writes [...] it does not know the key.
    key = place.partition("[...]")[0].lstrip(".")
    raise errors.InputError(": ".join(filter(None, (where, key, what))))
