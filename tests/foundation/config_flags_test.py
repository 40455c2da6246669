"""Proves that flags follow from a dataclass and that errors are one line.

pytest tests/foundation/config_flags_test.py
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Literal

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
        (["--vocab_file=v", "--precision=int8"], "one of auto, float32"),
        (["--vocab_file=v", "--max_seq_length=3"], "--max_seq_length must"),
        (["--vocab_file=v", "stray"], "'stray' is not a flag"),
        (["--vocab_file=v", "--do_train", "False"], "'False' is not a flag"),
        (["--flagfile=/nowhere/flags", "--vocab_file=v"], "/nowhere/flags"),
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


def test_the_value_of_main_is_the_exit_code():
    run(lambda config: None, "--vocab_file=v")
    with pytest.raises(SystemExit) as caught:
        run(lambda config: 7, "--vocab_file=v")
    assert caught.value.code == 7


COMMANDS = [
    path.name
    for path in sorted(pathlib.Path(__file__).parents[2].glob("*.py"))
    if "config_flags.run(" in path.read_text()
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("flag", "code", "shown"),
    [
        pytest.param("--help", 0, "Flags:", marks=pytest.mark.all),
        ("--bogus=1", 2, "'bogus'"),
    ],
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A config whose flags affect a run."""

    rate: float = config_flags.affects_result("R.", 0.5)
    start: str | None = config_flags.affects_result("S.", None, is_path=True)
    length: int = config_flags.field("L.", 8, affects="records")
    phases: str | None = config_flags.field(
        "P.", None, affects="records", extendable=True
    )
    save_every: int = config_flags.affects_execution("E.", 1)


@pytest.mark.parametrize(
    ("before", "now", "shown", "forbids"),
    [
        ({}, {"rate": 1.0}, "--rate was 0.5, is 1.0", False),
        ({"length": 9}, {}, "--length was 9, is 8", True),
        ({"phases": "8:3"}, {"phases": "8:3,9:5"}, "--phases was", False),
        ({"phases": "8:3"}, {"phases": "8:30"}, "--phases was", True),
        ({"start": "a/"}, {"start": "a"}, None, None),
        ({"start": "a"}, {"start": "b"}, "--start was", False),
        ({"save_every": 2}, {}, None, None),
        ({"train": "ab" * 32}, {"train": "b"}, "train had other conte", True),
        ({"labels": ["a"]}, {"labels": ("a",)}, None, None),
        (
            {"labels": ["a"]},
            {"labels": ["b"]},
            "labels had other contents",
            True,
        ),
    ],
)
def test_effects_decide_what_a_resumed_run_may_change(
    before, now, shown, forbids
):
    declared = config_flags.flags_of(Run)
    flags = {k: v for k, v in now.items() if k in declared}
    read = {k: v for k, v in now.items() if k not in declared}
    earlier = config_flags.flat_values(Run()) | before
    found = config_flags.changes(Run(**flags), read, earlier)
    assert [x.forbids_resuming for x in found] == [forbids] * bool(shown)
    assert all(shown in x.shown for x in found)
