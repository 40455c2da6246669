"""Proves when the files of a predicted set are written.

python -m pytest tests/jobs/runner_test.py
"""

import types

import pytest

from jobs import runner, streaming
from jobs.task import PrintedSet


class Words:
    """A set of two blocks; remembers what is done with it."""

    block_items, total, unit = 1, 2, "words"
    settings = {"flag": 1}
    folder = "work"

    def __init__(self):
        """Predicts nothing yet."""
        self.calls = []

    @property
    def stream(self):
        """The set itself."""
        return self

    def read(self):
        """Returns the items."""
        return ["a", "b"]

    def key(self, item):
        """Returns the item."""
        return item

    def rows_of(self, item):
        """Returns 1."""
        return 1

    def encode(self, items):
        """Returns the items."""
        return items

    def predict(self, encoded):
        """Remembers the call, which all workers make."""
        self.calls.append("predict")
        return encoded

    def parts(self, items, encoded, predicted):
        """Returns the lines."""
        return {"lines": "".join(f"{x}\n" for x in predicted).encode()}

    def end(self):
        """Does nothing."""

    def write(self, blocks, output):
        """Takes the lines of all blocks."""
        self.calls.append(b"".join(blocks.parts("lines")))


def predict(predicted, folder, *, is_chief=True):
    def open_blocks(name, settings):
        if is_chief:
            return streaming.Blocks(str(folder / name), settings)

    model = types.SimpleNamespace(open_blocks=open_blocks)
    blocks = runner.predict(predicted, model, None)
    if blocks is not None:
        blocks.remove()


def test_blocks_are_removed_after_the_files_have_been_written(
    tmp_path, monkeypatch
):
    words = Words()
    predict(words, tmp_path)
    assert words.calls == ["predict", "predict", b"a\nb\n"]
    assert not list(tmp_path.iterdir())

    def fail(blocks, output):
        raise KeyboardInterrupt

    monkeypatch.setattr(words, "write", fail)
    with pytest.raises(KeyboardInterrupt):
        predict(words, tmp_path)
    words = Words()
    predict(words, tmp_path)
    assert words.calls == [b"a\nb\n"]  # Nothing is predicted again.


def test_other_workers_predict_and_write_nothing(tmp_path):
    words = Words()
    predict(words, tmp_path, is_chief=False)
    assert words.calls == ["predict", "predict"]
    assert not list(tmp_path.iterdir())


def test_a_printed_set_is_written_to_standard_output(tmp_path, capfdbinary):
    words = Words()
    predict(PrintedSet(words, "lines"), tmp_path)
    assert capfdbinary.readouterr().out == b"a\nb\n"
    assert words.calls == ["predict", "predict"]
    assert not list(tmp_path.iterdir())
