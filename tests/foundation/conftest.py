"""A fixture of the tests of files."""

import pathlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

from foundation import file_system


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path: pathlib.Path) -> Iterator[str]:
    """Yields an empty folder: on a disk, and in the place of a bucket."""
    path = str(tmp_path) if request.param == "disk" else f"ram:/{tmp_path}"
    file_system.make_folder(path)
    yield path
    if request.param == "memory":
        tf.io.gfile.rmtree(path)
