"""Proves that lines in capitals get the case that their words have elsewhere.

python -m pytest tests/tasks/ner/true_case_test.py
"""

import numpy as np
import pytest

from tasks.ner import true_case, word_files


def sentences(*rows):
    rows = [row.split() for row in rows]
    return word_files.Sentences(
        path="words.txt",
        words=[word for row in rows for word in row],
        lines=np.arange(sum(map(len, rows))) + 1,
        tags=None,
        row_splits=np.cumsum([0, *map(len, rows)]),
        documents=np.array([0, len(rows)]),
    )


@pytest.fixture
def forms():
    return true_case.learn(
        sentences(
            "Win after win for Japan , said the BBC .",
            "The win of Japan was lucky .",
            "SOCCER FOR THE LUCKY",
            "Soccer is played .",
            "We like soccer in Japan .",
        )
    )


def test_the_most_frequent_form_inside_of_sentences_counts(forms):
    assert forms["win"] == "win"
    assert forms["japan"] == "Japan"
    assert forms["bbc"] == "BBC"
    assert forms["soccer"] == "soccer"
    # Known from beginnings only: better than nothing.
    assert forms["we"] == "We"


def test_only_lines_in_capitals_change_and_no_word_is_lost(forms):
    found = true_case.apply(
        sentences(
            "SOCCER - JAPAN WIN 3-1 .",
            "Japan WIN .",
            "LEICESTERSHIRE BEAT BBC",
            "BBC",
            "1996 - 3",
        ),
        forms,
    )
    assert [" ".join(row) for row in found.split(found.words)] == [
        "soccer - Japan win 3-1 .",
        "Japan WIN .",
        "Leicestershire Beat BBC",
        "BBC",
        "1996 - 3",
    ]


def test_odd_words_stay_words(forms):
    found = true_case.apply(sentences("\u200b A\u0301B \ufb01 X \u00df"), forms)
    assert len(found.words) == 5
    assert all(found.words)
