"""Runs commands as users start them, in forks of a warm process.

    with Warm(folder) as warm:
        warm.run(["run_squad.py", "--help"])              -> Ended(0, "...")
        warm.run(["run_squad.py", ...], kill_after=2.5)   -> Ended(None, "...")

The warm process has imported TensorFlow and Keras and uses neither, so that a
command costs its own work only.
"""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 600.0  # Seconds after which a command is said to hang.


class Ended(NamedTuple):
    """How a command ended: its exit code, None if it was killed, and output."""

    code: int | None
    text: str

    @property
    def is_one_line(self) -> bool:
        """Whether it refused its input as a user is told."""
        return self.code == 2 and "Traceback" not in self.text


class Warm:
    """The warm process."""

    def __init__(
        self, folder: pathlib.Path, environment: Mapping[str, str] | None = None
    ):
        """Starts it; `folder` gets the output of the last command."""
        self._log = folder / "warm.log"
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.slow.warm"],
            cwd=ROOT,
            env={**os.environ, **quiet, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Warm":
        """Returns itself."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Ends the process."""
        self._process.communicate()

    def run(
        self,
        arguments: Sequence[object],
        *,
        kill_after: float | None = None,
        before: str = "",
    ) -> Ended:
        """Runs a command, which is killed with its children after some seconds.

        Args:
          arguments: path in the checkout, and flags.
          kill_after: seconds; None fails the test if the command hangs.
          before: Python code to run in its process before it.
        """
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        request = [[*map(str, arguments)], kill_after or LIMIT, before, test]
        print(json.dumps([str(self._log), *request]), file=self._process.stdin)
        self._process.stdin.flush()
        (code,) = json.loads(self._process.stdout.readline())
        text = self._log.read_text(errors="replace")
        assert code is not None or kill_after, f"{arguments} hangs: {text}"
        return Ended(code, text)


def _serve() -> None:
    """Forks a process for each line of standard input."""
    import select
    import signal

    import foundation.tensorflow_setup  # noqa: F401

    # isort: split
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    for line in sys.stdin:
        log, arguments, seconds, before, test = json.loads(line)
        pid = os.fork()
        os.environ["PYTEST_CURRENT_TEST"] = test
        if not pid:
            _become(log, arguments, before)
        ended = os.pidfd_open(pid)
        is_done = select.select([ended], [], [], seconds)[0]
        os.close(ended)
        if not is_done:
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([code if is_done else None]), flush=True)


def _become(log: str, arguments: Sequence[str], before: str) -> None:
    """Runs a command in this process and ends it."""
    import runpy
    import traceback

    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor, other in ((os.open(os.devnull, os.O_RDONLY), 0), (file, 1)):
        os.dup2(descriptor, other)
    os.dup2(file, 2)
    code = 0
    try:
        path = os.path.join(ROOT, arguments[0])
        sys.argv = [path, *arguments[1:]]
        exec(before, {})
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else ended.code and 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if "TRACES" in os.environ:
            sys.modules["sitecustomize"].write()
        os._exit(code or 0)


if __name__ == "__main__":
    _serve()
