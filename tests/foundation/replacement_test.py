"""Tests how functions are replaced, and for how long.

python -m pytest tests/foundation/replacement_test.py
"""

from foundation import replacement


@replacement.replaceable
def double(x, *, offset=0):
    """Doubles."""
    return 2 * x + offset


def choose(function):
    assert function.__name__ == "double"
    return lambda x, *, offset=0: ("replaced", function(x, offset=offset))


def test_a_function_is_replaced_only_inside():
    assert double(3) == 6
    with replacement.using(choose):
        assert double(3, offset=1) == ("replaced", 7)
        with replacement.using(None):
            assert double(3) == 6
        assert double(3) == ("replaced", 6)
    assert double(3) == 6
