"""Proves that scores are those of SQuAD's official scripts.

python -m pytest tests/tasks/squad/squad_metrics_test.py
"""

import functools
import json
import subprocess
import sys

import pytest

from foundation import errors
from tasks.squad import dataset, metrics


def questions(*rows, impossible=None):
    """Rows are (id, answers)."""
    made = [
        dataset.Question(
            where="f",
            id=number,
            text="?",
            context="",
            answers=[dataset.Answer(text, 0) for text in answers],
            is_impossible=not answers if impossible else None,
        )
        for number, answers in rows
    ]
    return dataset.QuestionSet.of("f", made)


def test_case_marks_articles_and_spacing_do_not_count():
    assert metrics.normalize(" The  U.S.A. and an  Ant!") == "usa and ant"
    assert metrics.normalize("\u00abA\u00bb theater") == "\u00ab \u00bb theater"


def test_f1_counts_words_as_often_as_they_occur():
    for empty_matches in (False, True):
        score = functools.partial(metrics.f1, empty_matches=empty_matches)
        assert score("a cat cat sat", "the cat mat") == pytest.approx(
            2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)
        )
        assert score("", "cat") == 0.0
        assert score("cat", ".") == 0.0


def test_nothing_equals_nothing_in_2_0_only():
    """Three questions of dev-v1.1.json have the answer "."."""
    assert metrics.f1("the", "a", empty_matches=True) == 1.0
    assert metrics.f1("the", "a", empty_matches=False) == 0.0
    old = questions(("1", [".", "cat"]), ("2", ["cat"]))
    given = {"1": ".", "2": "cat"}
    assert metrics.evaluate(old, given) == {
        "exact_match": 100.0,
        "f1": 50.0,
    }
    # The script of 2.0 drops such an answer and expects none instead.
    new = questions(("1", ["."]), ("2", ["cat"]), impossible=True)
    assert metrics.evaluate(new, given)["f1"] == 100.0


def test_a_question_without_a_prediction_scores_nothing(caplog):
    found = questions(("1", ["cat"]), ("2", ["."]), ("3", ["x"]))
    values = metrics.evaluate(found, {"1": "cat", "4": "other"})
    assert values == {"exact_match": 100.0 / 3, "f1": 100.0 / 3}
    assert "2 questions have no prediction and score 0, e.g. 2" in caplog.text


def test_scores_of_2_0_by_whether_there_is_an_answer():
    found = questions(
        ("1", ["cat"]), ("2", []), ("3", []), ("4", ["x"]), impossible=True
    )
    given = {"1": "cat", "2": "", "3": "no", "4": ""}
    values = metrics.evaluate(found, given)
    assert values == {
        "exact": 50.0,
        "f1": 50.0,
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": 50.0,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }


def test_of_equal_odds_the_order_of_their_file_decides():
    found = questions(("has", ["cat"]), ("no", []), impossible=True)
    given = {"has": "cat", "no": "dog"}
    scores = {
        order: metrics.best_thresholds(found, given, dict.fromkeys(order, 0.0))[
            "exact"
        ].score
        for order in (("has", "no"), ("no", "has"))
    }
    assert scores == {("has", "no"): 100.0, ("no", "has"): 50.0}


def test_the_best_threshold_is_that_of_trying_all():
    found = questions(
        *((f"has{i}", ["cat"]) for i in range(6)),
        *((f"no{i}", []) for i in range(5)),
        impossible=True,
    )
    given = {q.id: "cat" for q in found.questions}
    given |= {"has3": "dog", "has5": "big cat"}
    odds = {
        q.id: value
        for q, value in zip(
            found.questions,
            [-5, -4, 1, -2, 3, 0.5, -3, 2, 4, 0, 6],
            strict=True,
        )
    }
    best = metrics.best_thresholds(found, given, odds)
    for name, key in (("exact", "exact"), ("f1", "f1")):
        tried = {}
        for threshold in [-99, *odds.values()]:
            kept = {i: "" if odds[i] > threshold else given[i] for i in given}
            values = metrics.evaluate(found, kept)
            tried[threshold] = values[key]
        assert best[name].score == pytest.approx(max(tried.values()))
        assert tried[best[name].threshold] == pytest.approx(best[name].score)


def test_the_command_prints_one_json_object(tmp_path, repository, capsys):
    qas = [
        {"id": "1", "question": "?", "answers": [], "is_impossible": True},
        {
            "id": "2",
            "question": "?",
            "answers": [{"text": "cat", "answer_start": 2}],
            "is_impossible": False,
        },
    ]
    paragraph = {"context": "a cat", "qas": qas}
    (tmp_path / "d.json").write_text(
        json.dumps({"data": [{"paragraphs": [paragraph]}]})
    )
    (tmp_path / "p.json").write_text('{"1": "x", "2": "cat"}')
    (tmp_path / "o.json").write_text('{"1": 1.5, "2": -1}')
    files = [str(tmp_path / f"{name}.json") for name in "dpo"]
    result = subprocess.run(
        [sys.executable, "-m", "tasks.squad.metrics", *files],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    values = json.loads(result.stdout)
    # The official script's, whose --na-prob-thresh is 1 unless it is given.
    assert values["exact"] == values["best_exact"] == 100.0
    assert values["best_exact_thresh"] == -1
    for given, exact in (([files[2], "1.5"], 50.0), ([], 50.0)):
        assert metrics.main([*files[:2], *given]) == 0
        assert json.loads(capsys.readouterr().out)["exact"] == exact


def test_above_the_threshold_there_is_no_answer():
    """As the official script's apply_no_ans_threshold has it."""
    found = questions(
        ("1", ["cat"]), ("2", []), ("3", []), ("4", ["."]), impossible=True
    )
    given = {"1": "cat", "2": "x", "4": ""}
    values = metrics.evaluate(found, given)
    assert (values["HasAns_f1"], values["NoAns_f1"]) == (100.0, 0.0)
    odds = {"1": 1.0, "2": 1.5, "3": 9.0, "4": 2.0}
    for threshold, has_answer, none in (
        (1.0, 50.0, 50.0),
        (1.5, 50.0, 0.0),
        (-5, 0.0, 50.0),
    ):
        values = metrics.evaluate(
            found, given, null_odds=odds, threshold=threshold
        )
        assert values["HasAns_exact"] == values["HasAns_f1"] == has_answer
        assert values["NoAns_exact"] == values["NoAns_f1"] == none
    with pytest.raises(errors.InputError, match="no null odds of question '4'"):
        metrics.evaluate(found, given, null_odds={"1": 0.0, "2": 0.0})
