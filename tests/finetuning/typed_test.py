"""Proves that what is typed is read as it was typed.

python -m pytest tests/finetuning/typed_test.py
"""

import io

import pytest

from finetuning import typed


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
