"""Proves what a command does if an operation on one of its files fails.

FAULTS=60 python -m pytest tests/slow/faults_test.py

The k-th of all operations below the output directory that open, write, flush,
rename, link, make or remove a file or a folder fails: ENOSPC, EIO, EDQUOT, or
a disk that stays full from then on. The command then ends with exit code 2 and
one line that names the cause and the file under its final name, or its folder;
or with exit code 0 and the files of an undisturbed run. The same command then
ends with these files. The faults come from faults.c, which is preloaded.
"""

import errno
import os
import random
import re
import shutil
import subprocess

import pytest

from tests.slow import scenarios, warm

FAULTS = int(os.environ.get("FAULTS", "6"))
LASTING = "lasting"
ERRORS = ("ENOSPC", "ENOSPC", "EIO", "EDQUOT", LASTING)
TEMPORARY = r"\.\w{8}\.incomplete|\.tempstate|\.tmp|\.saving"
# Arms the library in the process of the command; counts at its end.
BEFORE = """
import atexit, ctypes, os
library = ctypes.CDLL(None)
library.faults_arm(*{values})
end = os._exit
def count_and_end(code):
    count = library.faults_count()
    library.faults_arm(b"/nowhere", 0, 0, 0, b"")
    with open({note!r}, "a") as file:
        file.write(f"calls {{count}}\\n")
    end(code)
os._exit = count_and_end
"""


@pytest.fixture(scope="module")
def armed(tmp_path_factory):
    """A warm process with the library."""
    folder = tmp_path_factory.mktemp("faults")
    source = warm.ROOT / "tests/slow/faults.c"
    command = ["cc", "-shared", "-fPIC", "-O1", str(source), "-ldl", "-o"]
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    subprocess.run([*command, folder / "faults.so"], check=True)
    environment = {"LD_PRELOAD": str(folder / "faults.so")}
    with warm.Warm(folder, environment) as started:
        yield started


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_an_operation_that_fails_is_one_line_or_harmless(
    name, armed, data, tmp_path
):
    note, out = tmp_path / "note", tmp_path / "run" / "out"
    arguments = scenarios.arguments(name, data, out)
    if name == "records":  # Other processes are not armed.
        arguments.append("--num_workers=1")

    def run(number=0, error="ENOSPC"):
        """Runs it; returns how it ended and what failed."""
        code = getattr(errno, "ENOSPC" if error == LASTING else error)
        values = os.fsencode(out.parent), number, code, int(error == LASTING)
        note.write_text("")
        values = (*values, os.fsencode(note))
        before = BEFORE.format(values=values, note=str(note))
        ended = armed.run(arguments, before=before)
        return ended, note.read_text().splitlines(), os.strerror(code)

    out.parent.mkdir()
    ended, (calls,), _ = run()
    assert ended.code == 0, ended.text
    expected = scenarios.contents(out)
    rng = random.Random(name)
    for _ in range(FAULTS):
        number = rng.randint(1, int(calls.split()[1]))
        error = rng.choice(ERRORS)
        shutil.rmtree(out.parent)
        out.parent.mkdir()
        ended, (failed, *_), cause = run(number, error)
        operation, _, path = failed.partition(" ")
        what = f"{name} {number} {error}: {failed}: {ended.text[-3000:]}"
        if operation != "calls":  # Threads make the number vary a little.
            assert ended.code == 0 or ended.is_one_line, what
            if ended.code:
                check_line(ended.text, cause, path, str(out.parent), error)
        if name == "conversion":  # It refuses to replace a file.
            shutil.rmtree(out, ignore_errors=True)
        ended, _, _ = run()
        assert ended.code == 0, f"{what}: then {ended.text}"
        assert scenarios.contents(out) == expected, what


def check_line(text, cause, path, folder, error):
    """Checks the line that a user reads."""
    line = text.splitlines()[-1]
    assert cause in line
    named = re.findall(re.escape(folder) + r"[^\s:;,'\"]*", line)
    final = re.sub(
        r"/\.([^/]+)\.\w{8}\.incomplete(/(new|old|lock))?", r"/\1", path
    )
    final = re.sub(r"/\.saving(/|$)", r"\1", final)
    final = re.sub(r"\.tempstate\d+|/\.tmp\w+$", "", final)
    # On a disk that stays full, several files of several threads fail.
    assert named and (
        error == LASTING
        or any(final.startswith(name.rstrip("/")) for name in named)
    ), (line, path)
    assert not re.search(TEMPORARY, line), line
