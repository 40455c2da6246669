"""Runs of a command on two replicas and on one."""

import os
import pathlib
import subprocess
import sys
import types

import tiny_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(
    command: types.ModuleType,
    config_class: type,
    folder: pathlib.Path,
    *switches: str,
    only_one: dict | None = None,
    **flags,
) -> str:
    """Calls a command twice at once, to write to folder/two and folder/one.

    The two replicas are in a process of their own, since a process divides its
    processor once.

    Args:
        command: the module of the command.
        config_class: its flags.
        folder: where the output directories are made.
        *switches: flags without a value, such as --do_train.
        only_one: further flags of the run on one replica.
        **flags: flags of both runs.

    Returns:
        What the run on two replicas wrote to standard error.
    """
    two = flags | {
        "output_dir": folder / "two",
        "strategy": "mirrored",
        "num_replicas": 2,
    }
    process = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / f"{command.__name__}.py"),
            *(f"--{key}={value}" for key, value in two.items()),
            *switches,
        ],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    one = flags | {"output_dir": folder / "one"} | (only_one or {})
    tiny_runs.run(command, config_class, *switches, **one)
    _, notices = process.communicate(timeout=300)
    assert process.returncode == 0, notices[-3000:]
    assert "2 replica(s)" in notices
    return notices
