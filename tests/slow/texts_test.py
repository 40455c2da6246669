"""Every way out gives the same results for 500 texts of each kind of task.

TEXTS=a.jsonl,b.txt COUNT=500 python -m pytest -s tests/slow/texts_test.py

The texts are those of the files (all strings of JSON lines, or the lines), and
others that are made of words, scripts, marks and emoji, some of them long.
"""

import json
import os
import pathlib
import random

import pytest

from tests.serving import exports
from tests.slow import parity

pytestmark = pytest.mark.all

COUNT = int(os.environ.get("COUNT", "60"))
FILES = [x for x in os.environ.get("TEXTS", "").split(",") if x]
# First and last character of some scripts.
_SCRIPTS = (
    *("az", "AZ", "\u00c0\u017f", "\u0391\u03c9", "\u0410\u044f"),
    *("\u05d0\u05ea", "\u0621\u064a", "\u0905\u0939", "\u0e01\u0e2e"),
    *("\u4e00\u9fa5", "\uac00\ud7a3", "\u3041\u3096", "\u1100\u1112"),
)
_MARKS = "\u0301\u0307\u05b8\u093f\u0e31\u200b\u200d\u00ad\ufe0f\u20e3"
_OTHERS = "\U0001f600\U0001f469\U0001f3fd\u00bd\ufb01\u2192\u20ac\u3000\u00a0"


def strings(value):
    """Yields all strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for x in value.values() if isinstance(value, dict) else value:
            yield from strings(x)


def read(path):
    for line in pathlib.Path(path).read_text(errors="ignore").splitlines():
        try:
            yield from strings(json.loads(line))
        except ValueError:
            yield line


def made(rng):
    """Returns a text; one of twenty is longer than a window."""
    words = []
    for _ in range(rng.choice([1, 3, 8, 15] * 5 + [120])):
        word = rng.choice(exports.WORDS[5:]).removeprefix("##")
        if rng.random() < 0.3:
            first, last = map(ord, rng.choice(_SCRIPTS))
            letters = rng.choices(range(first, last + 1), k=rng.randint(1, 6))
            word = "".join(map(chr, letters))
        if rng.random() < 0.2:
            place = rng.randrange(len(word) + 1)
            mark = rng.choice(_MARKS + _OTHERS)
            word = word[:place] + mark + word[place:]
        words.append(rng.choice([word, word.upper(), f"({word}),"]))
    return "".join(f"{x}{rng.choice(['', ' ', ' ', '  '])}" for x in words)


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(1)
    given = [x for path in FILES for x in read(path) if "\0" not in x]
    found = [*dict.fromkeys([*given, *exports.TEXTS[:3], *parity.CONTEXTS])]
    found = [x for x in found if x.strip()][:COUNT]
    return found + [made(rng) for _ in range(COUNT - len(found))]


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    tiny_models = exports.save_all(tmp_path_factory.mktemp("tiny"))
    return parity.more_models(tiny_models, tmp_path_factory.mktemp("all"))


@pytest.mark.parametrize("case", parity.CASES)
def test_all_ways_agree(case, texts, model_dirs, tmp_path):
    count = parity.check(case, texts, model_dirs, tmp_path / case)
    print(f"\n{case}: {len(texts)} texts, {count} ways: equal")
