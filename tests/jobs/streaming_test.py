"""Proves that predictions in blocks are complete, ordered and continued.

python -m pytest tests/jobs/streaming_test.py
"""

import collections
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from foundation import errors
from jobs import streaming

SETTINGS = {"max_seq_length": 8}
# Predicts 40 items slowly, and counts the calls of the model.
SCRIPT = """
import sys, time
from jobs import streaming

class Doubles:
    block_items, total, unit = 4, None, "rows"

    def read(self):
        return range(40)

    def key(self, item):
        return item

    def rows_of(self, item):
        return 1

    def encode(self, items):
        return items

    def predict(self, encoded):
        with open(sys.argv[2], "a") as file:
            file.write("x")
        time.sleep(0.2)
        return [x * 2 for x in encoded]

    def parts(self, items, encoded, predicted):
        lines = [f"{a} {b}\\n" for a, b in zip(items, predicted)]
        return {"a": "".join(lines).encode(), "b": b"."}

    def end(self):
        pass

blocks = streaming.Blocks(sys.argv[1] + ".incomplete", {"flag": 1})
streaming.run(Doubles(), blocks)
blocks.write("a", sys.argv[1], head=b"head\\n")
blocks.remove()
"""


class Squares:
    """A stream that squares its items; any method may be replaced."""

    unit = "rows"

    def __init__(self, items, *, block_items=3, total=None, **methods):
        """Reads nothing yet."""
        self.block_items, self.total = block_items, total
        self.predicted = []
        self.ends = 0
        self._items = items
        for name, method in methods.items():
            assert hasattr(self, name), name
            setattr(self, name, method)

    def read(self):
        """Returns the items."""
        return self._items

    def key(self, item):
        """Returns the item."""
        return item

    def rows_of(self, item):
        """Returns 1."""
        return 1

    def encode(self, items):
        """Returns a copy."""
        return list(items)

    def predict(self, encoded):
        """Returns squares, and remembers of what."""
        self.predicted.append(list(encoded))
        return [x * x for x in encoded]

    def parts(self, items, encoded, predicted):
        """Returns the squares as lines, and the number of items."""
        assert items == encoded
        lines = [f"{value}\n" for value in predicted]
        return {
            "values": "".join(lines).encode(),
            "count": b"%d," % len(items),
        }

    def end(self):
        """Counts the calls."""
        self.ends += 1


def run(folder, items, *, settings=SETTINGS, **changes):
    """Squares the items; returns the blocks and the predicted ones."""
    blocks = streaming.Blocks(str(folder / "work"), settings)
    stream = Squares(items, **changes)
    streaming.run(stream, blocks)
    assert stream.ends == 1
    return blocks, stream.predicted


def fail(encoded):
    if 6 in encoded:
        raise KeyboardInterrupt
    return [x * x for x in encoded]


def test_blocks_of_an_earlier_model_are_refused_or_discarded(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, range(8), predict=fail)
    other = SETTINGS | {"weights": "b"}
    with pytest.raises(
        errors.InputError, match="weights was None, is b: .*work contains"
    ):
        streaming.Blocks(str(tmp_path / "work"), other)
    blocks = streaming.Blocks(
        str(tmp_path / "work"), other, discards_changed=True
    )
    assert not blocks.find(0, "")
    assert "weights was None, is b" in caplog.text
    assert os.listdir(tmp_path / "work") == ["settings.json"]
    blocks = streaming.Blocks(str(tmp_path / "work"), other)
    blocks.remove()


def test_a_block_ends_with_the_item_that_fills_it(tmp_path):
    """Items may be documents of several sentences."""
    stream = Squares(
        iter(["aa", "bb", "c", "dddd", "e"]),
        predict=lambda encoded: predicted.append(encoded),
        parts=lambda items, encoded, predicted: {"": b""},
        rows_of=len,
    )
    predicted = stream.predicted
    blocks = streaming.Blocks(str(tmp_path / "work"), SETTINGS)
    count = streaming.run(stream, blocks)
    assert predicted == [["aa", "bb"], ["c", "dddd"], ["e"]]
    assert count == 10


def test_outputs_are_in_the_order_of_the_items(tmp_path):
    blocks, predicted = run(tmp_path, iter(range(8)))
    assert predicted == [[0, 1, 2], [3, 4, 5], [6, 7]]
    blocks.write("values", str(tmp_path / "values"), head=b"value\n")
    lines = (tmp_path / "values").read_text().splitlines()
    assert lines == ["value", "0", "1", "4", "9", "16", "25", "36", "49"]
    assert b"".join(blocks.parts("count")) == b"3,3,2,"
    blocks.remove()
    assert os.listdir(tmp_path) == ["values"]


def test_only_what_is_missing_or_damaged_is_predicted_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, range(8), predict=fail)
    path = tmp_path / "work" / "block-0000000"
    path.write_bytes(path.read_bytes()[:-1])
    blocks, predicted = run(tmp_path, range(8))
    assert predicted == [[0, 1, 2], [6, 7]]
    values = b"".join(blocks.parts("values")).split()
    assert list(map(int, values)) == [x * x for x in range(8)]


def test_a_block_of_other_settings_is_never_used(tmp_path):
    """Not even if settings.json was lost."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, range(8), predict=fail)
    (tmp_path / "work" / "settings.json").unlink()
    _, predicted = run(tmp_path, range(8), settings={"max_seq_length": 9})
    assert predicted == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("items", "settings", "message"),
    [
        (range(8), {"max_seq_length": 9}, "max_seq_length was 8, is 9: "),
        (range(8), {}, "max_seq_length was 8, is None: "),
        (range(1, 8), SETTINGS, "another or changed input: "),
        ([0, 1, 2, 3, 4, 5.0], SETTINGS, "another or changed input: "),
    ],
)
def test_a_changed_input_or_setting_is_refused(
    tmp_path, items, settings, message
):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, range(8), predict=fail)
    with pytest.raises(errors.InputError, match=f"^{message}{tmp_path}/work "):
        run(tmp_path, items, settings=settings)


def test_a_prediction_of_an_earlier_version_begins_again(tmp_path, caplog):
    """Its items had other digests."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    head = {"sha256": "0", "settings": "0", "digest": "0", "parts": {}}
    (folder / "block-0000000").write_text(json.dumps(head) + "\n")
    with caplog.at_level("WARNING", logger="absl"):
        _, predicted = run(tmp_path, range(4))
    assert predicted == [[0, 1, 2], [3]]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{folder}: removed")


def test_a_prediction_that_starts_again_uses_no_blocks(tmp_path):
    run(tmp_path, range(8))
    blocks = streaming.Blocks(str(tmp_path / "work"), {}, continues=False)
    assert not blocks.find(0, "")


@pytest.mark.parametrize(
    "failing", ["items", "read", "encode", "predict", "parts"]
)
def test_an_error_of_any_thread_ends_the_run(tmp_path, failing):
    def fails(*arguments):
        raise errors.InputError("line 7: bad")

    def items():
        yield from range(6)
        fails()

    changes = {} if failing == "items" else {failing: fails}
    given = items() if failing == "items" else range(8)
    with pytest.raises(errors.InputError, match="line 7"):
        run(tmp_path, given, **changes)
    count = len(list((tmp_path / "work").glob("block-*")))
    assert count == (2 if failing == "items" else 0)


def test_few_blocks_are_in_memory(tmp_path):
    """However fast they are read, and however slowly they are written."""
    alive, most = collections.Counter(), 0
    lock = threading.Lock()

    def encode(items):
        nonlocal most
        with lock:
            alive["blocks"] += 1
            most = max(most, alive["blocks"])
        return items

    def slow_parts(items, encoded, predicted):
        time.sleep(0.02)
        with lock:
            alive["blocks"] -= 1
        return Squares.parts(None, items, encoded, predicted)

    run(tmp_path, range(30), encode=encode, parts=slow_parts)
    assert alive["blocks"] == 0 and most <= 4


def test_standard_output_gets_each_block_at_once(monkeypatch):
    output = io.BytesIO()
    seen = []
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=output))

    def items():
        for i in itertools.count():
            # The block before the last complete one has been written.
            seen.append(output.getvalue().count(b"\n"))
            if i == 12:
                return
            yield i

    streaming.run(
        Squares(items(), predict=lambda encoded: encoded),
        streaming.StandardOutput("values", b"head\n"),
    )
    expected = ["head", *map(str, range(12))]
    assert output.getvalue().decode().split() == expected
    assert seen[-1] >= 1 + 3


def test_a_reader_that_ends_early_ends_the_prediction(repository):
    """As in "| head": without a traceback."""
    script = """
import itertools
from jobs import streaming

class Lines:
    block_items, total, unit = 4096, None, "rows"
    encode = predict = staticmethod(list)
    key = staticmethod(str)

    def read(self):
        return itertools.count()

    def rows_of(self, item):
        return 1

    def parts(self, items, encoded, predicted):
        return {"": b"line\\n" * len(items)}

streaming.run(Lines(), streaming.StandardOutput(""))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (0, "")


def test_an_input_that_has_lost_rows_since_it_was_counted_is_refused(tmp_path):
    with pytest.raises(
        errors.InputError, match="^8 rows predicted, but 9 were"
    ):
        run(tmp_path, range(8), total=9)


def test_lines_of_progress_show_time_left_and_a_rate_without_compilation(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(streaming, "_SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level("INFO", logger="absl"):
        run(tmp_path, range(9), total=9)
    lines = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"3 rows predicted, \d+ seconds? left", lines[0])
    assert re.fullmatch(
        r"6 rows predicted, \S+ per second, \d+ seconds? left", lines[1]
    )
    assert re.fullmatch(
        r"9 rows predicted, in \d+ seconds?, \S+ per second", lines[-1]
    )


def test_a_single_block_has_no_rate(tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        run(tmp_path, range(2), total=2)
    (line,) = caplog.messages
    assert re.fullmatch(r"2 rows predicted, in \d+ seconds?", line)


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    run(tmp_path, range(9), total=9)
    assert "9.00/9.00" in terminal.getvalue()


def test_a_killed_process_continues_after_its_last_block(tmp_path, repository):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(repository)}

    def command(name):
        names = [tmp_path / name, tmp_path / f"{name}.calls"]
        return [sys.executable, tmp_path / "script.py", *names]

    subprocess.run(command("calm"), env=environment, check=True)
    process = subprocess.Popen(command("out"), env=environment)
    work = tmp_path / "out.incomplete"
    while not (work / "block-0000002").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    kept = len(list(work.glob("block-*")))
    before = len((tmp_path / "out.calls").read_text())
    subprocess.run(command("out"), env=environment, check=True)
    assert not work.exists()
    calm = (tmp_path / "calm").read_bytes()
    assert (tmp_path / "out").read_bytes() == calm
    assert calm.count(b"\n") == 41
    after = len((tmp_path / "out.calls").read_text())
    assert after - before == 10 - kept < 10


def test_row_splits_continue_over_parts_also_after_an_empty_one():
    lengths = [2, 3], [], [1]
    parts = [np.array(x, np.int64).tobytes() for x in lengths]
    found = b"".join(streaming.row_splits(parts))
    assert np.frombuffer(found, np.int64).tolist() == [0, 2, 5, 6]


def test_an_npz_in_parts_is_that_of_numpy(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    parts = [values[:1].tobytes(), values[1:].tobytes()]
    path = tmp_path / "parts.npz"
    arrays = {"x": streaming.NpzArray("<f4", values.shape, parts)}
    streaming.write_npz(str(path), arrays)
    expected = io.BytesIO()
    np.savez(expected, x=values)
    assert path.read_bytes() == expected.getvalue()
