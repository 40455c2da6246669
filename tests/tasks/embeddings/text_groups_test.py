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
        ({"a_csv": "anchor,positive,negative,id\na,b,c,1\n"}, ""),
    ],
    ids=["score", "several", "later", "label", "none"],
)
def test_columns_that_are_not_read_are_logged(tmp_path, caplog, files, warned):
    with caplog.at_level("WARNING", logger="absl"):
        open_groups(tmp_path, **files)
    assert warned in caplog.text and bool(caplog.text) == bool(warned)


def test_a_column_named_twice_is_refused_where_quotes_are_text(tmp_path):
    text = "sentence1\tsentence2\tscore\tscore\na\tb\t1\t2\n"
    with pytest.raises(errors.InputError, match="a.tsv: .* 'score' twice"):
        open_groups(tmp_path, a_tsv=text)
