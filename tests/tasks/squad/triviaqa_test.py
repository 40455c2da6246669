"""Proves that TriviaQA's files become SQuAD's, as the paper used them.

python -m pytest tests/tasks/squad/triviaqa_test.py
"""

import json

import pytest

from foundation import config_flags, errors
from tasks.squad import dataset, triviaqa


def question(number, pages, value, aliases=()):
    return {
        "QuestionId": f"tc_{number}",
        "Question": f"Question {number}?",
        "EntityPages": [{"Filename": page} for page in pages],
        "Answer": {
            "Value": value,
            "Aliases": list(aliases),
            "NormalizedAliases": [alias.lower() for alias in aliases],
        },
    }


@pytest.fixture
def root(tmp_path):
    pages = tmp_path / "wikipedia"
    pages.mkdir()
    (pages / "A.txt").write_text(
        " Caf\u00e9\n\nsunset\nboulevard, Sunset Blvd."
    )
    (pages / "B.txt").write_text("w " * 399 + "London Paris")
    questions = [
        question(
            1, ["A.txt", "C.txt", "A.txt"], "Sunset Boulevard", ["sunset"]
        ),
        question(2, ["B.txt"], "Paris"),
        question(3, ["B.txt", "A.txt"], "London", ["CAF\u00c9"]),
    ]
    (tmp_path / "qa.json").write_text(json.dumps({"Data": questions}))
    return tmp_path


def test_pages_with_an_answer_in_their_first_400_words_are_kept(root):
    made, counts = triviaqa.convert(
        str(root / "qa.json"), str(root / "wikipedia")
    )
    assert counts == dict(
        questions=3, pages=5, missing=1, without_answer=1, kept=3
    )
    found = {
        qa["id"]: (qa["answers"][0], paragraph["context"])
        for article in made["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    }
    assert sorted(found) == ["tc_1--A.txt", "tc_3--A.txt", "tc_3--B.txt"]
    for answer, context in found.values():
        start = answer["answer_start"]
        text = answer["text"]
        assert context[start : start + len(text)] == text
    # The longest at the first position, as the page spells and spaces it.
    assert found["tc_1--A.txt"][0]["text"] == "sunset\nboulevard"
    assert found["tc_3--A.txt"][0]["text"] == "Caf\u00e9"
    assert len(found["tc_3--B.txt"][1].split()) == 400


def test_aliases_are_whole_words():
    assert triviaqa.find_alias("Parisians like it", ["Paris"]) is None
    assert triviaqa.find_alias("U.S. (paris)", ["Paris"]).start == 6
    assert triviaqa.find_alias("so, U.S.", ["U.S."]).text == "U.S."
    assert triviaqa.find_alias("Rene, Ren\u00e9", ["ren\u00e9"]).start == 6
    for text in ("\u212aIS\u017f", "kiss", "K\u0131ss", "K\u0130SS"):
        assert triviaqa.find_alias(f"a {text}", ["KIss"]).text == text


def test_the_command_writes_what_run_squad_reads(root, capsys):
    output = root / "made" / "train.json"
    argv = [
        "triviaqa",
        f"--input_file={root / 'qa.json'}",
        f"--evidence_dir={root / 'wikipedia'}",
        f"--output_file={output}",
    ]
    config_flags.run(triviaqa.TriviaqaConfig, triviaqa.main, argv)
    shown = capsys.readouterr().out
    assert "3 pages with an answer, of 5" in shown
    assert "1 do not exist, 1 have no answer" in shown
    # One article a line, between those that open and close the list.
    lines = output.read_text().splitlines()
    articles = [json.loads(line.removesuffix(",")) for line in lines[1:-1]]
    assert [article["title"] for article in articles] == ["A", "B"]
    other = root / "squad.json"
    qa = {"id": "1", "question": "?", "answers": []}
    qa["answers"] = [{"text": "b", "answer_start": 2}]
    paragraph = {"context": "a b", "qas": [qa]}
    other.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    both = dataset.for_training(dataset.read(f"{output},{other}"))
    assert len(both) == 4  # None is left out.


def test_what_the_user_can_mend_is_named(root):
    with pytest.raises(errors.InputError, match="none of the 5 pages"):
        triviaqa.convert(str(root / "qa.json"), str(root / "nowhere"))
    bad = root / "bad.json"
    for values, message in (
        ({"data": []}, "missing required field Data"),
        ({"Data": [{"Question": "?"}]}, r"Data\[0\]: .* field QuestionId"),
        (
            {"Data": [question(1, ["../secret"], "x")]},
            "outside of the evidence",
        ),
    ):
        bad.write_text(json.dumps(values))
        with pytest.raises(errors.InputError, match=message):
            triviaqa.convert(str(bad), str(root))


@pytest.mark.parametrize(
    ("context", "alias", "text"),
    [
        ("He saw Schindler\u2019s List.", "schindler s list", None),
        ("by Jay-Z now", "Jay Z", "Jay-Z"),
        ("In Washington,  D.C., he", "washington d c", "Washington,  D.C"),
        ("of AC/DC", "ac dc", "AC/DC"),
        ("Cafe\u0301 Noir", "Caf\u00e9 Noir", "Caf\u00e9 Noir"),
        ("It is C++.", "C++", "C++"),
        ("for $100", "$100", "$100"),
        ("Jay has nothing of Z", "Jay Z", ""),
        ("C is older", "C++", ""),
        ("what?", "?", ""),
    ],
)
def test_signs_between_the_words_of_an_alias_do_not_count(
    root, context, alias, text
):
    (root / "wikipedia" / "D.txt").write_text(context)
    made = question(1, ["D.txt"], alias)
    (root / "qa.json").write_text(json.dumps({"Data": [made]}))
    arguments = str(root / "qa.json"), str(root / "wikipedia")
    if text == "":
        with pytest.raises(errors.InputError, match="none of 1 questions has"):
            triviaqa.convert(*arguments)
        return
    found, _ = triviaqa.convert(*arguments)
    (paragraph,) = found["data"][0]["paragraphs"]
    (answer,) = paragraph["qas"][0]["answers"]
    expected = text or "Schindler\u2019s List"
    assert answer["text"] == expected
    start = answer["answer_start"]
    assert paragraph["context"][start : start + len(expected)] == expected


def test_a_normalized_alias_counts_where_no_other_is_found():
    answer = triviaqa.Aliases(Value="The Who", NormalizedValue="who")
    found = triviaqa.find_answer("One who founded The Who", answer)
    assert (found.text, found.start) == ("The Who", 16)
    assert triviaqa.find_answer("Who else?", answer).text == "Who"


def test_pages_are_found_in_other_case_and_form_and_others_named(root, caplog):
    (root / "wikipedia" / "Beyonce\u0301.txt").write_text("Paris")
    made = question(1, ["beyonc\u00e9.txt", "Nowhere.txt"], "Paris")
    made["EntityPages"].append({"Title": "no name"})
    (root / "qa.json").write_text(json.dumps({"Data": [made]}))
    arguments = str(root / "qa.json"), str(root / "wikipedia")
    with caplog.at_level("WARNING", logger="absl"):
        _, counts = triviaqa.convert(*arguments)
    assert (counts["pages"], counts["missing"], counts["kept"]) == (3, 2, 1)
    assert "1: Nowhere.txt, " in caplog.text
    assert "1: a page without a name" in caplog.text
    (root / "qa.json").write_text(json.dumps({"Data": [made, made]}))
    with pytest.raises(errors.InputError, match="question 2: tc_1--.* twice"):
        triviaqa.convert(*arguments)
