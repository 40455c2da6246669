"""Proves that raw text is split into words as CoNLL-2003 is.

python -m pytest tests/tasks/ner/raw_text_test.py
"""

import random

import pytest

from tasks.ner import raw_text


def words_of(line):
    sentences = raw_text.words(line, raw_text.split(line))
    return [word for sentence in sentences for word in sentence]


def test_raw_text_becomes_words_with_their_positions():
    lines = ["Jim Henson (U.S.), aged 53, died.  He's gone!", "", "1996-08-22"]
    places = list(map(raw_text.split, lines))
    assert list(map(raw_text.words, lines, places)) == [
        (
            tuple("Jim Henson ( U.S. ) , aged 53 , died .".split()),
            ("He", "'s", "gone", "!"),
        ),
        (),
        (("1996-08-22",),),
    ]
    assert places[0][1] == [(35, 37), (37, 39), (40, 44), (44, 45)]


WORDS = {
    "Germany's": "Germany 's",
    "GERMANY\u2019S team": "GERMANY \u2019S team",
    "don't they'll I'm we've you're he'd": (
        "do n't they 'll I 'm we 've you 're he 'd"
    ),
    "O'Brien o'clock d'affaires": "O'Brien o'clock d'affaires",
    "Germany 's did n't 's": "Germany 's did n't 's",
    "players' 'quoted' '": "players ' ' quoted ' '",
    # Hindi vowel signs; e and a combining accent; an emoji with its selector.
    "\u0939\u093f\u0928\u094d\u0926\u0940, x": (
        "\u0939\u093f\u0928\u094d\u0926\u0940 , x"
    ),
    "cafe\u0301.": "cafe\u0301 .",
    "\u2764\ufe0f!": "\u2764\ufe0f !",
}


@pytest.mark.parametrize("line, words", WORDS.items(), ids=map(ascii, WORDS))
def test_words_are_those_of_conll_2003(line, words):
    assert words_of(line) == words.split(" ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "\u5c0f\u660e\u5728,\u4ed6\u9ad8\u5174\u3002",
            "\u5c0f \u660e \u5728 , \u4ed6 \u9ad8 \u5174 \u3002",
        ),
        (
            "Obama\u2014who was in Paris\u2026said",
            "Obama \u2014 who was in Paris \u2026 said",
        ),
        ('"Hi,"she said', '" Hi , " she said'),
        ("1,000.5 of A,B (C)D", "1,000.5 of A , B ( C ) D"),
        ("and/or well-known 12:30 a@b.org", "and/or well-known 12:30 a@b.org"),
        ("NATO\u5317\u7ea6X-1", "NATO \u5317 \u7ea6 X-1"),
    ],
)
def test_words_are_divided_where_no_space_is(line, words):
    assert words_of(line) == words.split(" ")


def test_no_character_of_raw_text_but_space_is_lost():
    rng = random.Random(0)
    alphabet = "ab .,()'\"-\u4e00\u200b\u0301\ufffd\t\u00a0$!"
    for _ in range(300):
        line = "".join(rng.choices(alphabet, k=rng.randrange(40)))
        assert "".join(words_of(line)) == "".join(line.split())


def test_entities_have_their_characters_and_probability():
    texts = ["So Jim Henson died.", "", "Jim, Rome"]
    places = list(map(raw_text.split, texts))
    tags = ["O B-PER I-PER O O".split(), "B-PER O B-LOC".split()]
    probabilities = [1, 0.5, 0.5, 1, 1, 0.9, 1, 0.8]
    found = raw_text.find_entities(texts, places, tags, probabilities)
    assert found[0] == [
        {
            "type": "PER",
            "start": 3,
            "end": 13,
            "text": "Jim Henson",
            "probability": 0.25,
        }
    ]
    assert found[1] == [] and found[2][1]["probability"] == 0.8
    assert raw_text.marked(texts[2], found[2]) == "[Jim PER], [Rome LOC]"


def test_the_model_says_whether_tags_are_plain_not_what_it_predicts():
    places = [raw_text.split("Jim sings")]
    tags = [["O", "B-X"]]  # Plain ones may look like others.
    (found,) = raw_text.find_entities(
        ["Jim sings"], places, tags, [1, 1], is_plain=True
    )
    assert [entity["type"] for entity in found] == tags[0]
