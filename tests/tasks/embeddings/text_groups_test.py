"""Proves that texts to compare are read as their columns say, or warned of.

python -m pytest tests/tasks/embeddings/text_groups_test.py
"""

import pytest

from foundation import errors
from tasks.embeddings import text_groups


def open_groups(folder, **files):
    """Returns the groups of a folder of tables: name -> text."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    groups = text_groups.open_groups(str(folder), "--train_file")
    groups.texts.check()
    return groups


@pytest.mark.parametrize(
    ("max_score", "warned"), [(5, "largest score is 1,"), (1, ""), (2, "")]
)
def test_a_max_score_of_another_scale_is_logged(
    tmp_path, caplog, max_score, warned
):
    last = "1" if max_score > 2 else f"{max_score}"
    text = f"sentence1,sentence2,score\na,b,0.2\nc,d,{last}\n"
    groups = open_groups(tmp_path, a_csv=text)
    with caplog.at_level("WARNING", logger="absl"):
        groups.scores(max_score)
    assert warned in caplog.text and bool(caplog.text) == bool(warned)


@pytest.mark.parametrize(
    ("files", "warned"),
    [
        (
            {"a_csv": "anchor,positive,score\na,b,1\n"},
            "a.csv: read are the columns anchor, positive, but not score",
        ),
        (
            {"a_csv": "anchor,positive,negative_1,negative_2\na,b,c,d\n"},
            "but not negative_1, negative_2",
        ),
        (
            {
                "a_csv": "anchor,positive\na,b\n",
                "b_csv": "anchor,positive,negative\na,b,c\n",
            },
            "b.csv: read are the columns anchor, positive, but not negative",
        ),
        (
            {"a_tsv": "sentence1\tsentence2\tscore\tgold_label\na\tb\t1\t-\n"},
            "but not gold_label",
        ),
        (
            {"a_csv": "anchor,positive,label\na,b,1\nc,d,0\n"},
            "but not label",
        ),
        ({"a_csv": "sentence1,sentence2,score,label\na,b,1,0\n"}, ""),
        ({"a_csv": "anchor,positive,negative,id\na,b,c,1\n"}, ""),
    ],
    ids=["score", "several", "later", "gold", "label", "other label", "none"],
)
def test_columns_that_are_not_read_are_logged(tmp_path, caplog, files, warned):
    with caplog.at_level("WARNING", logger="absl"):
        open_groups(tmp_path, **files)
    assert warned in caplog.text and bool(caplog.text) == bool(warned)


def test_a_column_named_twice_is_refused_where_quotes_are_text(tmp_path):
    text = "sentence1\tsentence2\tscore\tscore\na\tb\t1\t2\n"
    with pytest.raises(errors.InputError, match="a.tsv: .* 'score' twice"):
        open_groups(tmp_path, a_tsv=text)


@pytest.mark.parametrize(
    ("cell", "is_warned"),
    [
        ('"He said ""hi"" to me"', True),
        ('"Hi, Sam"', False),
        ('"Hi" he said, "Sam"', False),
        ('he said ""hi""', False),
    ],
)
def test_quoted_cells_are_warned_of_where_quotes_are_text(
    tmp_path, caplog, cell, is_warned
):
    text = f"sentence1\tsentence2\tscore\na\tb\t1\n{cell}\tb\t0\n"
    groups = open_groups(tmp_path, a_tsv=text)
    assert [x.first for x in groups.texts] == ["a", cell]
    assert ("a.tsv:3: the quotation marks" in caplog.text) == is_warned


def test_entailed_texts_that_are_lost_are_counted(tmp_path, caplog):
    rows = ["sentence1,sentence2,gold_label"]
    rows += ["p1,a,entailment", "p1,b,contradiction"]
    rows += ["p2,c,entailment"]
    (tmp_path / "few").mkdir()
    open_groups(tmp_path / "few", a_csv="\n".join(rows) + "\n")
    assert not caplog.text
    rows += ["p3,d,entailment", "p4,e,neutral"]
    (tmp_path / "many").mkdir()
    open_groups(tmp_path / "many", a_csv="\n".join(rows) + "\n")
    assert "a.csv:4: no contradicted text for this premise" in caplog.text
    assert "2 of 3 entailed texts" in caplog.text
