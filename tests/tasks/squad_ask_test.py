"""Proves that what is typed is read as it was typed.

python -m pytest tests/tasks/squad_ask_test.py
"""

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
import time

from tasks import squad_ask

SCRIPT = """
import sys
from tasks import squad_ask
read = squad_ask.reads(sys.stdin, sys.stdout)
line = read("paragraph> ")
print("READ", len(line), line[-7:].decode())
print("END", read("question> "))
"""


def test_a_line_of_a_pipe_is_read_whole_and_its_end_told():
    lines = io.TextIOWrapper(io.BytesIO(b"a" * 9000 + b"\nb"))
    output = io.StringIO()
    read = squad_ask.reads(lines, output)
    assert [len(read("? ")), read("? "), read("? ")] == [9001, b"b", b""]
    assert output.getvalue() == "? ? ? \n"


def test_a_terminal_hands_over_lines_of_any_length():
    ours, theirs = pty.openpty()
    root = os.path.join(os.path.dirname(squad_ask.__file__), os.pardir)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root, "TERM": "dumb"},
    )
    os.close(theirs)
    shown = bytearray()
    reading = threading.Thread(target=read_on, args=(ours, shown), daemon=True)
    reading.start()

    def await_word(word):
        deadline = time.monotonic() + 60
        while word not in shown:
            assert time.monotonic() < deadline, bytes(shown[-300:])
            time.sleep(0.01)

    await_word(b"paragraph> ")
    typed = ("x" * 9000 + "\u00e9 end\n").encode()
    for start in range(0, len(typed), 500):
        os.write(ours, typed[start : start + 500])
        time.sleep(0.01)
    await_word(b"question> ")
    time.sleep(0.5)  # Shown before it reads: a key too early is another's.
    os.write(ours, b"\x04")
    await_word(b"END b''")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err[-2000:]
    assert b"READ 9007 " in shown


def read_on(descriptor, shown):
    """Takes what a terminal shows until it is closed."""
    with contextlib.suppress(OSError):
        while data := os.read(descriptor, 100000):
            shown += data
