"""Proves that what lies beside answers and a model tells of no others.

python -m pytest tests/tasks/squad/squad_outputs_writer_test.py
"""

import pytest

from jobs import grid, run_files
from tasks.squad import dataset, outputs
from tasks.squad.decoding import Answers, Entry
from weights import task_files
from weights.task_files import SquadSettings

SCORES = {"eval_results.txt", "eval_results.json", "report.html"}
ANSWERS = {"predictions.json", "nbest_predictions.json"}


def evaluate(place, *, labeled=True, with_negative=True):
    """Two questions, one of them without an answer if that may be."""
    made = [
        dataset.Question(
            id=str(number),
            text="?",
            paragraph=0,
            answers=[dataset.Answer("a", 0)] * right * labeled,
            is_impossible=not right,
        )
        for number, right in enumerate([1, int(not with_negative)])
    ]
    found = dataset.QuestionSet(
        path=str(place / "dev.json"),
        contexts=["a"],
        questions=made,
        has_impossible=with_negative and labeled,
    )
    entries = [Entry("a", 1.0, 0.0, 0.0, (0, 1)), Entry("", 0.0, 0, 0, None)]
    answers = [Answers(entries, -1.0), Answers(entries, 1.0)]
    return outputs.evaluate(found, answers, with_negative=with_negative)


@pytest.fixture
def record(tmp_path):
    """What writes beside a model; neither that nor the set is looked at."""
    for name in ("model.safetensors", "dev.json"):
        (tmp_path / name).write_bytes(b"")
    files = run_files.RunFiles(
        output_dir=str(tmp_path),
        settings={},
        given={},
        results=grid.Results(str(tmp_path)),
    )
    return outputs.OutputWriter(files, with_negative=True, threshold=None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SquadSettings(version_2_with_negative=True), -1.0),
        (SquadSettings(), None),
        (None, None),
    ],
    ids=["2.0", "1.1", "unknown"],
)
def test_a_threshold_is_stored_with_a_model_of_2_0_only(
    record, tmp_path, before, after
):
    if before is not None:
        task_files.write_settings(str(tmp_path), before)
    made = evaluate(tmp_path)
    assert made.threshold_found
    for store in (record.write_threshold, record.write):
        store(made)
        stored = task_files.read_settings(str(tmp_path))
        if after is None:
            assert stored == before
        else:
            assert stored.null_score_diff_threshold == after
    assert set(made.predictions.values()) == {"a", ""}


def test_no_file_of_other_answers_is_left(record, tmp_path):
    def names():
        return {path.name for path in tmp_path.iterdir()} - kept

    kept = {"model.safetensors", "README.md", "question_answering.json"}
    kept.add("dev.json")
    (tmp_path / "README.md").write_text("card")
    task_files.write_settings(str(tmp_path), SquadSettings())
    record.write(evaluate(tmp_path))
    assert names() == ANSWERS | SCORES | {"null_odds.json"}
    record.write(evaluate(tmp_path, labeled=False))
    assert names() == ANSWERS | {"null_odds.json"}
    (tmp_path / "predict_logits.npz").write_bytes(b"other")
    record.write(evaluate(tmp_path, with_negative=False))
    assert names() == ANSWERS | SCORES
    assert kept <= {path.name for path in tmp_path.iterdir()}
