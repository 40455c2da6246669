"""Proves that docstrings become documents of prose and nothing else.

python -m pytest tests/data/docstrings_test.py
"""

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
