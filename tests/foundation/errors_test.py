"""Proves that what libraries say becomes one short line.

pytest tests/foundation/errors_test.py
"""

import errno
import os

import pytest

from foundation import errors

NODE = "{{function_node __wrapped__X_device_/job:localhost/device:CPU:0}} "


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (f"{NODE}Key: a. Too short [Op:ParseExampleV2]", "Key: a. Too short"),
        (
            f"{NODE}Error in user-defined function passed to MapDataset:15 "
            "transformation with iterator: Iterator::Root::ParallelMapV2: "
            "Name: <unknown>, Key: a\n\t [[{{node P/P}}]] [Op:Next] name: ",
            "Key: a",
        ),
        (
            "Graph execution error:\n\nDetected at node P defined at (most "
            "recent call last):\n<stack traces unavailable>\n"
            "2 root error(s) found.\n  (0) INVALID_ARGUMENT:  Key: a\n"
            "\t [[{{node P}}]]\n\t [[IteratorGetNext]]",
            "Key: a",
        ),
        (
            "Expected 'tf.Tensor(False, shape=(), dtype=bool)' to be true. "
            'Summarized data: b"the model\'s ids are below 2, not"\n7',
            "the model's ids are below 2, not 7",
        ),
        (
            "assertion failed: [the model\\'s ids are below 2, not] [7]\n\t "
            "[[{{node Assert/Assert}}]] [Op:__inference_f_17]",
            "the model's ids are below 2, not 7",
        ),
        ("", "ValueError"),
        ("a\0b\x1b", r"a\x00b\x1b"),
    ],
)
def test_the_names_of_nodes_are_left_out(message, line):
    assert errors.reason(ValueError(message)) == line


def test_bytes_that_are_not_utf_8_are_escaped():
    with pytest.raises(UnicodeDecodeError) as raised:
        f"{NODE}value: '\n".encode().__add__(b"\xff\xc1'").decode()
    assert errors.reason(raised.value) == r"value: ' \xff\xc1'"


def test_long_messages_are_cut():
    line = errors.reason(ValueError("a" * 10_000))
    assert len(line) == 500 and line.endswith("a ...")


def test_of_many_names_the_first_are_listed():
    names = [str(i) for i in range(23)]
    assert errors.listed(names).endswith("18, 19 and 3 more")
    assert errors.listed(names[:20]).endswith("18, 19")


def test_the_number_of_a_file_error_is_found_in_its_words():
    words = os.strerror(errno.EMFILE)
    for error in (OSError(errno.EMFILE, words, "a"), RuntimeError(words)):
        assert errors.system_number(error) == errno.EMFILE
