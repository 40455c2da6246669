"""Shared fixtures: quiet TensorFlow, four logical CPUs, optional real data."""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

import tensorflow_setup  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real public data laid beside the checkout; skips where there is none."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no shared/data beside this checkout")
    return path


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The root of this checkout, where the runners lie."""
    return ROOT
