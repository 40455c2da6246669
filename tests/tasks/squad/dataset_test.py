"""Proves how SQuAD is read, and that its answers are found in any script.

python -m pytest tests/tasks/squad/dataset_test.py
"""

import bz2
import dataclasses
import gzip
import json
import re

import pyarrow as pa
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
        ("in\u00a0New\u00a0York.", "New\u00a0York", 3, "New\u00a0York"),
        ("\u4e1c\u4eac\u662f\u65e5\u672c", "\u65e5\u672c", 3, "\u65e5\u672c"),
        # Another spacing than the text has.
        ("in New \n York.", "New York", 3, "New \n York"),
        ("in New\u00a0York.", "New York", 3, "New\u00a0York"),
        # Not at its position, but within the words that it touches.
        ("was (1895-1943).", "1895", 4, "1895"),
        ("was (1895-1943).", "1943", 7, "1943"),
    ],
    ids=[
        "marks",
        "emoji",
        "no_break",
        "chinese",
        "spacing",
        "other_space",
        "too_early",
        "same_word",
    ],
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
        qa("good", [("text", 5)]),
        qa("several", [("some", 0), ("text", 5)]),
        *(qa(f"bad{i}", [("nowhere", 5)]) for i in range(7)),
    )
    found = dataset.for_training(dataset.read(path))
    assert [q.id for q in found.questions] == ["good", "several"]
    assert [q.span for q in found.questions] == [(5, 9), (0, 4)]
    assert "7 questions are left out" in caplog.text
    assert "bad0: 'nowhere' is not at character 5" in caplog.text
    assert "bad5" not in caplog.text
    assert "1 questions have several answers" in caplog.text
    dataset.for_training(dataset.read(path), list_all=True)
    assert "bad6" in caplog.text


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_several_files_compressed_or_not_are_one_set(
    tmp_path, ending, compress
):
    first = write(tmp_path / "a.json", qa("1", [("some", 0)]))
    second = write(
        tmp_path / "b.json", qa("2", [("text", 5)]), context="z text"
    )
    packed = compress((tmp_path / "b.json").read_bytes())
    (tmp_path / f"b.json{ending}").write_bytes(packed)
    (tmp_path / "b.json").unlink()
    found = dataset.read(f"{first},{second}")
    assert found.contexts == ["some text", "z text"]
    assert [q.paragraph for q in found.questions] == [0, 1]
    assert found.paths == [first, f"{second}{ending}"]
    assert dataset.read(f"{first},").paths == [first]
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
    dataset.check_version(old, "train_file", with_negative=False)
    dataset.check_version(
        new, "train_file", with_negative=True, is_training=True
    )
    dataset.check_version(old, "predict_file", with_negative=True)
    with pytest.raises(errors.InputError, match="question '2' has no answer"):
        dataset.check_version(new, "train_file", with_negative=False)
    with pytest.raises(errors.InputError, match="has the key is_impossible"):
        dataset.check_version(
            old, "train_file", with_negative=True, is_training=True
        )
    with pytest.raises(errors.InputError, match="^the model was trained with"):
        dataset.check_version(
            old,
            "train_file",
            with_negative=True,
            is_training=True,
            is_given=False,
        )
    assert [q.span for q in dataset.for_training(new).questions] == [
        (0, 4),
        None,
    ]


def test_an_answer_that_says_no_position_is_scored_and_not_learned(
    tmp_path, caplog
):
    made = qa("none") | {"answers": [{"text": "text"}]}
    path = write(tmp_path / "a.json", made, qa("good", [("text", 5)]))
    found = dataset.read(path)
    assert found.questions[0].answers == [dataset.Answer("text", None)]
    assert found.has_answers
    dataset.for_training(found)
    assert "none: 'text' has no answer_start" in caplog.text


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
        for i, (texts, starts) in enumerate([(["text"], [5]), ([], [])])
    ]
    path = tmp_path / ("a.jsonl" if form == "jsonl" else "a.json")
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps({"data": rows} if form == "data" else rows))
    found = dataset.read(str(path))
    assert found.contexts == ["some text"] * 2
    assert [x.answers for x in found.questions] == [
        [dataset.Answer("text", 5)],
        [],
    ]
    assert [x.is_impossible for x in found.questions] == [False, True]
    assert found.has_impossible
    rows[0]["answers"]["answer_start"].append(1)
    path.write_text(json.dumps(rows[0] if form == "jsonl" else rows))
    message = r"row 1, question 1 \(id 0\): 1 text\(s\) of answers"
    with pytest.raises(errors.InputError, match=message):
        dataset.read(str(path))


def test_rows_of_a_test_set_without_answers_are_not_unanswerable(tmp_path):
    answers = {"text": [], "answer_start": []}
    row = {"id": "a", "context": "c", "question": "?", "answers": answers}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row, row | {"id": "b"}]))
    found = dataset.read(str(path))
    assert not found.has_impossible and not found.has_answers
    assert not any(question.is_impossible for question in found.questions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [\n{,', ":2: malformed JSON: .* at column 2"),
        ("[]", "contains no questions"),
        ('{"data": {}}', "has no list 'data'"),
        ('{"data": [{}]}', "article 1: has no list 'paragraphs'"),
        (
            '{"data": [{"paragraphs": [{"qas": []}]}]}',
            "article 1, paragraph 1: has no text 'context'",
        ),
        ('{"data": []}', "contains no questions"),
    ],
    ids=["json", "list", "object", "paragraphs", "context", "empty"],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(errors.InputError, match=message):
        dataset.read(str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("qas", "message"),
    [
        ([{"question": "?"}], "question 1: has no text 'id'"),
        ([{"id": "x"}], r"question 1 \(id x\): has no text 'question'"),
        ([qa("x"), qa("x")], "question 2: id 'x' occurs a second time"),
        ([qa("x", [(1, 2)])], r"\(id x\): has no text 'text'"),
        ([qa("x", [("a", "b")])], r"\(id x\): has no number 'answer_start'"),
        ([qa("x", [("a\ud800", 1)])], "text contains '.ud800' at character 1"),
        ([qa("\udc00")], "question 1: id contains '.udc00'"),
        ([qa("x", is_impossible=0)], "is_impossible must be true or false"),
    ],
    ids=[
        "id",
        "question",
        "twice",
        "text",
        "start",
        "half",
        "half_id",
        "impossible",
    ],
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


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"data":\n "\xff"}')
    with pytest.raises(errors.InputError, match="a.json:2: not UTF-8"):
        dataset.read(str(tmp_path / "a.json"))


def test_ids_may_be_numbers(tmp_path):
    path = tmp_path / "a.json"
    qa = {"question": "?", "answers": [{"text": "a", "answer_start": 0}]}
    qas = [{"id": 43211, **qa}, {"id": "x", **qa}]
    paragraph = {"context": "a b", "qas": qas}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    found = dataset.read(str(path))
    assert [question.id for question in found.questions] == ["43211", "x"]


@pytest.mark.parametrize(
    ("context", "text", "start", "reason"),
    [
        ("\U0001f600" * 9 + " Anna or", "Anna", 19, "count UTF-16 code units"),
        (
            "\u00e9\u00e9\u00e9\u00e9\u00e9 or Anna",
            "Anna",
            14,
            "count UTF-8 bytes",
        ),
        ("the cafe\u0301", "caf\u00e9", 4, "differ in Unicode normalization"),
        ("or then Anna", "Anna", 0, "'Anna' is not at character 0$"),
        ("or Anna", "Anna", -1, "'Anna' is not at character -1$"),
        ("Anna or", "Anna", -1, "'Anna' is not at character -1$"),
    ],
    ids=[
        *("utf16", "utf8", "normalization", "elsewhere", "negative"),
        "negative_at_start",
    ],
)
def test_why_an_answer_is_not_found_is_explained(
    context, text, start, reason, caplog
):
    made = dataset.Question(
        id="1",
        text="?",
        paragraph=0,
        answers=[dataset.Answer(text, start)],
    )
    good = dataclasses.replace(made, answers=[dataset.Answer("or", 0)])
    good = dataclasses.replace(good, id="2", paragraph=1)
    dataset.for_training(
        dataset.QuestionSet(
            path="a.json", contexts=[context, "or"], questions=[made, good]
        )
    )
    assert re.search(f"1: .*{reason}", caplog.text, re.MULTILINE)


def test_what_is_certainly_a_mistake_is_named(tmp_path, caplog):
    path = write(
        tmp_path / "a.json",
        qa("good", [("some", 0)]),
        qa("bare") | {"question": " "},
        qa("both", [("text", 5)], is_impossible=True),
    )
    dataset.read(path)
    assert "a.json: 1 questions are empty: bare: " in caplog.text
    assert (
        "a.json: 1 questions have answers, but is_impossible is true: both"
        in caplog.text
    )
    expected = "a.json: 1 questions have no answers, although is_impossible is"
    assert expected in caplog.text
    caplog.clear()
    path = write(tmp_path / "b.json", qa("1"), qa("2"), context="\r\n ")
    dataset.read(path)
    assert "have no answers" not in caplog.text
    assert "b.json: 2 questions are about an empty paragraph" in caplog.text


def test_answers_that_cannot_be_predicted_are_named(tmp_path, caplog):
    path = write(
        tmp_path / "a.json",
        qa("good", [("nowhere", 0), ("text", 5)]),
        qa("bad", [("nowhere", 0)]),
        qa("accent", [("caf\u00e9", 0)]),
        context="some text in a cafe\u0301",
    )
    dataset.warn_of_other_answers(dataset.read(path))
    assert (
        "2 questions have no answer that occurs in their paragraph: "
        "bad: 'nowhere'; accent: 'caf\u00e9': text and answer differ in "
        "Unicode normalization"
    ) in caplog.text


def test_an_answer_without_text_is_none(tmp_path, caplog):
    rows = [qa("good", [("some", 0)]), qa("blank", [("", -1)])]
    context = "some text"
    path = write(tmp_path / "a.json", *rows, context=context)
    dataset.warn_of_other_answers(dataset.read(path))
    assert "1 questions have no answer that occurs" in caplog.text
    assert "blank: ''" in caplog.text
    caplog.clear()
    rows = [row | {"is_impossible": False} for row in rows]
    dataset.read(write(tmp_path / "b.json", *rows, context=context))
    expected = "1 questions have no answers, although is_impossible is not true"
    assert expected in caplog.text


def test_true_is_no_position(tmp_path):
    path = write(tmp_path / "a.json", qa("x", [("some", True)]))
    with pytest.raises(errors.InputError, match="has no number 'answer_start'"):
        dataset.read(path)
