"""Turns one frozen dataclass into a command's flags.

A flag is a field, so that a name, a type and a default are written once. Flags
that are used together are a group: a dataclass of their own, which the code
that uses them takes whole:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WindowSizes:
        max_seq_length: int = config_flags.field("In tokens.", 128)
        doc_stride: int = config_flags.field("In tokens.", 64, at_least=1)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        vocab_file: str = config_flags.field("One token a line.")
        learning_rate: tuple[float, ...] = config_flags.field(
            "Peak; several make a grid.", (5e-5, ))
        windows: WindowSizes = config_flags.group(WindowSizes)

    if __name__ == "__main__":
        config_flags.run(Config, main)

The command line is flat: --vocab_file=v.txt --learning_rate=5e-5,3e-5
--doc_stride=32. So are `flat_values`, `given` and run.json. `run` answers
--help and refuses wrong flags before it calls main, which imports TensorFlow.

A user's error ends as one line on stderr and exit code 2.
"""

# Before any package that may be missing, and what an old Python cannot run.
import foundation.environment  # noqa: F401

# isort: split
import copy
import dataclasses
import functools
import json
import logging as std_logging
import math
import operator
import os
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import msgspec
from absl import flags, logging

from foundation import errors, file_system

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

REQUIRED = dataclasses.MISSING
# What a flag affects in training. From it derives what happens if it has
# another value when a run is resumed, or its output directory is used again:
#   records     which records a training step reads, or what they hold: refused,
#               as a resumed run would leave records out or read them twice;
#               only an extendable list may grow at its end
#   result      what training ends with: refused by the runs of a grid, named in
#               a warning where a single run is resumed
#   evaluation  predictions and their scores: they are made again
#   execution   devices, saving, logging: not compared
#   nothing     not compared
Effect = Literal["records", "evaluation", "result", "execution", "nothing"]
_Config = TypeVar("_Config", bound="DataclassInstance")
# Attribute of a config: the names of the flags that `build` was given.
_CHOSEN = "_chosen_flags"
_TYPES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
}
_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}
# Texts of TensorFlow's errors for the user's files, besides the system's.
_FILE_TEXTS = (
    "is not a directory",
    "File system scheme",  # ... 's3' not implemented
)


def field(
    help: str,
    default: Any = REQUIRED,
    *,
    affects: Effect = "nothing",
    extendable: bool = False,
    is_path: bool = False,
    remembered: bool = False,
    needs: str = "",
    **bounds: float,
) -> Any:
    """Declares one flag.

    Args:
      help: one or two sentences.
      default: the value without the flag; a flag without a default is required.
      affects: see Effect.
      extendable: whether a resumed run may add to the end of its value, a text
        with commas, although the effect forbids other changes.
      is_path: whether its value is a path, of which all spellings are the same.
      remembered: whether later commands with the model have the value of its
        training unless they are given another.
      needs: flags without which this one has no effect, as in "do_train" or
        "output output_format=tf1".
      **bounds: at_least, above, at_most or below -> number; of each element
        of a list.
    """
    metadata = {
        "help": help,
        "affects": affects,
        "extendable": extendable,
        "is_path": is_path,
        "remembered": remembered,
        "needs": needs,
        "bounds": bounds,
    }
    return dataclasses.field(default=default, metadata=metadata)


# `field` with the effects that most flags have.
affects_result = functools.partial(field, affects="result")
affects_execution = functools.partial(field, affects="execution")


def group(group_class: "type[DataclassInstance]", **defaults: Any) -> Any:
    """Declares a group of flags.

    Args:
      group_class: a dataclass of flags, without required ones.
      **defaults: values of flags that have another default in this command.
    """
    return dataclasses.field(
        default_factory=functools.partial(group_class, **defaults),
        metadata={"group": group_class, "defaults": defaults},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag of a config class.

    Attributes:
      name: without the dashes.
      kind: the type of its values; of a list, that of its elements.
      is_list: whether the value is a tuple, on the command line with commas.
      default: the value without the flag; REQUIRED if there is none.
      help, affects, extendable, is_path, remembered, needs, bounds: see
        `field`.
      owner: the class that declares the flag.
    """

    name: str
    kind: Any
    is_list: bool
    default: Any
    help: str
    affects: Effect
    extendable: bool
    is_path: bool
    remembered: bool
    needs: str
    bounds: Mapping[str, float]
    owner: type

    def parse(self, value: Any) -> Any:
        """Returns a value of the flag's type, from Python or from text.

        Raises:
          ValueError: a value has another type; a number is malformed, not
            finite or out of bounds, or occurs twice in a list.
        """
        if value is None:
            return None
        values: Any = [value]
        if self.is_list and isinstance(value, str):
            values = [x.strip() for x in value.split(",")]
        elif self.is_list and isinstance(value, list | tuple):
            values = value
        shown = f"--{self.name}={as_text(values)}"
        try:
            if self.kind is float:  # As in Python: .3 and 1. are numbers.
                values = [float(x) if isinstance(x, str) else x for x in values]
            kinds = tuple[self.kind, ...]  # type: ignore[name-defined]
            values = msgspec.convert(values, kinds, strict=False)
        except (ValueError, msgspec.ValidationError):
            kind = _TYPES.get(self.kind) or f"one of {self._choices}"
            raise ValueError(f"{shown}: must be {kind}") from None
        if any(isinstance(x, float) and not math.isfinite(x) for x in values):
            raise ValueError(f"{shown}: must be a finite number")
        bounds = self.bounds.items()
        if not all(_BOUNDS[x](v, y) for v in values for x, y in bounds):
            text = " and ".join(f"{x} {y:g}" for x, y in bounds)
            raise ValueError(f"{shown}: must be {text.replace('_', ' ')}")
        if len(set(values)) < len(values):
            raise ValueError(f"{shown}: one occurs twice")
        return values if self.is_list else values[0]

    @property
    def _choices(self) -> str:
        return ", ".join(map(str, typing.get_args(self.kind)))

    @property
    def shown_help(self) -> str:
        """The help, wrapped to COLUMNS, the terminal, or 80 characters."""
        notes = [f"one of {self._choices}"] if self._choices else []
        if self.default is REQUIRED:
            notes.append("required")
        elif self.default is not None:
            notes.append(f"default: {as_text(self.default)}")
        end = f" ({'; '.join(notes)})" if notes else ""
        return textwrap.fill(
            f"  --{self.name}: {self.help}{end}",
            shutil.get_terminal_size().columns,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )


@functools.cache
def flags_of(config_class: "type[DataclassInstance]") -> Mapping[str, Flag]:
    """Returns the flags of a config class and of its groups, by name."""
    declared: dict[str, Flag] = {}
    hints = typing.get_type_hints(config_class)
    for f in dataclasses.fields(config_class):
        if "group" in f.metadata:
            own = dict(flags_of(f.metadata["group"]))
            for name, default in f.metadata["defaults"].items():
                own[name] = dataclasses.replace(own[name], default=default)
        else:
            kind, is_list = _kind(hints[f.name])
            owner = next(
                base
                for base in config_class.__mro__
                if f.name in base.__dict__.get("__annotations__", {})
            )
            own = {
                f.name: Flag(
                    name=f.name,
                    kind=kind,
                    is_list=is_list,
                    default=f.default,
                    owner=owner,
                    **f.metadata,
                )
            }
        assert not declared.keys() & own.keys(), f"two flags: {own.keys()}"
        declared |= own
    return declared


def _kind(hint: Any) -> tuple[Any, bool]:
    """Returns the kind of a flag's values, and whether it has several."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (a for a in typing.get_args(hint) if a is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def build(config_class: type[_Config], **values: Any) -> _Config:
    """Returns a config from the values of its flags, those of groups included.

    Args:
      config_class: the class.
      **values: flag -> value; other flags have their defaults.

    Raises:
      InputError: a value is out of bounds, a flag lacks another that it needs,
        or the class refuses it; the line names the flag.
    """
    declared = flags_of(config_class)
    try:
        parsed = {name: declared[name].parse(x) for name, x in values.items()}
        config = _construct(config_class, parsed)
        found = flat_values(config)
        for name, value in given(config).items():
            for needed in declared[name].needs.split():
                other, _, wanted = needed.partition("=")
                if not found[other] or wanted not in ("", str(found[other])):
                    shown = f"no{name}" if value is False else name
                    raise ValueError(f"--{shown} needs --{needed}")
    except ValueError as error:
        raise errors.InputError(str(error)) from error
    object.__setattr__(config, _CHOSEN, frozenset(values))
    return config


def _construct(
    config_class: "type[DataclassInstance]", values: Mapping[str, Any]
) -> Any:
    arguments = {}
    for f in dataclasses.fields(config_class):
        if "group" in f.metadata:
            arguments[f.name] = _construct(
                f.metadata["group"], {**f.metadata["defaults"], **values}
            )
        elif f.name in values:
            arguments[f.name] = values[f.name]
    return config_class(**arguments)


def replace_unchecked(config: _Config, **values: Any) -> _Config:
    """Returns a config with other values, without the checks of given flags."""
    changed = copy.deepcopy(config)
    for owner, name in _owners(changed):
        if name in values:
            object.__setattr__(owner, name, values[name])
    return changed


def _owners(config: Any) -> Iterator[tuple[Any, str]]:
    """Yields each flag with the config, or the group in it, that has it."""
    for f in dataclasses.fields(config):
        if "group" in f.metadata:
            yield from _owners(getattr(config, f.name))
        else:
            yield config, f.name


def as_text(value: Any) -> Any:
    """Returns a list as files have it: one value itself, several as text."""
    if not isinstance(value, list | tuple):
        return value
    return value[0] if len(value) == 1 else ",".join(map(str, value))


def flat_values(config: Any) -> dict[str, Any]:
    """Returns flag -> JSON value, those of groups included."""
    owners = _owners(config)
    return {name: as_text(getattr(owner, name)) for owner, name in owners}


def given(config: "DataclassInstance") -> dict[str, Any]:
    """Returns the flags that differ from their defaults, as JSON values."""
    declared = flags_of(type(config))
    return {
        name: value
        for name, value in flat_values(config).items()
        if str(value) != str(as_text(declared[name].default))
    }


def chosen(config: "DataclassInstance") -> frozenset[str]:
    """Returns the names of the flags that were given, with any value.

    Of a config that neither `parse` nor `build` has made, these are the flags
    that differ from their defaults.
    """
    return getattr(config, _CHOSEN, None) or frozenset(given(config))


def affecting(config: "DataclassInstance", *effects: Effect) -> dict[str, Any]:
    """Returns the flags that are declared with these effects, as JSON."""
    declared = flags_of(type(config))
    return {
        name: value
        for name, value in flat_values(config).items()
        if declared[name].affects in effects
    }


class Change(NamedTuple):
    """A value that differs from that of an earlier run.

    Attributes:
      name: the flag, or in words what was read.
      shown: "--NAME was OLD, is NEW", or that what was read differs.
      forbids_resuming: whether training may not go on; see Effect.
    """

    name: str
    shown: str
    forbids_resuming: bool


def changes(
    config: "DataclassInstance",
    made_from: Mapping[str, Any],
    before: Mapping[str, Any],
) -> list[Change]:
    """Returns what an earlier run had otherwise.

    Args:
      config: the flags, of which those that affect records or results count.
      made_from: what a run reads, as JSON values by names in words; these
        replace the flags of the same name, and affect the records.
      before: the same values of the earlier run; those that it lacks are not
        compared.
    """
    read = json.loads(json.dumps(dict(made_from)))
    found = []
    for name, new in affecting(config, "records", "result").items():
        flag, old = flags_of(type(config))[name], before.get(name, new)
        if flag.is_path and old and new:
            old, new = map(file_system.real, (old, new))
        if name not in read and old != new:
            grows = flag.extendable and f"{new},".startswith(f"{old},")
            forbids = flag.affects == "records" and not grows
            found.append(Change(name, f"--{name} was {old}, is {new}", forbids))
    # Other flags, which come first, may be why the contents differ.
    return found + [
        Change(
            name, f"{name.removesuffix(' contents')} had other contents", True
        )
        for name, new in read.items()
        if before.get(name, new) != new
    ]


def run(
    config_class: "type[DataclassInstance]",
    main: Callable[[Any], int | None],
    argv: Sequence[str] | None = None,
) -> None:
    """Parses the command line, builds the config and calls main(config).

    Exits with the code that main returns, if any. Errors of the user exit with
    code 2, Ctrl-C with 130. All other exceptions keep their traceback.
    """
    try:
        config = parse(config_class, sys.argv if argv is None else argv)
        code, message = main(config), ""
    except errors.InputError as error:
        code, message = 2, str(error)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    except Exception as error:
        tf = sys.modules.get("tensorflow")
        # The checkpoint readers raise these for the user's files.
        kinds = tf and (
            tf.errors.NotFoundError,
            tf.errors.PermissionDeniedError,
        )
        if (
            errors.system_number(error) is None
            and not isinstance(error, kinds or ())
            and not any(text in str(error) for text in _FILE_TEXTS)
        ):
            raise
        code, message = 2, errors.reason(error)
    if message:
        sys.stdout.flush()
        program = os.path.basename(sys.argv[0]) or "error"
        sys.stderr.write(f"{program}: {errors.one_line(message)}\n")
    if code:
        sys.exit(code)


def parse(config_class: "type[DataclassInstance]", argv: Sequence[str]) -> Any:
    """Builds a config from argv, whose first element is the program's name."""
    declared = flags_of(config_class)
    values = flags.FlagValues()
    for name, flag in declared.items():
        define = flags.DEFINE_bool if flag.kind is bool else flags.DEFINE_string
        define(name, None, flag.help, flag_values=values)
    for logging_flag in flags.FLAGS.flags_by_module_dict()["absl.logging"]:
        if logging_flag.name not in values:
            values[logging_flag.name] = logging_flag
            values.register_flag_by_module("absl.logging", logging_flag)
    if {"--help", "-help", "-h", "--helpshort", "--helpfull"} & {*argv[1:]}:
        _print_help(config_class)
    try:
        rest = values([*argv])
    except flags.Error as error:
        raise errors.InputError(str(error)) from error
    flags.FLAGS.mark_as_parsed()  # The logging flags live there as well.
    logging.use_absl_handler()
    logging.get_absl_handler().setFormatter(_Lines())
    if values["verbosity"].using_default_value:
        values["verbosity"].value = logging.INFO
    if len(rest) > 1:
        raise errors.InputError(
            f"{rest[1]!r} is not a flag: write --name=value, and a pattern of "
            "files in quotation marks"
        )
    given_values = {x: values[x].value for x in declared if values[x].present}
    for name, flag in declared.items():
        if flag.default is REQUIRED and name not in given_values:
            raise errors.InputError(f"--{name} is required: {flag.help}")
    return build(config_class, **given_values)


class _Lines(std_logging.Formatter):
    """Lines "12:34:56 message", with the level where it is not info."""

    def formatMessage(self, record: std_logging.LogRecord) -> str:
        is_info = record.levelno == std_logging.INFO
        level = "" if is_info else f"{record.levelname.lower()}: "
        return f"{self.formatTime(record, '%H:%M:%S')} {level}{record.message}"


def _print_help(config_class: "type[DataclassInstance]") -> NoReturn:
    """Prints the flags to begin with, then the others by class, as topics.

    The first ones are the config class's FIRST_FLAGS, else those of the
    examples in the docstring of the module.
    """
    # The class of a command's flags may be declared in a task's folder.
    program = sys.modules["__main__"]
    if not hasattr(program, config_class.__name__):
        program = sys.modules[config_class.__module__]
    text = program.__doc__ or ""
    left = dict(flags_of(config_class))
    shown = re.findall(r"--(\w+)", text)
    first = getattr(config_class, "FIRST_FLAGS", shown)
    topics = {"Flags": [left.pop(name) for name in first if name in left]}
    more = "More flags of this command" if topics["Flags"] else "Flags"
    # The command's own flags first, then those of its groups and base classes.
    owners = [config_class, *(x.owner for x in reversed([*left.values()]))]
    for owner in dict.fromkeys(owners):
        heading = (owner.__doc__ or "").partition("\n")[0].rstrip(".")
        topics.setdefault(
            more if owner is config_class else heading, []
        ).extend(x for x in left.values() if x.owner is owner)
    for heading, members in topics.items():
        if members:
            lines = [f"\n{heading}:", *(x.shown_help for x in members), ""]
            text += "\n".join(lines)
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.exit(0)
