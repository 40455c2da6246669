"""Describes tables before they run: what they need, how long they take."""

import shlex
from collections.abc import Sequence

from paper.protocol import Scale, Table, commands_of


def overview(tables: Sequence[Table], scale: Scale) -> str:
    """Returns one line for each table: commands, trainings, hours."""
    lines = ["table    commands  trainings  hours  title"]
    for table in tables:
        commands = table.commands()
        hours = _hours(sum(c.flops for c in commands), scale.tflops)
        runs = sum(c.num_runs for c in commands)
        lines.append(
            f"{table.name:7}  {len(commands):8}  {runs:9}  {hours:5.1f}  "
            f"{table.title}"
        )
    lines.append(
        f"Hours on {scale.device}. Tables have commands in common, which run "
        "once."
    )
    return "\n".join(lines)


def plan(tables: Sequence[Table], scale: Scale, *, tflops: float | None) -> str:
    """Returns all commands in their order, and an estimate of the time.

    Args:
      tables: to reproduce.
      scale: of the tables.
      tflops: that the user's device sustains; by default the scale's.
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
    return "\n".join(lines)


def _hours(flops: float, tflops: float) -> float:
    return flops / (tflops * 1e12) / 3600
