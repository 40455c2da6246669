"""Proves that commands run once, in an order that keeps every part busy.

python -m pytest tests/paper/execution_test.py
"""

import dataclasses
import json
import os

import pytest

from foundation import atomic, errors
from paper import execution
from paper.protocol import Command

# Fails when it is started for the first time.
PROGRAM = """
import os, sys, time
time.sleep(0.3)
if not os.path.exists(sys.argv[0] + ".started"):
    open(sys.argv[0] + ".started", "w").close()
    sys.exit(3)
"""


def command(name, *needs):
    return Command(name=name, program="program", flags={}, needs=needs)


def test_parts_have_about_the_same_work_and_each_command_once():
    work = [0, 1, 50, 3, 49, 20, 0, 30, 2, 1]
    commands = [
        Command(name=f"{n}", program="program", flags={}, flops=flops)
        for n, flops in enumerate(work)
    ]
    for total in (1, 2, 3, 12):
        parts = execution.divide(commands, total)
        assert len(parts) == total
        assert sorted(n for part in parts for n in part) == list(range(10))
        assert all(part == sorted(part) for part in parts)
    sums = [
        sum(work[n] for n in part) for part in execution.divide(commands, 2)
    ]
    assert sorted(sums) == [77, 79]


def test_a_part_waits_only_if_it_can_run_nothing_else(tmp_path, monkeypatch):
    executor = execution.Executor(str(tmp_path))
    other, third = command("of another part"), command("third")
    commands = [other, command("first", other), command("second", third), third]
    started = []

    def run(command):
        started.append(command.name)
        finish(command)

    def finish(command):
        path = tmp_path / "commands" / f"{command.name}.json"
        path.parent.mkdir(exist_ok=True)
        values = {"arguments": command.arguments(), "seconds": 1}
        atomic.write_json(str(path), values | {"succeeded": True})

    monkeypatch.setattr(executor, "_run", run)
    # While this part waits, the other one ends its command.
    monkeypatch.setattr(execution.time, "sleep", lambda _: finish(other))
    known = []  # After each command, those that have succeeded.

    def count():
        known.append(sum(map(bool, map(executor.record, commands))))

    executor.run(commands, range(1, 4), on_success=count)
    assert started == ["third", "second", "first"] and known == [1, 2, 4]
    executor.run(commands, range(1, 4), on_success=count)
    assert len(started) == len(known) == 3


def test_short_commands_come_first(tmp_path, monkeypatch):
    executor = execution.Executor(str(tmp_path))
    training, records = command("training"), command("records")
    training = dataclasses.replace(training, flops=5)
    started = []
    monkeypatch.setattr(executor, "_run", lambda x: started.append(x.name))
    executor.run([training, records, training], range(3))
    assert started == ["records", "training", "training"]


@pytest.mark.parametrize("name", ["of another part", "unrelated"])
def test_a_part_does_not_wait_for_one_that_has_failed(
    tmp_path, monkeypatch, name
):
    executor = execution.Executor(str(tmp_path))
    other, unrelated = command("of another part"), command("unrelated")
    path = tmp_path / "commands" / f"{name}.json"
    path.parent.mkdir()
    values = {"arguments": other.arguments(), "seconds": 1, "succeeded": False}
    path.write_text(json.dumps(values))
    os.utime(path, (1, 1))  # A failure of an earlier attempt.
    waits = []

    def fail(_):
        waits.append(1)  # First SIGTERM, which is no failure.
        stopped = {"stopped": len(waits) == 1}
        path.write_text(json.dumps(values | stopped))
        os.utime(path, (2, 2))  # The clock of the file server is late.

    monkeypatch.setattr(execution.time, "sleep", fail)
    with pytest.raises(errors.InputError, match="failed in another part"):
        executor.run([unrelated, other, command("first", other)], range(2, 3))
    assert len(waits) == 2


def test_the_time_of_an_attempt_that_failed_counts(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(execution, "_ROOT", str(tmp_path))
    executor = execution.Executor(str(tmp_path / "out"))
    commands = [command("a/b")]
    with pytest.raises(errors.InputError, match="a/b ended with code 3"):
        executor.run(commands, range(1))
    assert executor.record(commands[0]) is None
    executor.run(commands, range(1))
    assert executor.record(commands[0])["seconds"] > 0.6
