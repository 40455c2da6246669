"""Proves which threshold answers are given by, and which files they leave.

python -m pytest tests/tasks/squad/squad_outputs_test.py
"""

import dataclasses

import pytest

from tasks.squad import dataset, outputs, prompt
from tasks.squad.decoding import Answer, AnswerList


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


def test_a_threshold_is_found_by_labelled_questions_of_both_kinds_only(
    caplog,
):
    given = answered(("cat", -3.0), ("x", -1.0))
    with caplog.at_level("INFO", logger="absl"):
        assert evaluate(questions("cat", ""), given).threshold_found
    assert caplog.messages == ["threshold: -3, the best on dev.json"]
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
    with caplog.at_level("INFO", logger="absl"):
        made = outputs.evaluate(
            found,
            answered(("cat", 1.0), ("dog", -1.0)),
            with_negative=True,
            default_threshold=0.5,
        )
    assert (made.threshold, made.threshold_found) == (0.5, False)
    assert list(made.predictions.values()) == ["", "dog"]
    assert scored is None or scored in made.values
    (level,) = (
        record.levelname
        for record in caplog.records
        if "an answer; 0.5 is applied" in record.getMessage()
    )
    assert level == ("INFO" if scored is None else "WARNING")


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


def test_errors_are_analyzed_by_groups_of_questions():
    context = "Anna met Bert in the old town of Bern, " + "w " * 300
    asked = [
        ("How many?", "Anna", "Anna", (0, 4), 0.9),
        ("who, and when?", "Bert", "met Bert", (5, 13), 0.8),
        ("Where?", "the old town of Bern", "Bern", (33, 37), 0.7),
        ("Name it.", "Anna", "w", (39, 40), 0.99),
    ]
    found = dataset.QuestionSet(
        path="dev.json",
        contexts=[context, "x"],
        questions=[
            dataset.Question(
                id=str(i),
                text=text,
                paragraph=0,
                answers=[dataset.Answer(answer, context.index(answer))],
            )
            for i, (text, answer, *_) in enumerate(asked)
        ],
    )
    made = outputs.evaluate(
        found,
        [
            AnswerList([Answer(text, probability, 1.0, 1.0, span)], 0.0)
            for _, _, text, span, probability in asked
        ],
        with_negative=False,
    )
    analysis = outputs.analyze(made)
    types = analysis.groups["By type of question"]
    assert [(g.name, g.count) for g in types] == [
        ("how many", 1),
        ("other", 1),
        ("where", 1),
        ("who", 1),
    ]
    assert types[0].exact == types[0].f1 == 100.0
    assert types[3].exact == 0 and types[3].f1 == pytest.approx(200 / 3)
    lengths = analysis.groups["By length of answer"]
    assert [(g.name, g.count) for g in lengths] == [
        ("1", 3),
        ("4\u20135", 1),
    ]
    (paragraphs,) = analysis.groups["By length of paragraph"]
    assert (paragraphs.name, paragraphs.count) == ("309", 4)
    worst = analysis.mistakes
    assert [m.question.id for m in worst] == ["3", "2", "1"]
    assert worst[0].correct == ["Anna"]
    before, answer, after, _ = worst[1].excerpt
    assert before + answer == context[:37] and answer == "Bern"
    assert after.startswith(", w w ") and after.endswith("w ...")


def test_the_text_around_an_answer_is_cut():
    context = "0123456789"
    assert prompt.excerpt(context, (4, 6), 2) == ("...23", "45", "67...", -1)
    assert prompt.excerpt(context, (0, 1), 9) == ("", "0", "123456789", 0)
    assert prompt.excerpt(context, None, 3) == ("012", "", "345...", 0)


def test_the_correct_answer_is_marked_where_it_is():
    context = "Anna saw Bert and Anna."
    question = dataset.Question(
        id="1", text="Who?", paragraph=0, answers=[dataset.Answer("Anna", 18)]
    )
    found = dataset.QuestionSet(
        path="dev.json", contexts=[context], questions=[question]
    )
    wrong = AnswerList([Answer("Bert", 0.5, 1.0, 1.0, (9, 13))], 0.0)
    made = outputs.evaluate(found, [wrong], with_negative=False)
    body = outputs.sections(made)[-1].body
    assert "Anna saw <mark" in body
    assert "and <mark" in body
