"""Proves that a task with its own file format is one entry of one table.

python -m pytest tests/tasks/classification/boolq_test.py

The examples are written for this test in the two released forms of BoolQ.
"""

import json

import pytest
from classifier_runs import read_split

from foundation import errors
from tasks.classification import sentence_tasks, settings

QUESTIONS = [
    ("is snow cold", "Snow is frozen water.", True),
    ("do fish fly", "Fish swim in water.", False),
]


def super_glue(labeled):
    for i, (question, passage, answer) in enumerate(QUESTIONS):
        row = {"question": question, "passage": passage, "idx": 10 + i}
        yield row | ({"label": answer} if labeled else {})


def original(labeled):
    for question, passage, answer in QUESTIONS:
        row = {"question": question, "title": "Water", "passage": passage}
        yield row | ({"answer": answer} if labeled else {})


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("form", "dev_name", "guids"),
    [(super_glue, "val", ["10", "11"]), (original, "dev", ["0", "1"])],
)
def test_both_released_forms_are_read(tmp_path, form, dev_name, guids):
    for split, name in (("train", "train"), ("dev", dev_name)):
        write(tmp_path / "BoolQ" / f"{name}.jsonl", form(True))
        found = read_split("BoolQ", split, str(tmp_path))
        assert found.first == [question for question, _, _ in QUESTIONS]
        assert found.second == [passage for _, passage, _ in QUESTIONS]
        assert (found.labels, found.guids) == (["true", "false"], guids)
    write(tmp_path / "BoolQ" / "test.jsonl", form(False))
    test = read_split("boolq", "test", str(tmp_path))
    assert (test.labels, test.guids) == (None, guids)


def test_labels_are_false_and_true(tmp_path):
    write(tmp_path / "train.jsonl", super_glue(True))
    data = settings.Files(data_dir=str(tmp_path))
    task = sentence_tasks.open_task("boolq", data)
    assert task.label_ids("train").tolist() == [[1], [0]]
    assert (list(task.labels), task.metrics) == (
        ["false", "true"],
        ("accuracy",),
    )


def test_missing_and_unlabeled_files_are_named(tmp_path):
    write(tmp_path / "test.jsonl", original(False))
    with pytest.raises(errors.InputError, match="neither val.jsonl nor dev.js"):
        read_split("boolq", "dev", str(tmp_path))
    path = str(tmp_path / "test.jsonl")
    with pytest.raises(
        errors.InputError, match=f"{path}: has no labels .no column"
    ):
        read_split("boolq", "train", None, file=path)
