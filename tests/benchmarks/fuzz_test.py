"""Proves that the fuzzer sees defects, and finds none.

python -m pytest tests/benchmarks/fuzz_test.py
"""

import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
# A format whose fifth mutation hangs and whose seventh ends the process.
HANGS = """
import itertools, os, sys
import fuzz

def read(folder):
    number = next(count)
    if number == 5 and not os.path.exists("hung"):
        open("hung", "w").close()
        while True:  # The limit is of processor time.
            pass
    if number == 2 and not os.path.exists("ended"):
        if os.path.exists("hung"):
            open("ended", "w").close()
            os.abort()

count = itertools.count()  # From 1, as the valid file is read first.
made = fuzz.Format({"a": b"content"}, ["a"], None, read)
fuzz.make_formats = lambda scratch: {"a": made}
fuzz.SECONDS = 0.5
sys.argv = ["fuzz.py", "--mutations=10"]
sys.exit(fuzz.main())
"""


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fuzz

    return fuzz


def test_outcomes_are_told_apart(fuzz, tmp_path, monkeypatch):
    from foundation import errors

    def outcome(read, is_checked=False):
        made = fuzz.Format({"a": b"content"}, ["a"], None, read, is_checked)
        seeds = [f"{i}" for i in range(20 if is_checked else 1)]
        found = {fuzz.try_one(made, x, tmp_path / "x").kind for x in seeds}
        return found.pop() if len(found) == 1 else found

    def fail(error):
        def read(folder):
            raise error

        return read

    def content(folder):
        return pathlib.Path(folder, "a").read_bytes()

    assert outcome(content) == "read"
    assert outcome(fail(errors.InputError("a: damaged"))) == "refused"
    assert outcome(fail(FileNotFoundError(2, "none", "a"))) == "refused"
    assert outcome(fail(KeyError("a"))) == "traceback"
    assert outcome(fail(MemoryError())) == "memory"
    monkeypatch.setattr(fuzz, "GROWTH", 2**24)
    assert outcome(lambda folder: len(b"x" * 2**26)) == "memory"
    assert outcome(content, is_checked=True) == {"read", "wrong"}


def test_mutations_are_the_same_in_every_run(fuzz):
    made = fuzz.Format({"a": b"content"}, ["a"], fuzz.change_lines, len)
    found = [[fuzz.mutate(made, f"{i}") for i in range(50)] for _ in range(2)]
    assert found[0] == found[1]
    assert len({x[0]["a"] for x in found[0]}) > 30


@pytest.mark.all
def test_a_hang_and_a_crash_are_counted_and_do_not_end_the_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(BENCHMARKS)},
    )
    assert done.returncode == 1, done.stderr
    found = [x for x in done.stdout.splitlines() if x.startswith("all |")]
    assert found == ["all | 10 | 8 | 0 | 0 | 0 | 0 | 1 | 0 | 1"], done.stdout


@pytest.mark.all
def test_twenty_thousand_mutations_are_read_or_refused():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fuzz.py"), "--mutations=20000"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
