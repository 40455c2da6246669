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


def run(command: tables.Command) -> None:
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


def main(config: PaperConfig) -> None:
    """Prints the commands of the tables, or runs them and prints the scores."""
    inputs = config.inputs
    lab = tables.Lab(tables.SCALES[config.scale], inputs, config.output_dir)
    rows = {name: [*tables.TABLES[name].rows(lab)] for name in config.table}
    lab.write_configs()
    lines = {k: shlex.join(x.arguments) for k, x in lab.commands.items()}
    shown = "\n".join(f"python {line}" for line in lines.values())
    if config.dry_run:
        print(shown)
        return
    names = [x.name for x in dataclasses.fields(inputs)]
    if missing := [f"--{name}" for name in names if f"<{name}>" in shown]:
        raise errors.InputError(f"these tables need {', '.join(missing)}")
    finished = set()
    for number, (name, command) in enumerate(lab.commands.items(), 1):
        receipt = lab.path("finished", f"{name}.txt")
        if not file_system.exists(receipt):
            folder = command.flags.get("data_dir", ".")
            is_missing = not file_system.is_folder(folder)
            if is_missing and os.path.dirname(folder) == inputs.glue_dir:
                logging.warning("%s: no %s, left out", name, folder)
                continue
            logging.info("%d of %d: %s", number, len(lines), name)
            run(command)
            file_system.make_folder(os.path.dirname(receipt))
            atomic.write_text(receipt, lines[name])
        elif file_system.read_text(receipt) != lines[name]:
            raise errors.InputError(
                f"{receipt}: {name} was run with other flags; take another "
                "--output_dir"
            )
        finished.add(name)
    text = "\n".join(
        compare.markdown(name, tables.TABLES[name], rows[name], finished)
        for name in config.table
    )
    atomic.write_text(lab.path("results.md"), text)
    print(text)


if __name__ == "__main__":
    config_flags.run(PaperConfig, main)
