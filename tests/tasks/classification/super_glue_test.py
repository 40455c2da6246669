"""Proves that SuperGLUE's sentence tasks are read from their released files.

python -m pytest tests/tasks/classification/super_glue_test.py

The examples are written for this test in the released forms.
"""

import json

import pytest
from classifier_runs import read_split

from foundation import errors
from tasks.classification import sentence_tasks, settings

ROWS = {
    "CB": (
        {"premise": "It rains.", "hypothesis": "It is wet.", "idx": 4},
        "neutral",
        ("It rains.", ["It is wet."], "neutral"),
    ),
    "COPA": (
        {
            "premise": "It rained.",
            "choice1": "The road dried.",
            "choice2": "The road got wet.",
            "question": "effect",
            "idx": 4,
        },
        1,
        (
            "It rained.",
            ["so The road dried.", "so The road got wet."],
            "1",
        ),
    ),
    "WiC": (
        {
            "word": "bank",
            "sentence1": "A river bank.",
            "sentence2": "A bank of stone.",
            "start1": 8,
            "end1": 12,
            "start2": 2,
            "end2": 6,
            "version": 1.1,
            "idx": 4,
        },
        True,
        ("bank: A river bank.", ["A bank of stone."], "true"),
    ),
    "AX-g": (
        {
            "premise": "She slept.",
            "hypothesis": "He slept.",
            "pair_id": 3,
            "idx": 4,
        },
        "not_entailment",
        ("She slept.", ["He slept."], None),
    ),
}


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ROWS)
def test_released_files_are_read(tmp_path, name):
    row, label, (first, second, written) = ROWS[name]
    splits = {"train": "train", "dev": "val"}
    if name == "AX-g":
        splits = {"test": "AX-g"}
    for split, file in splits.items():
        write(tmp_path / name / f"{file}.jsonl", [row | {"label": label}])
        found = read_split(name, split, str(tmp_path))
        assert set(found.first) == {first}
        assert found.second == second
        assert found.guids == ["4"]
        assert (found.labels or [None]) == [written]
    spec = sentence_tasks.TASKS[name.lower()]
    assert written is None or written in spec.labels
    if name != "AX-g":
        write(tmp_path / name / "test.jsonl", [row])
        assert read_split(name, "test", str(tmp_path)).labels is None


def test_the_labels_of_the_diagnostic_set_are_scored(tmp_path):
    row, label, _ = ROWS["AX-g"]
    path = tmp_path / "AX-g.jsonl"
    write(path, [row | {"label": label}])
    files = settings.Files(data_dir=str(tmp_path))
    task = sentence_tasks.open_task("AX_g", files)
    (found,) = task.read("test", is_labeled=True)
    assert found.label == label
    with pytest.raises(errors.InputError, match="has no train set"):
        task.read("train")


def test_a_cause_is_not_an_effect(tmp_path):
    row, label, _ = ROWS["COPA"]
    rows = [row | {"label": label, "question": x} for x in ("cause", "why")]
    write(tmp_path / "train.jsonl", rows[:1])
    found = read_split("copa", "train", str(tmp_path))
    assert found.second[0] == "because The road dried."
    write(tmp_path / "train.jsonl", rows)
    with pytest.raises(errors.InputError, match=":2: the question is 'why'"):
        read_split("copa", "train", str(tmp_path))
