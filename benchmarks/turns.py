"""Lets programs take turns, so that what else the machine does slows them all.

A benchmark starts itself once per side; a side gets ready, then works whenever
it is asked to:

    race(__file__, config, title="MRPC", done=800, unit="examples")
        starts the script again with --side=ours and with --side=peer
    serve(run)
        in the process of a side
"""

import collections
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Race:
    """What every benchmark with a peer in PyTorch is asked."""

    peer_python: str | None = field(
        "Python with absl-py, torch and transformers; None: ours alone.",
        None,
    )
    precision: Literal["auto", "float32", "bfloat16"] = field(
        "Of both; auto as in the runners.", "auto"
    )
    rounds: int = field("How often the two take turns.", 3)
    side: Literal["both", "ours", "peer"] = field("Used by itself.", "both")


_Config = TypeVar("_Config", bound=Race)


class Taken(NamedTuple):
    """Medians over the turns."""

    seconds: float
    processor_seconds: float


def command(script: str, config: Any, python: str, **changes) -> list[str]:
    """Returns the command line that starts a script with a configuration.

    Args:
      script: its path.
      config: a data class whose fields are the script's flags.
      python: the interpreter.
      **changes: fields that are to differ.
    """
    flags = {**dataclasses.asdict(config), **changes}
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    return [python, os.path.abspath(script), *given]


def choose_precision(config: _Config) -> _Config:
    """Says what "auto" is on this machine: both must compute in the same."""
    from training import precision

    chosen = precision.choose(config.precision)
    return dataclasses.replace(config, precision=chosen)


def race(
    script: str, config: Race, *, title: str, done: int, unit: str
) -> None:
    """Lets both sides of a script take turns; prints what each does a second.

    Args:
      script: its path; it is started with --side.
      config: its flags.
      title: begins every line.
      done: how much of it is done in a turn.
      unit: in the plural.
    """
    sides = {"ours": command(script, config, sys.executable, side="ours")}
    if config.peer_python:
        python = config.peer_python
        sides["peer"] = command(script, config, python, side="peer")
    taken = compare(sides, rounds=config.rounds)
    _report(f"{title}, {config.precision}", taken, done=done, unit=unit)


def serve(run: Callable[[], Any]) -> None:
    """Works once for every line of standard input; call it when warm."""
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        started, used = time.perf_counter(), time.process_time()
        run()
        seconds = time.perf_counter() - started
        print(json.dumps([seconds, time.process_time() - used]), flush=True)


def compare(
    commands: Mapping[str, Sequence[str]], *, rounds: int
) -> dict[str, Taken]:
    """Starts the sides, waits until all are warm, and lets them take turns.

    Args:
      commands: side -> command line of a program that calls `serve`.
      rounds: how often each works.
    """
    sides = {name: _start(command) for name, command in commands.items()}
    try:
        for name, process in sides.items():
            _answer(name, process)
        taken = collections.defaultdict(list)
        for _ in range(rounds):
            for name, process in sides.items():
                process.stdin.write("\n")
                process.stdin.flush()
                taken[name].append(_answer(name, process))
    finally:
        for process in sides.values():
            process.kill()
            process.wait()
    return {
        name: Taken(*map(statistics.median, zip(*x, strict=True)))
        for name, x in taken.items()
    }


def _report(
    title: str, taken: Mapping[str, Taken], *, done: int, unit: str
) -> None:
    for name, x in taken.items():
        print(
            f"{title}, {name}: {done / x.seconds:.2f} {unit}/s, "
            f"{done / x.processor_seconds:.2f} per processor second"
        )
    if "peer" in taken:
        ours, peer = taken["ours"], taken["peer"]
        used = peer.processor_seconds / ours.processor_seconds
        print(
            f"{title}, ratio ours / peer: {peer.seconds / ours.seconds:.2f}, "
            f"by processor time {used:.2f}",
            flush=True,
        )


def _start(command: Sequence[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def _answer(name: str, process: subprocess.Popen) -> Any:
    """Returns the next line of JSON; libraries print other lines."""
    for line in process.stdout:
        try:
            return json.loads(line)
        except ValueError:
            continue
    sys.exit(f"{name} ended early with code {process.wait()}")
