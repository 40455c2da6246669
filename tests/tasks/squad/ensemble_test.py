"""Proves the arithmetic of ensembles on numbers counted by hand.

python -m pytest tests/tasks/squad/ensemble_test.py
"""

import json

import numpy as np
import pytest

from foundation import errors
from tasks.squad import dataset, ensemble, settings
from tasks.squad.decoding import NO_ANSWER_ODDS
from tasks.squad.settings import AnswerRules
from weights import task_files

SIZES = settings.WindowSizes(
    max_seq_length=384, doc_stride=128, max_query_length=64
)
NEW = AnswerRules(version_2_with_negative=True)
QUESTION = dataset.Question(id="1", text="?", paragraph=0)
FOUND = dataset.QuestionSet(path="", contexts=["a b"], questions=[QUESTION])


def entry(text, probability, start, end):
    return {
        "text": text,
        "probability": probability,
        "start_logit": start,
        "end_logit": end,
    }


@pytest.fixture
def leave(tmp_path):
    """Writes what a run leaves: its list, and its odds of no answer."""

    def write(name, entries, odds=None, number="1"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "nbest_predictions.json"
        path.write_text(json.dumps({number: entries}))
        if odds is not None:
            path = tmp_path / name / "null_odds.json"
            path.write_text(json.dumps({number: odds}))
        return str(tmp_path / name)

    return write


def test_a_texts_probability_is_the_mean_over_all_runs(leave):
    runs = [
        leave("x", [entry("a", 0.7, 4.0, 2.0), entry("b", 0.3, 1.0, 1.0)]),
        leave("y", [entry("b", 0.9, 3.0, 2.0), entry("c", 0.1, 0.0, 0.0)]),
    ]
    (answers,) = ensemble.combine_lists(runs, FOUND, AnswerRules())
    rows = [tuple(entry)[:4] for entry in answers.entries]
    assert rows == [
        ("b", pytest.approx(0.6), 2.0, 1.5),
        ("a", pytest.approx(0.35), 4.0, 2.0),
        ("c", pytest.approx(0.05), 0.0, 0.0),
    ]
    assert answers.text(None) == "b"
    (answers,) = ensemble.combine_lists(runs, FOUND, AnswerRules(n_best_size=1))
    assert [e.text for e in answers.entries] == ["b"]


def test_no_answer_stays_in_a_list_that_is_cut(leave):
    rows = [entry("a", 0.8, 1, 1), entry("", 0.2, 0, 0)]
    runs = [leave("x", rows, odds=-2.0), leave("y", rows, odds=1.0)]
    rules = AnswerRules(n_best_size=1, version_2_with_negative=True)
    (answers,) = ensemble.combine_lists(runs, FOUND, rules)
    assert [e.text for e in answers.entries] == ["a", ""]
    assert answers.null_odds == -0.5


def test_lists_of_2_0_are_lists_of_1_1_without_no_answer(leave):
    nothing = entry("", 0.9, 9.0, 9.0)
    rows = [nothing, entry("a", 0.06, 4.0, 2.0), entry("b", 0.04, 1.0, 1.0)]
    old = [entry("b", 0.7, 3.0, 2.0), entry("c", 0.3, 0.0, 0.0)]
    runs = [leave("new", rows, odds=3.0), leave("old", old)]
    runs.append(leave("silent", [nothing], odds=9.0))
    (answers,) = ensemble.combine_lists(runs, FOUND, AnswerRules())
    rows = [tuple(entry)[:2] for entry in answers.entries]
    assert rows == [
        ("b", pytest.approx((0.4 + 0.7) / 2)),
        ("a", pytest.approx(0.6 / 2)),
        ("c", pytest.approx(0.3 / 2)),
    ]
    # As released, where nothing is left.
    (answers,) = ensemble.combine_lists(runs[2:], FOUND, AnswerRules())
    assert [tuple(e)[:2] for e in answers.entries] == [("empty", 1.0)]
    # Where "no answer" has it all, the order of the others is kept.
    sure = [
        entry("", 1.0, 900, 0),
        entry("x", 0.0, 1, 1),
        entry("y", 0.0, 0, 0),
    ]
    run = leave("sure", sure, odds=900.0)
    (answers,) = ensemble.combine_lists([run], FOUND, AnswerRules())
    assert [e.text for e in answers.entries] == ["x", "y"]


def test_a_list_of_1_1_that_says_nothing_has_no_voice(leave):
    silent = leave("x", [entry("empty", 1.0, 0.0, 0.0)])
    rows = [entry("a", 0.9, 2.0, 1.0), entry("empty", 0.1, 0.0, 0.0)]
    runs = [silent, leave("y", rows)]
    (answers,) = ensemble.combine_lists(runs, FOUND, AnswerRules())
    assert [e.probability for e in answers.entries] == [0.9, 0.1]
    (answers,) = ensemble.combine_lists([silent], FOUND, AnswerRules())
    assert [e.text for e in answers.entries] == ["empty"]


def test_a_run_with_nothing_else_to_say_has_one_voice():
    none = NO_ANSWER_ODDS
    assert ensemble.mean_odds([-4.0, 1.0, 6.0]) == 1.0
    assert ensemble.mean_odds([-4.0, none, -1.0]) == -2.0
    assert ensemble.mean_odds([none, none]) == none


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["a"], "entry 1 lacks text or one of the numbers probability, st"),
        ([entry("a", 1, 1, 1), {"text": "b"}], "entry 2 lacks"),
        ([entry(None, 1, 1, 1)], "entry 1 lacks"),
        ([entry("a", "1", 1, 1)], "entry 1 lacks"),
        ([], "the list of question '1' is empty"),
        ("a", "value of '1' must be a list"),
    ],
    ids=["kind", "names", "text", "number", "empty", "list"],
)
def test_a_list_of_another_form_is_named(leave, entries, message):
    with pytest.raises(errors.InputError, match=message):
        list(
            ensemble.combine_lists([leave("x", entries)], FOUND, AnswerRules())
        )


def test_a_run_of_other_questions_is_named(leave):
    run = leave("x", [entry("a", 1, 1, 1)], number="2")
    with pytest.raises(errors.InputError, match="x has no answer to question"):
        list(ensemble.combine_lists([run], FOUND, AnswerRules()))


def test_a_run_tells_of_itself(leave, tmp_path, caplog):
    rows = [entry("a", 1, 1, 1)]
    old, released = leave("old", rows), leave("released", rows, odds=1.0)
    ours = leave("ours", rows, odds=1.0)
    stored = {"max_seq_length": 32, "doc_stride": 8, "max_query_length": 4}
    path = tmp_path / "ours" / "run_config.json"
    path.write_text(json.dumps({"other": 1, **stored}))
    task_files.write_settings(
        ours,
        task_files.SquadSettings(
            version_2_with_negative=True, null_score_diff_threshold=-1.0
        ),
    )
    members = ensemble.open_members([old, released, ours], sizes=SIZES)
    assert [m.with_negative for m in members] == [False, True, True]
    assert [m.threshold for m in members] == [None, None, -1.0]
    assert [m.sizes for m in members] == [
        SIZES,
        SIZES,
        settings.WindowSizes(**stored),
    ]
    assert "old/run_config.json lacks sizes of windows" in caplog.text
    # What is written beside the logits is surer.
    own = {"max_seq_length": 48, "doc_stride": 16, "max_query_length": 8}
    np.savez(tmp_path / "ours" / "predict_logits.npz", **own)
    (member,) = ensemble.open_members([ours], sizes=SIZES)
    assert member.sizes == settings.WindowSizes(**own)
    np.savez(tmp_path / "ours" / "predict_logits.npz", start=[0.0])
    (member,) = ensemble.open_members([ours], sizes=SIZES)
    assert member.sizes == settings.WindowSizes(**stored)
