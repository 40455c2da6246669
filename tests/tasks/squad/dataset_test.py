"""Proves how SQuAD is read, and that its answers are found in any script.

python -m pytest tests/tasks/squad/dataset_test.py
"""

import gzip
import json

import pytest

from foundation import errors
from tasks.squad import dataset


def qa(number="1", answers=(), **more):
    answers = [{"text": t, "answer_start": s} for t, s in answers]
    return {"id": number, "question": "?", "answers": answers, **more}


def write(path, *qas, context="some text"):
    paragraph = {"context": context, "qas": list(qas)}
    values = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    path.write_text(json.dumps(values))
    return str(path)


@pytest.mark.parametrize(
    ("context", "text", "start", "found"),
    [
        ("a cafe\u0301 here", "cafe\u0301", 2, "cafe\u0301"),
        ("\U0001f600 b \U0001f600!", "\U0001f600", 4, "\U0001f600"),
        ("\u4e1c\u4eac\u662f\u65e5\u672c", "\u65e5\u672c", 3, "\u65e5\u672c"),
        # Another spacing than the text has.
        ("in New \n York.", "New York", 3, "New \n York"),
        ("in New\u00a0York.", "New York", 3, "New\u00a0York"),
        # Not at its position, but within the words that it touches.
        ("was (1895-1943).", "1895", 4, "1895"),
        ("was (1895-1943).", "1943", 7, "1943"),
    ],
    ids=range(7),
)
def test_answers_are_found_as_they_are_written(context, text, start, found):
    span = dataset.find_answer(context, dataset.Answer(text, start))
    assert context[slice(*span)] == found


@pytest.mark.parametrize(
    ("text", "start"),
    [("other", 0), ("text", 0), ("text", 99), ("text", -1), (" ", 4)],
    ids=["absent", "elsewhere", "behind", "before", "blank"],
)
def test_an_answer_that_is_not_at_its_position_is_not_found(text, start):
    assert dataset.find_answer("some text", dataset.Answer(text, start)) is None


def test_questions_without_their_answer_are_left_out_by_name(tmp_path, caplog):
    path = write(
        tmp_path / "a.json",
        qa("good", [("text", 5.0)]),
        qa("several", [("some", 0), ("text", 5)]),
        qa("bare", [("some", None)]),
        *(qa(f"bad{i}", [("nowhere", 5)]) for i in range(7)),
    )
    found = dataset.for_training(dataset.read(path))
    assert [q.id for q in found.questions] == ["good", "several"]
    assert [q.span for q in found.questions] == [(5, 9), (0, 4)]
    assert "8 questions are left out" in caplog.text
    assert "bare: 'some' has no answer_start" in caplog.text
    assert "bad0: 'nowhere' is not at character 5, where there is 'text'" in (
        caplog.text
    )
    assert "bad5" not in caplog.text
    assert "1 questions have several answers" in caplog.text
    dataset.for_training(dataset.read(path), list_all=True)
    assert "bad6" in caplog.text


def test_several_files_compressed_or_not_are_one_set(tmp_path):
    first = write(tmp_path / "a.json", qa("1", [("some", 0)]))
    second = write(tmp_path / "b.json", qa(2, [("text", 2)]), context="z text")
    packed = gzip.compress((tmp_path / "b.json").read_bytes())
    (tmp_path / "b.json.gz").write_bytes(packed)
    (tmp_path / "b.json").unlink()
    found = dataset.read(f"{first},{second},")
    assert found.path == f"{first},{second}"
    assert [(q.id, q.context) for q in found.questions] == [
        ("1", "some text"),
        ("2", "z text"),
    ]
    with pytest.raises(errors.InputError, match="' , ' names no file"):
        dataset.read(" , ")


def test_only_files_of_2_0_say_what_is_impossible(tmp_path):
    old = dataset.read(write(tmp_path / "a.json", qa("1", [("some", 0)])))
    new = dataset.read(
        write(
            tmp_path / "b.json",
            qa("1", [("some", 0)], is_impossible=False),
            qa("2", is_impossible=True),
        )
    )
    assert (old.has_impossible, new.has_impossible) == (False, True)
    assert (old.has_both_kinds, new.has_both_kinds) == (False, True)
    assert [q.label for q in new.questions] == ["answer", "no answer"]
    flags = {"with_negative": True, "is_training": True}
    dataset.check_version(old, "train_file", with_negative=False)
    dataset.check_version(new, "train_file", **flags)
    dataset.check_version(old, "predict_file", with_negative=True)
    spans = [q.span for q in dataset.for_training(new).questions]
    assert spans == [(0, 4), None]


@pytest.mark.parametrize("form", ["data", "list", "jsonl"])
def test_the_rows_of_hugging_faces_datasets_are_read(tmp_path, form):
    rows = [
        {
            "id": str(i),
            "title": "t",
            "context": "some text",
            "question": "?",
            "answers": {"text": texts, "answer_start": starts},
        }
        for i, (texts, starts) in enumerate([(["text"], [5.0]), ([], [])])
    ]
    path = tmp_path / ("a.jsonl" if form == "jsonl" else "a.json")

    def save():
        text = json.dumps({"data": rows} if form == "data" else rows, indent=1)
        if form == "jsonl":
            text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text)

    save()
    found = dataset.read(str(path))
    assert [x.context for x in found.questions] == ["some text"] * 2
    assert [x.answers for x in found.questions] == [
        [dataset.Answer("text", 5)],
        [],
    ]
    assert [x.is_impossible for x in found.questions] == [None, True]
    assert found.has_impossible
    rows[0]["answers"]["answer_start"].append(1)
    save()
    message = r"object 1 of its data: 1 text\(s\) of answers, but 2 of"
    with pytest.raises(errors.InputError, match=message):
        dataset.read(str(path))


def test_rows_of_a_test_set_without_answers_are_not_unanswerable(tmp_path):
    answers = {"text": [], "answer_start": []}
    row = {"id": "a", "context": "c", "question": "?", "answers": answers}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row, row | {"id": "b", "answers": None}]))
    found = dataset.read(str(path))
    assert not found.has_impossible and not found.has_answers
    assert [question.label for question in found.questions] == [None, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [\n{,', "a.json:2: not JSON"),
        ("[]", "contains no questions"),
        ('{"data": [{}]}', "object 1 of its data: .* field paragraphs"),
        (
            '[{"paragraphs": [{"qas": []}]}]',
            r"data: paragraphs\[0\]: .*context",
        ),
    ],
    ids=["json", "empty", "paragraphs", "context"],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(errors.InputError, match=message):
        dataset.read(str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("qas", "message"),
    [
        ([{"question": "?"}], r"paragraphs\[0\].qas\[0\]: .* field id"),
        ([qa("x"), qa("x")], "question 'x': the id occurs a second time"),
        ([qa("x", [("a", "b")])], r"answers\[0\].answer_start: .* got str"),
        ([qa("x", [("a", True)])], r"answers\[0\].answer_start: .* got bool"),
        ([qa("x", [("a\ud800", 1)])], "object 1 of its data: .* Unicode"),
        ([qa("x", is_impossible=0)], r"Expected bool.*, got int"),
    ],
    ids=["id", "twice", "start", "truth", "half", "impossible"],
)
def test_what_is_wrong_with_a_question_is_said(tmp_path, qas, message):
    path = write(tmp_path / "a.json", *qas)
    with pytest.raises(errors.InputError, match=message):
        dataset.read(path)


def test_training_needs_answers(tmp_path):
    path = write(tmp_path / "a.json", qa("x"))
    with pytest.raises(errors.InputError, match="question 'x' has no answer"):
        dataset.for_training(dataset.read(path))
    path = write(tmp_path / "a.json", qa("x", [("nowhere", 0)]))
    with pytest.raises(errors.InputError, match="no answer is found"):
        dataset.for_training(dataset.read(path))
