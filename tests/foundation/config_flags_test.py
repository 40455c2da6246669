"""Proves that flags follow from a dataclass and that errors are one line.

pytest tests/foundation/config_flags_test.py
"""

import dataclasses
import errno
import os
import pathlib
import re
import subprocess
import sys
from typing import ClassVar, Literal

import pytest
import tensorflow as tf
from absl import logging

from foundation import config_flags, errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """The fields that both runners of this test share."""

    output_dir: str = config_flags.field("Where results go.", "out")
    use_tpu: bool = config_flags.field("Whether to use a TPU.", False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Base):
    """A runner's config with one field of every kind."""

    vocab_file: str = config_flags.field("One token a line.")
    do_lower_case: bool = config_flags.field("Lower-case.", True)
    do_train: bool = config_flags.field("Train.", False)
    max_seq_length: int = config_flags.field("In tokens.", 128)
    learning_rate: float = config_flags.field("Peak rate.", 5e-5)
    init_checkpoint: str | None = config_flags.field("Warm start.", None)
    max_steps: int | None = config_flags.field("Stop early.", None)
    precision: Literal["auto", "float32"] = config_flags.field("P.", "auto")

    def __post_init__(self) -> None:
        """Refuses nonsense by the flag's name."""
        if self.max_seq_length < 4:
            raise ValueError("--max_seq_length must be at least 4")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wordy:
    """A config with a long help."""

    WORDS: ClassVar[str] = "speed " * 60 + "limit."
    speed: int = config_flags.field(WORDS, 1)


def parse(*arguments: str) -> Config:
    return config_flags.parse(Config, ["runner.py", *arguments])


def run(main, *arguments: str) -> None:
    config_flags.run(Config, main, ["runner.py", *arguments])


def exit_line(capsys, code: int, main, *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        run(main, *arguments)
    assert caught.value.code == code
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "Traceback" not in message
    return message


def test_defaults_and_types_come_from_the_fields():
    config = parse("--vocab_file=v")
    assert config == Config(vocab_file="v")
    config = parse(
        "--vocab_file",
        "v",
        "--learning_rate",
        "1e-3",
        "--max_steps=7",
        "--precision=float32",
    )
    assert config == Config(
        vocab_file="v", learning_rate=1e-3, max_steps=7, precision="float32"
    )


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--do_train"], True),
        (["--do_train=true"], True),
        (["--do_train=False"], False),
        (["--nodo_train"], False),
        (["--do_train", "--do_lower_case=true"], True),
    ],
)
def test_booleans_are_read_in_every_form_that_people_write(arguments, expected):
    assert parse("--vocab_file=v", *arguments).do_train is expected


def test_flag_files_work(tmp_path):
    path = tmp_path / "flags"
    path.write_text("# the recipe\n--vocab_file=v\n--max_seq_length=512\n")
    assert parse(f"--flagfile={path}").max_seq_length == 512
    # The last value counts.
    after = parse("--flagfile", str(path), "--max_seq_length=9")
    assert after.max_seq_length == 9
    before = parse("--max_seq_length=9", f"--flagfile={path}")
    assert before.max_seq_length == 512


def test_two_configs_with_the_same_flag_live_in_one_process():
    assert parse("--vocab_file=v", "--output_dir=x").output_dir == "x"
    assert config_flags.parse(Base, ["other.py"]).output_dir == "out"


def test_the_flags_of_absl_logging_still_work():
    parse("--vocab_file=v", "--verbosity=-1")
    assert logging.get_verbosity() == -1
    parse("--vocab_file=v", "--verbosity=0")
    assert logging.get_verbosity() == 0


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "--vocab_file is required"),
        (["--vocab_file=v", "--do_lower=False"], "do_lower_case"),
        (["--vocab_file=v", "--max_seq_length=abc"], "--max_seq_length=abc"),
        (["--vocab_file=v", "--precision=int8"], "auto|float32"),
        (["--vocab_file=v", "--max_seq_length=3"], "--max_seq_length must"),
        (["--vocab_file=v", "stray"], "'stray' is not a flag"),
        (["--vocab_file=v", "--do_train", "False"], "'False' is not a flag"),
        (["--flagfile=/nowhere/flags", "--vocab_file=v"], "/nowhere/flags"),
        (["--vocab_file=a\udcff"], r"--vocab_file='a\udcff': is not UTF-8"),
        (["--vocab_file=v", "--init_checkpoint=\udce9"], "--init_checkpoint="),
    ],
)
def test_bad_command_lines_end_in_one_line(capsys, arguments, words):
    assert words in exit_line(capsys, 2, lambda config: None, *arguments)


@pytest.mark.parametrize(
    "error, code, words",
    [
        (errors.InputError("--vocab_file=v: no [MASK]"), 2, "no [MASK]"),
        (FileNotFoundError(2, "No such file", "shard-0"), 2, "shard-0"),
        (OSError(28, "No space left on device", "ckpt"), 2, "No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_the_user_can_mend_is_one_line(capsys, error, code, words):
    def main(config):
        raise error

    assert words in exit_line(capsys, code, main, "--vocab_file=v")


@pytest.mark.parametrize(
    "error",
    [
        ChildProcessError(10, "No child processes"),
        OSError("a message of ours"),
        BlockingIOError(11, "Resource temporarily unavailable", "lock"),
    ],
    ids=["no path", "no number", "not of files"],
)
def test_a_defect_keeps_its_traceback(error):
    def main(config):
        raise error

    with pytest.raises(type(error)):
        config_flags.run(Config, main, ["program", "--vocab_file=v"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded:
    """A config with bounds."""

    rate: float = config_flags.field("A rate.", 0.5, above=0, at_most=1)
    count: int | None = config_flags.field("A count.", None, at_least=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0.0}, "--rate=0.0: must be above 0 and at most 1"),
        ({"rate": float("nan")}, "--rate=nan: must be a finite number"),
        ({"count": 0}, "--count=0: must be at least 1"),
        ({"count": 1, "rate": 1.0}, None),
    ],
)
def test_a_number_out_of_bounds_is_refused(values, message):
    if message is None:
        config_flags.build(Bounded, **values)
        return
    with pytest.raises(ValueError, match=re.escape(message)):
        config_flags.build(Bounded, **values)


@pytest.mark.parametrize(
    "name, words",
    [("at/all", "at/all"), ("", "Is a directory")],
    ids=["nothing", "directory"],
)
def test_tensorflow_file_errors_are_one_line(capsys, tmp_path, name, words):

    def main(config):
        tf.io.gfile.GFile(f"{tmp_path}/{name}").read()

    message = exit_line(capsys, 2, main, "--vocab_file=v")
    assert str(tmp_path) in message and words in message


def test_a_file_where_a_folder_is_meant_is_one_line(capsys, tmp_path):

    (tmp_path / "file").write_text("")

    def main(config):
        tf.io.gfile.makedirs(f"{tmp_path}/file/inner")

    message = exit_line(capsys, 2, main, "--vocab_file=v")
    assert f"{tmp_path}/file" in message


def test_a_defect_of_ours_keeps_its_traceback():
    def main(config):
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        run(main, "--vocab_file=v")


def test_the_value_of_main_is_the_exit_code():
    run(lambda config: None, "--vocab_file=v")
    with pytest.raises(SystemExit) as caught:
        run(lambda config: 7, "--vocab_file=v")
    assert caught.value.code == 7


def test_help_lists_every_flag_and_exits_with_zero(capsys):
    with pytest.raises(SystemExit) as caught:
        run(lambda config: None, "--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--vocab_file: One token a line. (required)" in text
    assert "--max_seq_length: In tokens. (default: 128)" in text


def test_help_shows_the_choices_and_no_missing_default(capsys):
    with pytest.raises(SystemExit):
        run(lambda config: None, "--help")
    lines = capsys.readouterr().out.splitlines()
    assert "  --precision: P. (one of auto, float32; default: auto)" in lines
    assert "  --init_checkpoint: Warm start." in lines


def test_help_begins_with_the_flags_of_the_examples(capsys, monkeypatch):
    """The others follow by the class that declares them."""
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "__doc__", "runner.py --max_steps=1 --use_tpu")
    with pytest.raises(SystemExit):
        run(lambda config: None, "--help")
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(":")[0].strip() for line in lines if line]
    assert names[1:4] == ["Flags", "--max_steps", "--use_tpu"]
    more = names.index("More flags of this command")
    base = names.index("The fields that both runners of this test share")
    assert more == 4 and "--vocab_file" in names[more:base]
    assert names[base + 1 :] == ["--output_dir"]
    assert len(names) == len(set(names))


def test_help_begins_with_the_first_flags_of_a_class(capsys, monkeypatch):
    names = ("max_seq_length", "output_dir")
    monkeypatch.setattr(Config, "FIRST_FLAGS", names, raising=False)
    with pytest.raises(SystemExit):
        run(lambda config: None, "--help")
    text = capsys.readouterr().out.partition("\nFlags:\n")[2]
    found = re.findall(r"^  --(\w+)", text, re.MULTILINE)
    assert found[:2] == [*names]
    assert sorted(found) == sorted(config_flags.flags_of(Config))


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_is_wrapped_to_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        config_flags.run(Wordy, lambda config: None, ["runner.py", "--help"])
    text = capsys.readouterr().out.partition("\nFlags:\n")[2]
    lines = text.splitlines()
    assert columns - 7 < max(map(len, lines)) <= columns
    assert " ".join(text.split()) == f"--speed: {Wordy.WORDS} (default: 1)"


def test_a_full_disk_is_named_without_the_operation_of_tensorflow(capsys):
    def main(config):
        text = (
            "{{function_node __wrapped__SaveV2_dtypes_1_device_/job:localhost}}"
            " /out/model.ckpt-5.data-00000-of-00001.tempstate104; No space left"
            " on device [Op:SaveV2]"
        )
        raise tf.errors.ResourceExhaustedError(None, None, text)

    assert exit_line(capsys, 2, main, "--vocab_file=v").endswith(
        ": /out/model.ckpt-5.data-00000-of-00001: No space left on device\n"
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("kind", ["UnknownError", "ResourceExhaustedError"])
def test_an_error_of_the_disk_is_one_line(capsys, number, kind):
    def main(config):
        text = f"/out/a.tfrecord; {os.strerror(number)}"
        raise getattr(tf.errors, kind)(None, None, text)

    line = exit_line(capsys, 2, main, "--vocab_file=v")
    assert "/out/a.tfrecord" in line and os.strerror(number) in line


TOO_MANY = """
import dataclasses, os, resource
from foundation import atomic, config_flags

@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    output_file: str = config_flags.field("Text.")

def main(config):
    # The first descriptor that is not used is the limit.
    limit = os.open(os.devnull, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit + 1, limit + 1))
    atomic.write_text(config.output_file, "text")

config_flags.run(Config, main)
"""


def test_too_many_open_files_are_one_line(tmp_path, repository):
    path = str(tmp_path / "a")
    found = subprocess.run(
        [sys.executable, "-c", TOO_MANY, f"--output_file={path}"],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    assert f"'{path}'" in found.stderr and "ulimit -n" in found.stderr


COMMANDS = [
    path.name
    for path in sorted(pathlib.Path(__file__).parents[2].glob("*.py"))
    if "config_flags.run(" in path.read_text()
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("flag", "code", "shown"),
    [("--help", 0, "Flags:"), ("--bogus=1", 2, "'bogus'")],
    ids=["help", "error"],
)
def test_commands_parse_their_flags_before_they_import_tensorflow(
    tmp_path, repository, command, flag, code, shown
):
    for name in ("tensorflow", "keras", "matplotlib"):
        stub = f"raise SystemExit('{name} is imported')"
        (tmp_path / f"{name}.py").write_text(stub)
    found = subprocess.run(
        [sys.executable, command, flag],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == code, found.stderr
    assert shown in found.stdout + found.stderr
    assert "is imported" not in found.stderr


def test_a_flag_that_is_given_with_its_default_is_chosen():
    config = parse("--vocab_file=v.txt", "--max_seq_length=128", "--do_train")
    names = {"vocab_file", "max_seq_length", "do_train"}
    assert config_flags.chosen(config) == names
    assert "max_seq_length" not in config_flags.given(config)
    changed = config_flags.replace_unchecked(config, learning_rate=1.0)
    assert config_flags.chosen(changed) == names
    # Only differences are left of a config that the program has made.
    made = Config(vocab_file="v.txt", max_seq_length=128, do_train=True)
    assert config_flags.chosen(made) == {"vocab_file", "do_train"}


def test_a_part_of_a_flag_is_recognized():
    with pytest.raises(errors.InputError) as error:
        parse("--vocab_file=v", "--checkpoint=a")
    assert str(error.value) == (
        "Unknown command line flag 'checkpoint'. Did you mean: "
        "init_checkpoint ?"
    )
    with pytest.raises(errors.InputError, match="mean: learning_rate [?]$"):
        parse("--vocab_file=v", "--learning_rat=1")
    with pytest.raises(errors.InputError, match="flag 'arm'$"):
        parse("--vocab_file=v", "--arm=1")


@pytest.mark.parametrize(
    ("flag", "ours"),
    [
        ("lr", "learning_rate"),
        ("max-length", "max_seq_length"),
        ("per_device_max_steps", "max_steps"),
    ],
)
def test_a_flag_of_other_programs_is_recognized(flag, ours):
    with pytest.raises(errors.InputError, match=f"you mean: {ours} [?]$"):
        parse("--vocab_file=v", f"--{flag}=1")
