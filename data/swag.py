"""SWAG's CSV files, and others in its columns, such as CODAH's.

    sent1 "A drum line ...", sent2 "Members of it", ending0 ... ending3, label
        -> 4 pairs: (sent1, sent2 + ending)

The test file has no label column.
"""

import os

import errors
from data import text_tables
from data.examples import Examples

FILES = {"train": "train.csv", "dev": "val.csv", "test": "test.csv"}
NUM_CHOICES = 4
LABELS = tuple(str(i) for i in range(NUM_CHOICES))


def read(split: str, data_dir: str | None, file: str | None = None) -> Examples:
    """Reads one split: the released name in data_dir, or another file."""
    if file is None:
        if data_dir is None:
            raise errors.InputError("--data_dir is required")
        file = os.path.join(data_dir, FILES[split])
    path = text_tables.find(file)
    rows = list(text_tables.read_named(path, "csv"))
    if not rows:
        raise errors.InputError(f"{path}: has no examples")
    first, second = [], []
    for row in rows:
        begins = text_tables.require(path, row, "sent2")
        for i in range(NUM_CHOICES):
            ending = text_tables.require(path, row, f"ending{i}")
            first.append(text_tables.require(path, row, "sent1"))
            second.append(f"{begins} {ending}".strip())
    labels = [row.cells.get("label", "") for row in rows]
    return Examples(
        path=path,
        lines=[row.line for row in rows],
        # The first column has no name: it numbers the rows.
        guids=[row.cells.get("", str(i)) for i, row in enumerate(rows)],
        first=first,
        second=second,
        labels=labels if any(labels) else None,
        num_choices=NUM_CHOICES,
    )
