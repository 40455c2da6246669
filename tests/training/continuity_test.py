"""Proves which settings a resumed run may change.

pytest tests/training/continuity_test.py
"""

import pytest

from foundation import errors
from training import loop


def check(old, new, **options):
    settings = loop.Settings(values={"flag": new}, fixed=["flag"], **options)
    settings.check("run", {"flag": old})


@pytest.mark.parametrize(
    ("old", "new"),
    [("16:3", "16:3,32:5"), (["a"], ["a", "b"]), ([], ["a"])],
    ids=["commas", "list", "nothing_yet"],
)
def test_a_list_that_is_read_in_turn_may_grow_at_its_end(old, new):
    check(old, new, extendable=["flag"])
    with pytest.raises(errors.InputError, match="--flag was"):
        check(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("16:3", "16:30"),
        ("16:3,32:5", "16:3"),
        ("16:3", "32:5,16:3"),
        (None, "16:3"),
        (["a"], ["b", "a"]),
        (1, 2),
    ],
    ids=["longer", "fewer", "before", "none", "list", "number"],
)
def test_what_was_read_already_may_not_change(old, new):
    with pytest.raises(errors.InputError, match="would go on with other rec"):
        check(old, new, extendable=["flag"])
    check(old, new, allows_changes=True)
