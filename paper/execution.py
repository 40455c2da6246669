"""Plans the commands of tables, and runs them so that they can be interrupted.

`overview` and `plan` show the commands and estimate their hours, `divide`
divides them among processes, and an `Executor` runs them:

    output_dir/NAME/...                 the output of a command
    output_dir/commands/NAME.log        what it printed
    output_dir/commands/NAME.json       {"arguments": [...], "seconds": 61.5,
                                        "succeeded": true, "stopped": false};
                                        "stopped" until it has ended by itself

A command that has succeeded is not run again. All commands of this project
continue where they were killed, so that a killed table ends with the same
numbers as an undisturbed one.
"""

import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from absl import logging

from foundation import atomic, errors, file_system, metadata, stamp
from paper.protocol import Command, Scale, Table, commands_of
from training import preemption

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WAIT_SECONDS = 5
_SHOWN_LINES = 15
_NOT_COUNTED = (
    "Starting commands and evaluating are not counted, and fine-tuning in "
    "small batches is slower than pre-training."
)
_PRETRAINING = "run_pretraining"
_WITHOUT_EFFECT = ("keep_checkpoint_max",)  # On the results.


def overview(tables: Sequence[Table], scale: Scale) -> str:
    """Returns one line for each table: commands, trainings, hours."""
    lines = ["table    commands  pre-trainings  trainings  hours  title"]
    for table in tables:
        commands = table.commands()
        hours = _hours(sum(c.flops for c in commands), scale.tflops)
        runs = sum(c.num_runs for c in commands)
        pretrainings = sum(c.program == _PRETRAINING for c in commands)
        lines.append(
            f"{table.name:7}  {len(commands):8}  {pretrainings:13}  {runs:9}  "
            f"{hours:5.1f}  {table.title}"
        )
    every = commands_of(tables)
    total = _hours(sum(c.flops for c in every), scale.tflops)
    lines.append(
        f"Together {len(every)} commands, {total:.1f} hours on {scale.device}: "
        f"tables have commands in common, which run once. {_NOT_COUNTED}"
    )
    return "\n".join(lines)


def plan(tables: Sequence[Table], scale: Scale, *, tflops: float | None) -> str:
    """Returns all commands in their order, and an estimate of the time.

    It is for a device that sustains `tflops` TFLOP/s, by default the scale's.
    """
    commands = commands_of(tables)
    device = scale.device if tflops is None else "your device"
    tflops = tflops or scale.tflops
    lines = []
    for number, command in enumerate(commands, 1):
        hours = _hours(command.flops, tflops)
        runs = f", {command.num_runs} trainings" if command.num_runs else ""
        lines.append(f"# {number}: {command.name}{runs}, {hours:.2f} hours")
        lines.append(f"python {shlex.join(command.arguments())}")
    lines += [f"# {table.heading}. {table.protocol}" for table in tables]
    total = sum(c.flops for c in commands)
    lines.append(
        f"# {len(commands)} commands, {sum(c.num_runs for c in commands)} "
        f"trainings, {total:.3g} floating-point operations: "
        f"{_hours(total, tflops):.1f} hours at {tflops:g} TFLOPS ({device})"
    )
    lines.append(f"# {_NOT_COUNTED}")
    return "\n".join(lines)


def _hours(flops: float, tflops: float) -> float:
    return flops / (tflops * 1e12) / 3600


def divide(commands: Sequence[Command], total: int) -> list[list[int]]:
    """Divides commands among processes by their floating-point operations.

    The longest commands first, each to the process with the least work. The
    parts depend on nothing else, so all processes find the same ones.

    Returns:
      For each process the numbers of its commands, in ascending order.
    """
    parts: list[list[int]] = [[] for _ in range(total)]
    work = [0.0] * total
    longest_first = sorted(
        range(len(commands)), key=lambda number: -commands[number].flops
    )
    for number in longest_first:
        least = work.index(min(work))
        parts[least].append(number)
        work[least] += commands[number].flops
    return [sorted(part) for part in parts]


class Executor:
    """Runs commands below one output directory."""

    def __init__(self, output_dir: str):
        """Runs nothing yet."""
        self._output_dir = output_dir
        self._process: subprocess.Popen | None = None
        self._is_stopping = False

    def record(self, command: Command) -> dict[str, Any] | None:
        """Returns arguments and seconds of a command that has succeeded.

        The seconds are those of all attempts that ended by themselves or by
        SIGTERM.

        Raises:
          InputError: it succeeded with other arguments.
        """
        record = self._read(command)
        if not record["succeeded"]:
            return None
        now = stamp.flags("result", _flags(command.arguments()))
        stamp.refuse(
            now.difference(_flags(record["arguments"]), is_complete=True),
            f"{command.name} has been made so; take another --output_dir",
        )
        return record

    def run(
        self,
        commands: Sequence[Command],
        part: Iterable[int],
        on_success: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs what has not succeeded yet.

        Args:
          commands: each after those that it needs.
          part: this process runs the commands with these numbers, in this
            order, but first those that need no unfinished command of another
            process, and of these first the short ones without floating-point
            operations (records), for which other processes may wait.
          on_success: called after each command.

        Raises:
          InputError: a command failed here, or in another part while this one
            waited.
          SystemExit: the process received SIGTERM, which is passed on to the
            running command, so that it saves a checkpoint; the code is
            preemption.EXIT_CODE.
        """
        before = signal.signal(signal.SIGTERM, self._stop)
        try:
            self._run_part(commands, list(part), on_success)
        finally:
            signal.signal(signal.SIGTERM, before)

    def _run_part(
        self,
        commands: Sequence[Command],
        own: Sequence[int],
        on_success: Callable[[], object],
    ) -> None:
        pending = [i for i in own if self.record(commands[i]) is None]
        of_others = [x for i, x in enumerate(commands) if i not in own]
        before = {x.name: self._time_of_record(x) for x in of_others}
        is_waiting = False
        while pending:
            if self._is_stopping:
                _exit()
            unfinished = [self._unfinished(commands[i]) for i in pending]
            if all(unfinished):
                if not is_waiting:
                    name = unfinished[0][0].name
                    logging.info("waiting for %s of another part", name)
                is_waiting = True
                for command in of_others:
                    self._check_other_part(command, before[command.name])
                time.sleep(_WAIT_SECONDS)
                continue
            is_waiting = False
            ready = [
                i
                for i, missing in zip(pending, unfinished, strict=True)
                if not missing
            ]
            number = min(ready, key=lambda i: commands[i].flops > 0)
            pending.remove(number)
            command = commands[number]
            logging.info(
                "%d of %d: %s", number + 1, len(commands), command.name
            )
            self._run(command)
            on_success()

    def _time_of_record(self, command: Command) -> float | None:
        """Returns when a command ended, by the clock of the file server."""
        path = self._path(command, "json")
        return os.path.getmtime(path) if file_system.exists(path) else None

    def _check_other_part(self, command: Command, before: float | None) -> None:
        """Raises InputError if a command has failed after its last record."""
        has_ended = self._time_of_record(command) not in (None, before)
        record = self._read(command)
        if has_ended and not record["succeeded"] and not record["stopped"]:
            raise errors.InputError(
                f"{command.name} failed in another part: start this part again "
                "together with that one"
            )

    def _unfinished(self, command: Command) -> list[Command]:
        """Returns the needed commands that have not succeeded yet."""
        return [x for x in command.needs if self.record(x) is None]

    def _stop(self, number: int, frame: Any) -> None:
        self._is_stopping = True
        if self._process is not None:
            self._process.terminate()

    def _run(self, command: Command) -> None:
        """Runs a command and records how it ended.

        Raises:
          InputError: it failed.
          SystemExit: SIGTERM stopped it.
        """
        program, *flags = command.arguments()
        log = self._path(command, "log")
        file_system.make_folder(os.path.dirname(log))
        file_system.make_folder(os.path.join(self._output_dir, command.name))
        record = self._read(command) | {"arguments": command.arguments()}
        # Not a failure, which other parts would read, while it runs again.
        record |= {"succeeded": False, "stopped": True}
        atomic.write_json(self._path(command, "json"), record)
        began = time.monotonic()
        path = os.path.join(_ROOT, program)
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, path, *flags],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": _ROOT},
            )
        if self._is_stopping:  # SIGTERM came while it was started.
            self._process.terminate()
        code = self._process.wait()
        self._process = None
        is_stopped = code == preemption.EXIT_CODE
        is_stopped |= self._is_stopping and code != 0
        seconds = record["seconds"] + time.monotonic() - began
        record |= {
            "seconds": seconds,
            "succeeded": code == 0,
            "stopped": is_stopped,
        }
        atomic.write_json(self._path(command, "json"), record)
        if is_stopped:
            _exit()
        if code:
            with open(log, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()[-_SHOWN_LINES:]
            sys.stderr.write("\n".join(lines) + "\n")
            raise errors.InputError(
                f"{command.name} ended with code {code}: see {log}; the same "
                "command continues"
            )
        logging.info("%s: %.0f s", command.name, seconds)

    def _read(self, command: Command) -> dict[str, Any]:
        """Returns the record of a command's attempts."""
        path = self._path(command, "json")
        stored = metadata.read_object(path, _Attempts) or {}
        return dataclasses.asdict(_Attempts()) | stored

    def _path(self, command: Command, ending: str) -> str:
        return os.path.join(
            self._output_dir, "commands", f"{command.name}.{ending}"
        )


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the program of a command line, and its flags with an effect."""
    program, *flags = arguments
    pairs = (x.removeprefix("--").split("=", 1) for x in flags)
    return {"program": program} | {
        name: value for name, value in pairs if name not in _WITHOUT_EFFECT
    }


@dataclasses.dataclass(frozen=True)
class _Attempts:
    """The record of a command's attempts."""

    seconds: metadata.Number = 0.0
    succeeded: bool = False
    stopped: bool = False
    arguments: list[str] = dataclasses.field(default_factory=list)


def _exit() -> NoReturn:
    logging.info("stopped by SIGTERM; the same command continues")
    raise SystemExit(preemption.EXIT_CODE)
