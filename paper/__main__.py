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
import os
import pathlib
import shlex
import signal
import subprocess
import sys
from typing import Any, Literal

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


class Runner:
    """Runs commands below one output directory."""

    def __init__(self, output_dir: str):
        """Runs nothing yet."""
        self._output_dir = output_dir
        self._process: subprocess.Popen | None = None
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: Any) -> None:
        """Lets the running command save its training."""
        if self._process is None:
            sys.exit(128 + number)
        self._process.terminate()

    def is_finished(self, command: tables.Command) -> bool:
        """Returns whether a command has succeeded here.

        Raises:
          InputError: it has succeeded with other flags.
        """
        path = self._path(command)
        if not file_system.exists(path):
            return False
        if file_system.read(path).decode() != shlex.join(command.arguments):
            raise errors.InputError(
                f"{path}: {command.name} was run with other flags; take "
                "another --output_dir"
            )
        return True

    def run(self, command: tables.Command) -> None:
        """Runs a command; exits with its code if it fails."""
        program, *flags = command.arguments
        if program != "-m":
            program = os.path.join(_ROOT, program)
        self._process = subprocess.Popen(
            [sys.executable, program, *flags],
            env={**os.environ, "PYTHONPATH": _ROOT},
        )
        if code := self._process.wait():
            logging.error(
                "%s ended with code %d; the same command continues",
                command.name,
                code,
            )
            sys.exit(code if code > 0 else 128 - code)
        self._process = None
        path = self._path(command)
        file_system.make_folder(os.path.dirname(path))
        atomic.write_text(path, shlex.join(command.arguments))

    def _path(self, command: tables.Command) -> str:
        name = f"{command.name}.txt"
        return os.path.join(self._output_dir, "finished", name)


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
    runner = Runner(config.output_dir)
    for number, command in enumerate(commands.values(), 1):
        folder = command.flags.get("data_dir", ".")
        is_missing = not file_system.is_folder(folder)
        if is_missing and os.path.dirname(folder) == config.inputs.glue_dir:
            logging.warning("%s: no %s, left out", command.name, folder)
        elif not runner.is_finished(command):
            logging.info("%d of %d: %s", number, len(commands), command.name)
            runner.run(command)
    text = "\n".join(
        compare.markdown(name, table, runner.is_finished)
        for name, table in chosen.items()
    )
    atomic.write_text(os.path.join(config.output_dir, "results.md"), text)
    print(text)


if __name__ == "__main__":
    config_flags.run(PaperConfig, main)
