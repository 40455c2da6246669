"""Proves which threshold answers are given by, and which files they leave.

python -m pytest tests/tasks/squad/squad_outputs_test.py
"""

import dataclasses

import numpy as np
import pytest

from data import features
from foundation import errors
from tasks.squad import dataset, outputs, windowing
from tasks.squad.decoding import Answer, AnswerList, SpanLogits

SIZES = windowing.WindowSizes(
    max_seq_length=32, doc_stride=8, max_query_length=4
)


def questions(*answers, has_impossible=True):
    """One question for each answer; "" is none."""
    made = [
        dataset.Question(
            id=str(number),
            text="?",
            paragraph=0,
            answers=[dataset.Answer(text, 0)] if text else [],
            is_impossible=not text,
        )
        for number, text in enumerate(answers)
    ]
    return dataset.QuestionSet(
        path="dev.json",
        contexts=[""],
        questions=made,
        has_impossible=has_impossible,
    )


def answered(*rows):
    """Rows are a text and the odds of no answer."""
    return [
        AnswerList(
            [
                Answer(text, 1.0, 0.0, 0.0, None),
                Answer("", 0.0, 0.0, 0.0, None),
            ],
            odds,
        )
        for text, odds in rows
    ]


def evaluate(found, answers, threshold=None):
    return outputs.evaluate(
        found, answers, with_negative=True, threshold=threshold
    )


def test_the_best_threshold_scores_what_it_is_said_to():
    found = questions("cat", "dog", "bird", "", "")
    given = answered(
        ("cat", -3.0), ("dog", -1.0), ("bird", 0.5), ("x", 2.0), ("x", -2.0)
    )
    made = evaluate(found, given)
    # All that are right, and one of those that are wrong.
    assert made.threshold == made.values["best_f1_thresh"] == 0.5
    assert made.values["f1"] == made.values["best_f1"] == 80.0


@pytest.mark.parametrize("least", [-3.0, 0.0, 3.0])
def test_where_never_answering_is_best_nothing_is_answered(least):
    found = questions("cat", "", "", "")
    wrong = answered(*(("dog", least + i) for i in range(4)))
    made = evaluate(found, wrong)
    # As the official script says it, although 0 would answer something.
    assert made.values["best_f1_thresh"] == 0.0
    assert made.values["best_f1"] == made.values["f1"] == 75.0
    assert made.threshold <= 0.0
    assert set(made.predictions.values()) == {""}


def test_a_threshold_that_is_given_is_applied():
    found = questions("cat", "")
    given = answered(("cat", -3.0), ("x", -1.0))
    assert evaluate(found, given, threshold=-1.0).values["f1"] == 50.0
    assert evaluate(found, given).values["f1"] == 100.0


def test_a_threshold_is_found_by_labelled_questions_of_both_kinds_only():
    given = answered(("cat", -3.0), ("x", -1.0))
    assert evaluate(questions("cat", ""), given).threshold_found
    assert not evaluate(
        questions("cat", ""), given, threshold=0.5
    ).threshold_found


@pytest.mark.parametrize(
    ("found", "scored"),
    [
        (questions("cat", "dog", has_impossible=False), "exact_match"),
        (questions("cat", "dog"), "best_f1"),
        (questions("", ""), "best_f1"),
        (questions("", "", has_impossible=False), None),
    ],
    ids=["1.1", "all_answered", "none_answered", "unlabelled"],
)
def test_otherwise_the_stored_one_is_applied(found, scored, caplog):
    made = outputs.evaluate(
        found,
        answered(("cat", 1.0), ("dog", -1.0)),
        with_negative=True,
        default_threshold=0.5,
    )
    assert (made.threshold, made.threshold_found) == (0.5, False)
    assert list(made.predictions.values()) == ["", "dog"]
    assert scored is None or scored in made.values
    warned = caplog.text.count("0.5 is applied and none is stored")
    assert warned == (scored is not None)


@pytest.fixture
def windows():
    """Two windows of one question each."""
    none = np.zeros(2, np.int64)
    splits = np.array([0, 3, 6])
    return windowing.Windows(
        questions=np.arange(2),
        starts=none,
        lengths=none,
        offsets=none,
        documents=None,
        features=features.Features(
            row_splits=splits, ragged={"input_ids": np.arange(6)}
        ),
    )


def test_logits_are_left_with_the_sizes_of_their_windows(tmp_path, windows):
    assert outputs.read_sizes(str(tmp_path)) is None
    logits = SpanLogits(np.arange(6.0), np.ones(6))
    made = outputs.evaluate(
        questions("cat", ""),
        answered(("cat", -3.0), ("x", 1.0)),
        with_negative=True,
        window_logits=outputs.WindowLogits(windows, SIZES, logits),
    )
    outputs.write_predictions(str(tmp_path), made)
    assert outputs.read_sizes(str(tmp_path)) == SIZES
    found = outputs.read_logits(str(tmp_path), windows)
    np.testing.assert_array_equal(found, logits)
    other = dataclasses.replace(
        windows,
        features=dataclasses.replace(
            windows.features, ragged={"input_ids": np.ones(6)}
        ),
    )
    assert outputs.read_logits(str(tmp_path), other) is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x", b"\x93NUMPY"])
def test_damaged_logits_are_named(tmp_path, content, windows):
    path = tmp_path / "predict_logits.npz"
    path.write_bytes(content)
    for read in (
        outputs.read_sizes,
        lambda folder: outputs.read_logits(folder, windows),
    ):
        with pytest.raises(errors.InputError, match="npz: cannot be read: "):
            read(str(tmp_path))
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(errors.InputError, match="npz: cannot be read: "):
        outputs.read_sizes(str(tmp_path))


def test_questions_without_the_answer_that_they_should_have_are_named(caplog):
    found = questions("a", "", "b")
    bare = [
        dataclasses.replace(question, is_impossible=False)
        for question in found.questions
    ]
    for has_impossible, what in ((True, "as if there were"), (False, "not sc")):
        caplog.clear()
        given = dataclasses.replace(
            found, questions=bare, has_impossible=has_impossible
        )
        made = outputs.evaluate(
            given,
            answered(("a", 0.0), ("x", 0.0), ("b", 0.0)),
            with_negative=has_impossible,
        )
        assert "dev.json: 1 questions have no answer" in caplog.text
        assert what in caplog.text and "1: no answer" in caplog.text
        assert bool(made.values) is has_impossible
