"""Runs the commands of tables, so that an interrupted run can continue.

    output_dir/NAME/...                 the output of a command
    output_dir/commands/NAME.log        what it printed
    output_dir/commands/NAME.json       written when it has succeeded:
                                        {"arguments": [...], "seconds": 61.5}

A command that has succeeded is not run again. All commands of this project
continue where they were killed, so that a killed table ends with the same
numbers as an undisturbed one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from foundation import errors, file_system
from paper.protocol import Command

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WAIT_SECONDS = 5
_SHOWN_LINES = 15


class Executor:
    """Runs commands below one output directory."""

    def __init__(self, output_dir: str):
        """Runs nothing yet."""
        self._output_dir = output_dir

    def record(self, command: Command) -> dict[str, Any] | None:
        """Returns arguments and seconds of a command that has succeeded.

        Raises:
          InputError: it succeeded with other arguments.
        """
        path = self._path(command, "json")
        if not file_system.exists(path):
            return None
        found = file_system.read_json(path)
        if found["arguments"] != command.arguments():
            old, new = (
                set(x) for x in (found["arguments"], command.arguments())
            )
            changed = " ".join(sorted(old ^ new))
            raise errors.InputError(
                f"{command.name} was made with other flags ({changed}): take "
                "another --output_dir"
            )
        return found

    def run(self, commands: Sequence[Command], part: range) -> None:
        """Runs what has not succeeded yet.

        Args:
          commands: each after those that it needs.
          part: this process runs the commands with these numbers; it waits for
            other processes where a command needs theirs.

        Raises:
          InputError: a command failed.
        """
        for number, command in enumerate(commands):
            if number in part and self.record(command) is None:
                self._wait_for(command.needs)
                logging.info(
                    "%d of %d: %s", number + 1, len(commands), command.name
                )
                self._run(command)

    def _wait_for(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self.record(command) is None:
                logging.info("waiting for %s of another part", command.name)
            while self.record(command) is None:
                time.sleep(_WAIT_SECONDS)

    def _run(self, command: Command) -> None:
        program, *flags = command.arguments()
        log = self._path(command, "log")
        file_system.make_folder(os.path.dirname(log))
        file_system.make_folder(os.path.join(self._output_dir, command.name))
        began = time.monotonic()
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, os.path.join(_ROOT, program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            with _forwarding_sigterm(process):
                code = process.wait()
        seconds = time.monotonic() - began
        if code:
            with open(log, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()[-_SHOWN_LINES:]
            sys.stderr.write("\n".join(lines) + "\n")
            raise errors.InputError(
                f"{command.name} ended with code {code}: see {log}; the same "
                "command continues"
            )
        logging.info("%s: %.0f s", command.name, seconds)
        file_system.write_json(
            self._path(command, "json"),
            {"arguments": command.arguments(), "seconds": seconds},
        )

    def _path(self, command: Command, ending: str) -> str:
        return os.path.join(
            self._output_dir, "commands", f"{command.name}.{ending}"
        )


@contextlib.contextmanager
def _forwarding_sigterm(process: subprocess.Popen) -> Iterator[None]:
    """Passes SIGTERM on, so that the running command saves a checkpoint."""

    def forward(number: int, frame: Any) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
