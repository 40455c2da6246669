"""Proves that entities of raw text have their characters.

python -m pytest tests/tasks/ner/entity_text_test.py
"""

import numpy as np

from tasks.ner import raw_text
from tasks.ner.raw_text import split


def test_entities_have_their_characters_and_probability():
    text = split("text", ["So Jim Henson died.", "", "Jim, Rome"])
    tags = "O B-PER I-PER O O B-PER O B-LOC".split()
    shares = np.array([1, 0.5, 0.5, 1, 1, 0.9, 1, 0.8])
    found = raw_text.lines(text, tags, shares)
    assert [len(line) for line in found] == [1, 0, 2]
    assert found[0] == [
        {
            "type": "PER",
            "start": 3,
            "end": 13,
            "text": "Jim Henson",
            "probability": 0.25,
        }
    ]
    marked = raw_text.marked(text.texts[2], found[2])
    assert marked == "[Jim PER], [Rome LOC]"


def test_the_model_says_whether_tags_are_plain_not_what_it_predicts():
    text = split("text", ["Jim sings"])
    shares = np.ones(2)
    assert raw_text.lines(text, ["O", "O"], shares) == [[]]
    tags = ["O", "B-X"]  # Plain ones may look like others.
    found = raw_text.lines(text, tags, shares, is_plain=True)
    assert [entity["type"] for entity in found[0]] == tags
