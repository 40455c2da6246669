"""Proves that what is typed is read as it was typed.

python -m pytest tests/finetuning/typed_test.py
"""

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
import time

import pytest

from finetuning import typed

SCRIPT = """
import sys
from finetuning import typed
read = typed.reader(sys.stdin, sys.stdout)
line = read("paragraph> ")
print("READ", len(line), line[-7:])
print("END", read("question> "))
"""


def test_a_line_of_a_pipe_is_read_to_its_end_without_a_prompt():
    lines = io.TextIOWrapper(io.BytesIO(b"a" * 9000 + b"\nb"))
    output = io.StringIO()
    read = typed.reader(lines, output)
    assert [len(read("? ")), read("? "), read("? ")] == [9001, b"b", b""]
    assert output.getvalue() == ""


def test_lines_of_a_pipe_are_bytes_as_they_came():
    stream = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n\nlast"))
    output = io.StringIO()
    assert list(typed.lines(stream, output)) == [b"caf\xe9\n", b"\n", b"last"]
    assert output.getvalue() == ""


@pytest.mark.parametrize("data", [b"a\n\xef\xbb\xbfb\n", b"a"])
def test_a_byte_order_mark_is_skipped_at_the_beginning(data):
    def pipe():
        return io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + data))

    assert b"".join(typed.lines(pipe(), io.StringIO())) == data


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_hands_over_any_line(encoding, repository):
    ours, theirs = pty.openpty()
    environment = {
        "PYTHONPATH": str(repository),
        "PYTHONIOENCODING": encoding,
        "TERM": "dumb",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    os.close(theirs)
    shown = bytearray()
    reading = threading.Thread(target=read_on, args=(ours, shown), daemon=True)
    reading.start()

    def await_words(words):
        deadline = time.monotonic() + 60
        while words not in shown:
            assert time.monotonic() < deadline, bytes(shown[-300:])
            time.sleep(0.01)
        time.sleep(0.5)  # Shown before it reads: a key too early is another's.

    await_words(b"paragraph> ")
    line = ("x" * 9000 + "\u00e9 end\n").encode()
    for start in range(0, len(line), 500):
        os.write(ours, line[start : start + 500])
        time.sleep(0.01)
    await_words(b"question> ")
    os.write(ours, b"\x04")
    await_words(b"END b''")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err[-2000:]
    assert b"READ 9007 b'\\xc3\\xa9 end\\n'" in shown


def read_on(descriptor, shown):
    """Takes what a terminal shows until it is closed."""
    with contextlib.suppress(OSError):
        while data := os.read(descriptor, 100000):
            shown += data
