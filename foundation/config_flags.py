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
import contextlib
import copy
import dataclasses
import functools
import logging as std_logging
import math
import numbers
import operator
import os
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from absl import flags, logging

from foundation import errors, stamp

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

REQUIRED = dataclasses.MISSING
_Config = TypeVar("_Config", bound="DataclassInstance")
# Attribute of a config: the names of the flags that `build` was given.
_CHOSEN = "_chosen_flags"
# What transformers' Trainer calls flags of ours.
_OTHER_NAMES = {
    "lr": "learning_rate",
    "max_length": "max_seq_length",
    "model": "init_checkpoint",
    "model_name_or_path": "init_checkpoint",
    "num_epochs": "num_train_epochs",
    "validation_file": "dev_file",
    "warmup_ratio": "warmup_proportion",
}
_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull")
_DEFINE: Mapping[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
# Of values that Python gives: the text "no" would be true.
_KINDS: Mapping[type, tuple[type, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
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
    affects: stamp.Effect = "nothing",
    extendable: bool = False,
    is_path: bool = False,
    remembered: bool = False,
    **bounds: float,
) -> Any:
    """Declares one flag.

    Args:
      help: one or two sentences.
      default: the value without the flag; a flag without a default is required.
      affects: see stamp.Effect.
      extendable: see stamp.Setting.
      is_path: see stamp.Setting.
      remembered: whether later commands with the model have the value of its
        training unless they are given another.
      **bounds: at_least, above, at_most or below -> number; of each element
        of a list.
    """
    metadata = {
        "help": help,
        "affects": affects,
        "extendable": extendable,
        "is_path": is_path,
        "remembered": remembered,
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
      kind: bool, int, float, str or a Literal of strings; of a list, the kind
        of its elements.
      is_list: whether the value is a tuple, on the command line with commas.
      default: the value without the flag; REQUIRED if there is none.
      help, affects, extendable, is_path, remembered, bounds: see `field`.
      owner: the class that declares the flag.
    """

    name: str
    kind: Any
    is_list: bool
    default: Any
    help: str
    affects: stamp.Effect
    extendable: bool
    is_path: bool
    remembered: bool
    bounds: Mapping[str, float]
    owner: type

    def parse(self, value: Any) -> Any:
        """Returns a value of the flag's type; a list may be given as text.

        Raises:
          ValueError: a value has another type; a number is malformed, not
            finite or out of bounds, or occurs twice in a list.
        """
        if not self.is_list or value is None:
            return self._checked(value, f"--{self.name}={value}")
        if isinstance(value, str):
            value = [x.strip() for x in value.split(",")]
        elif not isinstance(value, (list, tuple)):
            value = [value]
        shown = f"--{self.name}={as_text(value)}"
        value = tuple(self._checked(x, shown) for x in value)
        if len(set(value)) < len(value):
            raise ValueError(f"{shown}: one occurs twice")
        return value

    def _checked(self, value: Any, shown: str) -> Any:
        if value is None or self.kind not in _KINDS:
            return value
        python_kind, name = _KINDS[self.kind]
        if self.is_list and isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = self.kind(value)
        is_bool = isinstance(value, bool)
        if not isinstance(value, python_kind) or is_bool != (self.kind is bool):
            raise ValueError(f"{shown}: {value!r} is not {name}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{shown}: must be a finite number")
        if not all(_BOUNDS[x](value, y) for x, y in self.bounds.items()):
            bounds = (f"{x} {y:g}" for x, y in self.bounds.items())
            text = " and ".join(bounds).replace("_", " ")
            raise ValueError(f"{shown}: must be {text}")
        return value


@functools.cache
def flags_of(config_class: "type[DataclassInstance]") -> Mapping[str, Flag]:
    """Returns the flags of a config class and of its groups, by name."""
    declared: dict[str, Flag] = {}
    hints = typing.get_type_hints(config_class)
    for f in dataclasses.fields(config_class):
        if "group" in f.metadata:
            defaults = f.metadata["defaults"]
            inner = flags_of(f.metadata["group"])
            assert defaults.keys() <= inner.keys(), defaults
            own = {
                name: dataclasses.replace(
                    flag, default=defaults.get(name, flag.default)
                )
                for name, flag in inner.items()
            }
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
      ValueError: a value is out of bounds, or the class refuses it.
    """
    declared = flags_of(config_class)
    assert values.keys() <= declared.keys(), values.keys() - declared.keys()
    parsed = {name: declared[name].parse(x) for name, x in values.items()}
    config = _construct(config_class, parsed)
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
    changed = copy.copy(config)
    for f in dataclasses.fields(config):
        if "group" in f.metadata:
            inner = replace_unchecked(getattr(config, f.name), **values)
            object.__setattr__(changed, f.name, inner)
        elif f.name in values:
            object.__setattr__(changed, f.name, values[f.name])
    return changed


def as_text(value: Sequence[Any]) -> Any:
    """Returns a list as files have it: one value itself, several as text."""
    return value[0] if len(value) == 1 else ",".join(map(str, value))


def flat_values(config: Any) -> dict[str, Any]:
    """Returns flag -> JSON value, those of groups included."""
    values: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if "group" in f.metadata:
            values |= flat_values(value)
        else:
            is_list = isinstance(value, tuple)
            values[f.name] = as_text(value) if is_list else value
    return values


def affecting(
    config: "DataclassInstance", *effects: stamp.Effect
) -> stamp.Stamp:
    """Returns the flags that are declared with these effects."""
    declared = flags_of(type(config))
    return stamp.Stamp(
        [
            stamp.Setting(
                name,
                value,
                declared[name].affects,
                extendable=declared[name].extendable,
                is_path=declared[name].is_path,
            )
            for name, value in flat_values(config).items()
            if declared[name].affects in effects
        ]
    )


def given(config: "DataclassInstance") -> dict[str, Any]:
    """Returns the flags that differ from their defaults, as JSON values."""
    return {
        name: value
        for name, value in flat_values(config).items()
        if not _is_default(flags_of(type(config))[name], value)
    }


def _is_default(flag: Flag, value: Any) -> bool:
    default = flag.default
    if isinstance(default, tuple):
        default = as_text(default)
    return str(value) == str(default)


def chosen(config: "DataclassInstance") -> frozenset[str]:
    """Returns the names of the flags that were given, with any value.

    Of a config that neither `parse` nor `build` has made, these are the flags
    that differ from their defaults.
    """
    names = getattr(config, _CHOSEN, None)
    return frozenset(given(config)) if names is None else names


def run(
    config_class: "type[DataclassInstance]",
    main: Callable[[Any], int | None],
    argv: Sequence[str] | None = None,
) -> None:
    """Parses the command line, builds the config and calls main(config).

    Exits with the code that main returns, if any. Errors of the user exit with
    code 2, Ctrl-C with 130. All other exceptions keep their traceback.
    """
    with _one_line_errors():
        config = parse(config_class, sys.argv if argv is None else argv)
        code = main(config)
    if code:
        sys.exit(code)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Ends the process with one line on the errors that `run` describes."""
    try:
        yield
    except errors.InputError as error:
        _exit(2, str(error))
    except KeyboardInterrupt:
        _exit(130, "interrupted")
    except Exception as error:
        if not _is_file_error(error):
            raise
        _exit(2, errors.reason(error))


def parse(config_class: "type[DataclassInstance]", argv: Sequence[str]) -> Any:
    """Builds a config from argv, whose first element is the program's name."""
    declared = flags_of(config_class)
    values = _define(declared)
    if any(argument in _HELP for argument in argv[1:]):
        _print_help(config_class, values, full="--helpfull" in argv)
    try:
        rest = values([*argv])
    except flags.UnrecognizedFlagError as error:
        text = _with_longer_names(declared, error)
        raise errors.InputError(text) from error
    except flags.Error as error:
        raise errors.InputError(str(error)) from error
    flags.FLAGS.mark_as_parsed()  # The logging flags live there as well.
    logging.use_absl_handler()
    logging.get_absl_handler().setFormatter(_Formatter())
    if values["verbosity"].using_default_value:
        values["verbosity"].value = logging.INFO
    if len(rest) > 1:
        raise errors.InputError(
            f"{rest[1]!r} is not a flag: write --name=value, and a pattern of "
            "files in quotation marks"
        )
    chosen_values = {}
    for name, flag in declared.items():
        value = values[name].value
        if isinstance(value, str) and not _is_utf_8(value):
            raise errors.InputError(f"--{name}={ascii(value)}: is not UTF-8")
        if flag.default is REQUIRED and value is None:
            raise errors.InputError(f"--{name} is required: {flag.help}")
        if values[name].present:
            chosen_values[name] = value
    try:
        return build(config_class, **chosen_values)
    except ValueError as error:  # Names the flag.
        raise errors.InputError(str(error)) from error


def _with_longer_names(
    declared: Mapping[str, Flag], error: flags.UnrecognizedFlagError
) -> str:
    """Returns the message about a flag, with the flags that it is a part of.

    absl suggests only flags of nearly the same letters.
    """
    part = error.flagname.replace("-", "_")
    part = part.removeprefix("per_device_")
    usual = _OTHER_NAMES.get(part)
    names = [x for x in declared if x == usual]
    names = names or [x for x in declared if f"_{part}_" in f"_{x}_"]
    if not names:
        return str(error)
    shown = ", ".join(names)
    return (
        f"Unknown command line flag {error.flagname!r}. Did you mean: {shown} ?"
    )


def _is_utf_8(text: str) -> bool:
    """Returns whether an argument was UTF-8, as TensorFlow needs paths."""
    return text == text.encode(errors="replace").decode()


class _Formatter(std_logging.Formatter):
    """Writes "12:34:56 message", with the level where it is not info."""

    def format(self, record: std_logging.LogRecord) -> str:
        """Returns the line of a record, and its traceback if it has one."""
        clock = self.formatTime(record, "%H:%M:%S")
        is_info = record.levelno <= std_logging.INFO
        level = "" if is_info else f"{record.levelname.lower()}: "
        lines = [f"{clock} {level}{record.getMessage()}"]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


def _define(declared: Mapping[str, Flag]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name, flag in declared.items():
        default = None if flag.default is REQUIRED else flag.default
        if flag.is_list:
            default = str(as_text(default)) if default else None
            flags.DEFINE_string(name, default, flag.help, flag_values=values)
        elif typing.get_origin(flag.kind) is typing.Literal:
            choices = list(typing.get_args(flag.kind))
            flags.DEFINE_enum(
                name, default, choices, flag.help, flag_values=values
            )
        else:
            _DEFINE[flag.kind](name, default, flag.help, flag_values=values)
    logging_flags = flags.FLAGS.flags_by_module_dict()["absl.logging"]
    for logging_flag in logging_flags:
        if logging_flag.name not in values:
            values[logging_flag.name] = logging_flag
            values.register_flag_by_module("absl.logging", logging_flag)
    return values


def _print_help(
    config_class: "type[DataclassInstance]",
    values: flags.FlagValues,
    *,
    full: bool,
) -> NoReturn:
    """Prints the flags to begin with, then the others by class, as topics.

    The first ones are the config class's FIRST_FLAGS, else those of the
    examples in the docstring of the module.
    """
    # The class of a command's flags may be declared in a task's folder.
    program = sys.modules["__main__"]
    if not hasattr(program, config_class.__name__):
        program = sys.modules[config_class.__module__]
    shown = program.__doc__ or ""
    declared = flags_of(config_class)
    first = getattr(config_class, "FIRST_FLAGS", None)
    if first is None:
        first = dict.fromkeys(re.findall(r"--(\w+)", shown))
    else:
        assert declared.keys() >= {*first}, first
    topics = {"Flags:": [name for name in first if name in declared]}
    listed = {*topics["Flags:"]}
    # The command's own flags first, then those of its groups and base classes.
    owners = dict.fromkeys(
        [config_class, *(flag.owner for flag in reversed([*declared.values()]))]
    )
    for owner in owners:
        heading = (owner.__doc__ or "").partition("\n")[0].rstrip(".") + ":"
        if owner is config_class:
            heading = "More flags of this command:" if listed else "Flags:"
        topics.setdefault(heading, []).extend(
            name
            for name, flag in declared.items()
            if flag.owner is owner and name not in listed
        )
    lines = [shown]
    for heading, names in topics.items():
        if names:
            lines += [
                heading,
                *(_help_of(declared[name]) for name in names),
                "",
            ]
    if full:
        lines.append(values.get_help())
    sys.stdout.write("\n".join(lines).rstrip("\n") + "\n")
    sys.exit(0)


def _help_of(flag: Flag) -> str:
    """Returns the help of one flag, wrapped to the width of the terminal.

    The width is COLUMNS or the terminal's; 80 for a file or a pager.
    """
    notes = []
    if typing.get_origin(flag.kind) is typing.Literal:
        notes.append(f"one of {', '.join(typing.get_args(flag.kind))}")
    if flag.default is REQUIRED:
        notes.append("required")
    elif isinstance(flag.default, tuple):
        notes.append(f"default: {as_text(flag.default)}")
    elif flag.default is not None:
        notes.append(f"default: {flag.default}")
    end = f" ({'; '.join(notes)})" if notes else ""
    text = f"  --{flag.name}: {flag.help}{end}"
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text,
        width,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _is_file_error(error: Exception) -> bool:
    """Returns whether a file, a disk or the memory of the user is the cause."""
    of_system = errors.system_number(error) is not None
    if isinstance(error, OSError) or "tensorflow" not in sys.modules:
        return of_system
    kinds = sys.modules["tensorflow"].errors
    # The checkpoint readers raise the first two for the user's files.
    is_of_file = isinstance(
        error, (kinds.NotFoundError, kinds.PermissionDeniedError)
    )
    is_named = of_system or any(text in str(error) for text in _FILE_TEXTS)
    return is_of_file or (is_named and isinstance(error, kinds.OpError))


def _exit(code: int, message: str) -> NoReturn:
    sys.stdout.flush()
    program = os.path.basename(sys.argv[0]) or "error"
    sys.stderr.write(f"{program}: {errors.one_line(message)}\n")
    sys.exit(code)
