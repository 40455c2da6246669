"""Tests how functions are replaced, and for how long.

python -m pytest tests/foundation/replacement_test.py
"""

import pytest

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


def test_an_error_inside_ends_the_replacement():
    with pytest.raises(ValueError, match="wrong"), replacement.using(choose):
        raise ValueError("wrong")
    assert double(3) == 6


def test_a_replaceable_function_keeps_its_name_and_docstring():
    assert (double.__name__, double.__doc__) == ("double", "Doubles.")
