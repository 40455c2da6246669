"""Tests of the tables of texts that are compared.

python -m pytest tests/tasks/embeddings/text_groups_test.py
"""

import pytest

from foundation import errors
from tasks.embeddings import text_groups


def read(folder, text, name="a.csv", max_score=None):
    """Returns the texts and scores of a table, and the examples."""
    (folder / name).write_text(text)
    examples, columns = text_groups.open_groups(
        str(folder / name), "--train_file", max_score=max_score
    )
    return [x[1:] for x in examples], examples, columns


@pytest.mark.parametrize(
    ("name", "text", "expected", "unread"),
    [
        ("a.csv", "anchor,positive\na,b\n", [(("a", "b"), None)], []),
        (
            "a.csv",
            "anchor,negative,positive,id\na,c,b,1\n",
            [(("a", "b", "c"), None)],
            ["id"],
        ),
        (
            "a.jsonl",
            '{"sentence1": "a", "sentence2": "b", "score": 0.5}\n',
            [(("a", "b"), 0.5)],
            [],
        ),
        (
            "a.tsv",
            'sentence1\tscore\tsentence2\n"Hi" he\t1\t"b\n',
            [(('"Hi" he', '"b'), 1.0)],
            [],
        ),
    ],
)
def test_columns_say_what_is_compared(tmp_path, name, text, expected, unread):
    found, examples, columns = read(tmp_path, text, name)
    assert found == expected
    assert examples.unread == unread
    assert columns.num_texts == len(expected[0][0])


def test_scores_become_cosines(tmp_path):
    text = "sentence1,sentence2,score\na,b,5\nc,d,2.5\n"
    found, *_ = read(tmp_path, text, max_score=5)
    assert [label for _, label in found] == [1.0, 0.5]
    with pytest.raises(errors.InputError, match="a.csv:2: score 'x' is not"):
        read(tmp_path, text.replace("5\nc", "x\nc"))


def test_the_contradictions_of_a_premise_are_used_in_turn(tmp_path):
    rows = [
        "sentence1,sentence2,gold_label",
        *("p,a,entailment", "p,x,contradiction", "p,y,contradiction"),
        *("p,b,entailment", "p,c,entailment", "q,lost,entailment"),
        *("q,z,neutral", "q,z,-"),
    ]
    found, *_ = read(tmp_path, "\n".join(rows) + "\n")
    texts = [x for x, _ in found]
    assert texts == [("p", "a", "x"), ("p", "b", "y"), ("p", "c", "x")]
    with pytest.raises(errors.InputError, match="a.csv:2: gold_label 'maybe'"):
        read(tmp_path, f"{rows[0]}\np,a,maybe\n")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("question,answer\na,b\n", "wanted: anchor, positive; sentence1"),
        ("anchor,positive\n", "has no examples"),
    ],
)
def test_other_tables_are_refused(tmp_path, text, part):
    with pytest.raises(errors.InputError, match=part):
        read(tmp_path, text)
