"""Lets programs take turns, so that what else the machine does slows them all.

A benchmark starts itself once per side; a side gets ready, then works whenever
it is asked to:

    serve(run, note="float32")             in the process of a side
    taken = compare({"ours": command(...), "peer": command(...)}, rounds=5)
    report("MRPC", taken, done=800, unit="examples")          in the other one
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
from typing import Any, NamedTuple


class Taken(NamedTuple):
    """Medians over the turns, and what the side said of itself."""

    seconds: float
    processor_seconds: float
    note: Any


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


def serve(run: Callable[[], Any], note: Any = None) -> None:
    """Works once for every line of standard input; run it when warm."""
    print(json.dumps(note), flush=True)
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
        notes = {name: _answer(name, x) for name, x in sides.items()}
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
        name: Taken(*map(statistics.median, zip(*x, strict=True)), notes[name])
        for name, x in taken.items()
    }


def report(
    title: str, taken: Mapping[str, Taken], *, done: int, unit: str
) -> None:
    """Prints how much of `unit` each side does in a second, and the ratio.

    Args:
      title: begins every line.
      taken: "ours" and, if there is one, "peer".
      done: how much of it is done in a turn.
      unit: in the plural.
    """
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
