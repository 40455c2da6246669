"""The kinds of sentence tasks, and the names of unnamed classes.

classification   one of C classes
regression       one value
multi_label      any of C labels
multiple_choice  one of K sequences
"""

CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, MULTIPLE_CHOICE = "multi_label", "multiple_choice"


def unnamed(count: int) -> list[str]:
    """Returns the names that transformers gives to unnamed classes."""
    return [f"LABEL_{i}" for i in range(count)]
