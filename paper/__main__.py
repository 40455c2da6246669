r"""Reproduces the tables of the BERT paper, one command for each.

    python -m paper --table=5 --dry_run       prints the commands of Table 5

    python -m paper --table=5 --scale=small --output_dir=paper_small \
        --corpus='text/*.train.txt' --heldout_corpus='text/*.heldout.txt' \
        --glue_dir=glue --squad_dir=squad

runs them in order and prints the paper's numbers, ours and the difference. A
killed run continues when the same command is started again: a finished command
is skipped, the last one continues from its checkpoint.

    output_dir/NAME/...              the output of a command
    output_dir/finished/NAME.txt     its command line, after its success
    output_dir/results.md            the tables, "not run" included
"""

import dataclasses
import functools
import os
import pathlib
import shlex
import signal
import subprocess
import sys
from typing import Literal

from absl import logging

from foundation import atomic, config_flags, errors, file_system
from paper import compare, tables

field = config_flags.field
_ROOT = str(pathlib.Path(__file__).resolve().parent.parent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """The flags of python -m paper."""

    table: tuple[
        Literal["1", "2", "3", "4", "5", "6", "7", "8", "figure5"], ...
    ] = field("Tables and the figure.", tuple(tables.TABLES))
    scale: Literal["paper", "small", "tiny"] = field(
        "Sizes, steps and restarts.", "paper"
    )
    output_dir: str = field("Directory of all outputs.", "paper_output")
    dry_run: bool = field(
        "Print the commands and write only --bert_config_file of them.", False
    )
    inputs: tables.Inputs = config_flags.group(tables.Inputs)


def _receipt(output_dir: str, command: tables.Command) -> str:
    return os.path.join(output_dir, "finished", f"{command.name}.txt")


def is_finished(output_dir: str, command: tables.Command) -> bool:
    """Returns whether a command has succeeded here.

    Raises:
      InputError: it has succeeded with other flags.
    """
    path = _receipt(output_dir, command)
    if not file_system.exists(path):
        return False
    if file_system.read_text(path) != shlex.join(command.arguments):
        raise errors.InputError(
            f"{path}: {command.name} was run with other flags; take "
            "another --output_dir"
        )
    return True


def run(output_dir: str, command: tables.Command) -> None:
    """Runs a command; exits with its code if it fails."""
    program, *flags = command.arguments
    if program != "-m":
        program = os.path.join(_ROOT, program)
    process = subprocess.Popen(
        [sys.executable, program, *flags],
        env={**os.environ, "PYTHONPATH": _ROOT},
    )
    # The running command saves its training.
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    if code := process.wait():
        logging.error(
            "%s ended with code %d; the same command continues",
            command.name,
            code,
        )
        sys.exit(code if code > 0 else 128 - code)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    path = _receipt(output_dir, command)
    file_system.make_folder(os.path.dirname(path))
    atomic.write_text(path, shlex.join(command.arguments))


def main(config: PaperConfig) -> None:
    """Prints the commands of the tables, or runs them and prints the scores."""
    lab = tables.Lab(
        tables.SCALES[config.scale], config.inputs, config.output_dir
    )
    chosen = {name: tables.TABLES[name](lab) for name in config.table}
    commands: dict[str, tables.Command] = {}
    for table in chosen.values():
        commands |= table.commands()
    lab.write_configs()
    if config.dry_run:
        for command in commands.values():
            print(f"python {shlex.join(command.arguments)}")
        return
    shown = "\n".join(x for c in commands.values() for x in c.arguments)
    names = [x.name for x in dataclasses.fields(config.inputs)]
    if missing := [f"--{name}" for name in names if f"<{name}>" in shown]:
        raise errors.InputError(f"these tables need {', '.join(missing)}")
    is_done = functools.partial(is_finished, config.output_dir)
    for number, command in enumerate(commands.values(), 1):
        folder = command.flags.get("data_dir", ".")
        is_missing = not file_system.is_folder(folder)
        if is_missing and os.path.dirname(folder) == config.inputs.glue_dir:
            logging.warning("%s: no %s, left out", command.name, folder)
        elif not is_done(command):
            logging.info("%d of %d: %s", number, len(commands), command.name)
            run(config.output_dir, command)
    text = "\n".join(
        compare.markdown(name, table, is_done) for name, table in chosen.items()
    )
    atomic.write_text(os.path.join(config.output_dir, "results.md"), text)
    print(text)


if __name__ == "__main__":
    config_flags.run(PaperConfig, main)
