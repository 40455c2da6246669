"""Proves that copies of remote files are complete and stay in their folder.

python -m pytest tests/foundation/copies_test.py
"""

import os

import tensorflow as tf

from foundation import atomic, copies, file_system


def test_files_of_a_folder_go_there_and_come_back(folder):
    made = f"{folder}/made"
    file_system.make_folder(made)
    for name in ("a", "b"):
        atomic.write_text(f"{made}/{name}", name)
    assert sorted(tf.io.gfile.listdir(made)) == ["a", "b"]
    found = copies.local_folder(made, ["a", "c"])
    assert file_system.read_text(os.path.join(found, "a")) == "a"
    atomic.write_text(f"{made}/a", "changed")
    found = copies.local_folder(made, ["a", "c"])
    assert file_system.read_text(os.path.join(found, "a")) == "changed"


def test_copies_never_leave_their_folder():
    found = copies.local_folder("ram://a/../../../b", [])
    assert found.endswith("/ram/b")
