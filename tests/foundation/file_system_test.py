"""Proves that files in a bucket are written and read as on a disk.

python -m pytest tests/foundation/file_system_test.py

TensorFlow's file system in memory, ram://, stands for the bucket.
"""

import os

import pytest
import tensorflow as tf

from foundation import errors, file_system


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    path = str(tmp_path) if request.param == "disk" else f"ram:/{tmp_path}"
    file_system.make_folder(path)
    yield path
    if request.param == "memory":
        tf.io.gfile.rmtree(path)


def test_text_is_written_over_and_read_again(folder):
    path = f"{folder}/note.txt"
    assert not file_system.exists(path)
    for text in ("first\n", "zweites, längeres\r\n", ""):
        file_system.write_text(path, text)
        with open(file_system.local(path), "rb") as file:
            assert file.read() == text.encode()
    assert file_system.is_file(path) and not file_system.is_folder(path)
    assert file_system.is_folder(folder) and not file_system.is_file(folder)
    assert tf.io.gfile.listdir(folder) == ["note.txt"]
    file_system.remove(path)
    assert not file_system.exists(path)


def test_what_fails_leaves_the_former_file(folder):
    path = f"{folder}/note.txt"
    file_system.write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        with file_system.whole(path) as temporary:
            with open(temporary, "w") as file:
                file.write("new")
            raise ZeroDivisionError
    assert file_system.read_text(path) == "old"


def test_files_of_a_folder_go_there_and_come_back(folder):
    made = f"{folder}/made"
    os.makedirs(made) if not file_system.is_remote(made) else None
    with file_system.whole_files(made, ["a", "b"]) as place:
        for name in ("a", "b"):
            with open(os.path.join(place, name), "w") as file:
                file.write(name)
    assert sorted(tf.io.gfile.listdir(made)) == ["a", "b"]
    place = file_system.local_folder(made, ["a", "c"])
    assert file_system.read_text(os.path.join(place, "a")) == "a"
    file_system.remove(f"{made}/a")
    place = file_system.local_folder(made, ["a", "c"])
    assert not os.path.exists(os.path.join(place, "a"))


def test_a_missing_file_in_a_bucket_is_named():
    with pytest.raises(errors.InputError, match="ram://nowhere/x: no such"):
        file_system.read_text("ram://nowhere/x")


def test_copies_never_leave_their_folder():
    place = file_system.local_folder("ram://a/../../../b", [])
    assert place.endswith("/ram/b")


def test_what_needs_a_disk_is_refused_by_its_flag():
    file_system.refuse_remote("/tmp/x", "output", "it is mapped")
    with pytest.raises(errors.InputError, match="--output=gs://x: must be on"):
        file_system.refuse_remote("gs://x", "output", "it is mapped")
