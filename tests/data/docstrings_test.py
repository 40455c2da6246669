"""Proves that docstrings become documents of prose and nothing else.

python -m pytest tests/data/docstrings_test.py
"""

import json

import pytest

from data import docstrings

MODULE = '''
"""Fits curves to measured points, in one dimension.

The residuals are weighed by their standard deviation before
they are squared.

Parameters: x, y and the weights of the points.

>>> fit([1, 2], [3, 4])
"""

def fit(x, y):
    """Returns the ``best`` line through all of the points.

    ======  =====
    a       b
    """

class Curve:
    """Returns the ``best`` line through all of the points."""
'''


def test_only_prose_is_kept_and_only_once(tmp_path):
    (tmp_path / "curves.py").write_text(MODULE)
    assert list(docstrings.documents([tmp_path / "curves.py"])) == [
        [
            "Fits curves to measured points, in one dimension.",
            "The residuals are weighed by their standard deviation before "
            "they are squared.",
            "Parameters: x, y and the weights of the points.",
            "Returns the best line through all of the points.",
        ]
    ]


def test_files_that_do_not_parse_are_passed_over(tmp_path):
    (tmp_path / "template.py").write_text("def {{ name }}(): pass")
    (tmp_path / "latin.py").write_bytes(b'"""\xe9."""')
    assert not list(docstrings.documents(sorted(tmp_path.iterdir())))


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """A folder of corpora, and how many documents they have."""
    folder = tmp_path_factory.mktemp("corpora")
    return folder, docstrings.collect(str(folder), num_characters=400_000)


def test_collected_corpora_are_documents_of_paragraphs(collected):
    folder, counts = collected
    train = (folder / "train.txt").read_text().split("\n\n")
    held_out = (folder / "heldout.txt").read_text().split("\n\n")
    assert (len(train) - 1, len(held_out) - 1) == counts
    assert counts[0] > 15 * counts[1] > 0
    assert not set(train[:-1]) & set(held_out[:-1])


def test_labeled_paragraphs_are_those_of_their_own_corpus(collected):
    folder, _ = collected
    for name in ("train", "heldout"):
        text = (folder / f"{name}.txt").read_text().splitlines()
        lines = (folder / f"{name}.jsonl").read_text().splitlines()
        labeled = [json.loads(line) for line in lines]
        assert {line["text"] for line in labeled} <= set(text)
        assert {line["package"] for line in labeled} <= set(docstrings.PACKAGES)
    # Every package has modules to train on.
    train = (folder / "train.jsonl").read_text()
    assert all(f'"package": "{x}"' in train for x in docstrings.PACKAGES)
