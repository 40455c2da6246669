"""Proves which threshold applies, and what predictions are found to be.

python -m pytest tests/tasks/squad/squad_task_test.py
"""

import json
import re
import types

import pytest

from data.tokenization import plain_wordpiece, vocabulary
from foundation import config_flags, errors
from tasks.squad import settings
from tasks.squad.task import Squad
from weights import task_files

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "?", "cat", "a"]
SETTINGS = "question_answering.json"


@pytest.fixture
def make(tmp_path):
    """A function that makes the task of a command in tmp_path/out.

    It predicts questions that have these answers, "" for none; their words are
    "cat".
    """

    def task(*texts, threshold=None, has_key=True, **flags):
        qas = [
            {
                "id": str(number),
                "question": "Who?",
                "answers": [{"text": text, "answer_start": 0}] if text else [],
            }
            | ({"is_impossible": not text} if has_key else {})
            for number, text in enumerate(texts)
        ]
        paragraph = {"context": "cat a", "qas": qas}
        path = tmp_path / "dev.json"
        path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
        model = tmp_path / "model"
        model.mkdir(exist_ok=True)
        if threshold is not None:
            task_files.write_settings(
                str(model), task_files.SquadSettings(**threshold)
            )
        tokenizer = plain_wordpiece.PlainTokenizer(
            vocabulary.Vocabulary.from_tokens(WORDS)
        )
        given = {"do_predict": True, "version_2_with_negative": True}
        given |= {"output_dir": str(tmp_path / "out"), **flags}
        return Squad(
            config_flags.build(
                settings.SquadFlags, predict_file=str(path), **given
            ),
            types.SimpleNamespace(
                tokenizer=tokenizer,
                start=types.SimpleNamespace(check_segments=lambda features: 0),
                record=types.SimpleNamespace(directory=str(model)),
            ),
        )

    return task


def finish(task, *rows):
    """Returns what answers tell; rows are a text and its null odds."""
    lines = [
        json.dumps([odds, [text, 0.75, 0, 0, [0, 3]], ["", 0.25, 0, 0, None]])
        for text, odds in rows
    ]
    parts = {"answers": "\n".join(lines).encode(), "start": b"", "end": b""}
    (split,) = task.sets
    return task.finish(task.sets[split], parts.__getitem__)


def predictions(found):
    return [*json.loads(found.files["predictions.json"]).values()]


def test_the_best_threshold_scores_what_it_is_said_to(make):
    task = make("cat", "dog", "bird", "", "")
    rows = ("cat", -3.0), ("dog", -1.0), ("bird", 0.5), ("x", 2.0), ("x", -2.0)
    found = finish(task, *rows)
    # All that are right, and one of those that are wrong.
    assert found.values["null_score_diff_threshold"] == 0.5
    assert found.values["best_f1_thresh"] == 0.5
    assert found.values["score"] == found.values["best_f1"] == 80.0
    assert predictions(found) == ["cat", "dog", "bird", "", "x"]
    odds = json.loads(found.files["null_odds.json"])
    assert [*odds.values()] == [-3.0, -1.0, 0.5, 2.0, -2.0]
    assert json.loads(found.files[SETTINGS]) == {
        "version_2_with_negative": True,
        "null_score_diff_threshold": 0.5,
    }


@pytest.mark.parametrize("least", [-3.0, 0.0, 3.0])
def test_where_never_answering_is_best_nothing_is_answered(make, least):
    task = make("cat", "", "", "")
    found = finish(task, *(("dog", least + i) for i in range(4)))
    # As the official script says it, although 0 would answer something.
    assert found.values["best_f1_thresh"] == 0.0
    assert found.values["best_f1"] == found.values["f1"] == 75.0
    assert task.threshold <= 0.0
    assert set(predictions(found)) == {""}


STORED = {"version_2_with_negative": True, "null_score_diff_threshold": -1.5}


@pytest.mark.parametrize(
    ("texts", "flags", "threshold", "kept"),
    [
        (("cat", ""), {"null_score_diff_threshold": 5.0}, 5.0, -1.5),
        (("cat", ""), {}, -1.5, -1.5),
        (("cat", "dog"), {}, -1.5, -1.5),
        (("cat", ""), {"threshold": None}, -3.0, -3.0),
        (("cat", "dog"), {"threshold": None}, 0.0, None),
        (("", ""), {"threshold": None, "has_key": False}, 0.0, None),
    ],
    ids=["given", "stored", "one_kind", "found", "none", "unlabelled"],
)
def test_one_threshold_applies(make, texts, flags, threshold, kept, caplog):
    task = make(*texts, **({"threshold": STORED} | flags))
    with caplog.at_level("INFO", logger="absl"):
        found = finish(task, ("cat", -3.0), ("x", -1.0))
    assert task.threshold == threshold
    assert f"threshold of the null odds: {threshold:g}, " in caplog.text
    answers = [text if odds <= threshold else "" for text, odds in
               (("cat", -3.0), ("x", -1.0))]  # fmt: skip
    assert predictions(found) == answers
    stored = json.loads(found.files[SETTINGS])
    assert stored["null_score_diff_threshold"] == kept
    assert bool(found.values) == ("has_key" not in flags)


def test_the_version_is_that_of_the_model(make):
    task = make("cat", "", version_2_with_negative=None, threshold=STORED)
    assert task.with_negative
    with pytest.raises(errors.InputError, match="2_with_negative is needed"):
        make("cat", "", version_2_with_negative=False, threshold=STORED)


def test_answers_of_1_1_have_no_threshold(make, tmp_path):
    old = tmp_path / "out" / "null_odds.json"
    old.parent.mkdir()
    old.write_text("{}")
    task = make("cat", has_key=False, version_2_with_negative=False)
    found = finish(task, ("cat", 7.0))
    assert found.values == {"exact_match": 100.0, "f1": 100.0, "score": 100.0}
    assert predictions(found) == ["cat"]
    assert SETTINGS not in found.files
    assert not old.exists()


def test_a_set_without_answers_is_a_test_set(make, tmp_path):
    assert [*make("", has_key=False).sets] == ["test"]
    assert [*make("cat").sets] == ["dev"]
    path = tmp_path / "train.json"
    path.write_bytes((tmp_path / "dev.json").read_bytes())
    with pytest.raises(errors.InputError, match="no answers to compare runs"):
        make(
            "",
            has_key=False,
            do_train=True,
            train_file=str(path),
            eval_every_steps=1,
        )


def test_a_given_length_must_fit_the_questions_of_the_training(make):
    task = make("cat")
    flags = config_flags.replace_unchecked(task.flags, max_query_length=400)
    with pytest.raises(errors.InputError, match="--max_query_length=400"):
        Squad(flags, task.model)


def test_the_report_shows_right_and_wrong_answers(make):
    task = make("cat", "cat", "", "", null_score_diff_threshold=0.0)
    rows = ("cat", -3.0), ("dog", -2.0), ("cat", 9.0), ("cat", -1.0)
    found = finish(task, *rows)
    kinds, answers, mistakes = found.sections()
    assert kinds.title == "Answerable questions"
    counts = re.findall(r">(\d+)<", kinds.body)
    assert counts == ["2", "0", "1", "1"]
    assert '<mark class="good">cat</mark> a' in answers.body
    for text in ("Predicted: dog (probability 0.75, F1 0 %)", "Correct: cat"):
        assert text in mistakes.body
    shown = [f"question {i}" in mistakes.body for i in range(4)]
    assert shown == [False, True, False, True]


def test_targets_are_those_of_released_records(make):
    task = make("cat")
    question = task.sets["dev"].questions[0]
    blank = question._replace(id="blank", context="\u200b", span=(0, 1))
    wide = question._replace(id="wide", context="a \u200b", span=(2, 3))
    good = question._replace(id="good", span=(0, 3))
    none = question._replace(id="none", is_impossible=True)
    examples = [blank, wide, good, none]
    pairs = [(x, task.encode(x)) for x in examples]
    features = task.features(pairs, with_targets=True)
    dense = {name: x.ravel().tolist() for name, x in features.dense.items()}
    first = 1000000000
    assert dense == {
        "unique_ids": [first, first + 1, first + 2],
        "start_positions": [0, 4, 0],
        "end_positions": [0, 4, 0],
        "is_impossible": [0, 0, 1],
    }
    names = [name for name in task.records("train").names if name in dense]
    assert names == list(dense)


def test_a_set_without_a_token_is_not_trained_on(make):
    features = make("cat").features([], with_targets=False)
    with pytest.raises(errors.InputError, match="no paragraph has a token"):
        make("cat").epoch_size(features)
