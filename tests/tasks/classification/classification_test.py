"""Proves what is said of a table, and that a printed way out works.

python -m pytest tests/tasks/classification/classification_test.py
"""

import json
import re
import types

import numpy as np
import pytest
import tiny_runs

from data.tokenization import plain_wordpiece, vocabulary
from foundation import config_flags, errors
from tasks.classification import task
from tasks.classification.settings import ClassifierFlags


@pytest.fixture
def opened(tmp_path):
    """Opens a table of labels, for a model of two classes without names."""

    def open_labels(labels, mode="do_train", **flags):
        path = tmp_path / "t.jsonl"
        rows = ({"text": "w", "label": x, "source": "s"} for x in labels)
        path.write_text("\n".join(map(json.dumps, rows)))
        file = "train_file" if mode == "do_train" else "dev_file"
        given = {"task_name": "jsonl", "output_dir": "x", mode: True}
        given |= {file: str(path)} | flags
        words = vocabulary.Vocabulary.from_tokens([*tiny_runs.SPECIAL, "w"])
        model = types.SimpleNamespace(
            tokenizer=plain_wordpiece.PlainTokenizer(words),
            start=types.SimpleNamespace(
                num_outputs=2, settings=types.SimpleNamespace(problem_type=None)
            ),
            record=types.SimpleNamespace(flags={}),
            labels=None,
            unfinished_dir=None,
        )
        return task.Classification(
            config_flags.build(ClassifierFlags, **given), model
        )

    return open_labels


@pytest.mark.parametrize(
    ("labels", "mode", "message", "way_out", "names"),
    [
        (
            [["a", "b"], ["a"]],
            "do_train",
            "t.jsonl:1: 2 labels in a list; --problem_type=multi_label takes",
            {"problem_type": "multi_label"},
            ["a", "b"],
        ),
        (
            "ab",
            "do_eval",
            "no labels, .* with --label_names or --train_file",
            {"label_names": "b,a"},
            ["b", "a"],
        ),
    ],
)
def test_the_way_out_of_a_refusal_works(
    opened, labels, mode, message, way_out, names
):
    with pytest.raises(errors.InputError, match=message):
        opened(labels, mode)
    assert opened(labels, mode, **way_out).labels == names


@pytest.mark.parametrize(
    ("labels", "text", "way_out"),
    [
        (
            [str(i % 1001) for i in range(2000)],
            "1001 different labels in 2000 .* --problem_type=regression meant",
            {"problem_type": "regression"},
        ),
        ("ab", "columns not read: source", {"id_column": "source"}),
    ],
)
def test_what_is_said_of_a_table_has_a_way_out(
    opened, caplog, labels, text, way_out
):
    caplog.set_level("INFO", "absl")
    opened(labels)
    assert re.search(text, caplog.text)
    caplog.clear()
    opened(labels, **way_out)
    assert caplog.text and not re.search(text, caplog.text)


@pytest.mark.parametrize(
    ("given", "expected"), [("balanced", [2 / 3, 2]), ("1,3", [1, 3])]
)
def test_rows_count_by_the_weights_of_their_labels(opened, given, expected):
    classification = opened("aaab", class_weights=given)
    for label, weight in enumerate(expected):
        found = classification.head().weight({"label_ids": np.array([label])})
        assert float(found) == pytest.approx(weight)
