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

    config_flags.parse_early(Config, __name__)
    config_flags.check_early(Config, __name__, early_checks.check)

The command line is flat: --vocab_file=v.txt --learning_rate=5e-5,3e-5
--doc_stride=32. So are `flat_values`, `given` and run_config.json.

    import foundation.tensorflow_setup  # ... and all that takes seconds
    ...
    if __name__ == "__main__":
        config_flags.run(Config, main)

`parse_early` answers --help and refuses wrong flags before TensorFlow is
imported. A user's error ends as one line on stderr and exit code 2.
"""

# Before any package that may be missing, and what an old Python cannot run.
import foundation.environment  # noqa: F401

# isort: split
import contextlib
import copy
import dataclasses
import errno
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

from foundation import atomic, errors, file_system, stamp

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

REQUIRED = dataclasses.MISSING
_Config = TypeVar("_Config", bound="DataclassInstance")
RUN_CONFIG = "run_config.json"  # All flags of a command, in its output_dir.
_parsed_early: dict[type, Any] = {}
# Attribute of a config: the names of the flags that `build` was given.
_CHOSEN = "_chosen_flags"
# What other programs call flags of ours, transformers' Trainer first.
_OTHER_NAMES = {
    "lr": "learning_rate",
    "max_length": "max_seq_length",
    "model": "init_checkpoint",
    "model_name_or_path": "init_checkpoint",
    "num_epochs": "num_train_epochs",
    "validation_file": "dev_file",
    "warmup_ratio": "warmup_proportion",
}
_TRUTHS = ("true", "false", "t", "f", "1", "0", "yes", "no", "y", "n")
_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull")
_DEFINE: Mapping[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
_PYTHON_KINDS: Mapping[type, type] = {
    bool: bool,
    int: numbers.Integral,
    float: numbers.Real,
}
# Errors of the system that a file, a disk or the memory causes; those in
# _WITHOUT_PATH also where the error names no file.
_TOO_MANY = ["EMFILE", "ENFILE"]
_WITHOUT_PATH = (
    "EDQUOT EFBIG EIO ENOMEM ENOSPC EPIPE EROFS ESTALE".split() + _TOO_MANY
)
_WITH_PATH = (
    "EACCES EEXIST EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR ENOTEMPTY ENXIO "
    "EPERM"
).split() + _WITHOUT_PATH
# The project's own files and Python's: if one is missing, this is a defect,
# and none if too many other files are open.
_OURS = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (os.path.dirname(os.path.dirname(__file__)), sys.prefix)
)
_CODE = (".py", ".pyc", ".so", ".html", ".css", ".js")
# Texts of TensorFlow's errors for the user's files, besides the system's.
_TENSORFLOW_FILE_TEXTS = (
    "is not a directory",
    "File system scheme",  # ... 's3' not implemented
)
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at_least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "at_most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


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
            self._check(value, f"--{self.name}={value}")
            return value
        if isinstance(value, str):
            value = [x.strip() for x in value.split(",")]
        elif not isinstance(value, (list, tuple)):
            value = [value]
        shown = f"--{self.name}={as_text(value)}"
        value = tuple(self._parse_one(x, shown) for x in value)
        if len(set(value)) < len(value):
            raise ValueError(f"{shown}: one occurs twice")
        return value

    def _parse_one(self, value: Any, shown: str) -> Any:
        if isinstance(value, str) and self.kind is not str:
            try:
                value = self.kind(value)
            except ValueError:
                raise ValueError(
                    f"{shown}: {value!r} is not a number"
                ) from None
        self._check(value, shown)
        return value

    def _check_kind(self, value: Any, shown: str) -> None:
        """Refuses what only Python can give: the text "no" would be true."""
        kind = _PYTHON_KINDS.get(self.kind)
        if value is None or kind is None:
            return
        is_bool = isinstance(value, bool)
        if not isinstance(value, kind) or is_bool != (self.kind is bool):
            name = "True or False" if self.kind is bool else "a number"
            if self.kind is int:
                name = "a whole number"
            raise ValueError(f"{shown}: {value!r} is not {name}")

    def _check(self, value: Any, shown: str) -> None:
        self._check_kind(value, shown)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{shown}: must be a finite number")
        checks = [
            (*_BOUNDS[name], bound) for name, bound in self.bounds.items()
        ]
        if value is not None and not all(
            is_good(value, bound) for _, is_good, bound in checks
        ):
            bounds = " and ".join(f"{text} {x:g}" for text, _, x in checks)
            raise ValueError(f"{shown}: must be {bounds}")


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


def kind_of(config: "DataclassInstance", name: str) -> type:
    """Returns the type of a flag's values: str for a Literal of strings."""
    kind = flags_of(type(config))[name].kind
    return kind if isinstance(kind, type) else str


def write_run_config(config: Any, output_dir: str) -> None:
    """Writes the resolved config as run_config.json, atomically."""
    file_system.make_folder(output_dir)
    path = os.path.join(output_dir, RUN_CONFIG)
    atomic.write_json(path, flat_values(config))


def parse_early(config_class: "type[DataclassInstance]", module: str) -> None:
    """Parses the command line if `module` is the program, "__main__".

    Call it before the imports that take long: --help and errors of flags end
    the process at once. `run` uses the config that is made here.
    """
    if module == "__main__":
        with _one_line_errors():
            _parsed_early[config_class] = parse(config_class, sys.argv)


def check_early(
    config_class: type[_Config], module: str, check: Callable[[_Config], None]
) -> None:
    """Calls check(config) with the config of `parse_early`.

    It ends the process with one line if the check raises InputError.
    """
    if module == "__main__":
        with _one_line_errors():
            check(_parsed_early[config_class])


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
        if argv is None and config_class in _parsed_early:
            config = _parsed_early[config_class]
        else:
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
    declared, argv = flags_of(config_class), list(argv)
    values = _define(declared)
    if any(argument in _HELP for argument in argv[1:]):
        _print_help(config_class, values, full="--helpfull" in argv)
    arguments = _join_booleans(declared, argv)
    try:
        rest = values(arguments)
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
    _warn_of_lost_values(declared, values, arguments)
    if len(rest) > 1:
        raise errors.InputError(
            f"{rest[1]!r} is not a flag: write --name=value"
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
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


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


def _join_booleans(
    declared: Mapping[str, Flag], argv: Sequence[str]
) -> list[str]:
    """Rewrites `--do_train True` as `--do_train=True`, which absl ignores."""
    booleans = {name for name, flag in declared.items() if flag.kind is bool}
    joined: list[str] = []
    for argument in argv:
        previous = joined[-1] if len(joined) > 1 else ""
        is_open = previous.startswith("-") and previous.lstrip("-") in booleans
        if is_open and argument.lower() in _TRUTHS:
            joined[-1] = f"{previous}={argument}"
        else:
            joined.append(argument)
    return joined


def _warn_of_lost_values(
    declared: Mapping[str, Flag], values: flags.FlagValues, argv: Sequence[str]
) -> None:
    """Logs a warning if a later argument or flag file replaced a value.

    Values of flag files are not in argv: later arguments may replace them.
    """
    arguments = iter(argv[1:])
    for argument in arguments:
        name, _, text = argument.lstrip("-").partition("=")
        if name not in declared and name.startswith("no"):
            name, text = name[2:], "false"
        if name not in declared or not argument.startswith("-"):
            continue
        if not text and "=" not in argument:
            text = "true" if values[name].boolean else next(arguments)
        value, last = values[name].parser.parse(text), values[name].value
        if str(value) != str(last):
            text = "--%s is given twice, as %s and as %s; the last counts"
            logging.warning(text, name, value, last)


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
    """Returns whether a file of the user is the cause of an error."""
    if isinstance(error, OSError) and error.errno is not None:
        path, number = error.filename, errno.errorcode.get(error.errno)
        if not isinstance(path, str):
            return number in _WITHOUT_PATH
        is_code = path.endswith(_CODE) and number not in _TOO_MANY
        is_ours = is_code and os.path.realpath(path).startswith(_OURS)
        return number in _WITH_PATH and not is_ours
    tensorflow = sys.modules.get("tensorflow")
    is_of_system = errors.system_number(error) is not None
    if isinstance(error, OSError) or tensorflow is None:
        return is_of_system
    kinds = tensorflow.errors
    if is_of_system or any(x in str(error) for x in _TENSORFLOW_FILE_TEXTS):
        return isinstance(error, kinds.OpError)
    # What tf.io.gfile and the checkpoint readers raise for the user's files.
    return isinstance(error, kinds.NotFoundError | kinds.PermissionDeniedError)


def _exit(code: int, message: str) -> NoReturn:
    sys.stdout.flush()
    program = os.path.basename(sys.argv[0]) or "error"
    sys.stderr.write(f"{program}: {errors.one_line(message)}\n")
    sys.exit(code)
