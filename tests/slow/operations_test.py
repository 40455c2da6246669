"""Proves what a command does if an operation on one of its files fails.

    CRASHES=2000 python -m pytest tests/slow/operations_test.py

The k-th of all operations below the output directory that open, write, flush,
rename, link, make or remove a file or a folder fails (ENOSPC, EIO, EDQUOT, or a
disk that stays full from then on), or the process is killed there. A command
that is not killed ends with exit code 2 and one line that names the cause and
the file under its final name, or its folder; or with exit code 0 and the files
of an undisturbed run. The same command then ends with these files, also if it
was killed several times. crashes.c, which is preloaded, counts the operations
of Python and of all libraries. CRASHES of the operations are tried, at most all
of them: 12 of each command in make test-all, one of some commands in make test.
"""

import errno
import os
import random
import re
import shutil
import signal
import subprocess
from typing import NamedTuple

import pytest

from tests.slow import scenarios, warm

pytestmark = pytest.mark.slow
CRASHES = int(os.environ.get("CRASHES", "1"))
IN_MAKE_TEST = ("vocabulary", "records", "directory", "loop")
KILLED, LASTING = "killed", "lasting"
ERRORS = (KILLED, "ENOSPC", KILLED, "EIO", KILLED, "EDQUOT", KILLED, LASTING)
MORE_KILLS = 1  # Of one trial, after the first.
TEMPORARY = r"\.\w{8}\.incomplete|\.tempstate|\.tmp"
# Arms the library in the process of the command; counts at its end.
BEFORE = """
import ctypes, os
library = ctypes.CDLL(None)
library.crashes_arm(*{values})
end = os._exit
def count_and_end(code):
    count = library.crashes_count()
    library.crashes_arm(b"/nowhere", 0, 0, 0, b"")
    with open({note!r}, "a") as file:
        file.write(f"calls {{count}}\\n")
    end(code)
os._exit = count_and_end
"""


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    """A warm process with the library."""
    folder = tmp_path_factory.mktemp("crashes")
    source = warm.ROOT / "tests/slow/crashes.c"
    command = ["cc", "-shared", "-fPIC", "-O1", str(source), "-ldl", "-o"]
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    subprocess.run([*command, folder / "crashes.so"], check=True)
    environment = {"LD_PRELOAD": str(folder / "crashes.so")}
    with warm.Warm(folder, environment) as started:
        yield started


class Crash(NamedTuple):
    """How a command ended, and the operation that failed."""

    ended: warm.Ended
    operation: str  # "calls" if none has failed; `path` is their number.
    path: str
    is_killed: bool


@pytest.fixture
def run(process, tmp_path):
    """Runs a command whose k-th operation below `folder` fails."""
    note = tmp_path / "note"

    def run(arguments, folder, number=0, error="ENOSPC"):
        code = {KILLED: 0, LASTING: errno.ENOSPC}.get(error)
        code = getattr(errno, error) if code is None else code
        values = os.fsencode(folder), number, code, int(error == LASTING)
        note.write_text("")
        before = BEFORE.format(
            values=(*values, os.fsencode(note)), note=str(note)
        )
        is_predicting = arguments[0].startswith(("run_", "extract_", "fill_"))
        blocks = scenarios.SMALL_BLOCKS if is_predicting else ""
        ended = process.run(arguments, before=blocks + before)
        operation, _, path = note.read_text().partition("\n")[0].partition(" ")
        is_killed = ended.code == -signal.SIGKILL
        assert is_killed == (error == KILLED and operation != "calls")
        if is_killed:  # The next command runs hours later.
            for left in [*folder.rglob("*")]:
                os.utime(left, (0, 0))
        return Crash(ended, operation, path, is_killed)

    return run


def count_operations(run, arguments, folder):
    """Runs a command undisturbed; returns its files and its operations."""
    folder.mkdir()
    crash = run(arguments, folder)
    assert crash.ended.code == 0, crash.ended.text
    return scenarios.contents(folder), range(1, int(crash.path) + 1)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=() if x in IN_MAKE_TEST else pytest.mark.all)
        for x in scenarios.SCENARIOS
    ],
)
def test_a_command_that_fails_or_is_killed_ends_with_the_same_files(
    name, run, request, tmp_path
):
    needed = "files" if name in IN_MAKE_TEST else "data"
    data = request.getfixturevalue(needed)
    folder = tmp_path / "run"
    arguments = scenarios.arguments(name, data, folder / "out")
    if name == "records":  # Other processes are not armed.
        arguments.append("--num_workers=1")
    expected, numbers = count_operations(run, arguments, folder)
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    errors = ERRORS if name != "loop" else (KILLED,)  # It is no command.
    chosen = rng.sample(numbers, k=min(CRASHES, len(numbers)))
    for trial, number in enumerate(chosen, rng.randrange(len(errors))):
        error = errors[trial % len(errors)]
        shutil.rmtree(folder)
        folder.mkdir()
        crash = run(arguments, folder, number, error)
        crashes = [seed, crash]
        if not crash.is_killed:
            assert crash.ended.code == 0 or crash.ended.is_one_line, crashes
            if crash.ended.code:
                check_line(crash, error, str(folder))
        for _ in range(MORE_KILLS if crash.is_killed else 0):
            again = run(arguments, folder, rng.choice(numbers), KILLED)
            crashes.append(again)
        is_written = (folder / "out" / "model.safetensors").exists()
        if name == "conversion" or (name == "directory" and is_written):
            # They replace no file.
            shutil.rmtree(folder / "out", ignore_errors=True)
        ended = run(arguments, folder).ended
        assert ended.code == 0, f"{crashes}: then {ended.text}"
        found = scenarios.contents(folder)
        # A temporary folder stays if its file, which is complete, is kept.
        found = {k: x for k, x in found.items() if ".incomplete/" not in k}
        assert found == expected, crashes


def check_line(crash, error, folder):
    """Checks the line that a user reads."""
    line = crash.ended.text.splitlines()[-1]
    number = getattr(errno, "ENOSPC" if error == LASTING else error)
    assert os.strerror(number) in line
    named = re.findall(re.escape(folder) + r"[^\s:;,'\"]*", line)
    final = re.sub(
        r"/\.([^/]+)\.\w{8}\.incomplete(/(new|old|lock))?",
        r"/\1",
        crash.path,
    )
    final = re.sub(r"\.tempstate\d+|/\.tmp\w+$", "", final)
    # On a disk that stays full, several files of several threads fail.
    assert named and (
        error == LASTING
        or any(final.startswith(name.rstrip("/")) for name in named)
    ), (line, crash.path)
    assert not re.search(TEMPORARY, line), line
