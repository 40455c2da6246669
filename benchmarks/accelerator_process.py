"""A process that measures cases, for accelerator.py: one line in, one line out.

The process writes one line about its device, then one line for each case.
"""

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import accelerator_cases

_HERE = os.path.dirname(os.path.abspath(__file__))
# Imports and the first contact with the device: seconds on a machine at rest.
_START_SECONDS = 180.0


class Worker:
    """A process of accelerator_cases.py, started when it is needed."""

    def __init__(
        self,
        *,
        script: str = "accelerator_cases.py",
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ):
        """Starts nothing yet; `environment` is added to this process's."""
        self._command = [python, os.path.join(_HERE, script)]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.device: dict[str, Any] = {}

    def start(self, timeout: float = _START_SECONDS) -> None:
        """Starts the process if none is running.

        Raises:
            RuntimeError: it ended, or did not name its device within `timeout`
                seconds.
        """
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self._lines = queue.Queue()
        threading.Thread(
            target=_read, args=(self._process, self._lines), daemon=True
        ).start()
        script = os.path.basename(self._command[1])
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            raise RuntimeError(
                f"{script} did not start within {timeout:.0f} s"
            ) from None
        if line is None:
            self.stop()
            raise RuntimeError(f"{script} does not start; see above")
        self.device = json.loads(line)

    def send(
        self,
        case: accelerator_cases.Case,
        directory: str,
        sequence_flops: float | None = None,
    ) -> None:
        """Starts a case; `receive` returns its result."""
        self.start()
        request = {
            "case": dataclasses.asdict(case),
            "directory": directory,
            "sequence_flops": sequence_flops,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(
        self, case: accelerator_cases.Case, timeout: float
    ) -> dict[str, Any]:
        """Returns the result; a process that ended or hangs is one too."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            failure = f"stopped after {timeout:.0f} s"
            return {**dataclasses.asdict(case), "failure": failure}
        if line is None:
            code = self._process.wait()
            self._process = None
            failure = f"the process ended with code {code}"
            return {**dataclasses.asdict(case), "failure": failure}
        return json.loads(line)

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _read(process: subprocess.Popen, lines: queue.Queue) -> None:
    for line in process.stdout:
        lines.put(line)
    lines.put(None)
