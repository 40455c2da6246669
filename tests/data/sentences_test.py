"""Proves where prose is split into sentences, and where not.

pytest tests/data/sentences_test.py
"""

import time

import pytest

from data import sentences

MARKED = [
    "Dr. J. R. Smith paid $3.50. | Why? | (He was late.) | So it goes.",
    '"What?" he said. | "No!" | She left... and came back... | Then came.',
    "He lives in the U.S. Army camp. | He is in the U.S. | The camp is old.",
    "See Fig. 3 and pp. 5 of vol. 2 here. | Mr. and Mrs. Hall vs. Mt. Cook.",
    "Milk, eggs, etc. are here. | Milk, eggs, etc. | The rest is there.",
    "He was born c. 1500, i.e. early, e.g. Tuesday. | Version 2.0 is out.",
    "Yahoo! is a firm. | At 5 p.m. he left. | At 5 p.m. | He left.",
    "\u201cI came.\u201d | \u201cI saw.\u201d | The end.[3] | [4] More text.",
    "It was . . . odd. | Wait...! | What?! | Oh.",
    "Am 3. Oktober, im 19. Jahrhundert, z. B. so. | Das ist bzw. war es.",
    "Nach Abs. 2 gilt Hauptstr. 5 nicht. | In London. | 25 ran.",
    "Ver n\u00fam. 4 de hoy. | As\u00ed es.",
    "No mark at all",
    "Trailing abbreviation etc.",
    "...and so on. | Yes.",
    # Russian: a year, a city, initials.
    "\u0421 1990 \u0433. \u0432 \u0433. \u041e\u0440\u043b\u0435. | "
    "\u0410. \u0421. \u041f\u0443\u0448\u043a\u0438\u043d \u0442\u0430\u043c."
    " | "
    "\u0414\u0430.",
    # Hindi, Arabic.
    "\u0928\u092e\u0938\u0964 | \u0920\u0940\u0915 \u0939\u0948\u0964",
    "\u0643\u064a\u0641\u061f | \u0646\u0639\u0645.",
]


@pytest.mark.parametrize("marked", MARKED)
def test_prose_is_split_at_the_bars_only(marked):
    expected = marked.split(" | ")
    assert sentences.split(" ".join(expected)) == expected


def test_full_width_marks_need_no_space():
    expected = [
        "\u6211\u6765\u4e86\u3002",
        "\u4ed6\u8bf4\uff1a\u201c\u597d\uff01\u201d",
        "\u4f60\u5462\uff1f",
    ]
    assert sentences.split("".join(expected)) == expected


@pytest.mark.parametrize("text", ["", "   ", "\t\n"])
def test_nothing_gives_nothing(text):
    assert sentences.split(text) == []


def test_splitting_loses_nothing_but_space():
    text = 'A b. C d!  E (f. G) h? "I." J... k\tL. M\u3002N . . . O'
    joined = "".join("".join(x.split()) for x in sentences.split(text))
    assert joined == "".join(text.split())


@pytest.mark.parametrize(
    "blob", ["a" * 300_000 + " bone", "." * 300_000 + "x", "?!" * 150_000 + "x"]
)
def test_a_long_run_without_a_space_takes_no_longer_than_its_length(blob):
    started = time.process_time()
    assert sentences.split(f"{blob}. The end.") == [
        f"{blob}.",
        "The end.",
    ]
    # Hours, if it grew as the square.
    assert time.process_time() - started < 5
